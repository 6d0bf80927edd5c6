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

// Package explore runs the shipped event handlers and syncHandler of a controller through every interleaving of a
// small scope: one worker, a few objects, an API server in memory, operations of users and faults of the network and
// the process at every request. It is a breadth-first search over states that it has not seen, so that the first
// violation of an invariant has the shortest path.
package explore

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"example.com/sample-controller/test/sim"
)

// Scope is what an exploration covers.
type Scope struct {
	// Start are operations that are done, and have settled, before the exploration begins.
	Start []Operation
	// Operations are those that users may do.
	Operations []Operation
	Budget     Budget
	// Until is when the exploration ends, zero for never.
	Until time.Time
	// MaxStates bounds the exploration, 0 for no bound.
	MaxStates int
}

// Result is what an exploration has found.
type Result struct {
	States, Transitions, Depth int
	// Closed says that there is no state left to expand.
	Closed     bool
	Violations []Violation
}

// Violation is a broken invariant, with the shortest path to it.
type Violation struct {
	What string
	Path []string
}

// String returns the violation as a story.
func (v Violation) String() string {
	return v.What + "\n    " + strings.Join(v.Path, "\n    ")
}

// kind is the class of a step.
type kind int

const (
	store   kind = iota // an event reaches a cache
	handle              // and then its handlers
	begin               // a sync
	execute             // the API server carries out the request of the sync; a read is answered as well
	deliver             // the answer to a write
	fire                // a timer that is due
	collect             // the garbage collector
	act                 // a controller of the cluster that is not under test
	present             // the read of the present version
	late                // the API server carries out a detached request
	drop                // or never will
	pass                // time, up to the next timer
	operate             // a user
	fail                // the request fails
	lose                // the answer, or the request, which may be carried out later
	crash               // and another process takes over
	relist              // a cache jumps to the present
)

// step is one transition.
type step struct {
	kind kind
	// at is an informer, a timer, a request, an operation or a controller of the cluster.
	at       int
	key      cache.ObjectName
	resource string
	err      error
	// old are the informers whose caches stay as old as they were, in a new process.
	old []bool
}

// node is how a state was first reached.
type node struct {
	parent int32
	step   step
}

// Explorer explores a scope.
type Explorer struct {
	process   *process
	ctx       context.Context
	readNow   func(context.Context)
	resources []string
	fresh     *image
	// idle is what a process remembers that has done nothing but read the present version.
	idle  *tokens
	seed  maphash.Seed
	kind  Kind
	scope Scope
	// acts says whether a controller of the cluster does something, by what that depends on.
	acts map[any]bool

	seen  map[uint64]int32
	nodes []node
	quiet quiet
	Result
	// found are the violations of the present step.
	found []string
	root  *state
}

// New returns an Explorer of the kind.
func New(ctx context.Context, kind Kind) *Explorer {
	e := &Explorer{ctx: ctx, seed: maphash.MakeSeed(), kind: kind, acts: map[any]bool{}}
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e.process = start(ctx, kind, begun)
	e.readNow = e.process.readNow
	for _, resource := range kind.Resources {
		e.resources = append(e.resources, resource.Resource)
	}
	e.process.pending = make([][]notification, len(e.process.informers))
	e.fresh, _ = e.process.memory.read()
	e.process.present = "1"
	e.readNow(ctx)
	_, e.idle = e.process.memory.read()
	e.fresh.restore()
	return e
}

// initial returns an empty cluster with a process that has just started.
func (e *Explorer) initial() *state {
	s := &state{logs: make([][]sim.Event, len(e.process.informers)), judge: &judge{kind: e.kind.Judge}, now: e.process.clock.Now()}
	s.store = sim.NewStore(e.kind.Resources, func() metav1.Time { return metav1.Time{} }, nil)
	for _, informer := range e.process.informers {
		_ = informer.GetIndexer().Replace(nil, s.store.Version())
	}
	s.process = e.process.save(false)
	return s
}

