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
	"reflect"
	"slices"

	"example.com/sample-controller/test/sim"
)

// What the explorer takes for granted is tried every so often: that the same happens again at the same moment (no
// variable is left that nobody saves), that equal moments and equal states go on alike (no field is left out of their
// forms), and that objects in caches never change.
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
		t := canon.tokens()
		t.any(reflect.ValueOf(object), "")
		if canon.exact(t.form()) != canon.exact(canon.known[object]) {
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
