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

package controller

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// What the gate goes by.
const (
	// ProgressDelay is how long a status that tells of mere progress waits for
	// something better to say.
	ProgressDelay = time.Second
	// WriteMemory is how long a cache may lag behind a write of our own before
	// the sync goes on without it: something is wrong then, and every write has
	// a precondition anyway.
	WriteMemory = 30 * time.Second

	// More than MaxRepairs repairs of one object within FightWindow are a fight.
	// From then on repairs are MinFightPause apart, then twice that, up to
	// MaxFightPause.
	MaxRepairs    = 5
	FightWindow   = time.Minute
	MinFightPause = 10 * time.Second
	MaxFightPause = 5 * time.Minute
)

// Kin names one of the two caches that writes are compared with: the one of what
// a controller works for, and the one of what it owns on their behalf. Resource
// versions of different resources are not comparable.
type Kin int

// The caches.
const (
	Parents Kin = iota
	Children
	kinds
)

// Versions holds the resource version that each cache has reached, "" where
// that is unknown.
type Versions [kinds]string

// Gate is all that the process remembers between syncs: what it wrote, what it
// put off and how often it made the same repair. Losing it is harmless, since
// everything else is in the API server. It keeps a sync from acting on a cache
// that has not seen the previous sync's writes (KEP-5647), joins the many small
// steps of a rollout into one status write a second, and ends fights with other
// writers.
type Gate struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	keys    map[cache.ObjectName]*memory
	deleted map[types.UID]time.Time
}

// memory is what is remembered about one object that the controller works for.
type memory struct {
	writes        [kinds]write
	progressSince time.Time
	fight         fight
}

// fight is the memory of repairs that somebody keeps undoing.
type fight struct {
	// generation is the parent's; a new one begins anew.
	generation int64
	// repairs are the times of those within the window, the last one included
	// however old it is.
	repairs []time.Time
	// pause is the time between two repairs, 0 while there is no fight.
	pause time.Duration
	// about says in words what the fight is about, once somebody found out.
	about string
}

// fightOf returns the memory of repairs for its generation. Those for
// another one are void: the user has changed what is enforced.
func (m *memory) fightOf(generation int64) *fight {
	if m.fight.generation != generation {
		m.fight = fight{generation: generation}
	}
	return &m.fight
}

// write is the last write to one resource.
type write struct {
	version string
	at      time.Time
}

// NewGate returns a Gate that remembers nothing yet.
func NewGate(clock clock.PassiveClock) *Gate {
	return &Gate{clock: clock, keys: map[cache.ObjectName]*memory{}, deleted: map[types.UID]time.Time{}}
}

// Wrote notes the resource version that the API server answered to a write on
// behalf of key.
func (g *Gate) Wrote(key cache.ObjectName, to Kin, version string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remember(key).writes[to] = write{version: version, at: g.clock.Now()}
}

// CaughtUp reports whether the caches, having reached those Versions, have seen
// every write that was made on behalf of key. Where that cannot be known it
// says yes.
func (g *Gate) CaughtUp(key cache.ObjectName, reached Versions) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.keys[key]
	if !ok {
		return true
	}
	for i := range known.writes {
		last := &known.writes[i]
		order, err := resourceversion.CompareResourceVersion(reached[i], last.version)
		if err == nil && order < 0 && g.clock.Since(last.at) < WriteMemory {
			return false
		}
		*last = write{}
	}
	if known.progressSince.IsZero() && len(known.fight.repairs) == 0 {
		// There may be very many keys, and nearly all of them are at rest. A map does not
		// become smaller by itself.
		delete(g.keys, key)
		if len(g.keys) == 0 {
			g.keys = map[cache.ObjectName]*memory{}
		}
	}
	return true
}

// WroteDelete notes that the API server accepted the deletion of the Deployment
// with that UID. The answer to a DELETE carries no resource version, so that
// object counts as terminating until its own delete event.
func (g *Gate) WroteDelete(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The event may have come before the answer, and then none is left to come.
	maps.DeleteFunc(g.deleted, func(_ types.UID, at time.Time) bool { return g.clock.Since(at) >= WriteMemory })
	g.deleted[uid] = g.clock.Now()
}

// IsDeleted reports whether this process deleted the object a moment ago.
func (g *Gate) IsDeleted(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.clock.Since(g.deleted[uid]) < WriteMemory
}

// SawDelete forgets a deletion whose event has come.
func (g *Gate) SawDelete(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.deleted, uid)
}

// PutOff returns how long a status that tells of mere progress must still wait:
// ProgressDelay at its first call for key, 0 once that has passed.
func (g *Gate) PutOff(key cache.ObjectName) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.remember(key)
	if known.progressSince.IsZero() {
		known.progressSince = g.clock.Now()
	}
	return max(0, ProgressDelay-g.clock.Since(known.progressSince))
}

// Reported drops the note of a status put off: it was written, or there is
// nothing left to write.
func (g *Gate) Reported(key cache.ObjectName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.keys[key]; ok {
		known.progressSince = time.Time{}
	}
}

// Repaired notes a repair of key's Deployment for its generation.
func (g *Gate) Repaired(key cache.ObjectName, generation int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.remember(key).fightOf(generation)
	f.repairs = append(f.repairs, g.clock.Now())
	f.pause = min(2*f.pause, MaxFightPause)
}

// RepairedLately reports whether this process has repaired key's Deployment for
// that generation of the Foo so shortly before that another repair may be part of
// a fight.
func (g *Gate) RepairedLately(key cache.ObjectName, generation int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.keys[key]
	if !ok {
		return false
	}
	repairs := known.fightOf(generation).repairs
	return len(repairs) > 0 && g.clock.Since(repairs[len(repairs)-1]) < FightWindow
}

// Fighting reports whether somebody keeps undoing the repairs of key's
// Deployment, and if so how long to leave it alone: until the next repair if it
// has drifted, and else until the fight counts as over. about is what
// FightAbout noted, "" if that was not called yet.
func (g *Gate) Fighting(key cache.ObjectName, generation int64, drifted bool) (pause time.Duration, about string, yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.keys[key]
	if !ok {
		return 0, "", false
	}
	f := known.fightOf(generation)
	if len(f.repairs) == 0 {
		return 0, "", false
	}
	quiet := g.clock.Since(f.repairs[len(f.repairs)-1])
	for len(f.repairs) > 1 && g.clock.Since(f.repairs[0]) >= FightWindow {
		f.repairs = f.repairs[1:]
	}
	if drifted && f.pause == 0 && len(f.repairs) >= MaxRepairs {
		f.pause = MinFightPause
	}
	if f.pause == 0 {
		return 0, "", false
	}
	if drifted {
		return max(0, f.pause-quiet), f.about, true
	}
	// It has held for as long as it was ever left alone: the other one gave up.
	if over := max(f.pause, FightWindow) - quiet; over > 0 {
		return over, f.about, true
	}
	*f = fight{generation: generation}
	return 0, "", false
}

// FightAbout notes what the present fight over key's Deployment is about.
func (g *Gate) FightAbout(key cache.ObjectName, about string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remember(key).fight.about = about
}

// Forget drops all that is known of key: the parent is gone.
func (g *Gate) Forget(key cache.ObjectName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.keys, key)
}

// Lose drops all that is known, as the end of the process does.
func (g *Gate) Lose() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.keys)
	clear(g.deleted)
}

// remember returns the memory of key. The caller holds the lock.
func (g *Gate) remember(key cache.ObjectName) *memory {
	known, ok := g.keys[key]
	if !ok {
		known = &memory{}
		g.keys[key] = known
	}
	return known
}
