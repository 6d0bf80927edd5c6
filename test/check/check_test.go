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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"example.com/sample-controller/test/check/trace"
)

// TestIntegers: those of an example are integers, so that one less of each is tried.
func TestIntegers(t *testing.T) {
	s, err := readSuite("suites/peer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if n := trace.Flatten(s.example.Object)["/spec/replicas"]; !slices.Contains(others(n), any(int64(0))) {
		t.Errorf("the integer of the example is %#v", n)
	}
}

// object returns a version of an object of that UID. By is the UID of its controller, "" for none.
func object(resource, name, uid, by string, revision int64, deleted bool) trace.Version {
	metadata := map[string]any{"name": name, "uid": uid}
	if by != "" {
		metadata["ownerReferences"] = []any{map[string]any{"uid": by, "controller": true}}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"kind": resource, "metadata": metadata}}
	return trace.Version{Resource: resource, Object: o, Revision: revision, Deleted: deleted}
}

func TestStates(t *testing.T) {
	versions := []trace.Version{
		object("bars", "x", "1", "", 1, false),
		object("pods", "x-a", "2", "1", 2, false),
		object("pods", "other", "3", "4", 3, false),
		object("pods", "x-b", "5", "1", 6, false),
		object("pods", "x-a", "2", "1", 5, true),
	}
	if got := extremes(versions, 1, "bars")["peak pods"]; got != 1 {
		t.Errorf("peak of pods in order of their revisions: %d", got)
	}
	ref := &reference{
		check:   &checker{suite: &suite{}},
		tracked: map[string]bool{"pods": true}, stable: map[string]bool{"x": true, "other": true},
	}
	start, end := ref.stateAfter(versions[:3], "check-1"), ref.stateAfter(versions, "check-1")
	if got := end["pods #1 /metadata/ownerReferences/0/uid"]; got != "bars/x" {
		t.Errorf("the end is %v", end)
	}
	if lines := ref.differences(start, end); lines != nil {
		t.Errorf("a dependent with another random name is another end: %s", lines)
	}
	lines := ref.differences(end, ref.stateAfter(versions[:2], "check-1"))
	if diff := cmp.Diff([]string{"- pods other /kind: pods"}, lines); diff != "" {
		t.Error(diff)
	}
}

// TestNamesThatDiffer: runs at the same time may have the same name by chance.
func TestNamesThatDiffer(t *testing.T) {
	c := &checker{suite: &suite{Ignore: []string{"jobs * /metadata/name"}}}
	to, _ := trace.ParsePath("/apis/batch/v1/namespaces/a/jobs/x-1")
	read := trace.NewRequest(http.MethodGet, "", to, nil)
	o := &run{namespace: "a", sent: []trace.Request{*read}, points: []recordedPoint{{request: read}}}
	if ref := c.learnReference(&scenario{}, []*run{o, o}); ref.points[0].class != "GET jobs #1" {
		t.Errorf("the point is %q", ref.points[0].class)
	}
	// Those that a run with a fault sees before the operation do not count there, either.
	r := &run{trial: c.withoutFault(&scenario{}), aliases: c.aliases("b", map[string]bool{}), counts: map[string]int{}}
	to.Name = "earlier"
	r.record(trace.NewRequest(http.MethodGet, "", to, nil))
	r.armed = true
	if r.record(read); r.points[0].class != "GET jobs #1" {
		t.Errorf("with a fault the point is %q", r.points[0].class)
	}
}

// TestWorkLeft: what a touch of its owner leads to in each run, the controller should have done before.
func TestWorkLeft(t *testing.T) {
	versions := []trace.Version{object("pods", "p", "1", "", 1, false), object("pods", "q", "2", "", 2, false)}
	to, _ := trace.ParsePath("/api/v1/namespaces/-/pods")
	write := trace.NewRequest(http.MethodPost, "", to, nil)
	write.Code = http.StatusCreated
	for touched, want := range []string{"settled", ""} {
		c := &checker{options: &options{}, suite: &suite{}, tracked: map[string]bool{"pods": true}}
		o := &run{namespace: "-", versions: versions, rested: 1, sent: []trace.Request{*write}, touched: touched}
		done := &run{namespace: "-", versions: versions, rested: 2}
		if c.learnReference(&scenario{}, []*run{o, done}); len(c.report.Findings) > 0 {
			t.Errorf("work left in one run: %v", c.report.Findings)
		}
		got, ref := "", c.learnReference(&scenario{}, []*run{o, o})
		for _, f := range c.report.Findings {
			got += f.Judge
		}
		if got != want || ref.masked["pods q /kind"] != (want != "") {
			t.Errorf("%d writes before the touch: %q, masked %v", touched, got, ref.masked)
		}
	}
}

