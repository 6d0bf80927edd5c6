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
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/test/sim"
)

// writeTTL is how long a sync waits for a cache to show a write (rule 14).
const writeTTL = 30 * time.Second

// kind is the class of a step.
type kind int8

const (
	store   kind = iota // an event reaches a cache
	handle              // and then its handlers
	begin               // a sync
	execute             // the API server carries out the request of a sync; a read is answered as well
	deliver             // the answer to a write
	fire                // a timer that is due
	collect             // the garbage collector
	act                 // a controller of the cluster that is not under test
	present             // the read of the present version
	pass                // time, up to the next timer
	late                // the API server carries out a detached request
	operate             // a user
	fail                // the request fails
	lose                // the answer, or the request, which may be carried out later
	crash               // and another process takes over
	relist              // a cache jumps to the present
)

// step is one transition.
type step struct {
	kind kind
	// at is an informer, a timer, a request, an operation, a sync, a controller of the cluster, or the ages of caches.
	at       int
	key      cache.ObjectName
	resource string
	// fault is what a request fails with.
	fault *answer
	// costs is how many deviations it takes.
	costs int
}

// fault is an answer that a request may get, or only a write.
type fault struct {
	*answer
	isOfWrites bool
}

func faults() []fault {
	group, kind, reason := schema.GroupResource{Resource: "objects"}, schema.GroupKind{Kind: "Object"}, errors.New("a fault")
	return []fault{
		{&answer{err: apierrors.NewInternalError(reason)}, false}, {&answer{err: apierrors.NewTooManyRequests("a fault", 1)}, false},
		{&answer{err: apierrors.NewForbidden(group, "a", reason)}, false},
		{&answer{err: apierrors.NewConflict(group, "a", reason)}, true}, {&answer{err: apierrors.NewInvalid(kind, "a", nil)}, true},
	}
}

// steps returns all that may happen next, always in the same order.
func (e *Explorer) steps(s *state) []step {
	steps := e.free(s)
	m := s.process
	isRest := !slices.ContainsFunc(steps, func(step step) bool { return step.kind != late })
	if len(m.timers) > 0 && len(m.runs) == 0 {
		switch {
		case isRest:
			steps = append(steps, step{kind: pass})
		case e.may(HeldWatch) && !slices.ContainsFunc(steps, func(s step) bool { return s.kind != store && s.kind != handle && s.kind != late }):
			// The watches are held.
			steps = append(steps, step{kind: pass, costs: 1})
		}
	}
	if s.left.Operations > 0 {
		costs := 1
		if isRest {
			costs = 0
		}
		for i := range e.scope.Then {
			if e.scope.First > 0 && s.left.Operations == e.scope.Budget.Operations && i+1 != e.scope.First {
				continue
			}
			steps = append(steps, step{kind: operate, at: i, costs: costs})
		}
	}
	steps = append(steps, e.deviations(s)...)
	return slices.DeleteFunc(steps, func(step step) bool { return step.costs > s.left.Deviations })
}

// free returns the steps that cost nothing, but for time.
func (e *Explorer) free(s *state) []step {
	var steps []step
	for i := range s.logs {
		if len(s.logs[i]) > 0 {
			steps = append(steps, step{kind: store, at: i})
		}
	}
	m := s.process
	for _, r := range m.runs {
		if s.answers[r.number] == nil {
			steps = append(steps, step{kind: execute, at: r.number})
		} else {
			steps = append(steps, step{kind: deliver, at: r.number})
		}
	}
	for i := range m.pending {
		if len(m.pending[i]) > 0 {
			steps = append(steps, step{kind: handle, at: i})
		}
	}
	for i, timer := range m.timers {
		if !timer.due.After(m.now) {
			steps = append(steps, step{kind: fire, at: i})
		}
	}
	if len(m.runs) < max(1, e.scope.Workers) {
		number := 0
		for m.run(number) != nil {
			number++
		}
		for _, key := range m.keys {
			// The queue hands out no key that a worker has.
			if !slices.ContainsFunc(m.runs, func(r *run) bool { return r.key == key }) {
				steps = append(steps, step{kind: begin, at: number, key: key})
			}
		}
	}
	if !m.present && len(m.runs) == 0 {
		steps = append(steps, step{kind: present})
	}
	steps = append(steps, s.cluster.steps...)
	for i := range s.detached {
		if e.may(Detached) {
			steps = append(steps, step{kind: late, at: i})
		}
	}
	return steps
}

// may reports whether the scope has that.
func (e *Explorer) may(happen string) bool { return !slices.Contains(e.scope.Without, happen) }

