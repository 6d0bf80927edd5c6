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
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/check/trace"
)

const (
	available   = v1alpha1.ReasonDeploymentAvailable
	progressing = v1alpha1.ReasonDeploymentProgressing
	notOwned    = v1alpha1.ReasonDeploymentNotOwned
)

func unixTime(n int64) time.Time { return time.Unix(n, 0) }

// fakeHistory is a history that steps make, with one version a second from the revision and second 1 on.
type fakeHistory struct {
	versions []trace.Version
	requests []request
}

type step func(*fakeHistory)

func (h *fakeHistory) add(resource string, object any, deleted bool) {
	revision := int64(len(h.versions) + 1)
	u := trace.DecodeObject(trace.MustEncode(object))
	u.SetResourceVersion(fmt.Sprint(revision))
	v := trace.Version{Resource: resource, Object: u, Revision: revision, Deleted: deleted, At: unixTime(revision)}
	h.versions = append(h.versions, v)
}

// foo is a version of a Foo, whose UID is its name, with as many replicas as its generation.
func foo(name string, generation int64, deployment string) step {
	return func(h *fakeHistory) { h.add(foos, newFoo(name, generation, deployment), false) }
}

func newFoo(name string, generation int64, deployment string) *v1alpha1.Foo {
	return &v1alpha1.Foo{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Foo"},
		ObjectMeta: metav1.ObjectMeta{Name: "u-" + name, UID: types.UID(name), Generation: generation},
		Spec:       v1alpha1.FooSpec{DeploymentName: "u-" + deployment, Replicas: ptr.To(int32(generation))},
	}
}

// status is a version of Foo x with a status for the observed generation.
func status(generation int64, deployment, reason string, observed int64) step {
	f := newFoo("x", generation, deployment)
	f.Status.ObservedGeneration = observed
	is := metav1.ConditionFalse
	if reason == available {
		is = metav1.ConditionTrue
	}
	ready := metav1.Condition{Type: v1alpha1.FooReady, Status: is, Reason: reason, ObservedGeneration: observed}
	f.Status.Conditions = []metav1.Condition{ready}
	return func(h *fakeHistory) { h.add(foos, f, false) }
}

// owned is a version of a Deployment that the controller has written and that is rolled out, of the Foo of that name
// or, if that is "", of nobody.
func owned(name, owner string, replicas int32, changes ...func(*appsv1.Deployment)) step {
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "u-" + name, UID: types.UID(name), Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: replicas, AvailableReplicas: replicas},
	}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:1"}}
	d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: controller.FieldManager}}
	if owner != "" {
		by := metav1.OwnerReference{Name: "u-" + owner, UID: types.UID(owner), Controller: ptr.To(true)}
		d.OwnerReferences = []metav1.OwnerReference{by}
	}
	for _, change := range changes {
		change(d)
	}
	return func(h *fakeHistory) { h.add(deployments, d, false) }
}

func unavailable(d *appsv1.Deployment) { d.Status.AvailableReplicas = 0 }
func terminating(d *appsv1.Deployment) { d.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }
func changed(d *appsv1.Deployment)     { d.Generation = 2 }
func byUser(d *appsv1.Deployment)      { d.ManagedFields[0].Manager = "kubectl-create" }

func gone(resource, name string) step {
	return func(h *fakeHistory) {
		for _, v := range slices.Backward(h.versions) {
			if v.Resource == resource && v.Object.GetName() == "u-"+name {
				h.add(resource, v.Object, true)
				return
			}
		}
	}
}

// sent is a request about the last version of an object, and what it leads to unless that is nil.
func sent(verb, resource, name string, to step, changes ...func(*request)) step {
	return func(h *fakeHistory) {
		now := unixTime(int64(len(h.versions)))
		r := request{Request: trace.Request{Verb: verb, At: now, Code: http.StatusOK}, answered: now}
		r.Name = "u-" + name
		for _, v := range h.versions {
			if v.Resource == resource && v.Object.GetName() == r.Name {
				r.Precondition = v.Object.GetResourceVersion()
			}
		}
		r.Resource, r.Made, r.Revision = resource, r.Name, fmt.Sprint(len(h.versions)+1)
		if verb == http.MethodDelete {
			r.Deletes = name
		}
		for _, change := range changes {
			change(&r)
		}
		h.requests = append(h.requests, r)
		if to != nil {
			to(h)
		}
	}
}

