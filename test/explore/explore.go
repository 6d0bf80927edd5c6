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
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/test/sim"
)

// Scope is what an exploration covers.
type Scope struct {
	Start

	// First is the number, counted from 1, of the only operation that users may do first, 0 if that may be any.
	First  int
	Budget Budget
	// Zeal is how many times more often than usual it is tried whether the exploration is sound.
	Zeal int
	// MaxStates bounds the exploration, 0 for no bound.
	MaxStates int
	// Without has what does not happen, of Detached, NewLeader and HeldWatch: others find fewer faults then.
	Without []string
}

// What a scope can be without.
const (
	// Detached is that a request is carried out after its process has ended, or has got an error.
	Detached = "detached"
	// NewLeader is that another process takes over.
	NewLeader = "leader"
	// HeldWatch is that time passes while a watch has events to deliver.
	HeldWatch = "held"
)

// Result is what an exploration has found.
type Result struct {
	States, Transitions, Depth int
	// Closed says that there is no state left to expand.
	Closed     bool
	Violations []Violation
}

// Add adds another result.
func (r *Result) Add(other Result) {
	r.States, r.Transitions, r.Depth = r.States+other.States, r.Transitions+other.Transitions, max(r.Depth, other.Depth)
	r.Closed = r.Closed && other.Closed
}

// String returns the figures.
func (r Result) String() string {
	return fmt.Sprintf("%d states, %d transitions, depth %d, closed %t", r.States, r.Transitions, r.Depth, r.Closed)
}

// Violation is a broken invariant, with the shortest path to it.
type Violation struct {
	What  string
	Story []string
	// Path has the numbers of the steps, for Replay. Test is a Go test that does it, beside TestExplore.
	Path []int
	Test string
}

// String returns the violation as a story.
func (v Violation) String() string {
	return strings.Join(slices.Concat([]string{v.What}, v.Story, []string{v.Test}), "\n    ")
}

// reached is a state with its number.
type reached struct {
	*state
	id int32
}

// node is how a state was first reached.
type node struct {
	parent int32
	// step is the number of the step among those of the parent.
	step uint16
}

// Explorer explores a scope.
type Explorer struct {
	process   *process
	resources []string
	fresh     *image
	// idle is what a process remembers that has done nothing but read the present version.
	idle     *form
	kind     Kind
	faults   []fault
	lost     *answer
	scope    Scope
	clusters map[sum]*cluster
	scratch  tokens

	seen  map[sum]int32
	nodes []node
	quiet quiet
	Result
	// found are the violations of the present step.
	found []string
	root  *state
}

// New returns an Explorer of the kind.
func New(ctx context.Context, kind Kind) *Explorer {
	e := &Explorer{kind: kind, clusters: map[sum]*cluster{}, faults: faults(), lost: &answer{err: errors.New("connection lost")}}
	e.process = start(ctx, kind, epoch())
	for _, resource := range kind.Resources {
		e.resources = append(e.resources, resource.Resource)
	}
	e.process.pending = make([][]notification, len(e.process.informers))
	e.fresh, _ = e.process.memory.read()
	return e
}

// epoch returns when each exploration begins.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// initial returns an empty cluster with a process that has just started.
func (e *Explorer) initial() *state {
	n := len(e.process.informers)
	s := &state{logs: make([][]sim.Event, n), past: make([][]sim.Event, n), judge: &judge{kind: e.kind.Judge}}
	store := sim.NewStore(e.kind.Resources, func() metav1.Time { return metav1.Time{} }, nil)
	s.cluster = e.clusterOf(store)
	s.process = e.process.begin(s.cluster.lists, epoch(), e.fresh)
	e.idle = e.take(s, step{kind: present}).process.memory
	return s
}

