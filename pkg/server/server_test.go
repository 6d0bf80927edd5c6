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
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// get returns the status code and the body.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// startServer serves the handler, with TLS if secure, until stop is called.
func startServer(t *testing.T, secure bool, handler http.HandlerFunc) (url string, stop func() error) {
	t.Helper()
	var config *tls.Config
	scheme, err := "http://", error(nil)
	if secure {
		scheme = "https://"
		if config, err = NewTLSConfig(t.Context(), "", ""); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Listen(t.Context(), "test", "test-bind-address", "127.0.0.1:0", handler, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Serve(ctx) }()
	return scheme + s.Address(), func() error {
		cancel()
		return <-result
	}
}

func TestServeCutsOffARequestThatHangs(t *testing.T) {
	arrived, answered := make(chan struct{}), make(chan bool, 1)
	url, stop := startServer(t, false, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	go func() {
		response, err := http.Get(url)
		if err == nil {
			response.Body.Close()
		}
		answered <- err == nil
	}()
	<-arrived
	if err := stop(); err != nil {
		t.Errorf("the end is reported as %v", err)
	}
	if <-answered {
		t.Error("the request was answered")
	}
}

func TestHandlers(t *testing.T) {
	check := func(name string, err error) []Check { return []Check{NewCheck(name, func() error { return err })} }
	starting := NewHealthHandler(check("workers", nil), check("crd", errors.New("not yet")))
	stuck := NewHealthHandler(check("workers", errors.New("stuck")), check("crd", nil))
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })
	plain, profiling := NewMetricsHandler(metrics, false), NewMetricsHandler(metrics, true)
	for _, test := range []struct {
		sentence string
		handler  http.Handler
		url      string
		code     int
		body     string
	}{
		{"alive from the start", starting, "/livez", http.StatusOK, "ok"},
		{"not ready while a check fails", starting, "/readyz", http.StatusInternalServerError, "[-]crd failed"},
		{"each check has a path", starting, "/readyz/crd", http.StatusInternalServerError, "not yet"},
		{"ready when no check fails", stuck, "/readyz", http.StatusOK, "ok"},
		{"not alive when a check fails", stuck, "/livez?verbose", http.StatusInternalServerError, "[-]workers failed"},
		{"metrics", plain, "/metrics", http.StatusOK, "metrics"},
		{"no profiles", plain, "/debug/pprof/", http.StatusNotFound, ""},
		{"a list of profiles", profiling, "/debug/pprof/", http.StatusOK, "goroutine"},
		{"the command line", profiling, "/debug/pprof/cmdline", http.StatusOK, "test"},
		{"symbols", profiling, "/debug/pprof/symbol", http.StatusOK, "num_symbols"},
		{"a profile", profiling, "/debug/pprof/heap", http.StatusOK, ""},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			w := httptest.NewRecorder()
			test.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, test.url, nil))
			if w.Code != test.code || !strings.Contains(w.Body.String(), test.body) {
				t.Errorf("answer %d %q, want %d with %q", w.Code, w.Body, test.code, test.body)
			}
		})
	}
}

// accepting is a listener that accepts one connection.
type accepting struct {
	net.Listener

	next net.Conn
}

func (a *accepting) Accept() (net.Conn, error) { return a.next, nil }

// from is a connection of a client with that address.
type from struct {
	net.Conn

	address string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 1} }

