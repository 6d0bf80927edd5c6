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
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"example.com/sample-controller/test/check/trace"
)

func TestReadSuite(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"example.yaml": "# A comment.\n---\n{apiVersion: example.com/v1, kind: Bar, metadata: {name: x}, spec: {size: 1}}",
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
	if got := others(s.example.Object["spec"].(map[string]any)["size"]); !slices.Contains(got, any(int64(0))) {
		t.Errorf("the integer of the example becomes %#v", got)
	}
	steps := s.Scenarios[0].Steps
	versions, broken := []trace.Version{object("pods", "p", "1", "", 1, false), object("pods", "p", "1", "", 2, false)}, ""
	versions[0].Object.SetOwnerReferences([]metav1.OwnerReference{{Name: "bystander-owner"}})
	versions[1].Object.SetResourceVersion("2")
	to, _ := trace.ParsePath("/api/v1/namespaces/a/pods/p")
	requests := []trace.Request{{Target: to, Verb: http.MethodPut, Code: http.StatusOK, Revision: "2"}}
	s.Judge(versions, requests, "bars", nil, func(rule, _ string, _ *trace.Request) { broken += rule })
	if broken != "a write to what another object controls" {
		t.Errorf("of an object that was given away: %q", broken)
	}
	if diff := cmp.Diff([]string{`patch Bar x {"spec":{"replicas":2}}`, "delete Pod where owned"}, []string{steps[0].String(), steps[1].String()}); diff != "" {
		t.Error(diff)
	}
}

// object returns a version of an object, whose UID is its name and its UID's suffix.
func object(resource, name, uid, owner string, revision int64, deleted bool) trace.Version {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": resource, "metadata": map[string]any{"name": name, "uid": uid}}}
	if owner != "" {
		o.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"uid": owner}}
	}
	return trace.Version{Resource: resource, Object: o, Revision: revision, Deleted: deleted}
}