// Run explores the scope.
func (e *Explorer) Run(scope Scope) Result {
	e.scope, e.Result, e.seen, e.nodes = scope, Result{}, map[sum]int32{}, nil
	e.quiet = quiet{rests: map[int32]atRest{}, classes: map[step]int8{}}
	e.process.zeal = scope.Zeal
	e.root = e.start()
	frontier, limit := []reached{{e.root, 0}}, maxDepth*(scope.Budget.Operations+scope.Budget.Deviations)
	e.add(e.root, -1, 0)
	for len(frontier) > 0 && e.isRight() {
		var next []reached
		for i, r := range frontier {
			frontier[i].state = nil
			next = append(next, e.expand(r.state, r.id)...)
			if e.scope.MaxStates > 0 && len(e.nodes) > e.scope.MaxStates {
				return e.end(false)
			}
		}
		frontier = next
		if e.Depth++; e.Depth > limit && len(frontier) > 0 {
			e.violated(e.path(frontier[0].id), fmt.Sprintf("L1: after %d steps it still goes on", limit))
		}
	}
	if e.isRight() {
		e.live()
	}
	return e.end(true)
}

// isRight reports whether nothing has been found so far.
func (e *Explorer) isRight() bool { return len(e.Violations) == 0 && len(e.process.unsound) == 0 }

// maxDepth is how many steps each operation and each deviation may take at most until nothing new happens any more.
const maxDepth = 500

// end returns the result.
func (e *Explorer) end(closed bool) Result {
	e.process.retryTwins()
	for _, what := range slices.Compact(e.process.unsound) {
		e.Violations = append(e.Violations, Violation{What: what})
	}
	e.Closed = closed
	return e.Result
}

// start returns the settled state from which the exploration begins.
func (e *Explorer) start() *state {
	s := e.settle(e.initial())
	for i, op := range e.scope.Operations {
		e.act(s, step{kind: operate, at: -1 - i}, op.Do)
		s = e.settle(s)
	}
	s.left, s.past = e.scope.Budget, make([][]sim.Event, len(s.logs))
	return s
}

// add returns the number of a state, and whether it was not seen before.
func (e *Explorer) add(s *state, parent int32, step int) (id int32, isNew bool) {
	hash := e.canonical(s)
	if id, ok := e.seen[hash]; ok {
		return id, false
	}
	id = int32(len(e.nodes))
	e.seen[hash] = id
	e.nodes = append(e.nodes, node{parent, uint16(step)})
	e.States++
	return id, true
}

// path returns the numbers of the steps that lead to a state.
func (e *Explorer) path(id int32) (path []int) {
	for ; id > 0; id = e.nodes[id].parent {
		path = append(path, int(e.nodes[id].step))
	}
	slices.Reverse(path)
	return path
}

// Replay takes the steps of those numbers from the start of the scope, tells them and returns what they violate.
func (e *Explorer) Replay(scope Scope, path []int) (story, violations []string) {
	root := e.root
	defer func() { e.root = root }()
	e.scope, e.found = scope, nil
	e.root = e.start()
	s := e.root
	for _, number := range path {
		steps := e.steps(s)
		if number >= len(steps) {
			return append(story, fmt.Sprintf("there are only %d steps", len(steps))), e.found
		}
		story = append(story, e.tell(s, steps[number]))
		s = e.take(s, steps[number])
	}
	return story, e.found
}