// deviations returns the faults.
func (e *Explorer) deviations(s *state) []step {
	if s.left.Deviations == 0 {
		return nil
	}
	var steps []step
	for _, r := range s.process.runs {
		isRead := reads(r.request)
		if s.answers[r.number] == nil {
			for _, fault := range e.faults {
				if !isRead || !fault.isOfWrites {
					steps = append(steps, step{kind: fail, at: r.number, fault: fault.answer, costs: 1})
				}
			}
		}
		if !isRead {
			steps = append(steps, step{kind: lose, at: r.number, costs: 1})
		}
	}
	for i, log := range s.logs {
		if len(log) > 1 || len(log) == 1 && log[0].Type == watch.Deleted {
			steps = append(steps, step{kind: relist, at: i, costs: 1})
		}
	}
	ages := 1
	for range s.logs {
		ages *= 3
	}
	for age := range ages {
		if !e.may(NewLeader) {
			break
		}
		if caches, _ := e.inherit(s, age); caches != nil {
			steps = append(steps, step{kind: crash, at: age, costs: 1})
		}
	}
	return steps
}

// inherit returns the caches of a new process, and what their watches have not delivered: each is as new as can be,
// as old as that of the former process, or as old as the exploration. It returns nil if a smaller age tells the same.
func (e *Explorer) inherit(s *state, age int) (caches []*cached, logs [][]sim.Event) {
	for i := range s.logs {
		fresh := s.cluster.lists[i]
		switch age % 3 {
		case 0:
			caches, logs = append(caches, fresh), append(logs, nil)
		case 1:
			if len(s.logs[i]) == 0 {
				return nil, nil
			}
			caches, logs = append(caches, s.process.caches[i]), append(logs, s.logs[i])
		default:
			if len(s.past[i]) == 0 {
				return nil, nil
			}
			caches, logs = append(caches, e.root.process.caches[i]), append(logs, slices.Concat(s.past[i], s.logs[i]))
		}
		age /= 3
	}
	return caches, logs
}

// take returns the state after the step, nil if an operation changes nothing.
func (e *Explorer) take(s *state, step step) *state {
	t := *s
	t.left.Deviations -= step.costs
	switch step.kind {
	case store:
		e.store(s, &t, step.at)
	case handle, fire:
		t.process = e.process.next(s.process, entry{kind: step.kind, at: step.at})
	case begin:
		t.process = e.process.next(s.process, entry{kind: begin, at: step.at, key: step.key})
	case execute:
		e.execute(s, &t, s.process.run(step.at))
	case deliver:
		r := s.process.run(step.at)
		t.judge = s.judge.answered(r.key, r.request, *s.answers[step.at])
		e.answer(s, &t, step.at, s.answers[step.at])
	case present:
		t.process = e.process.next(s.process, entry{kind: present, version: s.cluster.lists[0].version})
	case pass:
		e.pass(s, &t)
		if step.costs > 0 && t.process.now.Sub(s.process.now) >= writeTTL {
			t.judge = &judge{s.judge.kind, nil, nil}
		}
	case late:
		t.detached = slices.Delete(slices.Clone(s.detached), step.at, step.at+1)
		e.write(&t, s.detached[step.at], nil)
	case collect:
		e.act(&t, step, func(store *sim.Store) { store.Collect(step.resource, step.key.Name) })
	case act:
		e.act(&t, step, func(store *sim.Store) { e.kind.Around[step.at].Step(store, step.key.Name) })
	case operate:
		t.left.Operations--
		step.costs = 0 // It is the same change before the cluster is at rest.
		if e.act(&t, step, e.scope.Then[step.at].Do); t.cluster == s.cluster {
			return nil
		}
	case fail:
		e.answer(s, &t, step.at, step.fault)
	case lose:
		if s.answers[step.at] == nil {
			t.detached = append(slices.Clone(s.detached), s.process.run(step.at).request)
		}
		e.answer(s, &t, step.at, e.lost)
	case crash:
		e.replace(s, &t, step.at)
	case relist:
		t.logs, t.past = slices.Clone(s.logs), slices.Clone(s.past)
		t.logs[step.at], t.past[step.at] = nil, slices.Concat(s.past[step.at], s.logs[step.at])
		t.process = e.process.next(s.process, entry{kind: relist, at: step.at, list: s.cluster.lists[step.at]})
	}
	return &t
}

// store puts the next event of a watch into the cache.
func (e *Explorer) store(s, t *state, i int) {
	ev := s.logs[i][0]
	t.logs, t.past = slices.Clone(s.logs), slices.Clone(s.past)
	t.logs[i], t.past[i] = s.logs[i][1:], append(slices.Clip(s.past[i]), ev)
	t.process = e.process.next(s.process, entry{kind: store, at: i, event: ev})
	if e.kind.IsCoarse {
		t.process = e.process.next(t.process, entry{kind: handle, at: i})
	}
}

// reads reports whether the request changes nothing.
func reads(r *sim.Request) bool { return r.Verb == "get" || r.DryRun }

