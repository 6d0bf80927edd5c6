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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/kinds"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
)

const (
	addFinalizer    = `patch tenants x {"metadata":{"finalizers":["tenancy.example.org/tenant"],"resourceVersion":"10"}}`
	removeFinalizer = `patch tenants x {"metadata":{"finalizers":[],"resourceVersion":"10"}}`
	putBlue         = `PUT /items/uid-x {"owner":"ns/x","displayName":"blue"}`
	deleteX         = "DELETE /items/uid-x"
	itemFailed      = status + "False/ItemFailed" + withItem
	notDeleted      = status + "False/ItemDeletionFailed" + withItem
	// stuck is an answer that never comes.
	stuck = "stuck"
)

// fakeService is the external service.
type fakeService struct {
	kinds.Service
	env *fixture.Env
	// answers are those to the next requests in place of what the service does: status and body, "" for none.
	answers []string
}

func (s *fakeService) wrap(http.RoundTripper) http.RoundTripper { return s }

// RoundTrip implements http.RoundTripper.
func (s *fakeService) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	fixture.Must(err)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.Method != http.MethodGet {
		s.env.Sent = append(s.env.Sent, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
	}
	next, response := "", httptest.NewRecorder()
	if len(s.answers) > 0 {
		next, s.answers = s.answers[0], s.answers[1:]
	}
	switch code, text, _ := strings.Cut(next, " "); code {
	case "":
		s.ServeHTTP(response, r)
	case stuck:
		<-r.Context().Done()
		return nil, r.Context().Err()
	default:
		status, err := strconv.Atoi(code)
		fixture.Must(err)
		response.Header().Set("Location", "/login")
		response.WriteHeader(status)
		fmt.Fprint(response, text)
	}
	return response.Result(), nil
}

// set gives the service that item.
func (s *fakeService) set(item Item) {
	text, err := json.Marshal(item)
	fixture.Must(err)
	s.Items["uid-x"] = text
}

// serve gives the controller an external service that has the item.
func (e *env) serve(item Item) {
	e.external = &fakeService{env: e.Env}
	e.external.Items = map[string][]byte{}
	e.external.set(item)
	e.service = newService("http://service/items", e.external.wrap)
}

// withoutFinalizer makes the Tenant one that the controller has not seen.
func withoutFinalizer(tenant *v1alpha1.Tenant) { tenant.Finalizers = nil }

// deleted makes the Tenant a terminating one with the finalizer.
func deleted(tenant *v1alpha1.Tenant) { tenant.DeletionTimestamp = new(metav1.Now()) }

