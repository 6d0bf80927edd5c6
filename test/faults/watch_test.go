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
	"slices"
	"time"
)

// watchFault is one way in which the controller's watches can go wrong. It lasts
// from the scenario's operation until the controller has caught up with the end,
// and concerns events that come in that time, not a cache's first filling.
type watchFault struct {
	name string
	// about says which watches are concerned, all without it.
	about roles
	// late is by how much each event comes too late.
	late time.Duration
	// hold is for how long events are held back from the first one on, and then
	// from the next one on, windows times in all (0 for without end).
	hold    time.Duration
	windows int
	// bookmarks says that bookmarks go on meanwhile. They tell of the last version
	// that was delivered: a real API server never claims more.
	bookmarks bool
	// release is what becomes of the events held back; without it they are
	// delivered. It reports whether the watch goes on.
	release func(*stream, []event) bool
	// cutAfter is after how many events the watch is cut in the middle of another
	// one, 0 for never.
	cutAfter int
	// cutList says that the streamed list after a 410 is cut before its end, once.
	cutList bool
	// lists says that caches are filled by a list, not by a watch.
	lists bool
	// two says that two controllers are at work, and that only the watches of the
	// second one are concerned.
	two bool
}

// The times are long compared with how fast the controller acts, and on either
// side of the second for which it puts a progress status off.
const (
	shortly  = 300 * time.Millisecond
	longer   = 1500 * time.Millisecond
	quietly  = 2 * time.Second
	beat     = 200 * time.Millisecond
	forgiven = 33 * time.Second // more than the 30 seconds of rule 14
)

var watchFaults = []*watchFault{
	{name: "all events late", late: longer},
	{name: "Parent events behind Child events", about: roles{parents}, late: longer},
	{name: "Child events behind Parent events", about: roles{children}, late: longer},
	{name: "Parent events a little behind Child events", about: roles{parents}, late: shortly},
	{name: "Child events a little behind Parent events", about: roles{children}, late: shortly},
	{name: "no Parent event for longer than a write is remembered", about: roles{parents}, hold: forgiven, windows: 1},
	{name: "no Child event for longer than a write is remembered", about: roles{children}, hold: forgiven, windows: 1},
	{name: "only bookmarks for a while", hold: quietly, bookmarks: true},
	{name: "only bookmarks of Parents for a while", about: roles{parents}, hold: quietly, bookmarks: true},
	{name: "only bookmarks of Childs for a while", about: roles{children}, hold: quietly, bookmarks: true},
	{name: "cut in the middle after every event", cutAfter: 1},
	{name: "cut in the middle after every 2nd event", cutAfter: 2},
	{name: "cut in the middle after every 3rd event", cutAfter: 3},
	{name: "cut in the middle after every 5th event", cutAfter: 5},
	{name: "states between skipped", hold: longer, release: lastOnly},
	{name: "states of Parents between skipped", about: roles{parents}, hold: longer, release: lastOnly},
	{name: "states of Childs between skipped", about: roles{children}, hold: longer, release: lastOnly},
	{name: "410 for an answer", hold: shortly, windows: 2, release: goneAnswer},
	{name: "410 for an answer, with lists", hold: shortly, windows: 2, release: goneAnswer, lists: true},
	{name: "410 for an event", hold: shortly, windows: 2, release: goneEvent},
	{name: "410 for an event, with lists", hold: shortly, windows: 2, release: goneEvent, lists: true},
	{name: "410 for an event of Parents, later", about: roles{parents}, hold: longer, windows: 2, release: goneEvent},
	{name: "410 for an event of Childs, later", about: roles{children}, hold: longer, windows: 2, release: goneEvent},
	{name: "410 for an event, and the next list cut", hold: shortly, windows: 2, release: goneEvent, cutList: true},
	{name: "two controllers", two: true},
	{name: "two controllers, one with events late", two: true, late: longer},
	{name: "two controllers, one with Parent events late", two: true, about: roles{parents}, late: longer},
	{name: "two controllers, one with Child events late", two: true, about: roles{children}, late: longer},
	{name: "two controllers, one with states between skipped", two: true, hold: longer, release: lastOnly},
	{name: "two controllers, one with 410 for an event", two: true, hold: shortly, windows: 2, release: goneEvent},
	{name: "Other events late", about: roles{others}, late: longer},
	{name: "no Other event for longer than a write is remembered", about: roles{others}, hold: forgiven, windows: 1},
	{name: "states of Others between skipped", about: roles{others}, hold: longer, release: lastOnly},
	{name: "410 for an event of Others, later", about: roles{others}, hold: longer, windows: 2, release: goneEvent},
}

// concerns reports whether the fault is about the watches of a resource in that role
// of the first or the second controller.
func (f *watchFault) concerns(of role, second bool) bool {
	return (len(f.about) == 0 || slices.Contains(f.about, of)) && f.two == second
}

// lastOnly delivers the last event of each object, which tells all that a client
// learns that looks again later.
func lastOnly(s *stream, held []event) bool {
	for _, e := range collapse(held) {
		s.deliver(e)
	}
	return true
}

// goneEvent ends the watch with an event that its version is too old.
func goneEvent(s *stream, _ []event) bool {
	s.fail()
	return false
}

// goneAnswer ends the watch, and has the next one answered that its version is
// too old.
func goneAnswer(s *stream, _ []event) bool {
	s.proxy.watches.refuseNext(s.key)
	return false
}

// collapse leaves one event of each object: what became of it from before the
// first event until after the last one. An object that came and went is not
// told; a bookmark tells that time went on.
func collapse(held []event) []event {
	byName := map[string][]event{}
	for _, e := range held {
		if e.kind != bookmark {
			byName[e.meta.Name] = append(byName[e.meta.Name], e)
		}
	}
	var events []event
	for _, of := range byName {
		e, isNew := of[len(of)-1], of[0].kind == added
		switch {
		case isNew && e.kind == deleted:
			e = e.asBookmark()
		case isNew:
			e.kind = added
		case e.kind == deleted:
			// The client knows that object, and none of those that came after it.
			known := slices.IndexFunc(of, func(e event) bool { return e.kind == deleted })
			e = of[known].at(e.meta.ResourceVersion)
		default:
			e.kind = modified
		}
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b event) int {
		return int(number(a.meta.ResourceVersion) - number(b.meta.ResourceVersion))
	})
	return events
}
