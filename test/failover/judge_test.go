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
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/sample-controller/test/check/trace"
	"example.com/sample-controller/test/kinds"
)

// maxReadAge bounds the time between a read and the write of one sync on a busy machine. Users change an object in
// between: a rule may hold at any moment of that time.
const maxReadAge = 2 * time.Second

// readRules returns the rules of testdata/suites.yaml, among them S1 to S4 of the contract, and one for changes of the
// leader.
func readRules(t *testing.T) *trace.RuleSet {
	t.Helper()
	rules := &trace.RuleSet{}
	data, err := kinds.ReadFile("../../testdata/suites.yaml")
	if err == nil {
		err = json.Unmarshal(data.Check, rules)
	}
	const isReady = ".?status.conditions.orValue([]).exists(c, c.type == 'Ready' && c.status == 'True' && " +
		"c.observedGeneration == after.metadata.generation)"
	rules.Rules = append(rules.Rules, trace.Rule{
		Name: "rule 20: a Foo stops being Ready although its Deployment has all Pods",
		When: "request.subresource == 'status' && before" + isReady + " && !after" + isReady,
		Must: "objects.exists(d, d.kind == 'Deployment' && d.metadata.name == after.spec.deploymentName && " +
			"d.?status.?availableReplicas.orValue(0) < d.spec.replicas)",
	})
	if err = errors.Join(err, rules.Prepare()); err != nil {
		t.Fatal(err)
	}
	return rules
}

// judge returns what breaks the rules. No user changes what another one has made.
func judge(rules *trace.RuleSet, versions []trace.Version, requests []trace.Request) (found []string) {
	seen, writes := map[string][]trace.Version{}, map[string][]trace.Request{}
	for _, v := range versions {
		user, _, _ := strings.Cut(v.Object.GetName(), "-")
		seen[user] = append(seen[user], v)
	}
	for i := range requests {
		if user, _, _ := strings.Cut(requests[i].Name, "-"); writesOurs(&requests[i]) {
			writes[user] = append(writes[user], requests[i])
		}
	}
	since := func(r *trace.Request) time.Time { return r.At.Add(-maxReadAge) }
	for user, all := range writes {
		rules.Judge(seen[user], all, foos, since, func(rule, message string, r *trace.Request) {
			found = append(found, fmt.Sprintf("%s: %s: %s", rule, class(r), message))
		})
	}
	return found
}

func writesOurs(r *trace.Request) bool {
	return r.IsWrite() && (r.Resource == foos || r.Resource == deployments)
}

func class(r *trace.Request) string {
	return r.Class(func(_, name string) string { return name })
}

// process is a replica that had the lease, or wanted it.
type process struct {
	name     string
	requests []trace.Request
	// mayBeLate is how many writes it may have had on the way when it lost the lease: none if it was terminated.
	mayBeLate int
}

// checkLease checks S5: no write of a process passes its fence after another process has acquired the lease. Who writes
// the Lease has it. Etcd's revisions order the writes, and the clock those without an effect. The rules demand that a
// write which had passed the fence before has a precondition.
func checkLease(all []process, versions []trace.Version) (found []string) {
	type holding struct {
		revision int64
		at       time.Time
		by       string
	}
	var holdings []holding
	for _, p := range all {
		for i := range p.requests {
			if r := &p.requests[i]; r.Resource == "leases" && r.Applied() {
				holdings = append(holdings, holding{effectAt(r, nil), r.At, p.name})
			}
		}
	}
	slices.SortFunc(holdings, func(a, b holding) int { return int(a.revision - b.revision) })
	for _, p := range all {
		var late []string
		for i := range p.requests {
			write := &p.requests[i]
			if !writesOurs(write) && (!write.IsWrite() || write.Resource != "events") {
				continue
			}
			leader, revision := "no process", effectAt(write, versions)
			for _, h := range holdings {
				if revision != 0 && h.revision < revision || revision == 0 && h.at.Before(write.At) {
					leader = h.by
				}
			}
			if leader != p.name {
				late = append(late, fmt.Sprintf("%s while %s led", class(write), leader))
			}
		}
		if len(late) > p.mayBeLate {
			found = append(found, fmt.Sprintf("S5: %s wrote %d times without the lease, and %d at most had passed its fence before: %s",
				p.name, len(late), p.mayBeLate, strings.Join(late, ", ")))
		}
	}
	return found
}

