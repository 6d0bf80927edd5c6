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
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/test/sim"
)

// state is one state of the cluster and the process. It is never changed: a step makes another one.
type state struct {
	store *sim.Store
	// logs are, by informer, the events that its watch has not delivered yet.
	logs [][]sim.Event
	// process is the process between two syncs. During a sync it is the process as it was when the
	// sync began, and run has what happened since.
	process *snapshot
	run     *run
	// detached are the requests of ended processes and lost connections that may still be carried out.
	detached []*sim.Request
	judge    *judge
	now      time.Time
	left     Budget
}

// Budget is how much may happen: operations of users, and deviations from an undisturbed run.
type Budget struct{ Operations, Deviations int }

// snapshot is a process between two syncs.
type snapshot struct {
	caches  []cached
	pending [][]notification
	keys    []cache.ObjectName
	timers  []timer
	image   *image
	// present says that the process has read the present version.
	present bool
	// inner has the canonical form of caches and memory, outer that of the rest.
	inner, outer *tokens
	memory       *tokens
}

type cached struct {
	objects []any
	version string
}

// run is a sync in progress.
type run struct {
	key cache.ObjectName
	// log is what happened in the process since the sync began. With it the sync can be repeated.
	log     []entry
	request *sim.Request
	// answer is set once the request was carried out.
	answer *answer
	// now is the process as it is now, without the sync.
	now *snapshot
	// reads are the objects that this sync has read live.
	reads []sim.Object
	// local is the canonical form of all that the sync has seen: caches and memory at its beginning and before each
	// answer, and the answers.
	local *tokens
}

// entry is something that happens in a process: an answer to the sync, an event that the cache of an
// informer receives, or that its handler receives, or a timer that fires.
type entry struct {
	answer   *answer
	informer int
	event    *sim.Event
	handle   bool
	timer    int
	// list is what a new list of the informer's resource answers.
	list *list
}

type list struct {
	objects []sim.Object
	version string
}

func (t *tokens) answer(a answer) {
	if t.bool(a.err == nil); a.err != nil {
		t.string(a.err.Error())
	}
	if t.bool(a.object == nil); a.object != nil {
		t.object(a.object)
	}
}

// do lets something happen in the process. It returns the sync's next request, and whether the sync has ended.
func (p *process) do(e entry) (next *sim.Request, ended bool) {
	switch {
	case e.answer != nil:
		next = p.answer(*e.answer)
		return next, next == nil
	case e.event != nil:
		p.deliver(e.informer, *e.event)
	case e.list != nil:
		p.relist(e.informer, *e.list)
	case e.handle:
		n := p.pending[e.informer][0]
		p.pending[e.informer] = slices.Clone(p.pending[e.informer][1:])
		p.informers[e.informer].handle(n)
	default:
		t := p.clock.timers[e.timer]
		p.clock.timers = slices.Delete(slices.Clone(p.clock.timers), e.timer, e.timer+1)
		if t.call != nil {
			t.call()
		} else {
			p.queue.Add(t.key)
		}
	}
	return nil, false
}

// deliver puts an event into the cache of an informer.
func (p *process) deliver(i int, event sim.Event) {
	store := p.informers[i].GetIndexer()
	var n notification
	if old, ok, _ := store.GetByKey(cache.MetaObjectToName(event.Object).String()); ok {
		n.old = old.(sim.Object)
	}
	if event.Type == watch.Deleted {
		_ = store.Delete(event.Object)
	} else {
		n.new = p.informers[i].trim(event.Object)
		_ = store.Update(n.new)
	}
	store.Bookmark(event.Object.GetResourceVersion())
	p.pending[i] = append(slices.Clone(p.pending[i]), n)
}

// relist makes the cache of an informer what a new list says. Its handlers are told of the differences alone.
func (p *process) relist(i int, l list) {
	store := p.informers[i].GetIndexer()
	var objects []any
	var pending []notification
	for _, object := range l.objects {
		n := notification{new: p.informers[i].trim(object)}
		if old, ok, _ := store.GetByKey(cache.MetaObjectToName(object).String()); ok {
			n.old = old.(sim.Object)
		}
		objects = append(objects, n.new)
		pending = append(pending, n)
	}
	for _, old := range store.List() {
		name := old.(sim.Object).GetName()
		if !slices.ContainsFunc(l.objects, func(object sim.Object) bool { return object.GetName() == name }) {
			pending = append(pending, notification{old: old.(sim.Object), unknown: true})
		}
	}
	_ = store.Replace(objects, l.version)
	p.pending[i] = append(slices.Clone(p.pending[i]), pending...)
}

