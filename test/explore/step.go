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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/test/sim"
)

// writeTTL is how long a sync waits for a cache to show a write (rule 14).
const writeTTL = 30 * time.Second

var errLost = errors.New("connection lost")

// take returns the state after the step, nil if an operation changes nothing.
func (e *Explorer) take(s *state, step step) *state {
	t := *s
	switch step.kind {
	case store:
		event := s.logs[step.at][0]
		t.logs = slices.Clone(s.logs)
		t.logs[step.at] = s.logs[step.at][1:]
		e.proceed(s, &t, entry{informer: step.at, event: &event})
		if e.kind.IsCoarse {
			after := t
			e.proceed(&after, &t, entry{informer: step.at, handle: true})
		}
	case handle:
		e.proceed(s, &t, entry{informer: step.at, handle: true})
	case fire:
		e.proceed(s, &t, entry{timer: step.at})
	case begin:
		e.process.restore(s.process, s.now)
		e.running(&t, &run{key: step.key, local: s.process.inner}, e.process.sync(step.key))
	case execute:
		return e.execute(s)
	case deliver:
		e.proceed(s, &t, entry{answer: s.run.answer})
		t.judge = s.judge.answered(s.run.key, s.run.request, *s.run.answer)
	case present:
		e.process.restore(s.process, s.now)
		e.process.present = s.store.Version()
		e.readNow(e.ctx)
		t.process = e.process.save(true)
	case pass:
		e.pass(s, &t)
		if step.at > 0 {
			t.left.Deviations--
			if t.now.Sub(s.now) >= writeTTL {
				t.judge = &judge{kind: s.judge.kind}
			}
		}
	case late, drop:
		t.detached = slices.Delete(slices.Clone(s.detached), step.at, step.at+1)
		if step.kind == late {
			e.write(&t, s.detached[step.at], nil, nil)
		}
	case collect:
		e.change(&t, func(store *sim.Store) { store.Collect(step.resource, step.key.Name) })
	case act:
		e.change(&t, func(store *sim.Store) { e.kind.Around[step.at].Step(store, step.key.Name) })
	case operate:
		if !step.old[0] {
			t.left.Deviations--
		}
		t.left.Operations--
		u := e.operate(&t, e.scope.Operations[step.at])
		if u.store.Version() == s.store.Version() && u.store.Policies() == s.store.Policies() {
			return nil
		}
		return u
	default:
		e.deviate(s, &t, step)
	}
	return &t
}

// deviate is take for the faults.
func (e *Explorer) deviate(s, t *state, step step) {
	t.left.Deviations--
	switch step.kind {
	case fail:
		e.proceed(s, t, entry{answer: &answer{err: step.err}})
	case lose:
		if s.run.answer == nil {
			t.detached = append(slices.Clone(s.detached), s.run.request)
		}
		e.proceed(s, t, entry{answer: &answer{err: errLost}})
	case crash:
		e.replace(s, t, step.old)
	case relist:
		t.logs = slices.Clone(s.logs)
		t.logs[step.at] = nil
		e.proceed(s, t, entry{informer: step.at, list: &list{s.store.Objects(e.resources[step.at]), s.store.Version()}})
	}
}

// pass lets time pass up to the next timer. The bookmarks come that a watch sends within a minute.
func (e *Explorer) pass(s, t *state) {
	t.now = s.process.timers[0].due
	e.process.restore(s.process, t.now)
	for i := range s.logs {
		if len(s.logs[i]) == 0 {
			e.process.informers[i].GetIndexer().Bookmark(s.store.Version())
		}
	}
	t.process = e.process.save(s.process.present)
}

func (e *Explorer) operate(s *state, op Operation) *state {
	t := *s
	e.change(&t, op.Do)
	return &t
}

// change changes the store, and tells the watches and the judge of it.
func (e *Explorer) change(t *state, change func(*sim.Store)) {
	logs := slices.Clone(t.logs)
	t.store = t.store.Clone(func() metav1.Time { return metav1.NewTime(t.now) }, func(resource string, event sim.Event) {
		if i := slices.Index(e.resources, resource); i < len(logs) {
			logs[i] = append(slices.Clone(logs[i]), event)
		}
	})
	change(t.store)
	t.logs = logs
	t.judge = &judge{t.judge.kind.Note(e.cluster(t)), t.judge.own}
}

func (e *Explorer) cluster(s *state) *Cluster { return &Cluster{s.store, s, e.resources} }

// write lets the API server carry out a request.
func (e *Explorer) write(t *state, r *sim.Request, acting sim.Object, reads []sim.Object) answer {
	w := &Write{Request: r, Acting: acting, Reads: reads}
	for _, object := range t.store.Objects(r.Resource) {
		if object.GetName() == r.Name {
			w.Before = object
		}
	}
	old := t.judge
	e.change(t, func(store *sim.Store) { w.After, w.Err = store.Serve(r) })
	w.Cluster = e.cluster(t)
	if w.Err != nil {
		t.judge = old
	}
	kind, found := t.judge.kind.Write(old.kind, w)
	t.judge = &judge{kind, t.judge.own}
	e.found = append(e.found, found...)
	switch {
	case w.Err == nil:
		e.found = append(e.found, precondition(r)...)
	case acting != nil:
		e.found = append(e.found, old.refused(t.run.key, w)...)
	}
	return answer{w.After, w.Err}
}