// Run explores the scope.
func (e *Explorer) Run(scope Scope) Result {
	e.scope, e.Result, e.seen, e.nodes = scope, Result{Closed: true}, map[uint64]int32{}, nil
	e.quiet = quiet{wrong: map[int32]string{}, classes: map[action]int8{}}
	s := e.settle(e.initial(), nil)
	for _, op := range scope.Start {
		s = e.settle(s, &op)
	}
	s.left = scope.Budget
	frontier := []*state{s}
	e.root = s
	first, _ := e.add(s, -1, step{})
	ids := []int32{first}
	for len(frontier) > 0 && len(e.Violations) == 0 {
		var next []*state
		var nextIDs []int32
		for i, s := range frontier {
			frontier[i] = nil
			e.expand(s, ids[i], func(t *state, step step) int32 {
				e.Transitions++
				id, isNew := e.add(t, ids[i], step)
				if isNew {
					next, nextIDs = append(next, t), append(nextIDs, id)
				}
				return id
			})
			if e.scope.MaxStates > 0 && len(e.nodes) > e.scope.MaxStates {
				e.Closed = false
				return e.Result
			}
		}
		frontier, ids = next, nextIDs
		e.Depth++
	}
	if len(e.Violations) == 0 {
		e.live()
	}
	return e.Result
}

// add returns the number of a state, and whether it was not seen before.
func (e *Explorer) add(s *state, parent int32, step step) (id int32, isNew bool) {
	hash := s.tokens(e.resources, e.process.memory.known).hash(e.seed, s.now)
	if id, ok := e.seen[hash]; ok {
		return id, false
	}
	id = int32(len(e.nodes))
	e.seen[hash] = id
	e.nodes = append(e.nodes, node{parent, step})
	e.quiet.enabled = append(e.quiet.enabled, 0)
	e.States++
	return id, true
}

// path tells the steps that lead to a state, and then the last ones. It repeats them.
func (e *Explorer) path(id int32, last ...step) (path []string) {
	steps := last
	for ; id > 0; id = e.nodes[id].parent {
		steps = slices.Insert(steps, 0, e.nodes[id].step)
	}
	found, s := e.found, e.root
	for _, step := range steps {
		path = append(path, e.tell(s, step))
		s = e.take(s, step)
	}
	e.found = found
	return path
}

// settle does an operation, and then whatever comes first until nothing happens for an hour.
func (e *Explorer) settle(s *state, op *Operation) *state {
	if op != nil {
		s = e.operate(s, *op)
	}
	for end := s.now.Add(time.Hour); ; {
		steps := e.free(s)
		if len(steps) == 0 {
			if len(s.process.timers) == 0 || s.process.timers[0].due.After(end) {
				return s
			}
			steps = []step{{kind: pass}}
		}
		s = e.take(s, steps[0])
		if len(e.found) > 0 {
			panic(fmt.Sprintf("a violation before the exploration began: %v", e.found))
		}
	}
}

// free returns the steps that need no budget.
func (e *Explorer) free(s *state) []step {
	var steps []step
	for i := range s.logs {
		if len(s.logs[i]) > 0 {
			steps = append(steps, step{kind: store, at: i})
		}
	}
	pending, timers, keys := s.process.pending, s.process.timers, s.process.keys
	if s.run != nil {
		pending, timers = s.run.now.pending, s.run.now.timers
		if s.run.answer == nil {
			steps = append(steps, step{kind: execute})
		} else {
			steps = append(steps, step{kind: deliver})
		}
	}
	for i := range pending {
		if len(pending[i]) > 0 {
			steps = append(steps, step{kind: handle, at: i})
		}
	}
	for i, timer := range timers {
		if !timer.due.After(s.now) {
			steps = append(steps, step{kind: fire, at: i})
		}
	}
	if s.run == nil {
		for _, key := range keys {
			steps = append(steps, step{kind: begin, key: key})
		}
		if !s.process.present {
			steps = append(steps, step{kind: present})
		}
	}
	for i := range s.detached {
		steps = append(steps, step{kind: late, at: i}, step{kind: drop, at: i})
	}
	for _, resource := range e.resources {
		for _, object := range s.store.Objects(resource) {
			if store := e.copyOf(s); store.Collect(resource, object.GetName()) {
				steps = append(steps, step{kind: collect, resource: resource, key: cache.MetaObjectToName(object)})
			}
			for i, around := range e.kind.Around {
				if resource == around.Resource && e.isDue(s, i, object) {
					steps = append(steps, step{kind: act, at: i, key: cache.MetaObjectToName(object)})
				}
			}
		}
	}
	return steps
}

