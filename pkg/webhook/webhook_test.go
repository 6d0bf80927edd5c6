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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
)

// fixture is the handler of all webhooks, and what it counts and logs.
type fixture struct {
	handler *server
	logger  klog.Logger
	// closed gets the times at which connections are closed.
	closed chan time.Time
}

func newFixture(t testing.TB, lookups Lookups) *fixture {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	options := Options{Lookups: lookups, Metrics: NewMetrics(metrics.NewKubeRegistry()), Clock: clock.RealClock{}}
	return &fixture{NewHandler(options).(*server), logger, make(chan time.Time, 10)}
}

// send sends a body and returns the status code and the answer.
func (f *fixture) send(t *testing.T, path string, body io.Reader, change ...func(*http.Request)) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(klog.NewContext(t.Context(), f.logger), http.MethodPost, path, body)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	if kind := w.Header().Get("Content-Type"); w.Code == http.StatusOK && kind != "application/json" {
		t.Errorf("the answer is of the type %q", kind)
	}
	return w.Code, w.Body.String()
}

// ask sends a review and decodes the answer.
func (f *fixture) ask(t *testing.T, path, review string, answer any) {
	t.Helper()
	code, text := f.send(t, path, strings.NewReader(review))
	if err := json.Unmarshal([]byte(text), answer); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	if !regexp.MustCompile(`^{"kind":"\w+Review","apiVersion":"\w+.k8s.io/v1","response":{"uid":"review",`).MatchString(text) {
		t.Errorf("answer %s", text)
	}
}

// TestAnswers: each request is answered with the status code that says what is wrong, and is counted. A caller is
// told nothing about a panic, which the log has and which fails only that request. Admission verifies clients
// before it reads what they send; the API server shows no certificate for a conversion.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lookups := cached(nil, newFoo("owner", "d", "1"))
		lookups.Deployment = func(_, name string) *appsv1.Deployment {
			if name == "before" {
				panic("broken cache")
			}
			return nil
		}
		f := newFixture(t, lookups)
		f.handler.VerifyClient = func(r *http.Request) error {
			if r.RemoteAddr == "stranger" {
				return errors.New("no certificate")
			}
			return nil
		}
		same, get := func(*http.Request) {}, func(r *http.Request) { r.Method = http.MethodGet }
		stranger := func(r *http.Request) { r.RemoteAddr = "stranger" }
		length := func(length int64) func(*http.Request) { return func(r *http.Request) { r.ContentLength = length } }
		text := func(text string) io.Reader { return strings.NewReader(text) }
		// JSON may begin with whitespace. The length of this body is not announced.
		blanks := func(count int) io.Reader { return io.MultiReader(text(strings.Repeat(" ", count))) }
		unread, admission := iotest.ErrReader(errors.New("reset")), admissionOf(alpha(taking), "")
		panics := admissionOf(alpha(before), "") + strings.Repeat(" ", maxSmallBody)
		const tooLarge, noRequest = "larger than 16777216 bytes", "not a request of kind "
		counted, requests := f.handler.Metrics, map[[2]string]uint64{}
		for sentence, c := range map[string]struct {
			path   string
			body   io.Reader
			change func(*http.Request)
			code   int
			says   string
		}{
			"another path":         {"/", nil, same, 404, ""},
			"another method":       {ConvertPath, nil, get, 405, ""},
			"a refusal":            {ValidatePath, text(admission), same, 200, "held by Foo owner"},
			"another version":      {ConvertPath, text(conversionOf("none", alpha("{}"))), same, 200, "cannot convert"},
			"a stranger mutates":   {MutatePath, unread, stranger, 401, "no certificate\n"},
			"a stranger validates": {ValidatePath, unread, stranger, 401, "no certificate\n"},
			"a stranger converts":  {ConvertPath, text(conversionOf("v1beta1", alpha("{}"), alpha("{}"))), stranger, 200, "Success"},
			"no duration":          {ConvertPath + "?timeout=soon", unread, same, 400, `"soon" is not a positive duration`},
			"no body":              {ConvertPath, nil, same, 400, "decoding the body"},
			"the other kind":       {ConvertPath, text(admission), same, 400, noRequest + "apiextensions.k8s.io/v1"},
			"no request":           {MutatePath, text(strings.Replace(admission, `"request"`, `"x"`, 1)), same, 400, noRequest},
			"a maximum announced":  {ConvertPath, text("{}"), length(maxBody), 400, noRequest},
			"more announced":       {ConvertPath, unread, length(maxBody + 1), 413, tooLarge},
			"a maximum sent":       {MutatePath, blanks(maxBody), same, 400, "decoding the body"},
			"more sent":            {MutatePath, blanks(maxBody + 1), same, 413, tooLarge},
			"the connection ends":  {MutatePath, unread, same, 400, "reading the body: reset"},
			"a panic":              {ValidatePath, text(panics), same, 500, "internal error: see the log of the webhooks\n"},
		} {
			if code, answer := f.send(t, c.path, c.body, c.change); code != c.code || !strings.Contains(answer, c.says) {
				t.Errorf("%s: %d %s, want %d and %q", sentence, code, answer, c.code, c.says)
			}
			if path, _, _ := strings.Cut(c.path, "?"); c.code != 404 && c.code != 405 {
				requests[[2]string{path, strconv.Itoa(c.code)}]++
			}
		}
		for metric, want := range map[metrics.CounterMetric]float64{
			counted.refusals: 1, counted.panics: 1,
			counted.conversions.WithLabelValues("success"): 2, counted.conversions.WithLabelValues("failure"): 1,
		} {
			if got, _ := testutil.GetCounterMetricValue(metric); got != want {
				t.Errorf("%+v is %v, want %v", metric, got, want)
			}
		}
		for of, want := range requests {
			if got, _ := testutil.GetHistogramMetricCount(counted.requests.WithLabelValues(of[:]...)); got != want {
				t.Errorf("%d requests of %s are counted, want %d", got, of, want)
			}
		}
		log := f.logger.GetSink().(ktesting.Underlier).GetBuffer().Data()
		log = slices.DeleteFunc(log, func(entry ktesting.LogEntry) bool { return entry.Type != ktesting.LogError })
		if len(log) != 1 || !strings.Contains(log[0].Err.Error(), "broken cache") {
			t.Errorf("errors %+v, want that of the panic", log)
		}
		if !f.handler.large.TryAcquire(1) || !f.handler.reviews.TryAcquire(maxReviews) {
			t.Error("a turn was not given back")
		}
	})
}