// execute carries out the request of the sync. The answer to a read comes at once.
func (e *Explorer) execute(s *state) *state {
	t := *s
	r := s.run.request
	if r.Verb == "get" {
		object, err := s.store.Serve(r)
		e.proceed(s, &t, entry{answer: &answer{object, err}})
		if t.run != nil && object != nil {
			t.run.reads = append(slices.Clone(t.run.reads), object)
		}
		return &t
	}
	var acting sim.Object
	for _, object := range s.process.caches[0].objects {
		if owner := object.(sim.Object); owner.GetName() == s.run.key.Name {
			acting = owner
		}
	}
	a := e.write(&t, r, acting, s.run.reads)
	next := *s.run
	next.answer = &a
	t.run = &next
	return &t
}

// proceed lets something happen in the process.
func (e *Explorer) proceed(s, t *state, entry entry) {
	p := e.process
	p.materialize(s)
	request, ended := p.do(entry)
	if s.run == nil || ended {
		t.run, t.process = nil, p.save(s.process.present)
		return
	}
	next := *s.run
	next.log = append(slices.Clone(next.log), entry)
	if request == nil {
		request = s.run.request
	} else {
		next.answer, next.local = nil, &tokens{known: p.memory.known}
		next.local.append(s.run.local)
		next.local.append(s.run.now.inner)
		next.local.answer(*entry.answer)
	}
	e.running(t, &next, request)
}

// running records a sync that waits for the answer to a request, or the process if there is none.
func (e *Explorer) running(t *state, r *run, request *sim.Request) {
	if request == nil {
		t.run, t.process = nil, e.process.save(t.process.present)
		return
	}
	r.request, r.now = request, e.process.save(t.process.present)
	t.run = r
	e.process.abandon()
}

// replace ends the process. Another one takes over, whose caches are as old as those of the former one, or as new as
// can be. The request that was sent may still be carried out.
func (e *Explorer) replace(s, t *state, old []bool) {
	p := e.process
	p.materialize(s)
	if s.run != nil {
		p.abandon()
		if s.run.answer == nil && s.run.request.Verb != "get" {
			t.detached = append(slices.Clone(s.detached), s.run.request)
		}
	}
	t.run, t.logs = nil, slices.Clone(s.logs)
	t.judge = &judge{kind: s.judge.kind}
	if former, ok := t.judge.kind.(JudgeOfProcess); ok {
		t.judge.kind = former.NewProcess()
	}
	for i := range p.informers {
		p.pending[i] = nil
		if !old[i] {
			p.relist(i, list{s.store.Objects(e.resources[i]), s.store.Version()})
			t.logs[i] = nil
		}
		p.pending[i] = nil
		for _, object := range p.informers[i].GetIndexer().List() {
			p.pending[i] = append(p.pending[i], notification{new: object.(sim.Object), initial: true})
		}
		slices.SortFunc(p.pending[i], func(a, b notification) int { return compare(a.new.GetName(), b.new.GetName()) })
	}
	p.queue.keys, p.clock.timers = nil, nil
	p.clock.set(s.now)
	e.fresh.restore()
	t.process = p.save(false)
}

// tell describes a step.
func (e *Explorer) tell(s *state, step step) string {
	switch step.kind {
	case store:
		event := s.logs[step.at][0]
		return fmt.Sprintf("cache: %s %s %s, version %s", strings.ToLower(string(event.Type)), e.resources[step.at], event.Object.GetName(), event.Object.GetResourceVersion())
	case handle:
		return "handler of " + e.resources[step.at]
	case begin:
		return "sync of " + step.key.Name
	case execute:
		return "API server: " + s.run.request.String()
	case deliver:
		if s.run.answer.err != nil {
			return "answer: " + s.run.answer.err.Error()
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
	case drop:
		return "lost for ever: " + s.detached[step.at].String()
	case pass:
		return fmt.Sprintf("%s pass", s.process.timers[0].due.Sub(s.now))
	case operate:
		return "user: " + e.scope.Operations[step.at].Story
	case fail:
		return fmt.Sprintf("FAULT: %s is answered with: %v", s.run.request, step.err)
	case lose:
		return fmt.Sprintf("FAULT: the connection is lost during %s", s.run.request)
	case crash:
		return fmt.Sprintf("FAULT: another process takes over, with caches as old as before: %v", step.old)
	case relist:
		return "FAULT: the watch of " + e.resources[step.at] + " breaks, and the cache lists again"
	}
	return ""
}
