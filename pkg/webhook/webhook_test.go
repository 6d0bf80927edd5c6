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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// fixture is a handler and its metrics.
type fixture struct {
	http.Handler

	registry metrics.KubeRegistry
}

func newFixture(lookups Lookups, change ...func(*Options)) *fixture {
	registry := metrics.NewKubeRegistry()
	options := Options{Lookups: lookups, Metrics: NewMetrics(registry), Clock: clock.RealClock{}}
	for _, c := range change {
		c(&options)
	}
	return &fixture{NewHandler(options), registry}
}

// send sends a body and returns the status code and the answer.
func (f *fixture) send(t *testing.T, path string, body io.Reader, change ...func(*http.Request)) (int, string) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, body)
	r.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	if kind := w.Header().Get("Content-Type"); w.Code == http.StatusOK && kind != "application/json" {
		t.Errorf("the answer is of the type %q", kind)
	}
	return w.Code, w.Body.String()
}

// panicking returns lookups that panic.
func panicking() Lookups {
	return Lookups{HasSynced: func() bool { panic("broken cache") }}
}

// TestBadRequests answers a bad request with the status code that says what is wrong.
func TestBadRequests(t *testing.T) {
	review := mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil))
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	kind := func(value string) func(*http.Request) { return header("Content-Type", value) }
	length := func(length int64) func(*http.Request) {
		return func(r *http.Request) { r.ContentLength = length }
	}
	get := func(r *http.Request) { r.Method = http.MethodGet }
	same := func(*http.Request) {}
	const tooLarge = "larger than 16777216 bytes"
	conversion := func(fields string) io.Reader {
		return strings.NewReader(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"` + fields + "}")
	}
	for sentence, c := range map[string]struct {
		path   string
		body   io.Reader
		change func(*http.Request)
		code   int
		says   string
	}{
		"another path":                         {"/", nil, same, 404, ""},
		"another method":                       {ConvertPath, nil, get, 405, ""},
		"another content type":                 {ConvertPath, nil, kind("application/yaml"), 415, `"application/yaml" is not application/json`},
		"no content type":                      {ConvertPath, nil, kind(""), 415, "Content-Type"},
		"a content type with a charset":        {ValidatePath, strings.NewReader(review), kind("application/json; charset=utf-8"), 200, ""},
		"a content type with a broken charset": {ValidatePath, nil, kind("application/json; charset"), 415, "Content-Type"},
		"a timeout that is not a duration":     {ConvertPath + "?timeout=soon", nil, same, 400, `timeout: "soon" is not a positive duration`},
		"a negative timeout":                   {ConvertPath + "?timeout=-1s", nil, same, 400, "timeout"},
		"a timeout of 0":                       {ConvertPath + "?timeout=0s", nil, same, 400, "timeout"},
		"a timeout":                            {ValidatePath + "?timeout=10s", strings.NewReader(review), same, 200, ""},
		"an empty body":                        {ConvertPath, nil, same, 400, "decoding the body"},
		"not JSON":                             {MutatePath, strings.NewReader("apiVersion: v1"), same, 400, "decoding the body"},
		"truncated JSON":                       {ValidatePath, strings.NewReader(review[:50]), same, 400, "decoding the body"},
		"JSON nested too deeply":               {ValidatePath, strings.NewReader(strings.Repeat(`{"request":`, 20_000)), same, 400, "decoding"},
		"another kind":                         {ConvertPath, strings.NewReader(review), same, 400, "apiextensions.k8s.io/v1, Kind=ConversionReview"},
		"the other kind":                       {MutatePath, conversion(`,"request":{}`), same, 400, "AdmissionReview"},
		"a conversion without a request":       {ConvertPath, conversion(""), same, 400, "not a request of kind"},
		"an admission without a request": {
			MutatePath, strings.NewReader(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`), same, 400, "not a request of kind",
		},
		"a Content-Length of the maximum":    {ConvertPath, strings.NewReader("{}"), length(maxBody), 400, "not a request of kind"},
		"a Content-Length above the maximum": {MutatePath, strings.NewReader("{}"), length(maxBody + 1), 413, tooLarge},
		"a body of the maximum":              {MutatePath, io.LimitReader(blanks{}, maxBody), same, 400, "decoding the body"},
		"a body above the maximum":           {MutatePath, io.LimitReader(blanks{}, maxBody+1), same, 413, tooLarge},
		"the connection breaks":              {MutatePath, iotest.ErrReader(errors.New("reset")), same, 400, "reading the body: reset"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if code, answer := newFixture(cached(nil)).send(t, c.path, c.body, c.change); code != c.code || !strings.Contains(answer, c.says) {
				t.Errorf("%d %s, want %d and %q", code, answer, c.code, c.says)
			}
		})
	}
}

// blanks reads as endless whitespace, with which JSON may begin.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	return copy(p, bytes.Repeat([]byte(" "), len(p))), nil
}

// TestPanic counts a panic, fails only that request, and tells the caller nothing about it.
func TestPanic(t *testing.T) {
	f := newFixture(panicking())
	large := mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil)) + strings.Repeat(" ", maxSmallBody)
	code, answer := f.send(t, ValidatePath, strings.NewReader(large))
	if code != http.StatusInternalServerError || answer != "internal error: see the log of the webhooks\n" {
		t.Errorf("%d %s", code, answer)
	}
	const want = `# HELP sample_controller_webhook_panics_total [ALPHA] Number of webhook requests that ended in a panic.
# TYPE sample_controller_webhook_panics_total counter
sample_controller_webhook_panics_total 1
`
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(want), "sample_controller_webhook_panics_total"); err != nil {
		t.Error(err)
	}
	if code, _ := f.send(t, MutatePath, strings.NewReader(large)); code != http.StatusOK {
		t.Errorf("the next request is answered with %d", code)
	}
}

// TestVerifyClient refuses requests for admission of other clients than the API server, before it reads
// them. The API server shows no certificate for a conversion.
func TestVerifyClient(t *testing.T) {
	f := newFixture(cached(nil), func(options *Options) {
		options.VerifyClient = func(*http.Request) error { return errors.New("no certificate") }
	})
	for _, path := range []string{MutatePath, ValidatePath} {
		code, answer := f.send(t, path, iotest.ErrReader(errors.New("it is read")))
		if code != http.StatusUnauthorized || answer != "no certificate\n" {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
	if code, answer := f.send(t, ConvertPath, strings.NewReader(conversionOf("v1beta1", alphaFoo))); code != http.StatusOK {
		t.Errorf("a conversion: %d %s", code, answer)
	}
}

// TestCounts counts each request by path and status code.
func TestCounts(t *testing.T) {
	f := newFixture(cached([]*v1alpha1.Foo{newFoo("owner", "d")}))
	f.send(t, ValidatePath, strings.NewReader(mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil))))
	f.send(t, ValidatePath, strings.NewReader(""))
	f.send(t, ConvertPath, strings.NewReader(conversionOf("v1beta1", alphaFoo, alphaFoo)))
	f.send(t, ConvertPath, strings.NewReader(conversionOf("none", alphaFoo)))
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			name := strings.TrimPrefix(family.GetName(), "sample_controller_webhook_")
			for _, pair := range m.Label {
				name += " " + pair.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"admission_refusals_total": 1, "conversions_total success": 2, "conversions_total failure": 1, "panics_total": 0,
		"request_duration_seconds 200 /validate-foo": 1, "request_duration_seconds 400 /validate-foo": 1,
		"request_duration_seconds 200 /convert-foo": 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
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

// dial is a client of a fixture that is served.
type dial func() net.Conn

// serve serves the fixture until the end of the test.
func (f *fixture) serve(t *testing.T, protocols *http.Protocols) dial {
	_, ctx := ktesting.NewTestContext(t)
	accepting, server := make(pipes), &http.Server{Handler: f, Protocols: protocols, ReadHeaderTimeout: time.Second}
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() { _ = server.Serve(accepting) }()
	t.Cleanup(func() {
		close(accepting)
		_ = server.Close()
		// net/http closes a connection half a second after the last answer.
		time.Sleep(time.Second)
	})
	return func() net.Conn {
		conn, client := net.Pipe()
		accepting <- conn
		return client
	}
}

// post is a request of which only a part of the body is sent.
type post struct {
	kind   string
	length int64
	sent   string
}

// begin sends the request and returns its connection.
func (d dial) begin(t *testing.T, p post) net.Conn {
	t.Helper()
	conn := d()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", ConvertPath, p.kind, p.length, p.sent)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestSlowClients: a client that is slow to send a body is refused, over both versions of HTTP.
func TestSlowClients(t *testing.T) {
	http1, http2 := &http.Protocols{}, &http.Protocols{}
	http1.SetHTTP1(true)
	http2.SetUnencryptedHTTP2(true)
	const text, json = "text/plain", "application/json"
	for sentence, c := range map[string]struct {
		post

		code int
		took time.Duration
	}{
		"a small body has 5 s":                      {post{json, 10, "["}, 408, bodyTimeout},
		"a large one has 1 s":                       {post{json, maxSmallBody + 1, "["}, 408, largeBodyTimeout},
		"a body of unknown length counts as large":  {post{json, -1, "["}, 408, largeBodyTimeout},
		"the largest small body":                    {post{json, maxSmallBody, "["}, 408, bodyTimeout},
		"a body that is refused unread has 5 s":     {post{text, 10, ""}, 415, bodyTimeout},
		"the rest of a large body that is not read": {post{text, maxBody, ""}, 415, 0},
	} {
		for _, protocols := range []*http.Protocols{http1, http2} {
			t.Run(fmt.Sprint(sentence, " ", protocols), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					connect := newFixture(cached(nil)).serve(t, protocols)
					transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
						return connect(), nil
					}}
					t.Cleanup(transport.CloseIdleConnections)
					body, sends := io.Pipe()
					go func() { _, _ = io.WriteString(sends, c.sent) }()
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+ConvertPath, body)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", c.kind)
					r.ContentLength = c.length
					began := time.Now()
					response, err := transport.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					took := time.Since(began)
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

// TestAnswerThatIsNotRead: a client has 5 s to read an answer, and 10 s to send the rest of what is refused and
// to read why.
func TestAnswerThatIsNotRead(t *testing.T) {
	review := conversionOf("v1beta1", alphaFoo)
	for p, timeout := range map[post]time.Duration{
		{"application/json", int64(len(review)), review}: bodyTimeout,
		{"text/plain", 1, "x"}:                           2 * bodyTimeout,
	} {
		for wait, want := range map[time.Duration]bool{timeout - time.Millisecond: true, timeout + time.Millisecond: false} {
			synctest.Test(t, func(t *testing.T) {
				conn := newFixture(cached(nil)).serve(t, nil).begin(t, p)
				time.Sleep(wait)
				got, _ := io.ReadAll(io.LimitReader(conn, 8))
				if answered := string(got) == "HTTP/1.1"; answered != want {
					t.Errorf("%s: after %v there is an answer: %t, want %t", p.kind, wait, answered, want)
				}
				_ = conn.Close()
			})
		}
	}
}

// TestLargeBodies: of the large bodies one is read, decoded and answered at a time. Small ones do not wait for it.
func TestLargeBodies(t *testing.T) {
	const kind = "application/json"
	foos := conversionOf("v1beta1", slices.Repeat([]string{alphaFoo}, 1000)...)
	for sentence, c := range map[string]struct {
		post

		leaves bool
		took   time.Duration
	}{
		"the client sends slowly":         {post{kind, maxSmallBody + 1, "["}, false, largeBodyTimeout},
		"the client does not read":        {post{kind, int64(len(foos)), foos}, false, largeBodyTimeout},
		"the client leaves":               {post{kind, maxSmallBody + 1, "["}, true, 0},
		"the refusal takes no turn":       {post{kind, maxSmallBody + 1, strings.Repeat("x", maxSmallBody+1)}, false, 0},
		"a body that is small takes none": {post{kind, maxSmallBody, "["}, false, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(cached(nil))
				conn := f.serve(t, nil).begin(t, c.post)
				defer func() { _ = conn.Close() }()
				if c.leaves {
					_ = conn.Close()
				}
				synctest.Wait()
				for _, other := range []struct {
					query, body string
					code        int
					took        time.Duration
				}{
					{"", conversionOf("v1beta1", alphaFoo), http.StatusOK, 0},
					{"?timeout=10ms", foos, http.StatusServiceUnavailable, 10 * time.Millisecond},
					{"", foos, http.StatusOK, c.took - 10*time.Millisecond},
				} {
					if c.took == 0 {
						other.code, other.took = http.StatusOK, 0
					}
					began := time.Now()
					code, answer := f.send(t, ConvertPath+other.query, strings.NewReader(other.body))
					if took := time.Since(began); code != other.code || took != other.took {
						t.Errorf("%d %.100s after %v, want %d after %v", code, answer, took, other.code, other.took)
					}
				}
			})
		})
	}
}

// TestReviews: an API server that does not answer delays a review for no longer than 2 s, and of all reviews
// 64 are decoded at a time.
func TestReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lookups := cached(nil, newDeployment("v1", "ConfigMap", "other", "u"))
		lookups.MayGet = func(ctx context.Context, _ authenticationv1.UserInfo, _ authorizationv1.ResourceAttributes) bool {
			<-ctx.Done()
			return false
		}
		f, began := newFixture(lookups), time.Now()
		review := mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil))
		var reviews sync.WaitGroup
		for range maxReviews {
			reviews.Go(func() {
				code, answer := f.send(t, ValidatePath, strings.NewReader(review))
				if took := time.Since(began); took != mayGetTimeout || code != http.StatusOK {
					t.Errorf("%d %s after %v", code, answer, took)
				}
			})
		}
		synctest.Wait()
		code, answer := f.send(t, MutatePath+"?timeout=1s", strings.NewReader(review))
		if code != http.StatusServiceUnavailable || time.Since(began) != time.Second {
			t.Errorf("beside %d others: %d %s after %v", maxReviews, code, answer, time.Since(began))
		}
		if code, answer = f.send(t, MutatePath, strings.NewReader(review)); code != http.StatusOK {
			t.Errorf("after them: %d %s", code, answer)
		}
		reviews.Wait()
	})
}

// TestNoEscapes: an answer is not much larger than its request.
func TestNoEscapes(t *testing.T) {
	name := strings.Repeat("<&>", 1000)
	body := conversionOf("v1beta1", strings.Replace(alphaFoo, `"deploymentName":"d"`, `"deploymentName":"`+name+`"`, 1))
	_, answer := newFixture(cached(nil)).send(t, ConvertPath, strings.NewReader(body))
	if !strings.Contains(answer, `{"name":"`+name+`"}`) || len(answer) > len(body)+200 {
		t.Errorf("%d bytes were answered with %d: %.300s", len(body), len(answer), answer)
	}
}

// TestLogs logs our failures as errors, and bad requests as information.
func TestLogs(t *testing.T) {
	for name, c := range map[string]struct {
		lookups Lookups
		body    string
		kind    ktesting.LogType
		says    string
	}{
		"our failure": {
			panicking(), mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil)), ktesting.LogError, "Failed to answer a webhook request",
		},
		"a bad request": {cached(nil), "{}", ktesting.LogInfo, "Refused a webhook request"},
	} {
		t.Run(name, func(t *testing.T) {
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			newFixture(c.lookups).send(t, ValidatePath, strings.NewReader(c.body), func(r *http.Request) {
				*r = *r.WithContext(klog.NewContext(r.Context(), logger))
			})
			log := logger.GetSink().(ktesting.Underlier).GetBuffer().Data()
			if len(log) == 0 || log[0].Type != c.kind || log[0].Message != c.says {
				t.Errorf("%+v", log)
			}
		})
	}
}

// TestTimeout ends a request when the API server stops waiting for it.
func TestTimeout(t *testing.T) {
	for query, want := range map[string]time.Duration{"?timeout=2s": 2 * time.Second, "": maxTimeout, "?timeout=10h": maxTimeout} {
		synctest.Test(t, func(t *testing.T) {
			f, began := newFixture(cached(nil)), time.Now()
			if err := takeTurn(t.Context(), f.Handler.(*server).large); err != nil {
				t.Fatal(err)
			}
			code, answer := f.send(t, ConvertPath+query, io.LimitReader(blanks{}, 1))
			if code != http.StatusServiceUnavailable || time.Since(began) != want {
				t.Errorf("%q: %d %s after %v, want %v", query, code, answer, time.Since(began), want)
			}
		})
	}
}

// FuzzHandler checks that no body makes a handler panic, answer with code 500 or allocate
// memory out of proportion.
func FuzzHandler(f *testing.F) {
	review := mustEncode(f, admissionOf(f, "CREATE", newFoo("x", "d"), nil))
	for _, seed := range []string{
		"", "null", "{}", "[]", review, review[:40], conversionOf("v1beta1", alphaFoo), conversionOf("none", "null"),
		mustEncode(f, admissionOf(f, "UPDATE", newFoo("x", "d"), newFoo("x", "e"))),
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"operation":"CREATE","resource":{"group":"samplecontroller.k8s.io","resource":"foos"},"object":{"kind":"Foo","apiVersion":"samplecontroller.k8s.io/v1beta1","spec":null}}}`,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"objects":[null,{},1,"x"],"desiredAPIVersion":"samplecontroller.k8s.io/v1beta1"}}`,
		strings.Repeat("[", 1000), strings.Repeat(`{"request":`, 1000),
	} {
		f.Add([]byte(seed))
	}
	handler := newFixture(cached([]*v1alpha1.Foo{newFoo("owner", "d")}))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{MutatePath, ValidatePath, ConvertPath} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			code, answer := handler.send(t, path, bytes.NewReader(body))
			runtime.ReadMemStats(&after)
			if code != http.StatusOK && code != http.StatusBadRequest {
				t.Errorf("%s: %d %s", path, code, answer)
			}
			if code == http.StatusOK && !json.Valid([]byte(answer)) {
				t.Errorf("%s answers %s", path, answer)
			}
			// TotalAlloc also counts what the rest of the process allocates.
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 4<<20+1000*uint64(len(body)) {
				t.Errorf("%s: %d bytes were allocated for a body of %d", path, taken, len(body))
			}
		}
	})
}