// TestOthersFields: what others choose for each Pod, a generation that a touch raises, and the order of conditions make
// no other end.
func TestOthersFields(t *testing.T) {
	ref := &reference{check: &checker{suite: &suite{}}, tracked: map[string]bool{"pods": true, "pods/status": true}}
	end := func(node, volume string, generation, observed int64, conditions ...any) state {
		v := object("pods", "p", "uid", "", 1, false)
		v.Object.SetGeneration(generation)
		v.Object.Object["spec"] = map[string]any{"nodeName": node, "volumes": []any{map[string]any{"name": volume}}}
		v.Object.Object["status"] = map[string]any{"observedGeneration": observed, "conditions": conditions}
		return ref.stateAfter([]trace.Version{v}, "check-1")
	}
	available, ready := map[string]any{"type": "Available"}, map[string]any{"type": "Ready"}
	want := end("a", "kube-api-access-a", 1, 1, available, ready)
	if diff := cmp.Diff(want, end("b", "kube-api-access-b", 2, 2, ready, available)); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(want, end("b", "kube-api-access-b", 2, 1, available, ready)) {
		t.Error("a change that is not acted upon is no other end")
	}
}

// TestForeign: a controller that has adopted what check made foreign leaves nothing to delete.
func TestForeign(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, meta.RESTScopeNamespace)
	of := &cluster{client: dynamic.NewForConfigOrDie(&rest.Config{}), mapper: mapper}
	c := &checker{options: &options{cluster: of}, suite: &suite{example: &unstructured.Unstructured{}}}
	r := &run{check: c, history: trace.NewHistory()}
	for where, found := range map[string]bool{"foreign": true, "owned": false} {
		s := &step{On: selector{APIVersion: "v1", Kind: "Pod", Where: where}, Delete: metav1.DeletePropagationBackground}
		if err := r.act(t.Context(), s, nil); (err == nil) != found {
			t.Errorf("%s: %v", where, err)
		}
	}
}

func TestHot(t *testing.T) {
	for gap, want := range map[time.Duration]bool{time.Second / hotCount: true, time.Second / (hotCount - 2): false} {
		var times []time.Time
		for i := range hotCount {
			times = append(times, time.Unix(0, 0).Add(time.Duration(i)*gap))
		}
		if hot(times) != want {
			t.Errorf("requests every %s: hot is %t", gap, !want)
		}
	}
}

func TestFewest(t *testing.T) {
	serving := func(name, uid string, revision, available int64, deleted bool) trace.Version {
		v := object("deployments", name, uid, "1", revision, deleted)
		v.Object.Object["status"] = map[string]any{"availableReplicas": available}
		return v
	}
	before := []trace.Version{object("bars", "x", "1", "", 1, false), serving("old", "2", 2, 2, false)}
	oldGoes, ownerGoes := serving("old", "2", 5, 2, true), object("bars", "x", "1", "", 4, true)
	late := []trace.Version{serving("new", "3", 4, 0, false), oldGoes, serving("new", "3", 6, 2, false)}
	inTime := []trace.Version{oldGoes, serving("new", "3", 4, 2, false)}
	collected := []trace.Version{serving("old", "2", 3, 2, false), ownerGoes, oldGoes}
	for i, then := range [][]trace.Version{late, inTime, collected} {
		got := -extremes(slices.Concat(before, then), len(before), "bars")["fewest deployments"]
		if want := min(2*i, 2); got != want {
			t.Errorf("fewest of %v: got %d, want %d", then, got, want)
		}
	}
}

// TestAvailabilityByChance: how many replicas are available while a Deployment follows what a user has written into it
// differs from run to run, and so does what others report of Pods that a user deletes.
func TestAvailabilityByChance(t *testing.T) {
	edits, deletesPods := step{On: selector{Kind: "Deployment"}}, step{On: selector{Kind: "Pod"}, Delete: "Background"}
	for name, test := range map[string]struct {
		step      step
		available int
		want      int
	}{
		"fewer are a finding":                 {step{}, 1, 1},
		"not during a user's rollout":         {edits, 1, 0},
		"none at all, also then":              {edits, 0, 1},
		"not while a user deletes Pods":       {deletesPods, 0, 0},
		"the deletion of others is no excuse": {step{On: selector{Kind: "Deployment"}, Delete: "Background"}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := &checker{suite: &suite{}}
			r := &run{trial: c.withoutFault(&scenario{Steps: []step{test.step}}), check: c}
			r.want.extremes = map[string]int{"fewest deployments": -2}
			r.extremes = map[string]int{"fewest deployments": -test.available}
			if r.judgeExtremes(); len(r.findings) != test.want {
				t.Errorf("findings %+v, want %d", r.findings, test.want)
			}
		})
	}
}