func lost(r *request)          { r.Code, r.Made, r.Revision, r.Deletes = 0, "", "", "" }
func unconditional(r *request) { r.Precondition = "" }
func ofStatus(r *request)      { r.Subresource = "status" }
func muchLater(r *request)     { r.At = r.At.Add(time.Minute) }

// read is a live read of Foo x, made a request for a Deployment, deletes that of a, and says a write of the status.
func read() step { return sent(http.MethodGet, foos, "x", nil) }
func made(name string, to step, changes ...func(*request)) step {
	return sent(http.MethodPost, deployments, name, to, changes...)
}
func deletes(changes ...func(*request)) step {
	return sent(http.MethodDelete, deployments, "a", gone(deployments, "a"), changes...)
}
func patched(to step, changes ...func(*request)) step {
	return sent(http.MethodPatch, deployments, "a", to, changes...)
}
func says(to step, changes ...func(*request)) step {
	return sent(http.MethodPatch, foos, "x", to, append(changes, ofStatus)...)
}

// renamed is Foo x with the rolled out Deployment a, after a change of its spec to b.
func renamed(h *fakeHistory) {
	for _, s := range []step{foo("x", 1, "a"), owned("a", "x", 2), foo("x", 2, "b")} {
		s(h)
	}
}

// TestJudge tests that the rules are applied to the right moments: each must find what breaks it, and nothing else.
func TestJudge(t *testing.T) {
	const s1, s4, ready = "S1 and rule 10", "S1, S4 and rule 8", "S2 and S3"
	rules := readRules(t)
	for _, test := range []struct {
		name string
		// want begins a violation, "" is for none.
		want  string
		steps []step
	}{
		{"all is well", "", []step{foo("x", 1, "a"), made("a", owned("a", "x", 1)), says(status(1, "a", available, 1)),
			foo("x", 2, "b"), made("b", owned("b", "x", 2)), read(), deletes(), says(status(2, "b", available, 2))}},
		{"a patch of nobody's", s1, []step{foo("x", 1, "a"), owned("a", "", 1), patched(owned("a", "", 2, changed), lost)}},
		{"a blind patch", s1, []step{foo("x", 1, "a"), owned("a", "x", 1), patched(owned("a", "x", 1), unconditional)}},
		{"a blind status", s1, []step{foo("x", 1, "a"), says(foo("x", 1, "a"), unconditional)}},
		{"a spec is written", s1, []step{foo("x", 1, "a"), sent(http.MethodPut, foos, "x", foo("x", 2, "a"))}},
		{"a lost deletion in vain", "", []step{renamed, sent(http.MethodDelete, deployments, "a", owned("a", "x", 0), lost)}},
		{"a lost deletion that was right until the Foo was deleted", "", []step{renamed, owned("b", "x", 2),
			sent(http.MethodDelete, deployments, "a", gone(foos, "x"), lost), gone(deployments, "a")}},
		{"a lost deletion of what the Foo asks for", s4, []step{foo("x", 1, "a"), owned("a", "x", 0), deletes(lost)}},
		{"the Foo goes after the live read", "", []step{renamed, owned("b", "x", 2), read(), gone(foos, "x"), deletes()}},
		{"without a live read", s1, []step{renamed, owned("b", "x", 2), gone(foos, "x"), deletes()}},
		{"long after it", s1, []step{renamed, owned("b", "x", 2), read(), gone(foos, "x"), deletes(muchLater)}},
		{"a name that the Foo never had", "S2: a name", []step{foo("x", 1, "a"), made("b", owned("b", "x", 1), lost)}},
		{"Ready beside the old one", ready, []step{renamed, owned("b", "x", 2), says(status(2, "b", available, 2))}},
		{"Ready beside a copy", "", []step{foo("x", 1, "a"), owned("a", "x", 1), owned("c", "x", 1, byUser), says(status(1, "a", available, 1))}},
		{"the generation is ahead", "S3: observed", []step{foo("x", 1, "a"), says(status(1, "a", notOwned, 2))}},
		{"the generation goes back", "S3: observed", []step{status(2, "a", notOwned, 2), says(status(2, "a", notOwned, 1))}},
		{"Ready before the scaling", ready, []step{foo("x", 2, "a"), owned("a", "x", 1), says(status(2, "a", available, 2))}},
		{"Ready by another one", ready, []step{foo("x", 1, "a"), owned("a", "", 1), says(status(1, "a", available, 1))}},
		{"progress without a Deployment", "S3: the spec", []step{foo("x", 1, "a"), says(status(1, "a", progressing, 1))}},
		{"no Deployment has the new name", s4, []step{renamed, read(), deletes()}},
		{"the new Deployment is unavailable", s4, []step{renamed, owned("b", "x", 2, unavailable), read(), deletes()}},
		{"the new Deployment terminates", s4, []step{renamed, owned("b", "x", 2, terminating), read(), deletes()}},
		{"the new Deployment is nobody's", s4, []step{owned("b", "", 2), renamed, read(), deletes()}},
		{"the new Deployment was available", s4, []step{renamed, owned("b", "x", 2), owned("b", "x", 2, unavailable), foo("y", 1, "y"),
			read(), deletes()}},
		{"two Foos swap names", "", []step{foo("y", 1, "a"), owned("b", "y", 2), renamed, read(), deletes()}},
		{"a cycle ends after its live reads", "", []step{foo("y", 1, "a"), owned("b", "y", 2), renamed,
			sent(http.MethodGet, foos, "y", nil), gone(foos, "y"), read(), deletes()}},
		{"its owner keeps the new name", s4, []step{foo("y", 1, "b"), owned("b", "y", 2), renamed, read(), deletes()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &fakeHistory{}
			for _, s := range test.steps {
				s(h)
			}
			expectViolation(t, judge(&rules, h.versions, h.requests), test.want)
		})
	}
}

