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
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/test/sim"
)

// moment is the process at one moment. It never changes. Equal moments are one, so that what follows upon it is computed
// once: most steps of an exploration run no code of the controller.
type moment struct {
	now     time.Time
	caches  []*cached
	pending [][]notification
	keys    []cache.ObjectName
	timers  []timer
	// present says that the process has read the present version.
	present bool
	// runs are the syncs in progress. A sync cannot be saved: it is repeated from base, the last moment without one,
	// by the log of what happened since.
	runs []*run
	base *moment
	log  []entry
	// image is what the process remembers.
	image *image
	// memory is the form of what the process remembers, inner that of memory and caches, form that of all.
	memory, inner, form *form
	// exact tells moments apart by their form and what is in its holes.
	exact sum
	after map[entry]*moment
}

// cached is what a cache of an informer has.
type cached struct {
	objects []any
	version string
	exact   sum
	form    *form
}

// run is a sync in progress, which waits for the answer to its request.
type run struct {
	number  int
	key     cache.ObjectName
	request *sim.Request
	// began are the caches as they were when it began, and reads what it has read live.
	began []*cached
	reads []sim.Object
	// local is the form of all that the sync has seen: caches and memory at its beginning and before each answer, and
	// the answers.
	local *form
	// failures is how often the syncs of the key had failed in a row when it began.
	failures int
}

// entry is something that happens in a process: an answer to a sync, an event that the cache of an informer receives, or
// that its handler receives, a timer that fires.
type entry struct {
	kind kind
	// at is an informer, a timer or a sync.
	at     int
	key    cache.ObjectName
	event  sim.Event
	answer *answer
	list   *cached
	// version is the present one, or, when time passes, the bookmark of each informer, "" for none.
	version string
	now     time.Time
}

func (m *moment) run(number int) *run {
	for _, r := range m.runs {
		if r.number == number {
			return r
		}
	}
	return nil
}

// next returns the moment after something happened.
func (p *process) next(m *moment, e entry) *moment {
	next, ok := m.after[e]
	if !ok {
		next = p.share(p.compute(m, e))
		if m.after == nil {
			m.after = map[entry]*moment{}
		}
		m.after[e] = next
	} else if p.isSampled(&p.known, sampleSteps) {
		p.retry(m, e, next)
	}
	return next
}

// share returns the one moment that equals this one.
func (p *process) share(m *moment) *moment {
	if shared, ok := p.moments[m.exact]; ok {
		if len(p.twins) < maxTwins && p.isSampled(&p.shared, sampleMoments) {
			p.twins = append(p.twins, twin{shared, m})
		}
		return shared
	}
	p.moments[m.exact] = m
	return m
}

// compute lets something happen in the process at that moment. Only what a sync does needs its worker.
func (p *process) compute(m *moment, e entry) *moment {
	next := &moment{base: m.base, runs: m.runs, present: m.present || e.kind == present}
	var request *sim.Request
	if e.kind == begin || e.kind == deliver {
		p.restore(m.base)
		for _, logged := range m.log {
			p.do(logged)
		}
		request = p.do(e)
		next.proceed(p, m, e, request)
	} else {
		p.restore(m)
		p.do(e)
	}
	if e.kind == store || e.kind == relist {
		// No code of the controller runs.
		next.image, next.memory = m.image, m.memory
	}
	p.save(next)
	if e.kind == begin || e.kind == deliver {
		for _, r := range next.runs {
			p.abandon(r.number)
		}
	}
	if next.log = append(slices.Clone(m.log), e); len(next.runs) == 0 {
		next.base, next.log = next, nil
	}
	next.encode(p.memory.canon)
	return next
}

// proceed records that a sync has begun or got an answer, and waits for the answer to its next request, or has ended.
func (m *moment) proceed(p *process, before *moment, e entry, request *sim.Request) {
	m.runs = slices.Clone(m.runs)
	i := slices.IndexFunc(m.runs, func(r *run) bool { return r.number == e.at })
	if request == nil {
		if i >= 0 {
			m.runs = slices.Delete(m.runs, i, i+1)
		}
		return
	}
	t := p.memory.canon.tokens()
	r := &run{number: e.at, key: e.key, began: before.caches, request: request, failures: p.queue.NumRequeues(e.key)}
	if i < 0 {
		t.string(e.key.Name)
		m.runs = append(m.runs, r)
		slices.SortFunc(m.runs, func(a, b *run) int { return a.number - b.number })
	} else {
		*r = *m.runs[i]
		r.request = request
		t.add(r.local)
		t.answer(*e.answer)
		if e.answer.object != nil && m.runs[i].request.Verb == "get" {
			r.reads = append(slices.Clone(r.reads), e.answer.object)
		}
		m.runs[i] = r
	}
	t.add(before.inner)
	r.local = t.form()
}

// begin returns a process that has just begun to lead, with those caches.
func (p *process) begin(caches []*cached, now time.Time, fresh *image) *moment {
	m := &moment{now: now, caches: caches, image: fresh, pending: make([][]notification, len(caches))}
	m.base = m
	for i, c := range caches {
		for _, object := range c.objects {
			m.pending[i] = append(m.pending[i], notification{new: object.(sim.Object), initial: true})
		}
	}
	p.restore(m)
	m.caches, m.image = nil, nil
	p.save(m)
	m.encode(p.memory.canon)
	return p.share(m)
}

