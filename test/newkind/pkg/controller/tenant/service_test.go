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

package tenant

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/test/fixture"
)

// TestHTTPService sends each request to a server that answers with the status.
func TestHTTPService(t *testing.T) {
	get := func(ctx context.Context, s Service) error {
		item, err := s.Get(ctx, "uid-x")
		if err == nil && item.Owner != "ns/x" {
			err = fmt.Errorf("got %v", item)
		}
		return err
	}
	put := func(ctx context.Context, s Service) error {
		return s.Put(ctx, "uid-x", Item{Owner: "ns/x", DisplayName: "X"})
	}
	remove := func(ctx context.Context, s Service) error { return s.Delete(ctx, "uid-x") }
	const putX = `PUT /items/uid-x {"owner":"ns/x","displayName":"X"}`
	for name, test := range map[string]struct {
		call   func(context.Context, Service) error
		status int
		answer string

		request, err string
	}{
		"rule Z18: an item is written with PUT":              {put, 201, "", putX, ""},
		"rule Z18: an item is read with GET":                 {get, 200, `{"owner":"ns/x"}`, "GET /items/uid-x ", ""},
		"rule Z18: a missing item":                           {get, 404, "", "GET /items/uid-x ", "not found"},
		"rule Z19: an answer that is not JSON":               {get, 200, "<html>", "GET /items/uid-x ", "invalid character"},
		"rule Z19: an answer that does not end":              {get, 200, `{"owner":"` + strings.Repeat("x", 2*maxAnswer) + `"}`, "GET /items/uid-x ", "unexpected EOF"},
		"rule Z19: an address that does not exist":           {put, 404, "", putX, "the external service answered 404 Not Found"},
		"rule Z19: a refusal":                                {get, 503, "", "GET /items/uid-x ", "the external service answered 503 Service Unavailable"},
		"rule Z21: an item is deleted":                       {remove, 204, "", "DELETE /items/uid-x ", ""},
		"rule Z21: an item that is gone already is deleted":  {remove, 404, "", "DELETE /items/uid-x ", ""},
		"rule Z21: a deletion that is refused":               {remove, 500, "", "DELETE /items/uid-x ", "answered 500"},
		"rule Z21: a redirect of a deletion is not followed": {remove, 302, "", "DELETE /items/uid-x ", "answered 302"},
	} {
		t.Run(name, func(t *testing.T) {
			var request string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				request = r.Method + " " + r.URL.Path + " " + string(body)
				w.Header().Set("Location", "/login")
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.answer)
			}))
			defer server.Close()
			err := test.call(t.Context(), newHTTPService(server.URL+"/items/", func(next http.RoundTripper) http.RoundTripper { return next }))
			fixture.Differ(t, "request", test.request, request)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q in it", err, test.err)
			}
		})
	}
}

// TestFencedService: the service is not written to by a process that does not hold the lease.
func TestFencedService(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("rule Z23: the service got a %s", r.Method) }))
	defer server.Close()
	fence := client.NewFence(clock.RealClock{}, clock.RealClock{}, time.Second, 2*time.Second)
	service := newHTTPService(server.URL, fence.Wrap)
	for verb, err := range map[string]error{"PUT": service.Put(t.Context(), "uid-x", Item{}), "DELETE": service.Delete(t.Context(), "uid-x")} {
		if !errors.Is(err, client.ErrFenced) {
			t.Errorf("rule Z23: %s ends with %v", verb, err)
		}
	}
}

func TestEndpointFlag(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://example.com": "", "https://example.com/items": "", "example.com": "is not a URL; set it to one such as https://example.com/items", "ftp://example.com": "is not a URL", "http://": "is not a URL",
	} {
		flags, descriptor := flag.NewFlagSet("", flag.ContinueOnError), NewDescriptor()
		flags.SetOutput(io.Discard)
		descriptor.AddFlags(flags)
		if err := flags.Parse([]string{"--" + endpointFlag + "=" + endpoint}); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("rule Z20: %q: error %v, want %q", endpoint, err, want)
		}
	}
	if service := newHTTPService("", nil); service != nil {
		t.Errorf("rule Z20: without the flag there is %v", service)
	}
}

func TestDescribeFailure(t *testing.T) {
	for text, err := range map[string]error{
		"deleting failed: the external service cannot be reached; it is tried again at least every 30 seconds":                                                 errors.New("dial tcp 10.0.0.1:43210: refused"),
		"deleting failed: the external service did not answer within 10s; it is tried again at least every 30 seconds":                                         context.DeadlineExceeded,
		"deleting failed: the external service answered 500 Internal Server Error; it is tried again at least every 30 seconds":                                &statusError{code: 500},
		"deleting failed: the external service still has it; it is tried again at least every 30 seconds":                                                      fmt.Errorf("deleting: %w", errNotDeleted),
		`the API server refused: configmaps "x" is forbidden: exceeded quota; it is tried again at least every 5 minutes, and at once when the Tenant changes`: forbidden(),
	} {
		fixture.Differ(t, "rule Z19: the message", text, describeFailure("deleting", err))
	}
}
