//go:build compare

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

package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
	"example.com/sample-controller/test/stored"
)

var (
	fooNames        = []string{"x", "y"}
	deploymentNames = []string{"a", "b"}
	images          = []string{"nginx:1", "nginx:2", "nginx:latest", sim.StalledImage}
	propagations    = []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
)

func draw[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

func (s *sequence) chance(percent int) bool { return s.random.IntN(100) < percent }

// state returns the state of the object, of which there may have been another one before.
func (s *sequence) state(resource, name string) string {
	object := s.present[resource+"/"+name]
	if object == nil {
		return absent
	}
	d, isDeployment := object.(*appsv1.Deployment)
	switch {
	case object.GetDeletionTimestamp() != nil:
		return terminating
	case s.former[resource+"/"+name] != nil:
		return replaced
	case isDeployment && sim.Owner(d) == nil:
		return foreign
	}
	return live
}

// name draws the name of an object, each state that there is as often as each other one.
func (s *sequence) name(resource string) string {
	names := map[string][]string{sim.Foos: fooNames, sim.Deployments: deploymentNames}[resource]
	byState := map[string][]string{}
	for _, name := range names {
		state := s.state(resource, name)
		byState[state] = append(byState[state], name)
	}
	return draw(s.random, byState[draw(s.random, slices.Sorted(maps.Keys(byState))...)]...)
}

// request sends a request of the controller.
func (s *sequence) request() {
	foo, name, chance := s.name(sim.Foos), s.name(sim.Deployments), s.random.IntN(100)
	if s.isEnding() && s.chance(50) {
		chance = 30
	}
	c, r := cell{precondition: none}, &sim.Request{Resource: sim.Deployments, Name: name}
	var metadata map[string]any
	switch {
	case chance < 3:
		r.Verb, r.Resource, r.Name = "get", sim.Foos, foo
	case chance < 10:
		r.Verb = "get"
	case chance < 31:
		r.Verb, r.Object, r.DryRun = "create", s.desired(foo, name), s.chance(40)
	case chance < 52:
		c.precondition, metadata = s.precondition(sim.Deployments, name, false)
		r.Verb, r.PatchType, r.Patch = "patch", types.StrategicMergePatchType, s.patch(foo, metadata)
	case chance < 63:
		c.precondition, metadata = s.precondition(sim.Foos, foo, false)
		r.Verb, r.Resource, r.Subresource, r.Name = "patch", sim.Foos, "status", foo
		r.PatchType, r.Patch = types.MergePatchType, s.statusPatch(foo, metadata)
	default:
		c.precondition, metadata = s.precondition(sim.Deployments, name, true)
		r.Verb, r.Options.PropagationPolicy = "delete", ptr.To(draw(s.random, propagations...))
		if c.precondition != none {
			r.Options.Preconditions = &metav1.Preconditions{}
			s.must(json.Unmarshal(encode(metadata), r.Options.Preconditions))
		}
	}
	s.both(c, r)
}

// precondition draws what a request demands of the object: a patch its version, a deletion also its UID.
func (s *sequence) precondition(resource, name string, isDeletion bool) (kind string, metadata map[string]any) {
	key := resource + "/" + name
	kinds, stale := []string{none, staleVersion}, []string{s.first}
	object, former := s.present[key], s.former[key]
	if object != nil {
		kinds = append(kinds, fresh)
	}
	if former != nil && isDeletion {
		kinds = append(kinds, slices.Repeat([]string{staleUID}, 4)...)
	}
	for _, e := range s.history {
		if e.name() == key && (object == nil || e.Object.GetResourceVersion() != object.GetResourceVersion()) {
			stale = append(stale, e.Object.GetResourceVersion())
		}
	}
	metadata = map[string]any{}
	switch kind = draw(s.random, kinds...); kind {
	case fresh:
		if metadata["resourceVersion"] = object.GetResourceVersion(); isDeletion {
			metadata["uid"] = object.GetUID()
		}
	case staleVersion:
		metadata["resourceVersion"] = draw(s.random, stale...)
	case staleUID:
		metadata["uid"] = former.GetUID()
	}
	return kind, metadata
}

// ref returns the reference to the Foo, which may be gone.
func (s *sequence) ref(name string) []metav1.OwnerReference {
	never := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "never"}}
	return []metav1.OwnerReference{stored.ControllerRef(cmp.Or(s.present[sim.Foos+"/"+name], s.former[sim.Foos+"/"+name], sim.Object(never)))}
}