// pipes is a listener whose connections are pipes: a write waits until it is read.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// serve serves the fixture until the end of the test. It returns what makes a connection.
func (f *fixture) serve(t *testing.T, protocols *http.Protocols) func(context.Context, string, string) (net.Conn, error) {
	accepting := make(pipes)
	server := &http.Server{Handler: f.handler, Protocols: protocols, ReadHeaderTimeout: time.Second}
	server.BaseContext = func(net.Listener) context.Context { return klog.NewContext(t.Context(), f.logger) }
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			f.closed <- time.Now()
		}
	}
	go func() { _ = server.Serve(accepting) }()
	t.Cleanup(func() {
		close(accepting)
		_ = server.Close()
		// net/http closes a connection half a second after the last answer.
		time.Sleep(time.Second)
	})
	return func(context.Context, string, string) (net.Conn, error) {
		conn, client := net.Pipe()
		accepting <- conn
		return client, nil
	}
}

// post is a request of which only a part of the body is sent.
type post struct {
	query  string
	length int64
	sent   string
}

// largeFoos is the review of a list of Foos, and its answer is large too.
func largeFoos() string {
	return conversionOf("v1beta1", slices.Repeat([]string{alpha(taking)}, 1000)...)
}

// mustWait fails unless a large body waits for another one for so long, and a small one does not wait.
func (f *fixture) mustWait(t *testing.T, long time.Duration) {
	t.Helper()
	for i, body := range []string{conversionOf("v1beta1", alpha(taking)), largeFoos()} {
		began := time.Now()
		code, answer := f.send(t, ConvertPath, strings.NewReader(body))
		if took, want := time.Since(began), time.Duration(i)*long; code != http.StatusOK || took != want {
			t.Errorf("%d %.100s after %v, want 200 after %v", code, answer, took, want)
		}
	}
}

