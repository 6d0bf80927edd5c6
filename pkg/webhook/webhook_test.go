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
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

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

func newFixture(lookups Lookups) *fixture {
	registry := metrics.NewKubeRegistry()
	return &fixture{NewHandler(Options{Lookups: lookups, Metrics: NewMetrics(registry), Clock: clock.RealClock{}}), registry}
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
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	query := func(text string) func(*http.Request) {
		return func(r *http.Request) { r.URL.RawQuery = text }
	}
	withoutLength := func(r *http.Request) { r.ContentLength = -1 }
	validReview := mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil))
	for name, c := range map[string]struct {
		path   string
		body   string
		reader io.Reader
		change func(*http.Request)
		code   int
		says   string
	}{
		"another path":                                    {path: "/", code: http.StatusNotFound},
		"another method":                                  {path: ConvertPath, change: func(r *http.Request) { r.Method = http.MethodGet }, code: http.StatusMethodNotAllowed},
		"another content type":                            {path: ConvertPath, body: `{}`, change: header("Content-Type", "application/yaml"), code: http.StatusUnsupportedMediaType, says: `Content-Type: "application/yaml" is not application/json`},
		"no content type":                                 {path: ConvertPath, body: `{}`, change: header("Content-Type", ""), code: http.StatusUnsupportedMediaType, says: "Content-Type"},
		"a content type with a charset":                   {path: ValidatePath, body: validReview, change: header("Content-Type", "application/json; charset=utf-8"), code: http.StatusOK},
		"a content type with a broken charset":            {path: ValidatePath, body: validReview, change: header("Content-Type", "application/json; charset"), code: http.StatusUnsupportedMediaType, says: "Content-Type"},
		"a timeout that is not a duration":                {path: ConvertPath, body: `{}`, change: query("timeout=soon"), code: http.StatusBadRequest, says: `timeout: "soon" is not a positive duration`},
		"a negative timeout":                              {path: ConvertPath, body: `{}`, change: query("timeout=-1s"), code: http.StatusBadRequest, says: "timeout"},
		"a timeout of 0":                                  {path: ConvertPath, body: `{}`, change: query("timeout=0s"), code: http.StatusBadRequest, says: "timeout"},
		"a timeout":                                       {path: ValidatePath, body: validReview, change: query("timeout=10s"), code: http.StatusOK},
		"an empty body":                                   {path: ConvertPath, code: http.StatusBadRequest, says: "decoding the body"},
		"not JSON":                                        {path: MutatePath, body: "apiVersion: v1", code: http.StatusBadRequest, says: "decoding the body"},
		"truncated JSON":                                  {path: ValidatePath, body: validReview[:len(validReview)/2], code: http.StatusBadRequest, says: "decoding the body"},
		"JSON nested too deeply":                          {path: ValidatePath, body: strings.Repeat(`{"request":`, 20_000), code: http.StatusBadRequest, says: "decoding the body"},
		"another kind":                                    {path: ConvertPath, body: validReview, code: http.StatusBadRequest, says: "ConversionReview"},
		"the other kind":                                  {path: MutatePath, body: `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{}}`, code: http.StatusBadRequest, says: "AdmissionReview"},
		"an old version":                                  {path: ConvertPath, body: `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","request":{}}`, code: http.StatusBadRequest, says: "apiextensions.k8s.io/v1, Kind=ConversionReview"},
		"a ConversionReview without a request":            {path: ConvertPath, body: `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`, code: http.StatusBadRequest, says: "not a request of kind"},
		"an AdmissionReview without a request":            {path: MutatePath, body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, code: http.StatusBadRequest, says: "not a request of kind"},
		"a Content-Length of the maximum":                 {path: ConvertPath, body: `{}`, change: func(r *http.Request) { r.ContentLength = MaxBody }, code: http.StatusBadRequest, says: "not a request of kind"},
		"a Content-Length above the maximum":              {path: MutatePath, body: `{}`, change: func(r *http.Request) { r.ContentLength = MaxBody + 1 }, code: http.StatusRequestEntityTooLarge, says: "larger than 16777216 bytes"},
		"a body above the maximum without Content-Length": {path: MutatePath, reader: io.LimitReader(blanks{}, MaxBody+1), change: withoutLength, code: http.StatusRequestEntityTooLarge, says: "larger than 16777216 bytes"},
		"the connection breaks":                           {path: MutatePath, reader: iotest.ErrReader(errors.New("reset")), change: withoutLength, code: http.StatusBadRequest, says: "reading the body: reset"},
	} {
		t.Run(name, func(t *testing.T) {
			body := c.reader
			if body == nil {
				body = strings.NewReader(c.body)
			}
			if c.change == nil {
				c.change = func(*http.Request) {}
			}
			// A busy machine must not take longer than the timeouts of a body.
			synctest.Test(t, func(t *testing.T) {
				code, answer := newFixture(cached(nil)).send(t, c.path, body, c.change)
				if code != c.code || !strings.Contains(answer, c.says) {
					t.Errorf("%d %s, want %d and %q", code, answer, c.code, c.says)
				}
			})
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
	code, answer := f.send(t, ValidatePath, strings.NewReader(mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil))))
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
	if code, _ := f.send(t, MutatePath, strings.NewReader(mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil)))); code != http.StatusOK {
		t.Errorf("the next request is answered with %d", code)
	}
}