// effectAt returns the revision of the write's effect, 0 if it had none. That of a deletion is in the history only.
func effectAt(r *trace.Request, versions []trace.Version) int64 {
	if r.Verb == http.MethodDelete {
		for _, v := range versions {
			if string(v.Object.GetUID()) == r.Deletes && !v.IsLive() {
				return v.Revision
			}
		}
	}
	if r.Revision == r.Precondition {
		return 0
	}
	// A refused write has none.
	revision, _ := strconv.ParseInt(r.Revision, 10, 64)
	return revision
}

// story is a history that steps make, with one version a second from the revision and second 1 on.
type story struct {
	versions []trace.Version
	requests []trace.Request
}

type step func(*story)

func unixTime(n int64) time.Time { return time.Unix(n, 0) }

func (s *story) add(resource string, deleted bool, text string, arguments ...any) {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, text, arguments...), &object.Object); err != nil {
		panic(err)
	}
	v := trace.Version{Resource: resource, Object: object, Deleted: deleted, Revision: int64(len(s.versions) + 1)}
	v.At = unixTime(v.Revision)
	object.SetResourceVersion(fmt.Sprint(v.Revision))
	s.versions = append(s.versions, v)
}

// foo is a version of the Foo x of user u with that status of Ready.
func foo(generation int, deployment string, observed int, ready string) step {
	return func(s *story) {
		s.add(foos, false, `{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {name: u-x, uid: x, generation: %d},
			spec: {deploymentName: u-%s, replicas: 2}, status: {observedGeneration: %d, conditions:
			[{type: Ready, status: %q, reason: DeploymentProgressing, message: "", observedGeneration: %[3]d}]}}`, generation, deployment, observed, ready)
	}
}