// TestConnections: in each row the connections are accepted in the order of their names, those from n
// on from another address; a capital letter says that a request was answered on that connection.
func TestConnections(t *testing.T) {
	for sentence, c := range map[string]struct{ does, open string }{
		"as many as the limit":          {"abcd", "abcd"},
		"the oldest without an answer":  {"abcde", "bcde"},
		"and again":                     {"abcdef", "cdef"},
		"one with an answer stays":      {"aAbcde", "acde"},
		"also beside many":              {"aAbcdefghi", "aghi"},
		"the last answer longest ago":   {"aAbBcCdDe", "bcde"},
		"an answer later counts":        {"aAbBcCdDaAe", "acde"},
		"half may be without an answer": {"aAbBcCdef", "bcef"},
		"more than half may not":        {"aAbBcdef", "abef"},
		"of the address with the most":  {"nabcd", "bcdn"},
		"and again of that one":         {"nabcde", "cden"},
		"with answers as well":          {"nNaAbBcCd", "bcdn"},
		"a closed one counts no longer": {"abcd-ae", "bcde"},
		"an answer on a closed one":     {"abcd-aAe", "bcde"},
		"closed twice":                  {"abcd-a-ae", "bcde"},
	} {
		t.Run(sentence, func(t *testing.T) {
			listener := &accepting{}
			l := &connections{Listener: listener, limit: 4}
			all, clients := map[rune]*connection{}, map[rune]net.Conn{}
			closing := false
			for _, name := range c.does {
				switch {
				case name == '-':
					closing = true
				case closing:
					_ = all[name].Close()
					closing = false
				case name < 'a':
					l.answer(all[name-'A'+'a'])
				case all[name] == nil:
					server, client := net.Pipe()
					listener.next = from{server, map[bool]string{true: "10.0.0.2", false: "10.0.0.1"}[name >= 'n']}
					accepted, err := l.Accept()
					if err != nil {
						t.Fatal(err)
					}
					all[name], clients[name] = accepted.(*connection), client
				}
			}
			var open []rune
			for name, conn := range all {
				if conn.list != nil {
					open = append(open, name)
					_ = conn.Close()
				} else if _, err := clients[name].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("%c is not closed: %v", name, err)
				}
			}
			slices.Sort(open)
			if string(open) != c.open {
				t.Errorf("open are %s, want %s", string(open), c.open)
			}
			if left := l.unanswered.Len() + l.answered.Len(); left != 0 {
				t.Errorf("%d closed connections are counted", left)
			}
		})
	}
}

// TestRequestsOfAConnection: a connection has eight requests at a time, on which the webhooks' bound of
// memory depends. The client opens another one for the ninth.
func TestRequestsOfAConnection(t *testing.T) {
	const requests = 9
	arrived, answer := make(chan string, requests+1), make(chan struct{}, requests+1)
	url, stop := startServer(t, true, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.RemoteAddr
		<-answer
	})
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport}
	// The first answer tells the client of the limit.
	answer <- struct{}{}
	get(t, client, url)
	<-arrived
	var sending sync.WaitGroup
	for range requests {
		sending.Go(func() { get(t, client, url) })
	}
	byConnection := map[string]int{}
	for range requests {
		byConnection[<-arrived]++
	}
	close(answer)
	sending.Wait()
	transport.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if most := slices.Max(slices.Collect(maps.Values(byConnection))); most != 8 {
		t.Errorf("a connection had %d requests at a time, want 8", most)
	}
}

// TestClosedConnectionEndsItsRequests: a request whose body the server does not read ends with its connection.
func TestClosedConnectionEndsItsRequests(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived, ended := make(chan struct{}), make(chan struct{})
	server := &http.Server{ConnContext: connContext, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(ended)
	})}
	go func() { _ = server.Serve(&connections{Listener: listener, limit: 1}) }()
	for _, header := range []string{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", ""} {
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		if _, err := io.WriteString(client, header); err != nil {
			t.Fatal(err)
		}
		<-arrived
	}
	<-ended
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

// TestServe answers over a connection while many others send nothing, or not all of their header,
// and closes those first.
func TestServe(t *testing.T) {
	for name, config := range map[string]*tls.Config{"HTTP/1": nil, "HTTP/2": {InsecureSkipVerify: true, NextProtos: []string{"h2"}}} {
		t.Run(name, func(t *testing.T) {
			unfinished := "POST / HTTP/1.1\r\nContent-Length: 16777216\r\n"
			if config != nil {
				// The header of a TLS record that announces a ClientHello.
				unfinished = "\x16\x03\x01\x02\x00\x01"
			}
			url, stop := startServer(t, config != nil, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
			_, address, _ := strings.Cut(url, "//")
			dialed := 0
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed++
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}}
			client := &http.Client{Transport: transport}
			ask := func() {
				t.Helper()
				if code, body := get(t, client, url); code != http.StatusOK || !strings.HasPrefix(body, name) {
					t.Errorf("answer %d %s", code, body)
				}
			}
			ask()
			if _, err := Listen(t.Context(), "test", "test-bind-address", address, nil, nil); err == nil ||
				!strings.HasPrefix(err.Error(), "--test-bind-address: ") || !strings.Contains(err.Error(), "address already in use") {
				t.Errorf("while the port is taken: error %v", err)
			}
			var hostile []net.Conn
			for i := range 2 * maxConnections {
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				hostile = append(hostile, conn)
				_, _ = io.WriteString(conn, unfinished[:i%len(unfinished)])
			}
			// Long before the timeout for a header.
			_ = hostile[0].SetReadDeadline(time.Now().Add(time.Second))
			if _, err := hostile[0].Read(make([]byte, 100)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the oldest connection without an answer is open, or its error is %v", err)
			}
			ask()
			if dialed != 1 {
				t.Errorf("the client had to dial %d times", dialed)
			}
			for _, conn := range hostile {
				_ = conn.Close()
			}
			transport.CloseIdleConnections()
			if err := stop(); err != nil {
				t.Errorf("an orderly end is reported as %v", err)
			}
			again, err := Listen(t.Context(), "test", "test-bind-address", address, nil, nil)
			if err != nil {
				t.Fatalf("the port is not free again: %v", err)
			}
			again.Close()
		})
	}
}

