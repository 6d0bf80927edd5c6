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

package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// request is a request of the controller for one object.
type request struct {
	verb, resource, subresource, name string
	// detail distinguishes requests that have the same URL but another meaning.
	detail string
	// alias replaces the name where that differs from run to run.
	alias string
	// resourceVersion and uid are preconditions of the request; 0 and "" for none.
	resourceVersion int64
	uid             types.UID
	// code is the API server's response code, 0 if a fault kept the request from it.
	code int
	// lost is set if the request got no answer, or a 5xx: the API server, or etcd behind
	// it, may or may not have applied it.
	lost bool
	// readFoo and readDeployment are the responses to a GET.
	readFoo        *v1alpha1.Foo
	readDeployment *appsv1.Deployment
	// observed is the generation that a status write reports.
	observed fooGeneration
	// received and answered are set by the recordingProxy only.
	received, answered time.Time
}

// fooGeneration identifies one spec of a Foo.
type fooGeneration struct {
	uid        types.UID
	generation int64
}

// String identifies the request across runs.
func (r *request) String() string {
	words := r.verb + " " + r.resource + " " + cmp.Or(r.alias, r.name)
	if r.subresource != "" {
		words += " " + r.subresource
	}
	if r.detail != "" {
		words += " " + r.detail
	}
	return words
}

// dryRun is the detail of a request that changes nothing.
const dryRun = "dryRun"

func (r *request) isWrite() bool {
	return r.verb != http.MethodGet && r.detail != dryRun
}

func (r *request) applied() bool {
	return r.isWrite() && r.code >= 200 && r.code < 300
}

// resourcePath is the path of a request to a resource in apiPaths.
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

// The resources that the code names.
const (
	cronTabs    = "crontabs" // +drop:crontab
	deployments = "deployments"
	foos        = "foos"
	jobs        = "jobs"
	pods        = "pods"
)

// parseRequest returns the request with that path and body.
func parseRequest(verb string, to resourcePath, body []byte) (*request, error) {
	r := &request{verb: verb, resource: to.resource, name: to.name, subresource: to.subresource}
	switch {
	case verb == http.MethodPost && to.name == "":
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decoding the created object: %w", err)
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		r.name = accessor.GetName()
	case to.subresource == "status" && verb != http.MethodGet:
		if err := r.parseStatus(body); err != nil {
			return nil, fmt.Errorf("decoding a status: %w", err)
		}
	case verb == http.MethodPatch:
		patch := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(body, patch); err != nil {
			return nil, fmt.Errorf("decoding a patch: %w", err)
		}
		r.resourceVersion = parseRevision(patch.ResourceVersion)
	case verb == http.MethodDelete:
		options := &metav1.DeleteOptions{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, options); err != nil {
			return nil, fmt.Errorf("decoding the delete options: %w", err)
		}
		if options.Preconditions != nil {
			r.resourceVersion = parseRevision(ptr.Deref(options.Preconditions.ResourceVersion, ""))
			r.uid = ptr.Deref(options.Preconditions.UID, "")
		}
	}
	return r, nil
}

// parseStatus reads the status that a request writes, as an object or as a merge patch of it.
func (r *request) parseStatus(body []byte) error {
	var object struct {
		metav1.ObjectMeta `json:"metadata"`

		Status struct {
			ObservedGeneration int64
			Conditions         []metav1.Condition
		}
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return err
	}
	r.resourceVersion = parseRevision(object.ResourceVersion)
	r.observed.generation = object.Status.ObservedGeneration
	if ready := meta.FindStatusCondition(object.Status.Conditions, readyType); ready != nil {
		r.detail = ready.Reason
	}
	return nil
}

// parseRevision returns a resource version as a number, 0 if it is empty.
func parseRevision(resourceVersion string) int64 {
	n, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