// settle does whatever comes first until nothing happens for an hour.
func (e *Explorer) settle(s *state) *state {
	for end := s.process.now.Add(time.Hour); ; {
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

// expand returns the new states that follow upon the state.
func (e *Explorer) expand(s *state, id int32) (next []reached) {
	e.quiet.first = append(e.quiet.first, int32(len(e.quiet.edges)))
	steps, enabled := e.steps(s), uint64(0)
	if !e.scope.Until.IsZero() && s.process.now.After(e.scope.Until) {
		e.quiet.enabled = append(e.quiet.enabled, 0)
		return nil
	}
	if !slices.ContainsFunc(steps, func(step step) bool { return step.kind < pass }) && len(s.process.runs) == 0 {
		e.judgeRest(s, id)
	}
	for i, step := range steps {
		e.found = nil
		t := e.take(s, step)
		if t == nil {
			continue
		}
		if found := e.found; len(found) > 0 {
			e.violated(append(e.path(id), i), found...)
			return nil
		}
		e.Transitions++
		to, isNew := e.add(t, id, i)
		switch {
		case isNew:
			if next = append(next, reached{t, to}); e.process.isSampled(&e.process.new, sampleObjects) {
				e.checkObjects(t)
			}
		case e.process.isSampled(&e.process.alike, sampleSteps):
			e.checkAlike(e.stateOf(to), t)
		}
		if class := e.class(step); class >= 0 {
			enabled |= 1 << class
			e.quiet.edges = append(e.quiet.edges, edge{to, class, step.kind == execute && e.isRestless(s, t, step.at)})
		}
	}
	e.quiet.enabled = append(e.quiet.enabled, enabled)
	return next
}

// violated records violations at the end of a path.
func (e *Explorer) violated(path []int, found ...string) {
	story, _ := e.Replay(e.scope, path)
	numbers := strings.Trim(fmt.Sprint(path), "[]")
	for _, what := range found {
		test := fmt.Sprintf("func TestPath(t *testing.T) { t.Setenv(%q, \"%s/%s\"); TestExplore(t) }", pathVariable, e.scope, numbers)
		e.Violations = append(e.Violations, Violation{what, story, path, test})
	}
}

// What the explorer takes for granted is tried every so often: that the same happens again at the same moment (each
// variable is saved), that equal moments and equal states go on alike (no field is left out of their forms), and that
// objects in caches never change.
const (
	sampleSteps   = 200
	sampleMoments = 20
	sampleObjects = 100
	// maxTwins bounds the moments that are kept to be tried at the end.
	maxTwins = 1000
)

// twin is a moment that has the form of another one.
type twin struct{ shared, other *moment }

// isSampled counts, and reports whether it is the turn of one in so many.
func (p *process) isSampled(count *int, oneIn int) bool {
	*count++
	return *count%max(1, oneIn/max(1, p.zeal)) == 0
}

func (p *process) falsify(format string, args ...any) {
	p.unsound = append(p.unsound, "UNSOUND: "+fmt.Sprintf(format, args...))
}

// retry tries whether the same happens again.
func (p *process) retry(m *moment, e entry, known *moment) *moment {
	again := p.compute(m, e)
	if again.exact != known.exact {
		p.falsify("step %d of %s does not do the same each time: something that the controller remembers is not a part of the state", e.kind, e.key)
	}
	return again
}

// retryTwins tries two levels of what follows upon moments that were taken for equal ones.
func (p *process) retryTwins() {
	for _, twin := range p.twins {
		for e, next := range twin.shared.after {
			again := p.retry(twin.other, e, next)
			for e, next := range next.after {
				if len(p.unsound) == 0 {
					p.retry(again, e, next)
				}
			}
		}
	}
}

// checkObjects hashes the objects again that caches and API server share.
func (e *Explorer) checkObjects(s *state) {
	canon := e.process.memory.canon
	check := func(object sim.Object) {
		if canon.exact(canon.formOf(object)) != canon.exact(canon.known[object]) {
			e.process.falsify("%T %s was changed in a cache", object, object.GetName())
		}
	}
	for i, c := range s.process.caches {
		for _, object := range c.objects {
			check(object.(sim.Object))
		}
		for _, object := range s.cluster.store.Objects(e.resources[i]) {
			check(object)
		}
	}
}

// checkAlike expands two states two levels that have the same form.
func (e *Explorer) checkAlike(a, b *state) {
	found := e.found
	if !e.alike(a, b, 2) {
		e.process.falsify("two states of the same form do not go on alike: %v, and one that differs", e.path(e.seen[e.canonical(a)]))
	}
	e.found = found
}

func (e *Explorer) alike(a, b *state, levels int) bool {
	if e.canonical(a) != e.canonical(b) {
		return false
	}
	// How old the caches of a new process may be is no part of a state.
	lasting := func(s *state) []step {
		return slices.DeleteFunc(e.steps(s), func(step step) bool { return step.kind == crash })
	}
	steps, others := lasting(a), lasting(b)
	if levels == 0 || len(steps) != len(others) {
		return levels == 0
	}
	for i := range steps {
		next, other := e.take(a, steps[i]), e.take(b, others[i])
		if (next == nil) != (other == nil) || next != nil && !e.alike(next, other, levels-1) {
			return false
		}
	}
	return true
}

// stateOf returns the first state of that number.
func (e *Explorer) stateOf(id int32) *state {
	s := e.root
	for _, number := range e.path(id) {
		s = e.take(s, e.steps(s)[number])
	}
	return s
}
