//go:build faults

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

package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/test/check/trace"
)

const (
	// waitTimeout bounds waits for processes. It is generous because only a failing test waits so long.
	waitTimeout  = 180 * time.Second
	pollInterval = 100 * time.Millisecond
)

type testCluster struct {
	// work is the directory that the script in hack creates and removes.
	work string
	// Upstream connects to the API server as administrator, and so do config and the clients.
	trace.Upstream

	config *rest.Config
	kube   kubernetes.Interface
	foos   clientset.Interface

	control controlPlane
	etcd    *etcdClient
	names   atomic.Int64
}

// setUp connects to the cluster and restarts components that exit by themselves, until the test has ended.
func setUp(t *testing.T) *testCluster {
	t.Helper()
	c := &testCluster{work: os.Getenv("TEST_WORK")}
	if c.work == "" {
		t.Fatal("there is no cluster; run hack/e2e.sh outages or hack/e2e.sh failover")
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	c.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(c.work, "home", ".kube", "config"))
	must(err)
	c.config.QPS = -1
	c.URL, err = url.Parse(c.config.Host)
	must(err)
	c.Transport, err = rest.TransportFor(c.config)
	must(err)
	c.control, err = newControlPlane(filepath.Join(c.work, "cluster"))
	must(err)
	c.etcd = &etcdClient{url: c.control.find(etcdName).flag("listen-client-urls")}
	c.kube, c.foos = kubernetes.NewForConfigOrDie(c.config), clientset.NewForConfigOrDie(c.config)
	ctx, cancel := context.WithCancel(t.Context())
	var supervision sync.WaitGroup
	supervision.Go(func() { c.control.supervise(ctx) })
	t.Cleanup(func() {
		cancel()
		supervision.Wait()
	})
	return c
}

func (c *testCluster) uniqueName(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, c.names.Add(1))
}

// replica is one controller process behind its own proxy.
type replica struct {
	*trace.Process

	proxy *proxy
	// started is when the test saw that it had started its workers.
	started time.Time
	// stopping is set before the test terminates or kills the replica.
	stopping bool
}

func (r *replica) leads() bool {
	if r.started.IsZero() && strings.Contains(r.Output(), "Started workers") {
		r.started = time.Now()
	}
	return !r.started.IsZero()
}

func (r *replica) exited() bool {
	select {
	case <-r.Done:
		return true
	default:
		return false
	}
}

const (
	deployments = "deployments"
	foos        = "foos"
)

type request struct {
	trace.Request

	answered time.Time
	// holder is who has the Lease after a write to it.
	holder string
}

func (r *request) writesOurs() bool {
	return r.IsWrite() && (r.Resource == foos || r.Resource == deployments)
}

func (r *request) String() string {
	return r.Class(func(_, name string) string { return name })
}

// proxy is between one controller and the API server. It records requests, and can hold them.
type proxy struct {
	trace.Upstream

	address string
	server  *httptest.Server
	// http2 is not set where a broken watch must not make the controller list again.
	http2 bool
	// all holds all requests and watch events, watches the watches, and writes what is written to our objects.
	all, watches, writes barrier

	mu       sync.Mutex
	requests []*request
}

// listen accepts connections, at the same address each time.
func (p *proxy) listen() error {
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return err
	}
	p.server = trace.NewServer(p)
	err = p.server.Listener.Close()
	p.server.Listener, p.address = listener, listener.Addr().String()
	p.server.EnableHTTP2 = p.http2
	p.server.StartTLS()
	return err
}

// close refuses connections, as if there were no API server.
func (p *proxy) close() { trace.Close(p.server) }

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, incoming *http.Request) {
	p.all.wait(incoming.Context())
	to, ok := trace.ParsePath(incoming.URL.Path)
	read, body := trace.ReadRequest(incoming, to)
	switch isList := !read.IsWrite() && to.Name == ""; {
	case ok && isList && incoming.URL.Query().Get("watch") != "":
		p.serveWatch(w, incoming, to.Resource)
	case !ok || isList:
		p.Forward(incoming, body).Write(w)
	default:
		p.serveRequest(w, incoming, &request{Request: *read}, body)
	}
}

func (p *proxy) serveRequest(w http.ResponseWriter, incoming *http.Request, r *request, body []byte) {
	r.At = time.Now()
	p.mu.Lock()
	p.requests = append(p.requests, r)
	p.mu.Unlock()
	if r.writesOurs() {
		p.writes.wait(incoming.Context())
	}
	response := p.Forward(incoming, body)
	p.mu.Lock()
	r.answered = time.Now()
	if object := r.Answered(response); object != nil {
		r.holder, _, _ = unstructured.NestedString(object.Object, "spec", "holderIdentity")
	}
	p.mu.Unlock()
	response.Write(w)
}

// serveWatch forwards a watch, and breaks it after it was held: the controller watches on from its last version.
func (p *proxy) serveWatch(w http.ResponseWriter, incoming *http.Request, resource string) {
	p.watches.wait(incoming.Context())
	p.Watch(w, incoming, func(code int) { p.noteExpired(resource, code) }, func(e *trace.Event) bool {
		if p.watches.wait(incoming.Context()) || p.all.wait(incoming.Context()) {
			panic(http.ErrAbortHandler)
		}
		var status struct{ Code int }
		if e.Type == watch.Error && json.Unmarshal(e.Object, &status) == nil {
			p.noteExpired(resource, status.Code)
		}
		trace.Send(w, trace.MustEncode(e))
		return true
	})
}

// noteExpired records that a watch got 410 Gone, as a read.
func (p *proxy) noteExpired(resource string, code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if code == http.StatusGone {
		r := &request{Request: trace.Request{Verb: http.MethodGet, Code: code}}
		r.Resource = resource
		p.requests = append(p.requests, r)
	}
}

func (p *proxy) recorded() (copies []request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		copies = append(copies, *r)
	}
	return copies
}

// barrier holds requests while it is closed. The zero value is open.
type barrier struct{ mu sync.RWMutex }

// close holds requests until the caller calls open.
func (b *barrier) close() (open func()) {
	b.mu.Lock()
	return sync.OnceFunc(b.mu.Unlock)
}

// wait waits while the barrier is closed, and reports whether it was. A request whose client is gone ends then.
func (b *barrier) wait(ctx context.Context) bool {
	if b.mu.TryRLock() {
		b.mu.RUnlock()
		return false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	return true
}
