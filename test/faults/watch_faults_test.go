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

	"k8s.io/apimachinery/pkg/watch"
)

// watchFault is one way in which the watches of the controller can fail. It is active
// from the scenario's operation until the controller has caught up with the final state,
// and applies to events of that time, not to the initial list of a cache.
type watchFault struct {
	name string
	// roles selects the watches, all if empty.
	roles roles
	// delay is the delay of each event.
	delay time.Duration
	// hold is for how long events are held back, counted from the first one. The next
	// event after that starts another window; maxWindows bounds them, 0 for no bound.
	hold       time.Duration
	maxWindows int
	// bookmarks sends bookmarks while events are held back, with the resource version of
	// the last delivered event: an API server never sends a newer one.
	bookmarks bool
	// endWindow handles the events of a window, and reports whether the watch continues.
	// If it is nil, they are delivered.
	endWindow func(*watchStream, []watchEvent) bool
	// cutAfter cuts the connection in the middle of an event, after that many events; 0
	// for never.
	cutAfter int
	// cutList also cuts the streamed list after a 410 before its end, once.
	cutList bool
	// useLists makes the caches use lists instead of streamed lists.
	useLists bool
	// twoControllers runs a second controller. The fault then applies to its watches
	// only.
	twoControllers bool
}

// The delays are long compared with a sync. shortDelay is below and longDelay above the
// second for which the controller delays a progress status.
const (
	shortDelay       = 300 * time.Millisecond
	longDelay        = 1500 * time.Millisecond
	silence          = 2 * time.Second
	bookmarkInterval = 200 * time.Millisecond
	beyondTimeout    = 33 * time.Second // more than the 30 seconds of rule 14
)

var watchFaults = []*watchFault{
	{name: "all events late", delay: longDelay},
	{name: "Owner events behind Dependent events", roles: roles{owners}, delay: longDelay},
	{name: "Dependent events behind Owner events", roles: roles{dependents}, delay: longDelay},
	{name: "Owner events a little behind Dependent events", roles: roles{owners}, delay: shortDelay},
	{name: "Dependent events a little behind Owner events", roles: roles{dependents}, delay: shortDelay},
	{name: "no Owner event for longer than a sync waits for it", roles: roles{owners}, hold: beyondTimeout, maxWindows: 1},
	{name: "no Dependent event for longer than a sync waits for it", roles: roles{dependents}, hold: beyondTimeout, maxWindows: 1},
	{name: "only bookmarks for a while", hold: silence, bookmarks: true},
	{name: "only bookmarks of Owners for a while", roles: roles{owners}, hold: silence, bookmarks: true},
	{name: "only bookmarks of Dependents for a while", roles: roles{dependents}, hold: silence, bookmarks: true},
	{name: "cut in the middle after every event", cutAfter: 1},
	{name: "cut in the middle after every 2nd event", cutAfter: 2},
	{name: "cut in the middle after every 3rd event", cutAfter: 3},
	{name: "cut in the middle after every 5th event", cutAfter: 5},
	{name: "intermediate states skipped", hold: longDelay, endWindow: deliverLatest},
	{name: "intermediate states of Owners skipped", roles: roles{owners}, hold: longDelay, endWindow: deliverLatest},
	{name: "intermediate states of Dependents skipped", roles: roles{dependents}, hold: longDelay, endWindow: deliverLatest},
	{name: "410 response", hold: shortDelay, maxWindows: 2, endWindow: respondExpired},
	{name: "410 response, with lists", hold: shortDelay, maxWindows: 2, endWindow: respondExpired, useLists: true},
	{name: "410 event", hold: shortDelay, maxWindows: 2, endWindow: sendExpiredEvent},
	{name: "410 event, with lists", hold: shortDelay, maxWindows: 2, endWindow: sendExpiredEvent, useLists: true},
	{name: "410 event of Owners, later", roles: roles{owners}, hold: longDelay, maxWindows: 2, endWindow: sendExpiredEvent},
	{name: "410 event of Dependents, later", roles: roles{dependents}, hold: longDelay, maxWindows: 2, endWindow: sendExpiredEvent},
	{name: "410 event, and the next list cut", hold: shortDelay, maxWindows: 2, endWindow: sendExpiredEvent, cutList: true},
	{name: "two controllers", twoControllers: true},
	{name: "two controllers, one with events late", twoControllers: true, delay: longDelay},
	{name: "two controllers, one with Owner events late", twoControllers: true, roles: roles{owners}, delay: longDelay},
	{name: "two controllers, one with Dependent events late", twoControllers: true, roles: roles{dependents}, delay: longDelay},
	{name: "two controllers, one with intermediate states skipped", twoControllers: true, hold: longDelay, endWindow: deliverLatest},
	{name: "two controllers, one with 410 event", twoControllers: true, hold: shortDelay, maxWindows: 2, endWindow: sendExpiredEvent},
	{name: "Other events late", roles: roles{others}, delay: longDelay},
	{name: "no Other event for longer than a sync waits for it", roles: roles{others}, hold: beyondTimeout, maxWindows: 1},
	{name: "intermediate states of Others skipped", roles: roles{others}, hold: longDelay, endWindow: deliverLatest},
	{name: "410 event of Others, later", roles: roles{others}, hold: longDelay, maxWindows: 2, endWindow: sendExpiredEvent},
}

// affects reports whether the fault applies to watches of that role of the first or the
// second controller.
func (f *watchFault) affects(of role, second bool) bool {
	return (len(f.roles) == 0 || slices.Contains(f.roles, of)) && f.twoControllers == second
}

// deliverLatest delivers the last event of each object, as a client sees it that lists
// again later.
func deliverLatest(s *watchStream, held []watchEvent) bool {
	for _, e := range coalesce(held) {
		s.deliver(e)
	}
	return true
}

// sendExpiredEvent ends the watch with a 410 event.
func sendExpiredEvent(s *watchStream, _ []watchEvent) bool {
	s.sendExpired()
	return false
}

// respondExpired ends the watch and answers the next one with 410.
func respondExpired(s *watchStream, _ []watchEvent) bool {
	s.proxy.watches.put(s.proxy.watches.expireNext, s.key)
	return false
}

// coalesce reduces the events to one for each object, from its state before the first
// event to its state after the last one. An object that was created and deleted becomes a
// bookmark.
func coalesce(held []watchEvent) []watchEvent {
	byName := map[string][]watchEvent{}
	for _, e := range held {
		if e.eventType != watch.Bookmark {
			byName[e.meta.Name] = append(byName[e.meta.Name], e)
		}
	}
	var events []watchEvent
	for _, of := range byName {
		e, isNew := of[len(of)-1], of[0].eventType == watch.Added
		switch {
		case isNew && e.eventType == watch.Deleted:
			e = e.asBookmark()
		case isNew:
			e.eventType = watch.Added
		case e.eventType == watch.Deleted:
			// The client has only seen the object of the first deletion.
			known := slices.IndexFunc(of, func(e watchEvent) bool { return e.eventType == watch.Deleted })
			e = of[known].withResourceVersion(e.meta.ResourceVersion)
		default:
			e.eventType = watch.Modified
		}
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b watchEvent) int {
		return int(parseRevision(a.meta.ResourceVersion) - parseRevision(b.meta.ResourceVersion))
	})
	return events
}