// answer gives a sync its answer.
func (e *Explorer) answer(s, t *state, number int, a *answer) {
	t.answers[number] = nil
	t.process = e.process.next(s.process, entry{kind: deliver, at: number, answer: a})
}

// pass lets time pass up to the next timer. The bookmarks come that a watch sends within a minute.
func (e *Explorer) pass(s, t *state) {
	var bookmarks []string
	for i, log := range s.logs {
		if len(log) == 0 {
			bookmarks = append(bookmarks, s.cluster.lists[i].version)
		} else {
			bookmarks = append(bookmarks, "")
		}
	}
	t.process = e.process.next(s.process, entry{kind: pass, version: strings.Join(bookmarks, " "), now: s.process.timers[0].due})
}

// write lets the API server carry out a request, of a sync if it is not detached.
func (e *Explorer) write(t *state, r *sim.Request, of *run) *answer {
	w := &Write{Request: r, Before: t.cluster.store.Get(r.Resource, r.Name)}
	if of != nil {
		w.Reads = of.reads
		for _, object := range of.began[0].objects {
			if owner := object.(sim.Object); owner.GetName() == of.key.Name {
				w.Acting = owner
			}
		}
	}
	old := t.judge
	a := e.serve(t, r)
	w.After, w.Err, w.ClusterState = a.object, a.err, e.clusterIn(t)
	if w.Err != nil {
		t.judge = old
	}
	kind, found := t.judge.kind.Write(old.kind, w)
	if kind != t.judge.kind {
		t.judge = &judge{kind, t.judge.own, nil}
	}
	e.found = append(e.found, found...)
	switch {
	case w.Err == nil:
		e.found = append(e.found, precondition(r)...)
	case of != nil:
		e.found = append(e.found, old.refused(of.key, w)...)
	}
	return a
}

// execute carries out the request of a sync. The answer to a read comes at once.
func (e *Explorer) execute(s, t *state, of *run) {
	if !reads(of.request) {
		t.answers[of.number] = e.write(t, of.request, of)
		return
	}
	e.answer(s, t, of.number, e.serve(t, of.request))
}

// replace ends the process, and another one takes over. The requests that were sent may still be carried out.
func (e *Explorer) replace(s, t *state, age int) {
	for _, r := range s.process.runs {
		if s.answers[r.number] == nil && !reads(r.request) {
			t.detached = append(slices.Clone(t.detached), r.request)
		}
	}
	caches, logs := e.inherit(s, age)
	t.logs, t.past = logs, slices.Clone(s.past)
	for i, log := range logs {
		// What the cache has not got of all since the start is still to come.
		all := slices.Concat(s.past[i], s.logs[i])
		t.past[i] = all[:len(all)-len(log)]
	}
	t.answers, t.judge = [maxWorkers]*answer{}, &judge{s.judge.kind, nil, nil}
	if former, ok := t.judge.kind.(JudgeOfProcess); ok {
		t.judge.kind = former.NewProcess()
	}
	t.process = e.process.begin(caches, s.process.now, e.fresh)
}

// tell describes a step.
func (e *Explorer) tell(s *state, step step) string {
	request := func() string { return s.process.run(step.at).request.String() }
	switch step.kind {
	case store:
		event := s.logs[step.at][0]
		return fmt.Sprintf("cache: %s %s %s, version %s", strings.ToLower(string(event.Type)), e.resources[step.at], event.Object.GetName(), event.Object.GetResourceVersion())
	case handle:
		return "handler of " + e.resources[step.at]
	case begin:
		return "sync of " + step.key.Name
	case execute:
		return "API server: " + request()
	case deliver:
		if err := s.answers[step.at].err; err != nil {
			return "answer: " + err.Error()
		}
		return "answer"
	case fire:
		return "timer fires"
	case collect:
		return "garbage collector: " + step.resource + " " + step.key.Name
	case act:
		return e.kind.Around[step.at].Name + ": " + step.key.Name
	case present:
		return "the process reads the present version"
	case late:
		return "API server, late: " + s.detached[step.at].String()
	case pass:
		return fmt.Sprintf("%s pass", s.process.timers[0].due.Sub(s.process.now).Round(time.Millisecond))
	case operate:
		return "user: " + e.scope.Then[step.at].Story
	case fail:
		return fmt.Sprintf("FAULT: %s is answered with: %v", request(), step.fault.err)
	case lose:
		return "FAULT: the connection is lost during " + request()
	case crash:
		var ages []string
		for i, age := 0, step.at; i < len(s.logs); i, age = i+1, age/3 {
			ages = append(ages, e.resources[i]+" "+[]string{"new", "as before", "old"}[age%3])
		}
		return "FAULT: another process takes over, with caches of " + strings.Join(ages, ", ")
	case relist:
		return "FAULT: the watch of " + e.resources[step.at] + " breaks, and the cache lists again"
	}
	return ""
}
