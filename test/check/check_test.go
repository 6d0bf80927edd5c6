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

package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/sample-controller/test/kinds"
)

func TestParsePath(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods":                                      " pods  ",
		"/api/v1/namespaces/a":                              " namespaces a ",
		"/api/v1/namespaces/a/status":                       " namespaces a status",
		"/apis/apps/v1/namespaces/a/deployments/x/status":   "a deployments x status",
		"/apis/example.com/v1/namespaces/namespaces/bars/x": "namespaces bars x ",
	} {
		got, ok := parsePath(path)
		if s := got.namespace + " " + got.Resource + " " + got.name + " " + got.subresource; !ok || s != want || got.path() != path {
			t.Errorf("%s: %q, and back %s", path, s, got.path())
		}
	}
	if _, ok := parsePath("/apis/apps/v1"); ok {
		t.Error("discovery is taken for a resource")
	}
}

func TestClass(t *testing.T) {
	to, _ := parsePath("/apis/example.com/v1/namespaces/check-1/bars/check-1-x7f/status")
	r := newRequest(http.MethodPatch, "application/merge-patch+json", to, []byte(`{"metadata":{"resourceVersion":"1"},"status":{"b":1,"a":{"a.b/c":[2]}}}`))
	if got, want := r.class(newAliases("check-1", map[string]bool{}).of), "PATCH bars/status #1 {/status/a/a.b~1c/0,/status/b}"; got != want || !r.conditional {
		t.Errorf("%q, want %q; conditional: %t", got, want, r.conditional)
	}
}

func TestDeletedUID(t *testing.T) {
	// The answer to a DELETE, as JSON and as protobuf.
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Details: &metav1.StatusDetails{UID: "1"}}
	var inProtobuf bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(status, &inProtobuf); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{mustEncode(status), inProtobuf.Bytes()} {
		if got := decodeObject(data); got == nil || got.GetKind() != "Status" || kinds.Find("{.details.uid}", got.Object) != "1" {
			t.Errorf("%q is decoded as %v", data, got)
		}
	}
}