func (t *tokens) answer(a answer) {
	if t.bool(a.err == nil); a.err != nil {
		t.string(a.err.Error())
	}
	if t.bool(a.object == nil); a.object != nil {
		t.object(a.object)
	}
}

// do lets something happen in the process. It returns the sync's next request, nil if it ends.
func (p *process) do(e entry) *sim.Request {
	switch e.kind {
	case begin:
		return p.sync(e.at, e.key)
	case deliver:
		return p.answer(e.at, *e.answer)
	case store:
		p.deliver(e.at, e.event)
	case relist:
		p.relist(e.at, e.list)
	case handle:
		n := p.pending[e.at][0]
		p.pending[e.at] = slices.Clone(p.pending[e.at][1:])
		p.informers[e.at].handle(n)
	case present:
		p.present = e.version
		p.readNow(p.ctx)
	case pass:
		p.clock.set(e.now)
		for i, version := range strings.Split(e.version, " ") {
			if version != "" {
				p.informers[i].GetIndexer().Bookmark(version)
			}
		}
	default:
		t := p.clock.timers[e.at]
		p.clock.timers = slices.Delete(slices.Clone(p.clock.timers), e.at, e.at+1)
		if t.call != nil {
			t.call()
		} else {
			p.queue.Add(t.key)
		}
	}
	return nil
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
		n.new = p.trim(i, event.Object)
		_ = store.Update(n.new)
	}
	store.Bookmark(event.Object.GetResourceVersion())
	p.pending[i] = append(slices.Clone(p.pending[i]), n)
}

func (p *process) trim(i int, object sim.Object) sim.Object {
	trimmed, err := p.informers[i].transform(object.DeepCopyObject())
	if err != nil {
		panic(err)
	}
	return p.memory.canon.share(trimmed.(sim.Object))
}

// relist makes the cache of an informer what a new list says. Its handlers are told of the differences alone.
func (p *process) relist(i int, l *cached) {
	store := p.informers[i].GetIndexer()
	var pending []notification
	listed := map[string]bool{}
	for _, object := range l.objects {
		n := notification{new: object.(sim.Object)}
		listed[n.new.GetName()] = true
		if old, ok, _ := store.GetByKey(cache.MetaObjectToName(n.new).String()); ok {
			n.old = old.(sim.Object)
		}
		pending = append(pending, n)
	}
	for _, old := range sorted(store.List()) {
		if !listed[old.(sim.Object).GetName()] {
			pending = append(pending, notification{old: old.(sim.Object), unknown: true})
		}
	}
	_ = store.Replace(l.objects, l.version)
	p.pending[i] = append(slices.Clone(p.pending[i]), pending...)
}

func sorted(objects []any) []any {
	slices.SortFunc(objects, func(a, b any) int { return strings.Compare(a.(sim.Object).GetName(), b.(sim.Object).GetName()) })
	return objects
}

// restore makes the process what it was at a moment, but for the syncs in progress.
func (p *process) restore(m *moment) {
	for i, c := range m.caches {
		_ = p.informers[i].GetIndexer().Replace(c.objects, c.version)
	}
	p.pending = slices.Clone(m.pending)
	p.queue.keys, p.clock.timers = m.keys, m.timers
	p.clock.set(m.now)
	p.buckets.Clear()
	m.image.restore()
}

// save records the process as it is now.
func (p *process) save(m *moment) {
	m.now, m.pending, m.keys, m.timers = p.clock.Now(), slices.Clone(p.pending), p.queue.keys, p.clock.timers
	t := p.memory.canon.tokens()
	for _, informer := range p.informers {
		c := p.cached(sorted(informer.GetIndexer().List()), informer.GetIndexer().LastStoreSyncResourceVersion())
		m.caches = append(m.caches, c)
		t.add(c.form)
	}
	if m.image == nil {
		image, memory := p.memory.read()
		m.image, m.memory = image, memory.form()
	}
	t.add(m.memory)
	m.inner = t.form()
}

// cached returns what a cache has. Equal ones are one.
func (p *process) cached(objects []any, version string) *cached {
	c := &cached{objects: objects, version: version}
	t := p.memory.canon.tokens()
	t.version(version)
	t.int(int64(len(objects)))
	for _, object := range objects {
		t.object(object.(sim.Object))
	}
	c.form = t.form()
	c.exact = p.memory.canon.exact(c.form)
	if shared, ok := p.lists[c.exact]; ok {
		return shared
	}
	p.lists[c.exact] = c
	return c
}

// encode makes the form.
func (m *moment) encode(c *canon) {
	t := c.tokens()
	t.add(m.inner)
	for _, pending := range m.pending {
		t.int(int64(len(pending)))
		for _, n := range pending {
			t.notification(n)
		}
	}
	t.int(int64(len(m.keys)))
	for _, key := range m.keys {
		t.name(key)
	}
	t.int(int64(len(m.timers)))
	for _, timer := range m.timers {
		t.time(timer.due)
		t.name(timer.key)
	}
	t.bool(m.present)
	t.int(int64(len(m.runs)))
	for _, r := range m.runs {
		t.int(int64(r.number))
		t.add(r.local)
	}
	m.form = t.form()
	// Whether time has passed does not show in the form.
	t = c.tokens()
	t.add(m.form)
	t.time(m.now)
	m.exact = c.exact(t.form())
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