func expectViolation(t *testing.T, found violations, want string) {
	t.Helper()
	wanted := slices.ContainsFunc(found, func(v string) bool { return strings.HasPrefix(v, want) })
	if want == "" && len(found) > 0 || want != "" && !wanted {
		t.Errorf("want %q; violations: %s", want, strings.Join(found, "\n"))
	}
}

// TestReadiness tests what must hold across handovers. The one here lasts from second 100 to 110.
func TestReadiness(t *testing.T) {
	const stopped = "Foo u-x stopped being Ready in generation 1"
	handovers := []*handover{{signalled: unixTime(100), nextStarted: unixTime(110)}}
	history := func(steps ...step) []string {
		h := &fakeHistory{}
		for _, s := range steps {
			s(h)
		}
		return leftReady(h.versions)
	}
	// Statuses of Foo x have a generation at a second, and so do the changes of its spec.
	type at struct{ generation, second int64 }
	latency := func(statuses []at, changes ...at) []string {
		h, specs := &fakeHistory{}, []specChange(nil)
		for i, s := range statuses {
			status(s.generation, "a", available, s.generation)(h)
			h.versions[i].At = unixTime(s.second)
		}
		for _, c := range changes {
			specs = append(specs, specChange{"x", c.generation, unixTime(c.second)})
		}
		return checkLatencies(statusLatencies(specs, h.versions, handovers))
	}
	ready, left := status(1, "a", available, 1), status(1, "a", progressing, 1)
	for _, test := range []struct {
		name, want string
		found      []string
	}{
		{"its spec changed", "", history(ready, status(2, "a", available, 1), status(2, "a", progressing, 2))},
		{"nothing changed", stopped, history(ready, owned("a", "x", 3), left)},
		{"its Deployment lost Pods", "", history(ready, owned("a", "x", 3, unavailable), left)},
		{"it had lost Pods before", stopped, history(owned("a", "x", 3, unavailable), ready, left)},
		{"statuses are as fast after a handover", "", latency([]at{{1, 12}, {2, 118}}, at{1, 10}, at{2, 101})},
		{"a later generation superseded a change", "", latency([]at{{1, 12}, {3, 118}}, at{1, 10}, at{2, 101}, at{3, 102})},
		{"a change is late", "a status came 9s after a handover", latency([]at{{1, 12}, {2, 119}}, at{1, 10}, at{2, 101})},
		{"no change across a handover", "too few changes to compare", latency([]at{{1, 12}}, at{1, 10})},
	} {
		t.Run(test.name, func(t *testing.T) { expectViolation(t, test.found, test.want) })
	}
}

// write returns a write that was received and answered at that second. It has the version before the revision as its
// precondition, and without a revision it was refused.
func write(verb, resource string, revision, second int64) request {
	r := request{Request: trace.Request{Verb: verb, Code: http.StatusOK, At: unixTime(second)}, answered: unixTime(second)}
	r.Resource, r.Name, r.Precondition, r.Revision = resource, "x", fmt.Sprint(revision-1), fmt.Sprint(revision)
	if revision == 0 {
		r.Code, r.Revision = http.StatusConflict, ""
	}
	return r
}