func TestReadSuite(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"example.yaml": "{apiVersion: example.com/v1, kind: Bar, metadata: {name: x}}",
		"suite.yaml": `{example: example.yaml, quiet: 3s, scenarios: [{name: a, steps: [
			{merge: {spec: {replicas: 2}}}, {object: {apiVersion: v1, kind: Pod, where: owned}, delete: Background}]}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := readSuite(filepath.Join(dir, "suite.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	steps := s.Scenarios[0].Steps
	if diff := cmp.Diff([]string{`patch Bar x {"spec":{"replicas":2}}`, "delete Pod where owned"}, []string{steps[0].String(), steps[1].String()}); diff != "" {
		t.Error(diff)
	}
}

func TestAsJSON(t *testing.T) {
	header := http.Header{"Accept": {"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json, */*"}}
	asJSON(header)
	if diff := cmp.Diff("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json, */*", header.Get("Accept")); diff != "" {
		t.Error(diff)
	}
}

// object returns a version of an object, whose UID is its name and its UID's suffix.
func object(resource, name, uid, owner string, revision int64, deleted bool) version {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": resource, "metadata": map[string]any{"name": name, "uid": uid}}}
	if owner != "" {
		o.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"uid": owner}}
	}
	return version{resource, o, revision, deleted}
}

func TestPeakAndState(t *testing.T) {
	c := &checker{suite: &suite{}, owners: schema.GroupVersionResource{Resource: "bars"}}
	versions := []version{
		object("bars", "x", "1", "", 1, false),
		object("pods", "x-a", "2", "1", 2, false),
		object("pods", "other", "3", "4", 3, false),
		object("pods", "x-b", "5", "1", 6, false),
		object("pods", "x-a", "2", "1", 5, true),
	}
	if got := c.peak(versions)["pods"]; got != 1 {
		t.Errorf("peak of pods in order of their revisions: %d", got)
	}
	stable := map[string]bool{"x": true, "other": true}
	end := c.stateOf(versions, map[string]bool{"pods": true}, newAliases("check-1", stable))
	if got := end["pods #1 /metadata/ownerReferences/0/uid"]; got != "bars/x" {
		t.Errorf("the end is %v", end)
	}
	ignored := func(string) bool { return false }
	start := c.stateOf(versions[:3], map[string]bool{"pods": true}, newAliases("check-1", stable))
	if diff := cmp.Diff([]string(nil), differences(start, end, ignored)); diff != "" {
		t.Errorf("a dependent with another random name is another end: %s", diff)
	}
	fewer := c.stateOf(versions[:2], map[string]bool{"pods": true}, newAliases("check-1", stable))
	if diff := cmp.Diff([]string{"- pods other /kind: pods"}, differences(end, fewer, ignored)); diff != "" {
		t.Error(diff)
	}
}

// TestNamesThatDiffer: runs at the same time may have the same name by chance.
func TestNamesThatDiffer(t *testing.T) {
	c := &checker{suite: &suite{Ignore: []string{"jobs * /metadata/name"}}}
	to, _ := parsePath("/apis/batch/v1/namespaces/a/jobs/x-1")
	read := newRequest(http.MethodGet, "", to, nil)
	o := &outcome{namespace: "a", requests: []request{*read}, points: []recordedPoint{{request: read}}}
	if ref, _ := c.learnReference(&scenario{}, []*outcome{o, o}); ref.points[0].class != "GET jobs #1" {
		t.Errorf("the point is %q", ref.points[0].class)
	}
}

func TestHot(t *testing.T) {
	at := func(gap time.Duration) (times []time.Time) {
		for i := range hotCount {
			times = append(times, time.Unix(0, 0).Add(time.Duration(i)*gap))
		}
		return times
	}
	if got := []bool{hot(at(time.Second / hotCount)), hot(at(time.Second / (hotCount - 2))), hot(nil)}; !slices.Equal(got, []bool{true, false, false}) {
		t.Errorf("hot: %t", got)
	}
}

// TestRules judges the deletion of a Pod that serves, which a rule forbids, by its owner and by another one.
func TestRules(t *testing.T) {
	s := &suite{Define: []definition{{"serves", "before.?status.?availableReplicas.orValue(0) > 0"}}, Rules: []rule{
		{Name: "a", When: "request.verb == 'DELETE'", Must: "owner.controls(before) && !serves"},
		{Name: "b", Must: "owner.nothing"},
	}, example: &unstructured.Unstructured{Object: map[string]any{}}}
	var err error
	if s.expressions, err = newExpressions(); err != nil {
		t.Fatal(err)
	}
	if err := s.complete(); err != nil {
		t.Fatal(err)
	}
	c := &checker{suite: s, owners: schema.GroupVersionResource{Resource: "bars"}}
	for name, test := range map[string]struct {
		owner     string
		available int64
		want      string
	}{
		"its own Pod":                        {"1", 0, "b"},
		"its own Pod, which serves":          {"1", 1, "ab"},
		"a Pod of an owner that is not here": {"9", 0, "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := object("pods", "x", "2", test.owner, 2, false)
			pod.object.Object["metadata"].(map[string]any)["ownerReferences"].([]any)[0].(map[string]any)["controller"] = true
			pod.object.Object["status"] = map[string]any{"availableReplicas": test.available}
			gone := version{"pods", pod.object, 3, true}
			o := &outcome{versions: []version{object("bars", "y", "1", "", 1, false), pod, gone}, requests: []request{
				{target: target{name: "x"}, verb: http.MethodDelete, code: http.StatusOK, deletes: "2"},
			}}
			got := ""
			c.judgeRules(o, func(_, _ string, arguments ...any) { got += arguments[0].(string) })
			if got != test.want {
				t.Errorf("broken: %q, want %q", got, test.want)
			}
		})
	}
}

func TestFewest(t *testing.T) {
	c := &checker{owners: schema.GroupVersionResource{Resource: "bars"}}
	serving := func(name, uid string, revision, available int64, deleted bool) version {
		v := object("deployments", name, uid, "1", revision, deleted)
		v.object.Object["metadata"].(map[string]any)["ownerReferences"].([]any)[0].(map[string]any)["controller"] = true
		v.object.Object["status"] = map[string]any{"availableReplicas": available}
		return v
	}
	before := []version{object("bars", "x", "1", "", 1, false), serving("old", "2", 2, 2, false)}
	for name, test := range map[string]struct {
		then []version
		want int
	}{
		"the new one serves first": {[]version{serving("old", "2", 5, 2, true), serving("new", "3", 4, 2, false)}, 2},
		"the old one goes first":   {[]version{serving("new", "3", 4, 1, false), serving("old", "2", 5, 2, true), serving("new", "3", 6, 2, false)}, 1},
		"the owner goes first":     {[]version{object("bars", "x", "1", "", 4, true), serving("old", "2", 5, 2, true)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.fewest(slices.Concat(before, test.then), len(before))["deployments"]; got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestReports encodes a finding, a fault that was not reached, and a run that passed.
func TestReports(t *testing.T) {
	r := &report{Suite: "s", Names: []string{"a", "b", "c"}, Unreached: []string{"b"}, Findings: []finding{{Judge: "end", Message: "m", Run: "a"}}}
	got, err := asJUnit([]*report{r})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<testcase name="a">`, `<failure type="end">`, `<skipped/>`, `<testcase name="c"></testcase>`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

// TestSuites reads the suites of this repository.
func TestSuites(t *testing.T) {
	files := []string{"../../testdata/suites.yaml"}
	for _, pattern := range []string{"../../pkg/controller/*/testdata/suites.yaml", "../newkind/pkg/controller/*/testdata/suites.yaml"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		if s, err := readSuite(file); err != nil || s.data == nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