// TestReports encodes a finding, a fault that was not reached, and a run that passed.
func TestReports(t *testing.T) {
	failed := []finding{{Judge: "end", Message: "m", Run: "a"}}
	r := &report{Suite: "s", Names: []string{"a", "b", "c"}, Unreached: []string{"b"}, Findings: failed}
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

// TestKnown: what is wrong without a fault is not told with each fault again, whatever object it is about.
func TestKnown(t *testing.T) {
	first := finding{Judge: "end", Message: "one replica: it is broken\nobject: 1"}
	again := finding{Judge: "end", Message: "one replica: it is broken\nobject: 2"}
	more := finding{Judge: "end", Message: "one replica: it is broken\nobject: 1\n- deployments x /kind: Deployment"}
	if first.cause() != again.cause() || first.cause() == more.cause() {
		t.Errorf("%q, %q, %q", first.cause(), again.cause(), more.cause())
	}
}

func TestClass(t *testing.T) {
	to, _ := trace.ParsePath("/apis/example.com/v1/namespaces/check-1/bars/check-1-x7f/status")
	body := `{"metadata":{"resourceVersion":"1"},"status":{"b":1,"a":{"a.b/c":[2]}}}`
	r := trace.NewRequest(http.MethodPatch, "application/merge-patch+json", to, []byte(body))
	const want = "PATCH bars/status #1 {/status/a/a.b~1c/0,/status/b}"
	if got := r.Class(func(string, string) string { return "#1" }); got != want || r.Precondition != "1" {
		t.Errorf("%q, want %q; precondition %s", got, want, r.Precondition)
	}
}

func TestDeletedUID(t *testing.T) {
	// The answer to a DELETE, as JSON and as protobuf.
	status := &metav1.Status{Details: &metav1.StatusDetails{UID: "1"}}
	status.APIVersion, status.Kind = "v1", "Status"
	var inProtobuf bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(status, &inProtobuf); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{trace.MustEncode(status), inProtobuf.Bytes()} {
		r := &trace.Request{Verb: http.MethodDelete}
		if r.Answered(&trace.Response{Code: http.StatusOK, Body: data}); r.Deletes != "1" {
			t.Errorf("%q is decoded as %+v", data, r)
		}
	}
}

// TestRules judges the deletion of a Pod that serves, which a rule forbids, by its owner and by another one, and a no-op.
func TestRules(t *testing.T) {
	serves := trace.Definition{Name: "serves", Expression: "before.?status.?availableReplicas.orValue(0) > 0"}
	s := &trace.RuleSet{Define: []trace.Definition{serves}, Rules: []trace.Rule{
		{Name: "a", Must: "owner.controls(before) && !serves"},
		{Name: "b", Must: "owner.nothing"},
	}}
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	deletion := trace.Request{Verb: http.MethodDelete, Code: http.StatusOK, Deletes: "2"}
	noop := trace.Request{Verb: http.MethodPatch, Code: http.StatusOK, Precondition: "2", Revision: "2"}
	for name, test := range map[string]struct {
		owner     string
		available int64
		request   trace.Request
		want      string
	}{
		"its own Pod":                        {"1", 0, deletion, "b"},
		"its own Pod, which serves":          {"1", 1, deletion, "ab"},
		"a Pod of an owner that is not here": {"9", 0, deletion, "ab"},
		"a patch without an effect":          {"1", 0, noop, "b"},
	} {
		pod, got := object("pods", "x", "2", test.owner, 2, false), ""
		pod.Object.SetResourceVersion("2")
		pod.Object.Object["status"] = map[string]any{"availableReplicas": test.available}
		gone := trace.Version{Resource: "pods", Object: pod.Object, Revision: 3, Deleted: true}
		test.request.Resource, test.request.Name = "pods", "x"
		versions := []trace.Version{object("bars", "x", "1", "", 1, false), pod, gone}
		found := func(rule, _ string, _ *trace.Request) { got += rule }
		s.Judge(versions, []trace.Request{test.request}, "bars", nil, found)
		if got != test.want {
			t.Errorf("%s: broken: %q, want %q", name, got, test.want)
		}
	}
}

// TestRepeat: the command that repeats a finding says which cluster, and can be typed.
func TestRepeat(t *testing.T) {
	c := &checker{options: &options{kubeconfig: "k", command: []string{"./x", "--kubeconfig={}"}}, report: report{Suite: "s.yaml"}}
	if got, want := c.repeat("created | 409"), `go run ./test/check -suite s.yaml -only 'created | 409' -kubeconfig k -- ./x '--kubeconfig={}'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