func lease(holder string, revision int64) request {
	r := write(http.MethodPut, "leases", revision, revision)
	r.holder = holder
	return r
}

// TestLease tests the judge of S5. Process a leads from revision and second 10 on, process b from 20 on. Each has two
// workers, and only a may be frozen.
func TestLease(t *testing.T) {
	const late, once = "S5: a wrote ", "S5: a wrote 1 times"
	patch := func(revision, second int64) request { return write(http.MethodPatch, deployments, revision, second) }
	with := func(r request, change func(*request)) request {
		change(&r)
		return r
	}
	deletion := func(uid string, second int64) request {
		return with(write(http.MethodDelete, deployments, 1, second), func(r *request) { r.Revision, r.Deletes = "", uid })
	}
	unguarded := func(r request) request { return with(r, func(r *request) { r.Precondition = "" }) }
	history := &fakeHistory{}
	owned("early", "x", 1, terminating)(history)
	owned("late", "x", 1, terminating)(history)
	history.versions[0].Revision, history.versions[1].Revision = 19, 21
	for _, test := range []struct {
		name string
		a, b []request
		// frozen is set if process a was stopped for longer than its lease.
		frozen bool
		// passed is the number of writes that had passed the fence before, want the beginning of the violation.
		passed int
		want   string
	}{
		{name: "valid: a, then b", a: []request{patch(19, 19)}, b: []request{patch(21, 21)}},
		{name: "valid: a holds the lease again", a: []request{lease("a", 30), patch(31, 31)}},
		{name: "valid: b renews its lease between writes", b: []request{lease("b", 25), patch(26, 26)}},
		{name: "valid: a review, the certificate", a: []request{
			with(write(http.MethodPost, "tokenreviews", 0, 21), func(r *request) { r.Group = "authentication.k8s.io" }),
			write(http.MethodPut, "secrets", 21, 21)}},
		{name: "the former leader writes on", frozen: true, want: late + "3 times",
			a: []request{patch(21, 21), patch(22, 21), patch(23, 21)}},
		{name: "valid: each worker of a frozen leader had passed", frozen: true, passed: 2, a: []request{patch(21, 21), patch(22, 21)}},
		{name: "the same of a leader that was not frozen", want: once, a: []request{patch(21, 21)}},
		{name: "the write was received before, but applied after", want: once, a: []request{patch(21, 19)}},
		{name: "valid: the write was received after, but applied before", a: []request{patch(19, 21)}},
		{name: "a refused write", want: once, a: []request{patch(0, 21)}},
		{name: "valid: a write was refused before", a: []request{patch(0, 19)}},
		{name: "no effect", want: once, a: []request{with(patch(12, 21), func(r *request) { r.Precondition = "12" })}},
		{name: "a deletion", want: once, a: []request{deletion("late", 19)}},
		{name: "valid: a deletion before", a: []request{deletion("early", 21)}},
		{name: "an Event", want: once, a: []request{unguarded(write(http.MethodPost, "events", 21, 21))}},
		{name: "a blind patch", frozen: true, want: "S5: PATCH deployments x", a: []request{unguarded(patch(21, 21))}},
		{name: "a create without a name", frozen: true, want: "S5: POST deployments ",
			a: []request{with(unguarded(write(http.MethodPost, deployments, 21, 21)), func(r *request) { r.Name = "" })}},
		{name: "a blind deletion", frozen: true, want: "S5: DELETE deployments x", a: []request{unguarded(deletion("late", 21))}},
		{name: "a write before the first leader", want: "S5: b wrote before any process", b: []request{patch(9, 9)}},
		{name: "a write of a process that does not lead yet", want: "S5: b wrote 1 times", b: []request{patch(11, 11)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := process{name: "a", requests: append([]request{lease("a", 10), lease("a", 15)}, test.a...)}
			b := process{name: "b", requests: append([]request{lease("b", 20)}, test.b...)}
			if test.frozen {
				a.mayBeLate = 2
			}
			passed, found := checkLease([]process{a, b}, history.versions)
			expectViolation(t, found, test.want)
			if passed != test.passed || len(found) > 1 {
				t.Errorf("%d writes had passed the fence before, want %d; %d violations", passed, test.passed, len(found))
			}
		})
	}
}
