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
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	deployments = "deployments"
	foos        = "foos"
)

// request is a request of the controller for one object.
type request struct {
	verb, resource, subresource, name string
	// detail is the reason that a status has.
	detail string
	dryRun bool
	// resourceVersion is a precondition, 0 for none.
	resourceVersion int64
	// code is the API server's response code.
	code int
	// lost is set if the request got no answer, or a 5xx: the API server, or etcd behind
	// it, may or may not have applied it.
	lost bool
	// readFoo and readDeployment are the responses to a GET.
	readFoo        *v1alpha1.Foo
	readDeployment *appsv1.Deployment
	// observed is the generation that a status write reports.
	observed           fooGeneration
	received, answered time.Time
}

// fooGeneration identifies one spec of a Foo.
type fooGeneration struct {
	uid        types.UID
	generation int64
}

func (r *request) String() string {
	return strings.Join(strings.Fields(fmt.Sprint(r.verb, " ", r.resource, " ", r.name, " ", r.subresource, " ", r.detail)), " ")
}

func (r *request) isWrite() bool { return r.verb != http.MethodGet && !r.dryRun }

func (r *request) applied() bool { return r.isWrite() && r.code >= 200 && r.code < 300 }

// resourcePath is the path of a request to a resource.
type resourcePath struct {
	resource, name, subresource string
}

// parsePath returns false for paths that the proxies do not record: discovery, events,
// leases and other namespaces.
func parsePath(path, namespace string) (resourcePath, bool) {
	_, rest, inside := strings.Cut(path, "/namespaces/"+namespace+"/")
	resource, rest, _ := strings.Cut(rest, "/")
	name, subresource, _ := strings.Cut(rest, "/")
	return resourcePath{resource, name, subresource}, inside && resource != "events" && resource != "leases"
}

// parseRequest returns the request with that path and body.
func parseRequest(incoming *http.Request, to resourcePath, body []byte) (*request, error) {
	r := &request{verb: incoming.Method, resource: to.resource, name: to.name, subresource: to.subresource, dryRun: incoming.URL.Query().Has("dryRun")}
	switch {
	case r.verb == http.MethodPost && to.name == "":
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decoding the created object: %w", err)
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		r.name = accessor.GetName()
	case r.verb == http.MethodDelete:
		options := &metav1.DeleteOptions{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, options); err != nil {
			return nil, fmt.Errorf("decoding the delete options: %w", err)
		}
		if options.Preconditions != nil {
			r.resourceVersion = parseRevision(ptr.Deref(options.Preconditions.ResourceVersion, ""))
		}
	case r.verb != http.MethodGet:
		// A patch, or a status as an object or as a patch.
		var object struct {
			metav1.ObjectMeta `json:"metadata"`

			Status v1alpha1.FooStatus
		}
		if err := json.Unmarshal(body, &object); err != nil {
			return nil, fmt.Errorf("decoding a write: %w", err)
		}
		r.resourceVersion, r.observed.generation = parseRevision(object.ResourceVersion), object.Status.ObservedGeneration
		if ready := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.FooReady); ready != nil {
			r.detail = ready.Reason
		}
	}
	return r, nil
}

// recordAnswer records the answer of the API server.
func (r *request) recordAnswer(code int, body []byte) {
	r.code = code
	answer := &metav1.PartialObjectMetadata{}
	if r.observed.generation > 0 && r.applied() && json.Unmarshal(body, answer) == nil {
		r.observed.uid = answer.UID
	}
	if r.verb != http.MethodGet || code != http.StatusOK {
		return
	}
	foo, deployment := &v1alpha1.Foo{}, &appsv1.Deployment{}
	switch r.resource {
	case foos:
		if json.Unmarshal(body, foo) == nil {
			r.readFoo = foo
		}
	case deployments:
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, deployment); err == nil {
			r.readDeployment = deployment
		}
	}
}

// parseRevision returns a resource version as a number, 0 if it is empty.
func parseRevision(resourceVersion string) int64 {
	n, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