// newReviewer returns an API server that knows two tokens: scraper may get /metrics,
// stranger may do nothing.
func newReviewer() *fake.Clientset {
	client := &fake.Clientset{}
	client.AddReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		switch review.Spec.Token {
		case "scraper", "stranger":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: review.Spec.Token, UID: "uid of " + review.Spec.Token, Groups: []string{"a", "b"},
				Extra: map[string]authenticationv1.ExtraValue{"key": {"value"}},
			}}
		case "broken":
			return true, nil, errors.New("broken")
		}
		return true, review, nil
	})
	client.AddReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		spec := review.Spec
		complete := spec.UID == "uid of "+spec.User && strings.Join(spec.Groups, " ") == "a b" && fmt.Sprint(spec.Extra["key"]) == "[value]"
		review.Status.Allowed = complete && spec.User == "scraper" && *spec.NonResourceAttributes == authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}
		return true, review, nil
	})
	return client
}

func TestAuthorized(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
	const get, metrics, challenge = http.MethodGet, "/metrics", "Bearer"
	for _, test := range []struct {
		sentence, method, path, authorization string
		want                                  int
		challenge                             string
	}{
		{"a user with access is served", get, metrics, "Bearer scraper", http.StatusOK, ""},
		{"the scheme may be in any case", get, metrics, "bearer scraper", http.StatusOK, ""},
		{"a user without access is forbidden", get, metrics, "Bearer stranger", http.StatusForbidden, ""},
		{"access to one path is none to another", get, "/debug/pprof/heap", "Bearer scraper", http.StatusForbidden, ""},
		{"access by one verb is none by another", http.MethodPost, metrics, "Bearer scraper", http.StatusForbidden, ""},
		{"an unknown token is not authenticated", get, metrics, "Bearer forged", http.StatusUnauthorized, ""},
		{"anonymous requests are not authenticated", get, metrics, "", http.StatusUnauthorized, challenge},
		{"an empty token is not authenticated", get, metrics, "Bearer  ", http.StatusUnauthorized, challenge},
		{"another scheme is not authenticated", get, metrics, "Basic scraper", http.StatusUnauthorized, challenge},
		{"no request is served while reviews fail", get, metrics, "Bearer broken", http.StatusInternalServerError, ""},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			r := httptest.NewRequest(test.method, test.path, nil)
			r.Header.Set("Authorization", test.authorization)
			w := httptest.NewRecorder()
			Authorized(newReviewer(), served).ServeHTTP(w, r)
			if served := w.Body.String() == "served"; w.Code != test.want || served != (test.want == http.StatusOK) {
				t.Errorf("answer %d %q, want %d", w.Code, w.Body, test.want)
			}
			if got := w.Header().Get("WWW-Authenticate"); got != test.challenge {
				t.Errorf("WWW-Authenticate is %q, want %q", got, test.challenge)
			}
		})
	}
}

func TestDecisionsAreCachedForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newReviewer()
		handler := Authorized(client, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, step := range []struct {
			after   time.Duration
			token   string
			reviews int
		}{{0, "scraper", 2}, {decisionTTL - 1, "scraper", 0}, {0, "forged", 1}, {0, "forged", 0}, {0, "broken", 1}, {0, "broken", 1}, {2, "scraper", 2}} {
			time.Sleep(step.after)
			client.ClearActions()
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Authorization", "Bearer "+step.token)
			handler.ServeHTTP(httptest.NewRecorder(), r)
			if got := len(client.Actions()); got != step.reviews {
				t.Errorf("%d reviews of %s, want %d", got, step.token, step.reviews)
			}
		}
	})
}