// TestVerifyClient refuses requests for admission of other clients than the API server, before it reads
// them. The API server shows no certificate for a conversion.
func TestVerifyClient(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	f := &fixture{NewHandler(Options{
		Lookups: cached(nil), Metrics: NewMetrics(registry), Clock: clock.RealClock{},
		VerifyClient: func(*http.Request) error { return errors.New("no certificate") },
	}), registry}
	for path, want := range map[string]int{MutatePath: http.StatusUnauthorized, ValidatePath: http.StatusUnauthorized, ConvertPath: http.StatusOK} {
		body := iotest.ErrReader(errors.New("it is read"))
		if want == http.StatusOK {
			body = strings.NewReader(conversionOf("v1beta1", alphaFoo))
		}
		if code, answer := f.send(t, path, body); code != want || code != http.StatusOK && answer != "no certificate\n" {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
}

// TestCounts counts each request by path and status code.
func TestCounts(t *testing.T) {
	f := newFixture(cached([]*v1alpha1.Foo{newFoo("owner", "d")}))
	f.send(t, ValidatePath, strings.NewReader(mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil))))
	f.send(t, ValidatePath, strings.NewReader(""))
	f.send(t, ConvertPath, strings.NewReader(conversionOf("v1beta1", alphaFoo, alphaFoo)))
	f.send(t, ConvertPath, strings.NewReader(conversionOf("none", alphaFoo)))
	for name, want := range map[string]map[string]float64{
		"sample_controller_webhook_admission_refusals_total": {"": 1},
		"sample_controller_webhook_conversions_total":        {"success": 2, "failure": 1},
		"sample_controller_webhook_request_duration_seconds": {"200/validate-foo": 1, "400/validate-foo": 1, "200/convert-foo": 2},
	} {
		families, err := f.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			for _, m := range family.Metric {
				labels := ""
				for _, pair := range m.Label {
					labels += pair.GetValue()
				}
				if family.GetName() == name {
					got[labels] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		for labels, count := range want {
			if got[labels] != count {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	}
}

// TestNoEscapes: an answer is not much larger than its request.
func TestNoEscapes(t *testing.T) {
	name := strings.Repeat("<&>", 1000)
	body := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"x","desiredAPIVersion":"samplecontroller.k8s.io/v1beta1","objects":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","spec":{"deploymentName":"` + name + `"}}]}}`
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, ConvertPath, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	newFixture(cached(nil)).ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), `{"name":"`+name+`"}`) || w.Body.Len() > len(body)+200 {
		t.Errorf("%d bytes were answered with %d: %.300s", len(body), w.Body.Len(), w.Body)
	}
}

// TestMayGetIsLimited: an API server that does not answer delays a review for no longer than 2 s, and
// reviews beyond the 16 that wait for it are answered without.
func TestMayGetIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lookups := cached(nil, newDeployment("v1", "ConfigMap", "other", "u"))
		lookups.MayGet = func(ctx context.Context, _ authenticationv1.UserInfo, _ authorizationv1.ResourceAttributes) bool {
			<-ctx.Done()
			return false
		}
		f, begun := newFixture(lookups), time.Now()
		review := mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil))
		took := make(chan time.Duration, maxMayGet)
		for range maxMayGet {
			go func() {
				f.send(t, ValidatePath, strings.NewReader(review))
				took <- time.Since(begun)
			}()
		}
		synctest.Wait()
		if _, answer := f.send(t, ValidatePath, strings.NewReader(review)); time.Since(begun) > 0 || !strings.Contains(answer, "an object that you may not get") {
			t.Errorf("one more: %s after %v", answer, time.Since(begun))
		}
		for range maxMayGet {
			if took := <-took; took != mayGetTimeout {
				t.Errorf("it took %v", took)
			}
		}
	})
}

// TestLogs logs our failures as errors, and bad requests as information.
func TestLogs(t *testing.T) {
	for name, c := range map[string]struct {
		lookups Lookups
		body    string
		kind    ktesting.LogType
		says    string
	}{
		"our failure":   {panicking(), mustEncode(t, admissionOf(t, "CREATE", newFoo("x", "d"), nil)), ktesting.LogError, "Failed to answer a webhook request"},
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
	s := newServer(clock.RealClock{}, NewMetrics(metrics.NewKubeRegistry()))
	synctest.Test(t, func(t *testing.T) {
		for query, want := range map[string]time.Duration{"?timeout=2s": 2 * time.Second, "": maxTimeout, "?timeout=10h": maxTimeout} {
			began := time.Now()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+query, strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json")
			err := s.answer(httptest.NewRecorder(), r, func(ctx context.Context, _ []byte) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != want {
				t.Errorf("%q: %v after %v, want %v", query, err, time.Since(began), want)
			}
		}
	})
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
