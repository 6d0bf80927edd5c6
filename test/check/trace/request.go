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

package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// Target is what the path of a request names.
type Target struct {
	schema.GroupVersionResource

	Namespace, Name, Subresource string
}

// ParsePath returns false for paths that name no resource, such as discovery.
func ParsePath(path string) (Target, bool) {
	resolver := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := resolver.NewRequestInfo(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}})
	if err != nil || !info.IsResourceRequest {
		return Target{}, false
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	return Target{resource, info.Namespace, info.Name, info.Subresource}, true
}

// Request is a request of the controller about one object.
type Request struct {
	Target

	Verb string
	// Fields are those that a patch sets, and Body is the object that a request creates or applies.
	Fields string
	Body   map[string]any
	// Precondition is the resource version that the object must have, or else its UID; "" for any.
	Precondition string
	// At is when it came. Code is the answer of the API server, 0 for none, and Fault what was injected.
	At    time.Time
	Code  int
	Fault string
	// Shown is the UID of the object that the process last got of this name.
	Shown string
	// Made and Revision are the name and the resource version in the answer, and Deletes the UID of the deleted object.
	Made, Revision, Deletes string
}

// ReadRequest returns the request and its body. A body that nothing here can read is the API server's to judge. A dry
// run is a read.
func ReadRequest(incoming *http.Request, to Target) (*Request, []byte) {
	body, err := io.ReadAll(incoming.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r := NewRequest(incoming.Method, incoming.Header.Get("Content-Type"), to, body)
	if incoming.URL.Query().Has("dryRun") {
		r.Verb = http.MethodGet
	}
	return r, body
}

// NewRequest returns a request with that body.
func NewRequest(verb, contentType string, to Target, body []byte) *Request {
	r := &Request{Target: to, Verb: verb}
	switch verb {
	case http.MethodPatch:
		var patch any
		if json.Unmarshal(body, &patch) != nil && yaml.Unmarshal(body, &patch) != nil {
			break
		}
		if object, ok := patch.(map[string]any); ok {
			r.demand(&unstructured.Unstructured{Object: object})
			if strings.Contains(contentType, "apply-patch") {
				r.Body = object
			}
		}
		r.Fields = strings.Join(fieldsOf(patch), ",")
	case http.MethodDelete:
		options := &metav1.DeleteOptions{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, options); err == nil && options.Preconditions != nil {
			p := options.Preconditions
			r.Precondition = cmp.Or(ptr.Deref(p.ResourceVersion, ""), string(ptr.Deref(p.UID, "")))
		}
	case http.MethodPost, http.MethodPut:
		object := DecodeObject(body)
		if object == nil {
			break
		}
		r.demand(object)
		if verb == http.MethodPost && to.Name == "" {
			r.Name, r.Body = object.GetName(), object.Object
		}
	}
	return r
}

func (r *Request) demand(object *unstructured.Unstructured) {
	r.Precondition = cmp.Or(object.GetResourceVersion(), string(object.GetUID()))
}

// IsWrite reports whether the request is to change something.
func (r *Request) IsWrite() bool { return r.Verb != http.MethodGet }

// Applied reports whether it has.
func (r *Request) Applied() bool { return r.IsWrite() && r.Code >= 200 && r.Code < 300 }

// IsLost reports whether nobody knows if it has: it has no answer, or etcd may have got it before that failed.
func (r *Request) IsLost() bool { return r.IsWrite() && (r.Code == 0 || r.Code >= 500) }

// Answered notes the answer of the API server. It returns the object in the answer, nil for none.
func (r *Request) Answered(response *Response) *unstructured.Unstructured {
	if response == nil {
		return nil
	}
	r.Code = response.Code
	object := DecodeObject(response.Body)
	if object == nil || !r.Applied() && r.Verb != http.MethodGet {
		return nil
	}
	if r.Verb == http.MethodDelete {
		// A Status has it in its details.
		inStatus, _, _ := unstructured.NestedString(object.Object, "details", "uid")
		r.Deletes = cmp.Or(string(object.GetUID()), inStatus)
		return nil
	}
	r.Made, r.Revision = object.GetName(), object.GetResourceVersion()
	return object
}

// Class identifies the request across runs, in which names have aliases.
func (r *Request) Class(alias func(resource, name string) string) string {
	words := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		words += "/" + r.Subresource
	}
	words += " " + alias(r.Resource, r.Name)
	if r.Fields != "" {
		words += " {" + r.Fields + "}"
	}
	return words
}

// DecodeObject decodes an object or a Status, in JSON or of a built-in kind. It returns nil if it cannot.
func DecodeObject(data []byte) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if object.UnmarshalJSON(data) == nil {
		return object
	}
	typed, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil
	}
	object.Object = fields
	object.SetGroupVersionKind(*gvk)
	return object
}

// fieldsOf returns the fields that a patch sets, without preconditions and identity.
func fieldsOf(patch any) []string {
	found := map[string]any{}
	if operations, ok := patch.([]any); ok {
		for _, operation := range operations {
			if o, ok := operation.(map[string]any); ok && o["op"] != "test" {
				found[fmt.Sprint(o["path"])] = nil
			}
		}
	} else {
		found = Flatten(patch)
	}
	for _, path := range []string{"kind", "apiVersion", "metadata/name", "metadata/namespace", "metadata/resourceVersion", "metadata/uid"} {
		delete(found, "/"+path)
	}
	return slices.Sorted(maps.Keys(found))
}

// Flatten returns the scalars in a value by JSON pointer. An empty map or list counts as a scalar.
func Flatten(value any) map[string]any {
	leaves := map[string]any{}
	var walk func(string, any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, field := range v {
				walk(path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), field)
			}
			if len(v) > 0 {
				return
			}
		case []any:
			for i, element := range v {
				walk(path+"/"+strconv.Itoa(i), element)
			}
			if len(v) > 0 {
				return
			}
		}
		leaves[path] = value
	}
	walk("", value)
	return leaves
}