// restore makes the process what the snapshot is.
func (p *process) restore(s *snapshot, now time.Time) {
	for i, c := range s.caches {
		_ = p.informers[i].GetIndexer().Replace(c.objects, c.version)
	}
	p.pending = slices.Clone(s.pending)
	p.queue.keys, p.clock.timers = s.keys, s.timers
	p.clock.set(now)
	p.buckets.Clear()
	s.image.restore()
}

// save returns the process as it is now.
func (p *process) save(present bool) *snapshot {
	s := &snapshot{pending: slices.Clone(p.pending), keys: p.queue.keys, timers: p.clock.timers, present: present}
	t := &tokens{known: p.memory.known}
	for _, informer := range p.informers {
		c := cached{objects: informer.GetIndexer().List(), version: informer.GetIndexer().LastStoreSyncResourceVersion()}
		slices.SortFunc(c.objects, func(a, b any) int { return compare(a.(sim.Object).GetName(), b.(sim.Object).GetName()) })
		s.caches = append(s.caches, c)
		t.version(c.version)
		t.objects(c.objects)
	}
	s.image, s.memory = p.memory.read()
	t.append(s.memory)
	s.inner, t = t, &tokens{known: p.memory.known}
	s.outer = t
	for _, pending := range s.pending {
		t.int(int64(len(pending)))
		for _, n := range pending {
			t.notification(n)
		}
	}
	t.int(int64(len(s.keys)))
	for _, key := range s.keys {
		t.name(key)
	}
	t.int(int64(len(s.timers)))
	for _, timer := range s.timers {
		t.time(timer.due)
		t.name(timer.key)
	}
	t.bool(present)
	return s
}

func (t *tokens) objects(objects []any) {
	t.int(int64(len(objects)))
	for _, object := range objects {
		t.object(object.(sim.Object))
	}
}

func (t *tokens) notification(n notification) {
	t.bool(n.initial)
	t.bool(n.unknown)
	for _, object := range []sim.Object{n.old, n.new} {
		if t.bool(object == nil); object != nil {
			t.object(object)
		}
	}
}

// materialize makes the process what it is in this state.
func (p *process) materialize(s *state) {
	p.restore(s.process, s.now)
	if s.run == nil {
		return
	}
	p.sync(s.run.key)
	for _, e := range s.run.log {
		p.do(e)
	}
}

// tokens returns the canonical form of the state.
func (s *state) tokens(resources []string, known map[Object]*tokens) *tokens {
	t := &tokens{known: known}
	for i, resource := range resources {
		for _, object := range s.store.Objects(resource) {
			t.object(object)
			t.string(s.store.PodImages(object.GetUID()))
		}
		if i >= len(s.logs) {
			continue
		}
		t.int(int64(len(s.logs[i])))
		for _, event := range s.logs[i] {
			t.string(string(event.Type))
			t.object(event.Object)
		}
	}
	t.string(s.store.Policies())
	now := s.process
	if t.bool(s.run == nil); s.run != nil {
		now = s.run.now
		t.name(s.run.key)
		t.append(s.run.local)
		if t.bool(s.run.answer == nil); s.run.answer != nil {
			t.answer(*s.run.answer)
		}
	}
	t.append(now.inner)
	t.append(now.outer)
	t.int(int64(len(s.detached)))
	for _, r := range s.detached {
		t.request(r)
	}
	s.judge.encode(t)
	t.int(int64(s.left.Operations))
	t.int(int64(s.left.Deviations))
	return t
}

// request adds a request. Its versions and UIDs stay in the text of the patch: that only tells more states apart.
func (t *tokens) request(r *sim.Request) {
	t.string(r.Verb + r.Resource + r.Subresource + r.Name + string(r.Patch))
	if r.Object != nil {
		t.object(r.Object)
	}
}