// owned is a version of a Deployment of this Foo with so many available Pods of two.
func owned(name string, available int, deleted bool) step {
	return func(s *story) {
		s.add(deployments, deleted, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: u-%s, uid: %[1]s, generation: 1,
			managedFields: [{manager: sample-controller}], ownerReferences: [{name: u-x, uid: x, controller: true}]},
			spec: {replicas: 2, strategy: {type: RollingUpdate}, template: {spec: {containers: [{name: nginx, image: nginx}]}}},
			status: {observedGeneration: 1, updatedReplicas: 2, availableReplicas: %d}}`, name, available)
	}
}

// sent is a request about the last version of an object, and what it leads to.
func sent(verb, resource, name string, to step, changes ...func(*trace.Request)) step {
	return func(s *story) {
		r := trace.Request{Verb: verb, At: unixTime(int64(len(s.versions))), Code: http.StatusOK, Made: "u-" + name}
		r.Resource, r.Name, r.Revision = resource, r.Made, fmt.Sprint(len(s.versions)+1)
		for _, v := range s.versions {
			if v.Resource == resource && v.Object.GetName() == r.Name {
				r.Precondition = v.Object.GetResourceVersion()
			}
		}
		if verb == http.MethodDelete {
			r.Deletes = name
		}
		if resource == foos {
			r.Subresource = "status"
		}
		for _, change := range changes {
			change(&r)
		}
		s.requests = append(s.requests, r)
		to(s)
	}
}

// TestJudge tests that the rules find what breaks them, and that they are applied to the right moments.
func TestJudge(t *testing.T) {
	unconditional := func(r *trace.Request) { r.Precondition = "" }
	muchLater := func(r *trace.Request) { r.At = r.At.Add(time.Minute) }
	deletes := func(changes ...func(*trace.Request)) step {
		return sent(http.MethodDelete, deployments, "a", owned("a", 2, true), changes...)
	}
	says := func(to step) step { return sent(http.MethodPatch, foos, "x", to) }
	ready, renamed := foo(1, "a", 1, "True"), []step{owned("a", 2, false), foo(2, "b", 1, "True"), owned("b", 2, false)}
	for name, test := range map[string]struct {
		// want begins the only violation, "" is for none.
		want  string
		steps []step
	}{
		"all is well": {"", []step{foo(1, "a", 0, ""), sent(http.MethodPost, deployments, "a", owned("a", 2, false)), says(ready),
			foo(2, "b", 1, "True"), sent(http.MethodPost, deployments, "b", owned("b", 2, false)), deletes(), says(foo(2, "b", 2, "True"))}},
		"a blind patch": {"S1 and rule 10", []step{ready, owned("a", 2, false),
			sent(http.MethodPatch, deployments, "a", owned("a", 2, false), unconditional)}},
		"a name that the Foo never had": {"S2: a name", []step{foo(1, "a", 0, ""),
			sent(http.MethodPost, deployments, "b", owned("b", 2, false))}},
		"the generation goes back":                      {"S3: observed", []step{foo(2, "a", 2, "False"), says(foo(2, "a", 1, "False"))}},
		"Ready before all Pods are":                     {"S2 and S3", []step{foo(1, "a", 0, ""), owned("a", 1, false), says(ready)}},
		"progress without a Deployment":                 {"S3: the spec", []step{foo(1, "a", 0, ""), says(foo(1, "a", 1, "False"))}},
		"a deletion that was right when it was decided": {"", append(slices.Clone(renamed), owned("b", 0, false), deletes())},
		"a deletion that was right long ago":            {"S1, S4 and rule 8", append(slices.Clone(renamed), owned("b", 0, false), deletes(muchLater))},
		"the Deployment has lost Pods":                  {"", []step{ready, owned("a", 1, false), says(foo(1, "a", 1, "False"))}},
		"the Foo stops being Ready by itself":           {"rule 20", []step{owned("a", 2, false), ready, says(foo(1, "a", 1, "False"))}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{}
			for _, step := range test.steps {
				step(s)
			}
			expect(t, judge(readRules(t), s.versions, s.requests), test.want)
		})
	}
}

func expect(t *testing.T, found []string, want string) {
	t.Helper()
	if want == "" && len(found) > 0 || want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], want)) {
		t.Errorf("want %q; violations: %s", want, strings.Join(found, "\n"))
	}
}

// TestLease: process a leads from revision and second 10 on, and process b from 20 on. Only a may be frozen.
func TestLease(t *testing.T) {
	const once, thrice = "S5: a wrote 1 times", "S5: a wrote 3 times"
	// write is applied with that revision, or refused if that is 0, and sent at that second.
	write := func(verb, resource string, revision, second int64) trace.Request {
		r := trace.Request{Verb: verb, At: unixTime(second), Precondition: "12"}
		if r.Resource, r.Code = resource, http.StatusConflict; revision != 0 {
			r.Revision, r.Code = fmt.Sprint(revision), http.StatusOK
		}
		return r
	}
	lease := func(revision int64) trace.Request { return write(http.MethodPut, "leases", revision, revision) }
	patch := func(revision, second int64) trace.Request {
		return write(http.MethodPatch, deployments, revision, second)
	}
	deletion := func(uid string, second int64) trace.Request {
		r := write(http.MethodDelete, deployments, 0, second)
		r.Code, r.Deletes = http.StatusOK, uid
		return r
	}
	s := &story{}
	owned("late", 2, true)(s)
	s.versions[0].Revision = 21
	for name, test := range map[string]struct {
		want   string
		frozen bool
		a, b   []trace.Request
	}{
		"a acquires the lease again":                  {a: []trace.Request{lease(30), patch(31, 31)}},
		"each worker of a frozen leader had passed":   {frozen: true, a: []trace.Request{patch(21, 21), patch(22, 21)}},
		"a frozen leader writes on":                   {want: thrice, frozen: true, a: []trace.Request{patch(21, 21), patch(22, 21), patch(23, 21)}},
		"a write is sent before, but applied after":   {want: once, a: []trace.Request{patch(21, 19)}},
		"a write is sent after, but applied before":   {a: []trace.Request{patch(19, 21)}},
		"a refused write":                             {want: once, a: []trace.Request{patch(0, 21)}},
		"a write that was refused before":             {a: []trace.Request{patch(0, 19)}},
		"a write without an effect":                   {want: once, a: []trace.Request{patch(12, 21)}},
		"a deletion":                                  {want: once, a: []trace.Request{deletion("late", 19)}},
		"an Event":                                    {want: once, a: []trace.Request{write(http.MethodPost, "events", 21, 21)}},
		"a write before the first leader":             {want: "S5: b wrote 1 times", b: []trace.Request{patch(9, 9)}},
		"a write of a process that does not lead yet": {want: "S5: b wrote 1 times", b: []trace.Request{patch(11, 11)}},
	} {
		t.Run(name, func(t *testing.T) {
			a := process{name: "a", requests: append([]trace.Request{lease(10), lease(15)}, test.a...)}
			b := process{name: "b", requests: append([]trace.Request{lease(20)}, test.b...)}
			if test.frozen {
				a.mayBeLate = 2
			}
			expect(t, checkLease([]process{a, b}, s.versions), test.want)
		})
	}
}
