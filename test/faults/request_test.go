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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// request is a request of the controller's that a fault can hit: a write to, or
// a read of, one Foo or Deployment.
type request struct {
	verb, resource, subresource, name string
	// detail tells requests apart that mean different things.
	detail string
	// alias stands for the name where that differs from run to run.
	alias string
	// version is the resource version that the request insists on, 0 if it does
	// not, and uid the object.
	version int64
	uid     types.UID
	// code is the API server's answer, 0 if it was not asked.
	code int
	// lost says that nobody knows what became of the request: the API server, or
	// etcd behind it, died over it.
	lost bool
	// read is what a read of a Foo was answered with, where that was taken down.
	read *v1alpha1.Foo
	// told is the Foo whose status is written, and as of which generation.
	told spec
	// begun and ended are when the request came and was answered, where that was
	// taken down.
	begun, ended time.Time
}

// spec is one of those that a Foo had, one after the other.
type spec struct {
	foo        types.UID
	generation int64
}

// String identifies the request from one run to the next.
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

func (r *request) isWrite() bool {
	return r.verb != http.MethodGet
}

func (r *request) applied() bool {
	return r.isWrite() && r.code >= 200 && r.code < 300
}

// place is what a path says of a resource that the controller works with.
type place struct {
	resource, name, subresource string
}

// placeOf returns what the path is about, and false where that is none of our
// business: discovery, events.
func placeOf(path, namespace string) (place, bool) {
	for resource := range versionPaths {
		rest, ok := strings.CutPrefix(path, pathOf(resource, namespace))
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		name, subresource, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		return place{resource, name, subresource}, true
	}
	return place{}, false
}

const (
	cronTabs    = "crontabs"
	deployments = "deployments"
	foos        = "foos"
	jobs        = "jobs"
	memcacheds  = "memcacheds"
	pods        = "pods"
	replicaSets = "replicasets"
)

// versionPaths say where the API has each resource that controllers of this program
// work with.
var versionPaths = map[string]string{
	cronTabs:    "/apis/alpha.ianlewis.org/v1",
	deployments: "/apis/apps/v1",
	foos:        "/apis/samplecontroller.k8s.io/v1alpha1",
	jobs:        "/apis/batch/v1",
	memcacheds:  "/apis/cache.example.com/v1alpha1",
	pods:        "/api/v1",
	replicaSets: "/apis/apps/v1",
}

func pathOf(resource, namespace string) string {
	return versionPaths[resource] + "/namespaces/" + namespace + "/" + resource
}

// parse returns the request, given where it goes and its body.
func parse(verb string, to place, body []byte) (*request, error) {
	r := &request{verb: verb, resource: to.resource, name: to.name, subresource: to.subresource}
	switch {
	case verb == http.MethodPost && (to.resource == deployments || to.resource == jobs):
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decoding what is created: %w", err)
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		r.name = accessor.GetName()
	case verb == http.MethodPatch:
		patch := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(body, patch); err != nil {
			return nil, fmt.Errorf("decoding a patch: %w", err)
		}
		r.version = number(patch.ResourceVersion)
	case verb == http.MethodPut:
		if err := r.parseStatus(body); err != nil {
			return nil, fmt.Errorf("decoding what is written: %w", err)
		}
	case verb == http.MethodDelete:
		options := &metav1.DeleteOptions{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, options); err != nil {
			return nil, fmt.Errorf("decoding the options of a deletion: %w", err)
		}
		if options.Preconditions != nil {
			r.version = number(ptr.Deref(options.Preconditions.ResourceVersion, ""))
			r.uid = ptr.Deref(options.Preconditions.UID, "")
		}
	}
	return r, nil
}

// parseStatus notes what an object says whose status is written. What this program's
// controllers write otherwise is created or patched.
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
	r.version = number(object.ResourceVersion)
	r.told = spec{object.UID, object.Status.ObservedGeneration}
	if ready := meta.FindStatusCondition(object.Status.Conditions, readyType); ready != nil {
		r.detail = ready.Reason
	}
	return nil
}

// number returns a resource version as a number, 0 if it is none.
func number(resourceVersion string) int64 {
	n, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
