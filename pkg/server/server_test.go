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
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	"k8s.io/client-go/util/cert"
)

// must returns the value if there is no error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// get returns the status code and the body.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, string(must(io.ReadAll(response.Body)))
}

// startServer serves the handler, with TLS if secure, until stop is called.
func startServer(t *testing.T, secure bool, handler http.HandlerFunc) (url string, stop func() error) {
	t.Helper()
	var config *tls.Config
	scheme := "http://"
	if secure {
		scheme, config = "https://", must(NewTLSConfig(t.Context(), "", ""))
	}
	s := must(Listen(t.Context(), "test", "test-bind-address", "127.0.0.1:0", handler, config))
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Serve(ctx) }()
	return scheme + s.Address(), func() error {
		cancel()
		return <-result
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

	address *net.TCPAddr
}

func (f from) RemoteAddr() net.Addr { return f.address }

// TestConnections: in each row the connections are accepted in the order of their names, those from n
// on from another address; a capital letter says that a request was answered on that connection.
func TestConnections(t *testing.T) {
	for sentence, c := range map[string]struct{ does, open string }{
		"as many as the limit":          {"abcd", "abcd"},
		"the oldest without an answer":  {"abcde", "bcde"},
		"one with an answer stays":      {"aAbcde", "acde"},
		"the last answer longest ago":   {"aAbBcCdDe", "bcde"},
		"an answer later counts":        {"aAbBcCdDaAe", "acde"},
		"half may be without an answer": {"aAbBcCdef", "bcef"},
		"more than half may not":        {"aAbBcdef", "abef"},
		"of the address with the most":  {"nabcd", "bcdn"},
		"with answers as well":          {"nNaAbBcCd", "bcdn"},
		"a closed one counts no longer": {"abcd-ae", "bcde"},
		"an answer on a closed one":     {"abcd-aAe", "bcde"},
	} {
		t.Run(sentence, func(t *testing.T) {
			listener := &accepting{}
			l := &connections{Listener: listener, limit: 4}
			all, closing := map[rune]*connection{}, false
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
					server, _ := net.Pipe()
					// One address for those before n, one for the others, and each has a port of its own.
					listener.next = from{server, &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(name/'n')), Port: int(name)}}
					all[name] = must(l.Accept()).(*connection)
				}
			}
			var open []rune
			for name, conn := range all {
				if conn.list != nil {
					open = append(open, name)
					_ = conn.Close()
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
	arrived, answer := make(chan string, requests), make(chan struct{}, requests)
	url, stop := startServer(t, true, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.RemoteAddr
		<-answer
	})
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport}
	// The first answer tells the client of the limit.
	answer <- struct{}{}
	get(t, client, url)
	first, of := <-arrived, 0
	var sending sync.WaitGroup
	for range requests {
		sending.Go(func() { get(t, client, url) })
	}
	for range requests {
		if <-arrived == first {
			of++
		}
	}
	close(answer)
	sending.Wait()
	transport.CloseIdleConnections()
	if err := stop(); err != nil || of != 8 {
		t.Errorf("the first connection had %d requests at a time, want 8, error %v", of, err)
	}
}