// TestSlowClients: a client that is slow to send a body is refused, over both versions of HTTP. Of the large bodies
// one is read at a time.
func TestSlowClients(t *testing.T) {
	http1, http2 := &http.Protocols{}, &http.Protocols{}
	http1.SetHTTP1(true)
	http2.SetUnencryptedHTTP2(true)
	for sentence, c := range map[string]struct {
		post

		code  int
		took  time.Duration
		waits time.Duration
	}{
		"a small body has 5 s":                      {post{"", 10, "["}, 408, 5 * time.Second, 0},
		"the largest small body":                    {post{"", 32 << 10, "["}, 408, 5 * time.Second, 0},
		"a large one has 1 s":                       {post{"", 32<<10 + 1, "["}, 408, time.Second, time.Second},
		"a body of unknown length counts as large":  {post{"", -1, "["}, 408, time.Second, time.Second},
		"a body that is refused unread has 5 s":     {post{"?timeout=0", 10, ""}, 400, 5 * time.Second, 0},
		"the rest of a large body that is not read": {post{"?timeout=0", maxBody, ""}, 400, 0, 0},
	} {
		for _, protocols := range []*http.Protocols{http1, http2} {
			t.Run(fmt.Sprint(sentence, " ", protocols), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, cached(nil))
					transport, began := &http.Transport{Protocols: protocols, DialContext: f.serve(t, protocols)}, time.Now()
					t.Cleanup(transport.CloseIdleConnections)
					body, sends := io.Pipe()
					go func() { _, _ = io.WriteString(sends, c.sent) }()
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+ConvertPath+c.query, body)
					if err != nil {
						t.Fatal(err)
					}
					r.ContentLength = c.length
					var others sync.WaitGroup
					others.Go(func() {
						synctest.Wait()
						f.mustWait(t, c.waits)
					})
					response, err := transport.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					took := time.Since(began)
					others.Wait()
					_ = errors.Join(sends.Close(), response.Body.Close())
					if protocols == http2 && c.code != 408 {
						// HTTP/2 need not read what is refused.
						c.took = 0
					}
					if response.StatusCode != c.code || took != c.took {
						t.Errorf("%s after %v, want %d after %v", response.Status, took, c.code, c.took)
					}
				})
			})
		}
	}
}

// TestAnswersThatAreNotRead: a client has 5 s to read an answer, 1 s if the body is large, and 10 s to send the rest
// of what is refused and to read why. A large body has its turn until the answer is read or the client is gone, a
// refusal takes none.
func TestAnswersThatAreNotRead(t *testing.T) {
	small, large := conversionOf("v1beta1", alpha(taking)), largeFoos()
	for p, c := range map[post]struct{ closed, waits time.Duration }{
		{"", int64(len(small)), small}:                        {5 * time.Second, 0},
		{"", int64(len(large)), large}:                        {time.Second, time.Second},
		{"?timeout=0", 1, "x"}:                                {10 * time.Second, 0},
		{"", 32<<10 + 1, strings.Repeat("x", maxSmallBody+1)}: {10 * time.Second, 0},
		{"", 32<<10 + 1, "it leaves"}:                         {},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, began := newFixture(t, cached(nil)), time.Now()
			conn, _ := f.serve(t, nil)(t.Context(), "", "")
			if _, err := fmt.Fprintf(conn, "POST %s%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", ConvertPath, p.query, p.length, p.sent); err != nil {
				t.Fatal(err)
			}
			if c.closed == 0 {
				_ = conn.Close()
			}
			synctest.Wait()
			f.mustWait(t, c.waits)
			if took := (<-f.closed).Sub(began); took != c.closed {
				t.Errorf("%.80v: the server closes the connection after %v, want %v", p, took, c.closed)
			}
		})
	}
}

// TestReviews: an API server that does not answer delays a review for no longer than 2 s, and of all reviews
// 64 are decoded at a time. A request ends when the API server stops waiting for it, and with its
// connection.
func TestReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lookups := cached(nil, newFoo("owner", "d", "1"))
		lookups.MayGet = func(ctx context.Context, _ authenticationv1.UserInfo, _ authorizationv1.ResourceAttributes) bool {
			<-ctx.Done()
			return false
		}
		f, review := newFixture(t, lookups), admissionOf(alpha(taking), "")
		check := func(path, body string, want int, after time.Duration, change ...func(*http.Request)) {
			began := time.Now()
			code, answer := f.send(t, path, strings.NewReader(body), change...)
			if took := time.Since(began); took != after || code != want {
				t.Errorf("%s: %d %s after %v, want %d after %v", path, code, answer, took, want, after)
			}
		}
		var reviews sync.WaitGroup
		for range 64 {
			reviews.Go(func() { check(ValidatePath, review, http.StatusOK, 2*time.Second) })
		}
		synctest.Wait()
		check(MutatePath+"?timeout=500ms", review, http.StatusServiceUnavailable, time.Second/2)
		check(MutatePath, review, http.StatusOK, 2*time.Second-time.Second/2)
		reviews.Wait()
		f.handler.large.TryAcquire(1)
		for query, want := range map[string]int{"?timeout=2s": 2, "": 30, "?timeout=10h": 30} {
			check(ConvertPath+query, largeFoos(), http.StatusServiceUnavailable, time.Duration(want)*time.Second)
		}
		closed, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ends := func(r *http.Request) { *r = *r.WithContext(closed) }
		check(ConvertPath, largeFoos(), http.StatusServiceUnavailable, time.Second, ends)
	})
}
