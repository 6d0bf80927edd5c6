/*
Copyright The sample-controller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// maxConnections is how many connections a port keeps. Each takes up to 64 KiB, and a little for
// each of its requests.
const maxConnections = 128

// connections is a listener that keeps at most limit connections. Beyond that it closes the one
// that is least likely to be of use: of the client address with the most connections, the
// oldest without an answer while those without one are more than half of all, otherwise the one
// whose last answer is longest ago. A limit that made new connections wait would let idle
// clients lock out all others.
type connections struct {
	net.Listener

	limit int

	mu sync.Mutex
	// unanswered are the connections without an answer, the oldest first; answered are the
	// others, the one whose last answer is longest ago first.
	unanswered, answered list.List
}

// connection is an element of one of the lists until it is closed.
type connection struct {
	net.Conn

	in *connections
	// address is the client's, without the port.
	address string
	// list and element are nil after the connection was removed.
	list    *list.List
	element *list.Element
	// cancel ends the contexts of its requests.
	cancel context.CancelFunc
}

// connectionKey is the key of the *connection in the context of a request.
type connectionKey struct{}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, in: l}
	// The address of another network than TCP has no port, and then all clients are equal.
	c.address, _, _ = net.SplitHostPort(accepted.RemoteAddr().String())
	if surplus := l.add(c); surplus != nil {
		// Its client sees a reset, and has nothing else to be told.
		_ = surplus.Close()
	}
	return c, nil
}

// add adds a connection and returns the one to close, nil if the limit is not exceeded.
func (l *connections) add(c *connection) *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.list, c.element = &l.unanswered, l.unanswered.PushBack(c)
	if l.unanswered.Len()+l.answered.Len() <= l.limit {
		return nil
	}
	from := &l.answered
	if l.unanswered.Len() > l.limit/2 {
		from = &l.unanswered
	}
	return firstOfMost(from)
}

// firstOfMost returns the first connection of the address that has the most connections in the list.
func firstOfMost(all *list.List) *connection {
	counts := map[string]int{}
	var found *connection
	for e := all.Back(); e != nil; e = e.Prev() {
		// Backwards, so that the last one found is the first one in the list.
		c := e.Value.(*connection)
		counts[c.address]++
		if found == nil || counts[c.address] >= counts[found.address] {
			found = c
		}
	}
	return found
}

// answer notes that a request of the connection was answered.
func (l *connections) answer(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.list != nil {
		c.list.Remove(c.element)
		c.list, c.element = &l.answered, l.answered.PushBack(c)
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.in.mu.Lock()
	if c.list != nil {
		c.list.Remove(c.element)
		c.list, c.element = nil, nil
	}
	c.in.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
	return c.Conn.Close()
}

// connContext is the ConnContext of a http.Server. The context ends when the connection is closed: over
// HTTP/1, net/http would notice that only after it has read the body.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	ctx, conn.(*connection).cancel = context.WithCancel(ctx)
	return context.WithValue(ctx, connectionKey{}, conn)
}

// noteAnswers returns a handler that tells the connections about the answers of next.
func noteAnswers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.in.answer(c)
		}
	})
}
