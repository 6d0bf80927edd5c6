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

package webhook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"
)

// pipes is a listener whose connections are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// port is an HTTP server that answers with the body, and after 10 s if that begins with "late".
type port struct {
	*testing.T

	connections pipes
}

func newPort(t *testing.T) port {
	p := port{t, make(pipes)}
	s := newServer(clock.RealClock{}, NewMetrics(metrics.NewKubeRegistry()))
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, ConvertPath, func(*http.Request) error { return nil }, func(ctx context.Context, body []byte) (any, error) {
			if strings.HasPrefix(string(body), "late") {
				time.Sleep(2 * bodyTimeout)
			}
			return string(body), ctx.Err()
		})
	})}
	go func() { _ = server.Serve(p.connections) }()
	t.Cleanup(func() {
		close(p.connections)
		_ = server.Close()
	})
	return p
}

// send returns the connection of a client that sends a body, of which it announces the length.
func (p port) send(length int, body string, header ...string) net.Conn {
	client, server := net.Pipe()
	p.connections <- server
	p.Cleanup(func() { _ = client.Close() })
	lines := append([]string{"POST /?timeout=19500ms HTTP/1.1", "Host: webhook", fmt.Sprintf("Content-Length: %d", length)}, header...)
	lines = append(lines, "Content-Type: application/json")
	go func() { _, _ = io.WriteString(client, strings.Join(lines, "\r\n")+"\r\n\r\n"+body) }()
	synctest.Wait()
	return client
}

// mustGet fails unless the client gets an answer with that code so long after begun.
func (p port) mustGet(client net.Conn, code int, begun time.Time, after time.Duration) {
	p.Helper()
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		p.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != code || time.Since(begun) != after {
		p.Errorf("%d %s after %v, %v; want %d after %v", response.StatusCode, text, time.Since(begun), err, code, after)
	}
}

// mustBeClosed fails unless the server closes the connection so long after begun.
func (p port) mustBeClosed(client net.Conn, begun time.Time, after time.Duration) {
	p.Helper()
	if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) || time.Since(begun) != after {
		p.Errorf("%d bytes, %v after %v, want the end after %v", n, err, time.Since(begun), after)
	}
}

// TestBodies: slow clients take little memory, and keep others waiting for a second each, and only those
// with large bodies.
func TestBodies(t *testing.T) {
	const small, large = maxSmallBody, maxSmallBody + 1
	whole := strings.Repeat("x", MaxBody)
	for sentence, test := range map[string]func(port, time.Time){
		"a small body is answered, a large one as well": func(p port, begun time.Time) {
			p.mustGet(p.send(small, whole[:small]), http.StatusOK, begun, 0)
			p.mustGet(p.send(MaxBody, whole), http.StatusOK, begun, 0)
		},
		"a client may take 5 s to send a small body": func(p port, begun time.Time) {
			p.mustGet(p.send(small, "x"), http.StatusRequestTimeout, begun, bodyTimeout)
		},
		"a client may take 1 s to send a large body": func(p port, begun time.Time) {
			p.mustGet(p.send(large, whole[:small]), http.StatusRequestTimeout, begun, largeBodyTimeout)
		},
		"small bodies that do not come keep nobody waiting": func(p port, begun time.Time) {
			for range 300 {
				p.send(small, "x")
			}
			p.mustGet(p.send(small, whole[:small]), http.StatusOK, begun, 0)
		},
		"large bodies take turns, small ones do not wait for them": func(p port, begun time.Time) {
			p.send(large, "x")
			next, small := p.send(large, whole[:large]), p.send(small, whole[:small])
			p.mustGet(small, http.StatusOK, begun, 0)
			p.mustGet(next, http.StatusOK, begun, largeBodyTimeout)
		},
		"a body of unknown length takes its turn": func(p port, begun time.Time) {
			p.send(large, "x")
			p.mustGet(p.send(0, "1\r\nx\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), http.StatusOK, begun, largeBodyTimeout)
		},
		"the time until its turn does not count": func(p port, begun time.Time) {
			for range 7 {
				p.send(large, "x")
			}
			p.mustGet(p.send(large, whole[:large]), http.StatusOK, begun, 7*largeBodyTimeout)
		},
		"a body whose turn does not come before the timeout of the request is refused": func(p port, begun time.Time) {
			for range 20 {
				p.send(large, "x")
			}
			p.mustGet(p.send(large, whole[:large]), http.StatusServiceUnavailable, begun, 19500*time.Millisecond)
			p.mustGet(p.send(large, whole[:large]), http.StatusOK, begun, 20*largeBodyTimeout)
		},
		"a client may take 1 s to read the answer to a large body": func(p port, begun time.Time) {
			client := p.send(large, whole[:large])
			p.mustGet(p.send(large, whole[:large]), http.StatusOK, begun, largeBodyTimeout)
			if n, err := io.Copy(io.Discard, client); n > large || err != nil {
				p.Errorf("%d bytes of the answer come later, %v", n, err)
			}
		},
		"a client may take 5 s to read the answer to a small body": func(p port, begun time.Time) {
			client := p.send(small, whole[:small])
			time.Sleep(bodyTimeout)
			synctest.Wait()
			p.mustBeClosed(client, begun, bodyTimeout)
		},
		"the rest of a refused body is read for 5 s": func(p port, begun time.Time) {
			client := p.send(small, "x", "Content-Type: text/plain")
			p.mustGet(client, http.StatusUnsupportedMediaType, begun, bodyTimeout)
			p.mustBeClosed(client, begun, bodyTimeout)
		},
		"an answer may take longer than the body": func(p port, begun time.Time) {
			p.mustGet(p.send(small, "late"+whole[:small-4]), http.StatusOK, begun, 2*bodyTimeout)
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(newPort(t), time.Now()) })
		})
	}
}
