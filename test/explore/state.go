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
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/test/sim"
)

// state is one state of the cluster and the process. It is never changed: a step makes another one.
type state struct {
	cluster *cluster
	process *moment
	// logs are, by informer, the events that its watch has not delivered yet. past are those since the start that it
	// has delivered, on the shortest path: they are no part of the state.
	logs, past [][]sim.Event
	// answers are those that the syncs have not got yet, by number.
	answers [maxWorkers]*answer
	// detached are the requests of ended processes and lost connections that may still be carried out.
	detached []*sim.Request
	judge    *judge
	left     Budget
}

// Budget is how much may happen: operations of users, and deviations from an undisturbed run.
type Budget struct{ Operations, Deviations int }

// cluster is what the API server stores. It never changes. Equal ones are one.
type cluster struct {
	store *sim.Store
	form  *form
	// steps are those of the controllers of the cluster.
	steps []step
	after map[change]*changed
	// lists are what a list of each resource answers.
	lists []*cached
}

// change is something that happens in the cluster, and when.
type change struct {
	step
	request *sim.Request
	now     int64
}

// changed is what becomes of a change.
type changed struct {
	cluster *cluster
	// events are by informer.
	events [][]sim.Event
	answer *answer
}

// clusterOf returns the cluster with that store.
func (e *Explorer) clusterOf(store *sim.Store) *cluster {
	canon := e.process.memory.canon
	c, t := &cluster{store: store, after: map[change]*changed{}}, canon.tokens()
	for _, resource := range e.resources {
		for _, object := range store.Objects(resource) {
			t.object(object)
			t.string(store.PodImages(object.GetUID()))
		}
		t.string(resource)
	}
	t.string(fmt.Sprint(store.Policies))
	c.form = t.form()
	t = canon.tokens()
	t.add(c.form)
	t.string(store.Counters())
	exact := canon.exact(t.form())
	if shared, ok := e.clusters[exact]; ok {
		return shared
	}
	e.clusters[exact] = c
	for i, resource := range e.resources {
		var objects []any
		for _, object := range store.Objects(resource) {
			if i < len(e.process.informers) {
				objects = append(objects, e.process.trim(i, object))
			}
			key := cache.MetaObjectToName(object)
			if e.tries(store, func(store *sim.Store) { store.Collect(resource, key.Name) }) {
				c.steps = append(c.steps, step{kind: collect, resource: resource, key: key})
			}
			for n, around := range e.kind.Around {
				if resource == around.Resource && e.tries(store, func(store *sim.Store) { around.Step(store, key.Name) }) {
					c.steps = append(c.steps, step{kind: act, at: n, key: key})
				}
			}
		}
		if i < len(e.process.informers) {
			c.lists = append(c.lists, e.process.cached(objects, store.VersionOf(resource)))
		}
	}
	return c
}

// tries reports whether a step of a controller of the cluster would change anything.
func (e *Explorer) tries(store *sim.Store, act func(*sim.Store)) bool {
	tried := store.Clone(func() metav1.Time { return metav1.Time{} }, func(string, sim.Event) {})
	act(tried)
	return tried.Version() != store.Version()
}

// act takes a step in which a user, or a component other than the controller, changes the cluster.
func (e *Explorer) act(t *state, s step, do func(*sim.Store)) {
	e.change(t, change{step: s}, func(store *sim.Store) (sim.Object, error) {
		do(store)
		return nil, nil
	})
}

// serve lets the API server carry out a request.
func (e *Explorer) serve(t *state, r *sim.Request) *answer {
	return e.change(t, change{request: r}, func(store *sim.Store) (sim.Object, error) { return store.Serve(r) })
}

// change changes the cluster, and tells the watches and the judge of it.
func (e *Explorer) change(t *state, c change, do func(*sim.Store) (sim.Object, error)) *answer {
	c.now = t.process.now.UnixNano()
	after, ok := t.cluster.after[c]
	if !ok {
		after = &changed{events: make([][]sim.Event, len(t.logs))}
		store := t.cluster.store.Clone(func() metav1.Time { now := metav1.NewTime(t.process.now); return now.Rfc3339Copy() }, func(resource string, ev sim.Event) {
			if i := slices.Index(e.resources, resource); i < len(t.logs) {
				after.events[i] = append(after.events[i], ev)
			}
		})
		store.Share(e.process.memory.canon.share)
		object, err := do(store)
		if object != nil {
			object = e.process.memory.canon.share(object)
		}
		after.answer = &answer{object, err}
		after.cluster = e.clusterOf(store)
		t.cluster.after[c] = after
	}
	isSame := t.cluster.store.Version() == after.cluster.store.Version()
	if t.cluster = after.cluster; !isSame {
		t.logs = slices.Clone(t.logs)
		for i, events := range after.events {
			t.logs[i] = append(slices.Clip(t.logs[i]), events...)
		}
		t.judge = &judge{t.judge.kind.Note(e.clusterIn(t)), t.judge.own, nil}
	}
	return after.answer
}

func (e *Explorer) clusterIn(s *state) *ClusterState {
	return &ClusterState{s.cluster.store, s.left.Deviations < e.scope.Budget.Deviations, s, e.resources}
}

// canonical returns the hash of the canonical form of the state.
func (e *Explorer) canonical(s *state) sum {
	t := &e.scratch
	t.canon, t.text, t.holes = e.process.memory.canon, t.text[:0], t.holes[:0]
	t.add(s.cluster.form)
	for _, log := range s.logs {
		t.int(int64(len(log)))
		for _, event := range log {
			t.string(string(event.Type))
			t.object(event.Object)
		}
	}
	t.add(s.process.form)
	for _, a := range s.answers {
		if t.bool(a == nil); a != nil {
			t.answer(*a)
		}
	}
	t.int(int64(len(s.detached)))
	for _, r := range s.detached {
		t.request(r)
	}
	t.add(s.judge.encode(t.canon))
	// The next object may be as old as another one.
	t.hole(isCreation, s.process.now.Unix())
	// Times that the API server writes are whole seconds.
	t.int(int64(s.process.now.Nanosecond()))
	t.int(max(0, int64(e.kind.Calendar.Sub(s.process.now))))
	t.int(int64(s.left.Operations))
	t.int(int64(s.left.Deviations))
	return t.canonical(s.process.now)
}

// request adds a request. Its versions and UIDs stay in the text of the patch: that only tells more states apart.
func (t *tokens) request(r *sim.Request) {
	f, ok := t.canon.requests[r]
	if !ok {
		of := t.canon.tokens()
		of.string(r.Verb + r.Resource + r.Subresource + r.Name + string(r.Patch))
		if r.Object != nil {
			of.object(r.Object)
		}
		f = of.form()
		t.canon.requests[r] = f
	}
	t.add(f)
}