// desired returns the Deployment that the controller creates.
func (s *sequence) desired(foo, name string) *appsv1.Deployment {
	replicas := ptr.To(s.random.Int32N(4))
	deployment := stored.Created(name, foo, draw(s.random, images...), replicas, s.ref(foo)...)
	deployment.Labels = map[string]string{"app.kubernetes.io/managed-by": controllerName}
	return deployment
}

// patch returns a repair, or an adoption.
func (s *sequence) patch(foo string, metadata map[string]any) []byte {
	patch, spec := map[string]any{"metadata": metadata}, map[string]any{}
	if s.chance(40) {
		spec["replicas"] = s.random.IntN(4)
	}
	if s.chance(30) {
		containers := []any{map[string]any{"name": "nginx", "image": draw(s.random, images...)}}
		spec["template"] = map[string]any{"spec": map[string]any{"containers": containers}}
	}
	if s.chance(30) {
		metadata["labels"] = map[string]any{"app.kubernetes.io/managed-by": controllerName}
	}
	if s.chance(30) {
		metadata["ownerReferences"] = s.ref(foo)
	}
	if s.chance(20) {
		metadata["annotations"] = map[string]any{v1alpha1.AdoptByAnnotation: nil}
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return encode(patch)
}

// statusPatch returns the status of the Foo, often as it is.
func (s *sequence) statusPatch(name string, metadata map[string]any) []byte {
	available := s.random.Int32N(2)
	status := map[string]any{
		"observedGeneration": 1 + s.random.IntN(2), "availableReplicas": available, "replicas": available, "selector": nil,
	}
	if available > 0 {
		status["selector"] = "app=nginx"
	}
	conditions := []metav1.Condition{{
		Type: v1alpha1.FooReady, Status: draw(s.random, metav1.ConditionTrue, metav1.ConditionFalse),
		Reason:  draw(s.random, v1alpha1.ReasonDeploymentAvailable, v1alpha1.ReasonDeploymentProgressing),
		Message: draw(s.random, "", "Deployment is available"), LastTransitionTime: now(),
	}}
	if foo, ok := s.present[sim.Foos+"/"+name].(*v1alpha1.Foo); ok {
		for _, condition := range foo.Status.Conditions {
			if condition.Type != v1alpha1.FooReady {
				conditions = append(conditions, condition)
			}
		}
	}
	status["conditions"] = conditions
	return encode(map[string]any{"metadata": metadata, "status": status})
}

func encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding %v: %v", value, err))
	}
	return data
}

// translate returns the request with the UIDs and versions of the real API server.
func (s *sequence) translate(r *sim.Request) *sim.Request {
	translated := *r
	if r.Object != nil {
		translated.Object = &appsv1.Deployment{}
		s.translateInto(encode(r.Object), translated.Object)
	}
	if r.Patch != nil {
		var patch json.RawMessage
		s.translateInto(r.Patch, &patch)
		translated.Patch = patch
	}
	translated.Options = metav1.DeleteOptions{}
	s.translateInto(encode(r.Options), &translated.Options)
	return &translated
}

// translateInto decodes JSON in which the values of all fields that are UIDs or versions are translated.
func (s *sequence) translateInto(data []byte, value any) {
	data = identities.ReplaceAllFunc(data, func(field []byte) []byte {
		name, id, _ := strings.Cut(string(field), `":"`)
		return []byte(name + `":"` + cmp.Or(s.real[id], id))
	})
	s.must(json.Unmarshal(data, value))
}

var identities = regexp.MustCompile(`"(?:uid|resourceVersion)":"[^"]*`)

// The policies of namespaces, also terminating. Most have none.
const (
	rewrite = "rewrite"
	refuse  = "refuse"
)

var policies = []string{"", rewrite, refuse, terminating, rewrite, refuse, terminating}