// copyOf returns a copy of the store, to try something.
func (e *Explorer) copyOf(s *state) *sim.Store {
	return s.store.Clone(func() metav1.Time { return metav1.NewTime(s.now) }, func(string, sim.Event) {})
}

// isDue reports whether a controller of the cluster has something to do about the object.
func (e *Explorer) isDue(s *state, around int, object sim.Object) bool {
	try := func() bool {
		store := e.copyOf(s)
		e.kind.Around[around].Step(store, object.GetName())
		return store.Version() != s.store.Version()
	}
	needs := e.kind.Around[around].Needs
	if needs == nil {
		return try()
	}
	key := [2]any{around, needs(s.store, object)}
	does, known := e.acts[key]
	if !known {
		does = try()
		e.acts[key] = does
	}
	return does
}

// expand calls next with each successor of the state.
func (e *Explorer) expand(s *state, id int32, next func(*state, step) int32) {
	if !e.scope.Until.IsZero() && s.now.After(e.scope.Until) {
		return
	}
	steps := e.free(s)
	if s.run == nil {
		if len(s.process.timers) > 0 && (len(steps) == 0 || s.left.Deviations > 0 && e.isHeld(steps)) {
			steps = append(steps, step{kind: pass, at: len(steps)})
		}
	}
	if s.run == nil && !slices.ContainsFunc(steps, func(s step) bool { return s.kind != pass }) {
		if wrong := e.judgeRest(s); wrong != "" {
			e.quiet.wrong[id] = wrong
		}
	}
	if rest := len(steps) == 0 || len(steps) == 1 && steps[0].kind == pass; s.left.Operations > 0 && (rest || s.left.Deviations > 0) {
		for i := range e.scope.Operations {
			steps = append(steps, step{kind: operate, at: i, old: []bool{rest}})
		}
	}
	if s.left.Deviations > 0 {
		steps = append(steps, e.faults(s)...)
	}
	for _, step := range steps {
		e.found = nil
		t := e.take(s, step)
		if t == nil {
			continue
		}
		if found := e.found; len(found) > 0 {
			path := e.path(id, step)
			for _, what := range found {
				e.Violations = append(e.Violations, Violation{what, path})
			}
			return
		}
		to := next(t, step)
		if class := e.class(step); class >= 0 {
			e.quiet.enabled[id] |= 1 << class
			e.quiet.edges = append(e.quiet.edges, edge{id, to, class, step.kind == execute && t.store.Version() != s.store.Version()})
		}
	}
}

// isHeld reports whether nothing but deliveries could happen.
func (e *Explorer) isHeld(steps []step) bool {
	return !slices.ContainsFunc(steps, func(s step) bool { return s.kind != store && s.kind != handle })
}

// faults returns the steps that are deviations.
func (e *Explorer) faults(s *state) []step {
	var steps []step
	if r := s.run; r != nil && r.answer == nil {
		resource := schema.GroupResource{Resource: r.request.Resource}
		for _, err := range []error{
			apierrors.NewConflict(resource, r.request.Name, fmt.Errorf("a fault")), apierrors.NewInvalid(schema.GroupKind{}, r.request.Name, nil),
			apierrors.NewTooManyRequests("a fault", 1), apierrors.NewInternalError(fmt.Errorf("a fault")),
		} {
			if r.request.Verb != "get" || !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
				steps = append(steps, step{kind: fail, err: err})
			}
		}
	}
	if s.run != nil && s.run.request.Verb != "get" {
		steps = append(steps, step{kind: lose})
	}
	for i := range s.logs {
		if len(s.logs[i]) > 1 {
			steps = append(steps, step{kind: relist, at: i})
		}
	}
	olds := [][]bool{nil}
	for i := range s.logs {
		if len(s.logs[i]) > 0 {
			for _, old := range slices.Clone(olds) {
				old = slices.Clone(old)
				old = append(old, make([]bool, len(s.logs)-len(old))...)
				old[i] = true
				olds = append(olds, old)
			}
		}
	}
	for _, old := range olds {
		steps = append(steps, step{kind: crash, old: append(old, make([]bool, len(s.logs)-len(old))...)})
	}
	return steps
}
