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
	"bytes"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestParsePath(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods":                                      " pods  ",
		"/api/v1/namespaces/a":                              " namespaces a ",
		"/api/v1/namespaces/a/status":                       " namespaces a status",
		"/apis/apps/v1/namespaces/a/deployments/x/status":   "a deployments x status",
		"/apis/example.com/v1/namespaces/namespaces/bars/x": "namespaces bars x ",
	} {
		got, ok := ParsePath(path)
		if s := got.Namespace + " " + got.Resource + " " + got.Name + " " + got.Subresource; !ok || s != want || got.Path() != path {
			t.Errorf("%s: %q, and back %s", path, s, got.Path())
		}
	}
	if _, ok := ParsePath("/apis/apps/v1"); ok {
		t.Error("discovery is taken for a resource")
	}
}

func TestClass(t *testing.T) {
	to, _ := ParsePath("/apis/example.com/v1/namespaces/check-1/bars/check-1-x7f/status")
	r := NewRequest(http.MethodPatch, "application/merge-patch+json", to, []byte(`{"metadata":{"resourceVersion":"1"},"status":{"b":1,"a":{"a.b/c":[2]}}}`))
	if got, want := r.Class(func(string, string) string { return "#1" }), "PATCH bars/status #1 {/status/a/a.b~1c/0,/status/b}"; got != want || r.Precondition != "1" {
		t.Errorf("%q, want %q; precondition %s", got, want, r.Precondition)
	}
}

func TestDeletedUID(t *testing.T) {
	// The answer to a DELETE, as JSON and as protobuf.
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Details: &metav1.StatusDetails{UID: "1"}}
	var inProtobuf bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(status, &inProtobuf); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{MustEncode(status), inProtobuf.Bytes()} {
		r := &Request{Verb: http.MethodDelete}
		if r.Answered(&Response{Code: http.StatusOK, Body: data}); r.Deletes != "1" {
			t.Errorf("%q is decoded as %+v", data, r)
		}
	}
}

func TestAsJSON(t *testing.T) {
	const rest = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json, */*"
	header := http.Header{"Accept": {"application/vnd.kubernetes.protobuf" + rest}}
	if AsJSON(header); header.Get("Accept") != "application/json"+rest {
		t.Error(header)
	}
}

// TestRules judges the deletion of a Pod that serves, which a rule forbids, by its owner and by another one, and a patch
// that changes nothing.
func TestRules(t *testing.T) {
	s := &RuleSet{Define: []Definition{{Name: "serves", Expression: "before.?status.?availableReplicas.orValue(0) > 0"}}, Rules: []Rule{
		{Name: "a", Must: "owner.controls(before) && !serves"},
		{Name: "b", Must: "owner.nothing"},
	}}
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	deletion := Request{Verb: http.MethodDelete, Code: http.StatusOK, Deletes: "2"}
	for name, test := range map[string]struct {
		owner     string
		available int64
		request   Request
		want      string
	}{
		"its own Pod":                        {"1", 0, deletion, "b"},
		"its own Pod, which serves":          {"1", 1, deletion, "ab"},
		"a Pod of an owner that is not here": {"9", 0, deletion, "ab"},
		"a patch without an effect":          {"1", 0, Request{Verb: http.MethodPatch, Code: http.StatusOK, Precondition: "2", Revision: "2"}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			bar := map[string]any{"metadata": map[string]any{"uid": "1"}}
			by := map[string]any{"uid": test.owner, "controller": true}
			pod := map[string]any{"metadata": map[string]any{"name": "x", "uid": "2", "resourceVersion": "2", "ownerReferences": []any{by}}, "status": map[string]any{"availableReplicas": test.available}}
			r, got := test.request, ""
			r.Resource, r.Name = "pods", "x"
			s.Judge([]Version{
				{Resource: "bars", Object: &unstructured.Unstructured{Object: bar}, Revision: 1},
				{Resource: "pods", Object: &unstructured.Unstructured{Object: pod}, Revision: 2},
				{Resource: "pods", Object: &unstructured.Unstructured{Object: pod}, Revision: 3, Deleted: true},
			}, []Request{r}, "bars", nil, func(rule, _ string, _ *Request) { got += rule })
			if got != test.want {
				t.Errorf("broken: %q, want %q", got, test.want)
			}
		})
	}
}