func TestPeakAndState(t *testing.T) {
	c := &checker{suite: &suite{}, owners: schema.GroupVersionResource{Resource: "bars"}}
	versions := []trace.Version{
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
	to, _ := trace.ParsePath("/apis/batch/v1/namespaces/a/jobs/x-1")
	read := trace.NewRequest(http.MethodGet, "", to, nil)
	o := &outcome{namespace: "a", requests: []trace.Request{*read}, points: []recordedPoint{{request: read}}}
	if ref, _ := c.learnReference(&scenario{}, []*outcome{o, o}); ref.points[0].class != "GET jobs #1" {
		t.Errorf("the point is %q", ref.points[0].class)
	}
	if n := (&scenario{similar: true, EndsAs: []step{{}}}).repeats(true); n < 2 {
		t.Errorf("an end that is compared with another run's is that of %d run", n)
	}
}

// TestWorkLeft: what a touch of its owner leads to in each run, the controller should have done before.
func TestWorkLeft(t *testing.T) {
	c := &checker{suite: &suite{}, tracked: map[string]bool{"pods": true}}
	versions := []trace.Version{object("pods", "p", "1", "", 1, false), object("pods", "q", "2", "", 2, false)}
	to, _ := trace.ParsePath("/api/v1/namespaces/-/pods")
	write := trace.NewRequest(http.MethodPost, "", to, nil)
	write.Code = http.StatusCreated
	missed, done := &outcome{namespace: "-", versions: versions, rested: 1, requests: []trace.Request{*write}}, &outcome{namespace: "-", versions: versions, rested: 2}
	byOthers := &outcome{namespace: "-", versions: versions, rested: 1, requests: missed.requests, touched: 1}
	ref, findings := c.learnReference(&scenario{}, []*outcome{missed, missed})
	if len(findings) != 1 || findings[0].Judge != "settled" || !ref.masked["pods q /kind"] {
		t.Errorf("in both runs: %v", findings)
	}
	if _, findings = c.learnReference(&scenario{}, []*outcome{missed, done}); len(findings) > 0 {
		t.Errorf("in one run: %v", findings)
	}
	if _, findings = c.learnReference(&scenario{}, []*outcome{byOthers, byOthers}); len(findings) > 0 {
		t.Errorf("by another client: %v", findings)
	}
}

// TestOthersFields: what others choose for each Pod, a generation that a touch raises, and the order of conditions make
// no other end.
func TestOthersFields(t *testing.T) {
	c := &checker{suite: &suite{}}
	end := func(node, volume string, generation, observed int64) state {
		v := object("pods", "p", "uid", "", 1, false)
		v.Object.SetGeneration(generation)
		v.Object.Object["spec"] = map[string]any{"nodeName": node, "volumes": []any{map[string]any{"name": volume}}}
		available, ready := map[string]any{"type": "Available"}, map[string]any{"type": "Ready"}
		v.Object.Object["status"] = map[string]any{"observedGeneration": observed, "conditions": []any{available, ready}}
		if node == "b" {
			v.Object.Object["status"].(map[string]any)["conditions"] = []any{ready, available}
		}
		return c.stateOf([]trace.Version{v}, map[string]bool{"pods": true, "pods/status": true}, newAliases("check-1", nil))
	}
	want, got := end("a", "kube-api-access-a", 1, 1), end("b", "kube-api-access-b", 2, 2)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(want, end("b", "kube-api-access-b", 2, 1)) {
		t.Error("a change that is not acted upon is no other end")
	}
}

// TestForeign: a controller that has adopted what check made foreign leaves nothing to delete.
func TestForeign(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, meta.RESTScopeNamespace)
	c := &checker{suite: &suite{example: &unstructured.Unstructured{}}, options: options{
		cluster: &cluster{client: dynamic.NewForConfigOrDie(&rest.Config{}), mapper: mapper}}}
	r := &run{check: c, history: trace.NewHistory(), proxy: &proxy{}}
	for where, found := range map[string]bool{"foreign": true, "owned": false} {
		s := &step{On: selector{APIVersion: "v1", Kind: "Pod", Where: where}, Delete: metav1.DeletePropagationBackground}
		if err := r.act(t.Context(), s, nil); (err == nil) != found {
			t.Errorf("%s: %v", where, err)
		}
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

func TestFewest(t *testing.T) {
	c := &checker{owners: schema.GroupVersionResource{Resource: "bars"}}
	serving := func(name, uid string, revision, available int64, deleted bool) trace.Version {
		v := object("deployments", name, uid, "1", revision, deleted)
		v.Object.Object["metadata"].(map[string]any)["ownerReferences"].([]any)[0].(map[string]any)["controller"] = true
		v.Object.Object["status"] = map[string]any{"availableReplicas": available}
		return v
	}
	before := []trace.Version{object("bars", "x", "1", "", 1, false), serving("old", "2", 2, 2, false)}
	for name, test := range map[string]struct {
		then []trace.Version
		want int
	}{
		"the new one serves first": {[]trace.Version{serving("old", "2", 5, 2, true), serving("new", "3", 4, 2, false)}, 2},
		"the old one goes first":   {[]trace.Version{serving("new", "3", 4, 1, false), serving("old", "2", 5, 2, true), serving("new", "3", 6, 2, false)}, 1},
		"its owner goes":           {[]trace.Version{object("bars", "x", "1", "", 4, true), serving("old", "2", 5, 2, true)}, 2},
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
	for _, want := range []string{`<testcase name="a">`, `<failure type="end">`, `<skipped/>`, `name="c"></testcase>`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

// TestOnly: a suite in which -only names nothing has no report, and there must be one that has.
func TestOnly(t *testing.T) {
	none, one := &report{}, &report{Runs: 1}
	if got, err := named([]*report{none, one}, "created"); err != nil || !slices.Equal(got, []*report{one}) {
		t.Errorf("%v, error %v", got, err)
	}
	if _, err := named([]*report{none}, "created"); err == nil {
		t.Error("no error without any scenario")
	}
}

// TestKnown: what is wrong without a fault is not told with each fault again, whatever object it is about.
func TestKnown(t *testing.T) {
	end := func(of string) finding {
		return finding{Judge: "end", Message: of + ": it is broken\nobject: " + t.Name() + of}
	}
	first, again, more := end("one replica"), end("one replica"), end("one replica")
	again.Message += "2"
	more.Message += "\n- deployments x /kind: Deployment"
	ref := &reference{known: map[string]bool{first.cause(): true}}
	if got := ref.withoutKnown([]finding{again, more}); len(got) != 1 || got[0].Message != more.Message {
		t.Errorf("%v", got)
	}
}

// TestSuites reads the suites of this repository.
func TestSuites(t *testing.T) {
	files := []string{"../../testdata/suites.yaml"}
	for _, root := range []string{"../..", "../*"} {
		more, err := filepath.Glob(root + "/pkg/controller/*/testdata/suites.yaml")
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
