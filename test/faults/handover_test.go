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

package faults

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// What must hold whoever leads, beyond the invariants: one acts at a time, nobody's
// Foo suffers from a change of leader, and nobody's change is forgotten over it.

// handover is a change of leader.
type handover struct {
	kind string
	// signalled is when the former leader was struck, gone when it had ended, and
	// works when the next one worked.
	signalled, gone, works time.Time
	// bound is what leader election promises for it.
	bound time.Duration
}

func (h *handover) took() time.Duration  { return h.works.Sub(h.signalled) }
func (h *handover) drain() time.Duration { return h.gone.Sub(h.signalled) }

// actingTogether returns where two controllers were at work at the same time: all
// that one writes must be answered before another one's first write comes.
func actingTogether(records [][]request) []string {
	type span struct {
		number      int
		first, last *request
		begun, over time.Time
	}
	var spans []span
	for i, requests := range records {
		s := span{number: i + 1}
		for j := range requests {
			r := &requests[j]
			if !r.isWrite() {
				continue
			}
			if s.first == nil || r.begun.Before(s.begun) {
				s.first, s.begun = r, r.begun
			}
			end := r.ended
			if end.IsZero() {
				end = r.begun
			}
			if end.After(s.over) {
				s.last, s.over = r, end
			}
		}
		if s.first != nil {
			spans = append(spans, s)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.begun.Compare(b.begun) })
	var found []string
	for i := 1; i < len(spans); i++ {
		former, next := spans[i-1], spans[i]
		if former.over.After(next.begun) {
			found = append(found, fmt.Sprintf("two act: controller %d began with %s %s before %s of controller %d was answered",
				next.number, next.first, former.over.Sub(next.begun), former.last, former.number))
		}
	}
	return found
}

// leftReady returns the Foos that were ready and did not stay so, although nobody
// had changed their specs.
func (h *history) leftReady() []string {
	was := map[types.UID]int64{}
	var found []string
	for _, v := range h.foos {
		foo := v.object
		switch {
		case v.gone || foo.DeletionTimestamp != nil:
			delete(was, foo.UID)
		case isReady(foo):
			was[foo.UID] = foo.Generation
		case was[foo.UID] == foo.Generation:
			delete(was, foo.UID)
			found = append(found, fmt.Sprintf("Foo %s left Ready in generation %d, which it had been ready in: %+v (version %d)",
				foo.Name, foo.Generation, foo.Status.Conditions, v.number))
		}
	}
	return found
}

// waits is how long users waited at most until a status told of what they asked for.
type waits struct {
	// calm is the longest wait beside all handovers, and late how long after the
	// last handover in it the worst of the others ended.
	calm, late time.Duration
	// who is whose Foo that was.
	who string
	// beside and across count them.
	beside, across int
}

func newWaits(all []asked, records [][]request, handovers []*handover) *waits {
	acts := map[types.UID][]request{}
	for _, requests := range records {
		for _, r := range requests {
			if r.applied() && r.told.generation > 0 {
				acts[r.told.foo] = append(acts[r.told.foo], r)
			}
		}
	}
	w := &waits{}
	for _, a := range all {
		var first *request
		for i, r := range acts[a.foo] {
			if r.told.generation >= a.generation && (first == nil || r.ended.Before(first.ended)) {
				first = &acts[a.foo][i]
			}
		}
		// Its user may have deleted it before.
		if first != nil {
			w.add(a.at, first, handovers)
		}
	}
	return w
}

func (w *waits) add(from time.Time, told *request, handovers []*handover) {
	var last *handover
	to := told.ended
	for _, h := range handovers {
		if h.signalled.Before(to) && from.Before(h.works) {
			last = h
		}
	}
	if last == nil {
		w.beside++
		w.calm = max(w.calm, to.Sub(from))
		return
	}
	w.across++
	if late := to.Sub(last.works); late > w.late {
		w.late, w.who = late, told.name
	}
}

// lateness is how many times the longest wait beside handovers may pass after one:
// all that was asked for meanwhile is done at the same time.
const lateness = 4

// violations returns whether somebody was forgotten.
func (w *waits) violations() []string {
	if w.beside == 0 || w.across == 0 {
		return []string{fmt.Sprintf("nothing is proven by %d changes beside handovers and %d across them", w.beside, w.across)}
	}
	if w.late > lateness*w.calm {
		return []string{fmt.Sprintf("Foo %s waited for %s after a handover, and none for more than %s beside them", w.who, w.late, w.calm)}
	}
	return nil
}