// TestServe answers over a connection while many others send nothing, or not all of a request, and
// closes those first. A request ends with its connection, although its body is not read, and with the
// server.
func TestServe(t *testing.T) {
	for name, config := range map[string]*tls.Config{"HTTP/1": nil, "HTTP/2": {InsecureSkipVerify: true, NextProtos: []string{"h2"}}} {
		t.Run(name, func(t *testing.T) {
			unfinished := "POST / HTTP/1.1\r\nContent-Length: 16777216\r\n"
			if config != nil {
				// The header of a TLS record that announces a ClientHello.
				unfinished = "\x16\x03\x01\x02\x00\x01"
			}
			arrived, ended := make(chan struct{}), make(chan struct{})
			url, stop := startServer(t, config != nil, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Proto)
				if r.URL.Path == "/hang" {
					arrived <- struct{}{}
					<-r.Context().Done()
					ended <- struct{}{}
				}
			})
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
				conn := must((&net.Dialer{}).DialContext(t.Context(), "tcp", address))
				hostile = append(hostile, conn)
				if i == 0 && config == nil {
					_, _ = io.WriteString(conn, "POST /hang HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
					<-arrived
				}
				_, _ = io.WriteString(conn, unfinished[:i%len(unfinished)])
			}
			if config == nil {
				<-ended
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
			answered := make(chan error, 1)
			go func() {
				response, err := client.Get(url + "/hang")
				if err == nil {
					_, err = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
				answered <- err
			}()
			<-arrived
			go func() { <-ended }()
			if err := stop(); err != nil {
				t.Errorf("an orderly end is reported as %v", err)
			}
			if <-answered == nil {
				t.Error("a request that hangs is answered")
			}
			if _, err := Listen(t.Context(), "test", "test-bind-address", address, nil, nil); err != nil {
				t.Errorf("the port is not free again: %v", err)
			}
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

// TestAuthorized sends the requests to one handler, in this order: it caches decisions for ten seconds.
func TestAuthorized(t *testing.T) {
	const get, metrics, challenge = http.MethodGet, "/metrics", "Bearer"
	synctest.Test(t, func(t *testing.T) {
		client := newReviewer()
		handler := Authorized(client, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
		for _, test := range []struct {
			sentence                            string
			after                               time.Duration
			method, path, authorization, answer string
			challenge                           string
			reviews                             int
		}{
			{"a user with access is served", 0, get, metrics, "Bearer scraper", "200 served", "", 2},
			{"access to one path is none to another", 0, get, "/debug/pprof/heap", "Bearer scraper", "403 forbidden", "", 2},
			{"access by one verb is none by another", 0, http.MethodPost, metrics, "Bearer scraper", "403 forbidden", "", 2},
			{"a user without access is forbidden", 0, get, metrics, "Bearer stranger", "403 forbidden", "", 2},
			{"an unknown token is not authenticated", 0, get, metrics, "Bearer forged", "401 unauthorized", "", 1},
			{"that is cached, too", 0, get, metrics, "Bearer forged", "401 unauthorized", "", 0},
			{"an empty token is not authenticated", 0, get, metrics, "Bearer  ", "401 a bearer token is required", challenge, 0},
			{"another scheme is not authenticated", 0, get, metrics, "Basic scraper", "401 a bearer token is required", challenge, 0},
			{"no request is served while reviews fail", 0, get, metrics, "Bearer broken", "500 the API server did not", "", 1},
			{"a failure is not cached", 0, get, metrics, "Bearer broken", "500 the API server did not", "", 1},
			{"the scheme may be in any case", decisionTTL - 1, get, metrics, "bearer scraper", "200 served", "", 0},
			{"a decision is reviewed again", 2, get, metrics, "Bearer scraper", "200 served", "", 2},
		} {
			time.Sleep(test.after)
			client.ClearActions()
			r := httptest.NewRequest(test.method, test.path, nil)
			r.Header.Set("Authorization", test.authorization)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if got := fmt.Sprint(w.Code, " ", w.Body); !strings.HasPrefix(got, test.answer) || w.Header().Get("WWW-Authenticate") != test.challenge {
				t.Errorf("%s: answer %q with the challenge %q", test.sentence, got, w.Header().Get("WWW-Authenticate"))
			}
			if got := len(client.Actions()); got != test.reviews {
				t.Errorf("%s: %d reviews, want %d", test.sentence, got, test.reviews)
			}
		}
	})
}

// TestCertificateIsReloaded replaces the files of the certificate as another program may.
func TestCertificateIsReloaded(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	replace := func(host string) error {
		certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		return errors.Join(err, os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600))
	}
	if err := replace("first"); err != nil {
		t.Fatal(err)
	}
	config := must(NewTLSConfig(t.Context(), certFile, keyFile))
	for _, step := range []struct {
		sentence string
		do       func() error
		host     string
	}{
		{"while certificate and key do not fit together", func() error { return os.WriteFile(keyFile, nil, 0o600) }, "first"},
		{"after their replacement", func() error { return replace("second") }, "second"},
		{"without its file", func() error { return os.Remove(certFile) }, "second"},
	} {
		err := step.do()
		served, serveErr := config.GetCertificate(&tls.ClientHelloInfo{})
		if err = errors.Join(err, serveErr); err != nil {
			t.Fatal(err)
		}
		if got := served.Leaf.DNSNames; got[0] != step.host {
			t.Errorf("%s the certificate is for %q, want %s", step.sentence, got, step.host)
		}
	}
}

// TestClientVerifier verifies the certificates of clients, which are their own authorities, also
// after the authorities were replaced.
func TestClientVerifier(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	client := must(cert.NewSelfSignedCACert(cert.Config{CommonName: "client"}, key))
	other := must(cert.NewSelfSignedCACert(cert.Config{CommonName: "other"}, key))
	servingPEM, _, err := cert.GenerateSelfSignedCertKey("serving", nil, nil)
	serving := must(cert.ParseCertsPEM(servingPEM))
	trust := func(of *x509.Certificate) error {
		text := pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: of.Raw})
		return os.WriteFile(file, append(text, servingPEM...), 0o600)
	}
	if err := errors.Join(err, trust(client)); err != nil {
		t.Fatal(err)
	}
	verifyRequest := must(NewClientVerifier(file))
	verify := func(shown ...*x509.Certificate) error {
		return verifyRequest(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: shown}})
	}
	if err := verify(client); err != nil {
		t.Error(err)
	}
	for sentence, err := range map[string]error{
		"no TLS": verifyRequest(&http.Request{}), "no certificate": verify(), "one of another authority": verify(other),
		"one for servers": verify(serving...),
	} {
		if err == nil {
			t.Errorf("%s is accepted", sentence)
		}
	}
	if err := errors.Join(trust(other), verify(other)); err != nil || verify(client) == nil {
		t.Errorf("the new authorities are not used, error %v", err)
	}
}