// TestSyncItem is the part of the Tenant contract that is about the finalizer and the item.
//
// rule Z23: each request goes through what wraps the transport, here the fake service and in the program the fence, of
// which pkg/client has the tests.
func TestSyncItem(t *testing.T) {
	missing := func(e *env) { clear(e.external.Items) }
	answers := func(answers ...string) func(*env) { return func(e *env) { e.external.answers = answers } }
	refused := func(e *env) {
		e.Own.PrependReactor("patch", "tenants", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return action.GetSubresource() == "", nil, apierrors.NewForbidden(v1alpha1.Resource("tenants"), "x", errors.New("a policy"))
		})
	}
	unconfigured := func(e *env) { e.service = nil }
	const failed, told = "Warning ItemFailed", "Warning ItemDeletionFailed"
	gone := newTenant(ready, deleted)
	for name, test := range map[string]syncTest{
		"rule Z17: the finalizer is added before anything else is written, and those of others stay": {
			configMaps: none(), prepare: missing,
			tenant:   newTenant(func(s *v1alpha1.Tenant) { s.Finalizers = []string{"theirs"} }),
			requests: []string{getX, `patch tenants x {"metadata":{"finalizers":["theirs","tenancy.example.org/tenant"],"resourceVersion":"10"}}`}},
		"rule Z17: a finalizer that is refused is reported, and nothing else is written": {
			tenant: newTenant(withoutFinalizer), configMaps: none(), prepare: refused, requests: []string{getX, addFinalizer, rejected}, events: "Warning ConfigMapRejected", err: "a policy"},
		"rule Z18: the item is read every 10 minutes": {again: itemCheckPeriod},
		"rule Z18: an item that is different is replaced": {
			prepare: func(e *env) { e.external.set(Item{Owner: "other"}) }, requests: []string{putBlue, getX}},
		"rule Z19: while the item cannot be read it is reported, and no ConfigMap is created": {
			configMaps: none(), prepare: answers("503"), requests: []string{itemFailed}, events: failed, err: "answered 503"},
		"rule Z19: while the item cannot be written it is reported": {
			prepare: func(e *env) { missing(e); answers("", "404")(e) }, requests: []string{putBlue, getX, itemFailed}, events: failed, err: "the external service answered 404 Not Found"},
		"rule Z19: a request that is not answered ends": {prepare: answers(stuck), requests: []string{itemFailed}, events: failed, err: "deadline exceeded"},
		"rule Z19: an answer that is not JSON":          {prepare: answers("200 <html>"), requests: []string{itemFailed}, events: failed, err: "invalid character"},
		"rule Z19: an answer that does not end": {
			prepare: answers(`200 {"owner":"` + strings.Repeat("x", 2*maxAnswer) + `"}`), requests: []string{itemFailed}, events: failed, err: "unexpected EOF"},
		"rule Z20: without a service nothing is written but the status": {
			tenant: newTenant(withoutFinalizer), configMaps: none(), prepare: unconfigured, requests: []string{status + "False/ItemFailed"}, events: failed},
		"rule Z21: the item is deleted, then the finalizer removed, and by rule Z9 the next sync waits for that": {
			tenant: gone, then: func(*env) {}, requests: []string{deleteX, getX, removeFinalizer}, err: "the caches are behind"},
		"rule Z21: a deletion that fails keeps the Tenant, and is reported": {
			tenant: gone, prepare: answers("503"), requests: []string{deleteX, notDeleted}, events: told, err: "answered 503"},
		"rule Z21: so does one that is redirected": {
			tenant: gone, prepare: answers("302"), requests: []string{deleteX, notDeleted}, events: told, err: "answered 302"},
		"rule Z21: and one that the service has not carried out": {
			tenant: gone, prepare: answers("202"), requests: []string{deleteX, notDeleted}, events: told, err: "still has it"},
		"rule Z21: and one that cannot be verified": {
			tenant: gone, prepare: answers("", "503"), requests: []string{deleteX, notDeleted}, events: told, err: "answered 503"},
		"rule Z21: and one without a service": {tenant: gone, prepare: unconfigured, requests: []string{notDeleted}, events: told},
		"rule Z21: a finalizer that may not be removed is reported": {
			tenant: gone, prepare: refused, requests: []string{deleteX, getX, removeFinalizer, notDeleted}, events: told, err: "a policy"},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

func TestEndpointFlag(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://example.com": "", "https://example.com/items": "", "example.com": "is not a URL; set it to one such as https://example.com/items", "ftp://example.com": "is not a URL", "http://": "is not a URL",
	} {
		flags, descriptor := flag.NewFlagSet("", flag.ContinueOnError), NewDescriptor()
		flags.SetOutput(io.Discard)
		descriptor.AddFlags(flags)
		if err := flags.Parse([]string{"--" + endpointFlag + "=" + endpoint}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("rule Z20: %q: error %v, want %q", endpoint, err, want)
		}
	}
	if service := newService("", nil); service != nil {
		t.Errorf("rule Z20: without the flag there is %v", service)
	}
}

func TestDescribeFailure(t *testing.T) {
	const failed, again = "deleting failed: ", "; it is tried again at least every 30 seconds"
	for text, err := range map[string]error{
		failed + "the external service cannot be reached" + again:                  errors.New("dial tcp 10.0.0.1:43210: refused"),
		failed + "the external service did not answer within 10s" + again:          context.DeadlineExceeded,
		failed + "the external service answered 500 Internal Server Error" + again: problem("the external service answered 500 Internal Server Error"),
		failed + "the external service still has it" + again:                       fmt.Errorf("deleting: %w", errNotDeleted),
		controller.DescribeRefusal(tenantKind, forbidden()):                        forbidden(),
	} {
		fixture.Differ(t, "rule Z19: the message", text, describeFailure("deleting", err))
	}
}