// The states of an object.
const (
	absent      = "absent"
	live        = "live"
	terminating = "terminating"
	replaced    = "replaced"
	foreign     = "foreign"
)

// reordered is the answer to a write that changes nothing but the order of managers.
const reordered = "done, managers reordered"

// The preconditions of a request.
const (
	none         = "none"
	fresh        = "fresh"
	staleVersion = "stale version"
	staleUID     = "stale UID"
)

// namespaceDeleted stands for the request that makes a namespace terminating.
const namespaceDeleted = "delete the namespace"

// dryRun is the verb of a creation that is not stored.
const dryRun = "create, dry run"

// cell is a class of requests.
type cell struct {
	policy, resource, verb, precondition, state string
}

// editing returns how the table calls an edit of a Deployment.
func editing(edit sim.Edit) string { return string(sim.EditDeployment) + ": " + string(edit) }

// isEnding reports whether the namespace is terminating.
func (s *sequence) isEnding() bool { return slices.Contains(s.sent, namespaceDeleted) }

// inForce returns the cell under the policy of the sequence.
func (s *sequence) inForce(c cell) cell {
	if c.policy = s.policy; c.policy == refuse || c.policy == terminating && !s.isEnding() {
		c.policy = ""
	}
	c.precondition = cmp.Or(c.precondition, none)
	return c
}

// table counts the answers to each class of requests.
type table struct {
	mu     sync.Mutex
	counts map[cell]map[string]int
}

func (t *table) add(c cell, answer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[c] == nil {
		t.counts[c] = map[string]int{}
	}
	t.counts[c][answer]++
}

// String is a table in Markdown.
func (t *table) String() string {
	var text strings.Builder
	text.WriteString("| policy | resource | request | precondition | object | answers |\n|---|---|---|---|---|---|\n")
	for _, c := range slices.SortedFunc(maps.Keys(t.counts), func(a, b cell) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		var answers []string
		for _, answer := range slices.Sorted(maps.Keys(t.counts[c])) {
			answers = append(answers, fmt.Sprintf("%s: %d", answer, t.counts[c][answer]))
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s |\n", c.policy, c.resource, c.verb, c.precondition, c.state, strings.Join(answers, ", "))
	}
	return text.String()
}

// check fails the test if a class of requests is possible and was sent too seldom: each request that was sent at all,
// with each precondition, to an object in each state.
func (t *table) check(test *testing.T, least int) {
	test.Helper()
	rows, empty := map[cell]bool{}, map[string]int{}
	for c := range t.counts {
		c.state, c.precondition = "", ""
		rows[c] = true
	}
	for c := range rows {
		for _, c.state = range []string{absent, live, terminating, replaced, foreign} {
			for _, c.precondition = range []string{none, fresh, staleVersion, staleUID} {
				count := 0
				for _, n := range t.counts[c] {
					count += n
				}
				if reason := whyEmpty(c); reason == "" && count < least {
					test.Errorf("%+v was sent %d times", c, count)
				} else if reason != "" && count == 0 {
					empty[reason]++
				}
			}
		}
	}
	for reason, count := range empty {
		test.Logf("%d classes are empty: %s", count, reason)
	}
}

// whyEmpty returns why there may be no such requests, "" if there must be some.
func whyEmpty(c cell) string {
	switch {
	case strings.HasPrefix(c.verb, "list"):
		return "a list is of no object"
	case c.policy == terminating && !strings.HasPrefix(c.verb, "create"):
		return "a terminating namespace changes creations alone"
	case c.policy == rewrite && c.resource == sim.Foos:
		return "the policy changes Deployments alone"
	case c.resource == sim.Foos && c.state == foreign:
		return "Foos have no owner"
	case c.precondition != none && c.verb != "delete" && !strings.HasPrefix(c.verb, "patch"):
		return "reads, creations and what users do have no precondition"
	case c.precondition == staleUID && c.verb != "delete":
		return "patches have no UID"
	case c.precondition == staleUID && (c.state == live || c.state == foreign):
		return "there was no other object of that name"
	case c.precondition == fresh && c.state == absent:
		return "what is absent has no version"
	}
	return ""
}
