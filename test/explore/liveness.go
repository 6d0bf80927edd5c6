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

package explore

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"example.com/sample-controller/test/sim"
)

// edge is a quiet step: no user, no fault.
type edge struct {
	to int32
	// class numbers what acts: of a component in which the same things go on for ever each class must have had its turn.
	class int8
	// writes says that the step changed the cluster for the controller, and may not go on for ever.
	writes bool
}

// quiet is the graph of the quiet steps, and what is wrong with the states at rest.
type quiet struct {
	edges []edge
	// first is the number of the first edge of each state.
	first []int32
	// enabled has the classes that may act in a state, as bits.
	enabled []uint64
	classes map[step]int8
	// rests are the states at rest.
	rests map[int32]atRest
}

// atRest is a state in which nothing is left to do but to wait.
type atRest struct {
	// wrong is what it violates.
	wrong string
	// isIdle says that the process remembers nothing, or a policy is in force: what that has made of a write is
	// remembered.
	isIdle  bool
	outcome outcome
	// conditions are those of the owners.
	conditions []string
}

// class returns the class of a step, -1 if it is not quiet.
func (e *Explorer) class(s step) int8 {
	class := step{kind: s.kind}
	switch {
	case s.kind > pass || s.costs > 0:
		return -1
	case s.kind == store || s.kind == handle:
		class.at = s.at
	case s.kind == begin:
		class.key = s.key
	case s.kind == collect || s.kind == act:
		class = s
	}
	number, ok := e.quiet.classes[class]
	if !ok {
		if number = int8(len(e.quiet.classes)); number == 64 {
			panic("more classes than the bits of a state have room for")
		}
		e.quiet.classes[class] = number
	}
	return number
}

// maxFailures is after how many failures the backoff is at its maximum.
const maxFailures = 17

// isRestless reports whether a sync that goes on like this for ever is a livelock: it changes the cluster, and not only
// the status of what a policy refuses, at the maximal backoff.
func (e *Explorer) isRestless(s, t *state, number int) bool {
	return t.cluster.store.Version() != s.cluster.store.Version() && (s.cluster.store.Refused == "" || s.process.run(number).failures < maxFailures)
}

// judgeRest records what is wrong with a state in which nothing is left to do but to wait.
func (e *Explorer) judgeRest(s *state, id int32) {
	wrong, isIdle := e.wrongAtRest(s)
	outcome := outcome{e.outcome(s), s.left.Operations, s.left.Deviations < e.scope.Budget.Deviations}
	e.quiet.rests[id] = atRest{strings.Join(wrong, "; "), isIdle, outcome, e.conditions(s)}
}

// wrongAtRest returns what is wrong with a state at rest, and whether its process remembers nothing that it should have
// forgotten by then.
func (e *Explorer) wrongAtRest(s *state) (wrong []string, isIdle bool) {
	wrong = s.judge.kind.Rest(e.clusterIn(s))
	// Without a timer no time passes, in which a limiter gets its tokens back.
	later := e.process.next(s.process, entry{kind: pass, now: s.process.now.Add(time.Hour)})
	hasPolicies, forgot := s.cluster.store.Policies != sim.Policies{}, later.memory.sum == e.idle.sum
	if forgot && !hasPolicies {
		wrong = append(wrong, e.judgeWake(s)...)
	}
	return wrong, forgot || hasPolicies
}

// outcome is what users see of a cluster at rest, and whether there was a deviation on the way.
type outcome struct {
	seen       string
	operations int
	deviates   bool
}

// outcome returns the objects as users see them: without UIDs, versions, generations, times of changes and messages.
func (e *Explorer) outcome(s *state) string {
	var all []string
	for _, resource := range e.resources {
		for _, object := range s.cluster.store.Objects(resource) {
			text, err := json.Marshal(object)
			if err != nil {
				panic(err)
			}
			all = append(all, unseen.ReplaceAllString(string(text), ""))
		}
	}
	return strings.Join(all, "\n")
}

// conditions returns those of the owners, without times.
func (e *Explorer) conditions(s *state) (all []string) {
	for _, owner := range s.cluster.store.Objects(e.resources[0]) {
		conditions, _, _ := unstructured.NestedSlice(fields(owner), "status", "conditions")
		for _, c := range conditions {
			condition := c.(map[string]any)
			text := fmt.Sprintf("%s=%s %s: %s", condition["type"], condition["status"], condition["reason"], condition["message"])
			all = append(all, strings.ReplaceAll(instants.ReplaceAllString(text, "TIME"), "\n", "; "))
		}
	}
	return all
}

var instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z`)

var unseen = regexp.MustCompile(`"(uid|resourceVersion|generation|observedGeneration|creationTimestamp|lastTransitionTime|lastMissedTime|message|time)":("([^"\\]|\\.)*"|\d+),?`)

// judgeOutcomes finds an outcome of deviations that does not occur without, after the same operation.
func (e *Explorer) judgeOutcomes(final []int32) {
	normal := map[outcome]bool{}
	for _, id := range final {
		normal[e.quiet.rests[id].outcome] = true
	}
	for _, id := range final {
		o := e.quiet.rests[id].outcome
		if o.deviates && e.scope.Budget.Operations == 1 {
			o.deviates = false
			if !normal[o] && len(e.Violations) == 0 {
				e.violated(e.path(id), "L1: without faults no outcome is\n    "+o.seen)
			}
		}
	}
}

// judgeWake returns what is wrong with what happens when, at rest, all watches list again, or another process takes over:
// nothing is to be written.
func (e *Explorer) judgeWake(s *state) (wrong []string) {
	relisted := s
	for i := range s.logs {
		relisted = e.take(relisted, step{kind: relist, at: i})
	}
	for why, t := range map[string]*state{"a relist": relisted, "a restart": e.take(s, step{kind: crash})} {
		for steps := e.free(t); len(steps) > 0 && steps[0].kind != late; steps = e.free(t) {
			if steps[0].kind == execute && !reads(t.process.run(steps[0].at).request) {
				wrong = append(wrong, fmt.Sprintf("rule 15: %s at rest leads to the request %s", why, t.process.run(steps[0].at).request))
				break
			}
			t = e.take(t, steps[0])
		}
	}
	return wrong
}

// live judges the quiet graph. A component that no quiet step leaves is where the cluster ends: its states at rest
// conform to the contract, nothing is written in it, and the process forgets everything once. A component in which the
// controller writes, or no time passes, and in which each class has its turn or is disabled in some state, goes on for
// ever.
func (e *Explorer) live() {
	time := e.class(step{kind: pass})
	for _, component := range e.components(time) {
		if acted, _, _ := e.inside(component, time); acted != 0 && e.isFair(component, acted) {
			e.violated(e.path(component[0]), "L1: the controller works for ever without a pause")
		}
	}
	var final []int32
	for _, component := range e.components(-1) {
		acted, leaves, writes := e.inside(component, -1)
		if writes >= 0 && e.isFair(component, acted) {
			e.violated(e.path(writes), "L1: the controller writes for ever")
		}
		if leaves {
			continue
		}
		// What ends at a time goes on after it.
		if e.scope.Until.IsZero() && !slices.ContainsFunc(component, func(id int32) bool { return e.quiet.rests[id].isIdle }) {
			e.violated(e.path(component[0]), "rule 23: a process at rest remembers something")
		}
		for _, id := range component {
			rest, ok := e.quiet.rests[id]
			if ok {
				final = append(final, id)
			}
			if rest.wrong != "" {
				e.violated(e.path(id), "L1: at rest: "+rest.wrong)
				break
			}
		}
	}
	e.judgeOutcomes(final)
	if e.kind.MayBe != nil && len(e.Violations) == 0 {
		e.judgeConditions(sets.New(final...))
	}
}

// judgeConditions finds conditions that are not known. One that is not final is passing: a later one follows, without
// users.
func (e *Explorer) judgeConditions(isFinal sets.Set[int32]) {
	told := sets.Set[string]{}
	for _, id := range slices.Sorted(maps.Keys(e.quiet.rests)) {
		for _, condition := range e.quiet.rests[id].conditions {
			if !isFinal.Has(id) {
				condition = "passing: " + condition
			}
			if !e.kind.MayBe(condition) && !told.Has(condition) {
				told.Insert(condition)
				e.violated(e.path(id), fmt.Sprintf("L1: at rest: %q is not in %s", condition, conditionsFiles))
			}
		}
	}
}

// inside returns the classes of the steps within a component, without that class, whether a step leaves it, and a state
// in which the controller writes, -1 if there is none.
func (e *Explorer) inside(component []int32, without int8) (acted uint64, leaves bool, writes int32) {
	states := map[int32]bool{}
	for _, id := range component {
		states[id] = true
	}
	writes = -1
	for _, id := range component {
		for _, edge := range e.quiet.out(id) {
			switch {
			case !states[edge.to]:
				leaves = true
			case edge.class != without:
				if acted |= 1 << edge.class; edge.writes {
					writes = id
				}
			}
		}
	}
	return acted, leaves, writes
}

// isFair reports whether a scheduler that lets everybody act may stay in the component.
func (e *Explorer) isFair(component []int32, acted uint64) bool {
	always := ^uint64(0)
	for _, id := range component {
		always &= e.quiet.enabled[id]
	}
	return always&^acted == 0
}

// out returns the quiet steps from a state.
func (q *quiet) out(id int32) []edge {
	if int(id)+1 == len(q.first) {
		return q.edges[q.first[id]:]
	}
	return q.edges[q.first[id]:q.first[id+1]]
}

// components returns the strongly connected components (Tarjan), without edges of that class.
func (e *Explorer) components(without int8) (all [][]int32) {
	// low is 0 before a state is visited, and then the smallest number of a state on the stack that it leads to, which is
	// its own if it is the first one of its component. Behind the last component it is the largest number.
	low, count := make([]int32, len(e.nodes)), int32(0)
	var stack []int32
	var visit func(id int32)
	visit = func(id int32) {
		count++
		number, at := count, len(stack)
		low[id], stack = number, append(stack, id)
		for _, edge := range e.quiet.out(id) {
			if edge.class == without {
				continue
			}
			if low[edge.to] == 0 {
				visit(edge.to)
			}
			low[id] = min(low[id], low[edge.to])
		}
		if low[id] == number {
			for _, member := range stack[at:] {
				low[member] = math.MaxInt32
			}
			all = append(all, slices.Clone(stack[at:]))
			stack = stack[:at]
		}
	}
	for root := range low {
		if low[root] == 0 {
			visit(int32(root))
		}
	}
	return all
}
