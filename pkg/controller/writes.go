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
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// writeTTL is how long a sync waits for a cache. Preconditions keep a stale one from doing harm after that.
	writeTTL = 30 * time.Second
	// All repairs, and that the dependent was written, count until repairTTL after the last one. Between two
	// repairs is a pause, minRepairPause at first, then twice the last one, up to maxRepairPause. From
	// contestedRepairs on another writer is reported.
	repairTTL        = 10 * time.Minute
	contestedRepairs = 5
	minRepairPause   = time.Second
	maxRepairPause   = 5 * time.Minute
	// sweepPeriod is how often records that no longer count are dropped.
	sweepPeriod = time.Minute
)

// VersionedStore is the part of an informer's store that tells how far it has come.
type VersionedStore interface {
	// LastStoreSyncResourceVersion returns the version that the store has reached, "" without the gate AtomicFIFO.
	LastStoreSyncResourceVersion() string
	GetByKey(key string) (object any, exists bool, err error)
}

// Writes is the ledger of what this process last wrote for each owner, and what became of it:
// whether the caches show it yet (KEP-5647), what admission put in place of it, and how often
// another writer undid it. A timer drops what no longer counts. Create it with NewWrites.
type Writes struct {
	clock clock.WithDelayedExecution

	mu       sync.Mutex
	owners   map[cache.ObjectName]*ownerWrites
	sweeping bool
}

// ownerWrites are the writes for the owner with that UID, last one for each store.
type ownerWrites struct {
	uid  types.UID
	last []write
}

// write is the last write to, or live read of, an object in that store.
type write struct {
	store VersionedStore
	// version is what the cache has to show, "" if it does.
	version string
	// deleted has the UIDs of the objects that the API server has accepted to delete, by key. Its answer has
	// no version: the cache has to show them as terminating, or not at all.
	deleted map[string]types.UID
	at      time.Time

	dependentState
}

// dependentState is what became of the writes to a dependent in one generation of the owner.
type dependentState struct {
	generation int64
	// accepted are the values that admission put in place of those that were sent.
	accepted []Change
	// overridden is the UID of the object whose owner reference admission replaced.
	overridden types.UID
	// repairs is how often the dependent was repaired while that many replicas were wanted.
	repairs  int
	replicas int32
	// lastWrite is when this process last created or patched the dependent, zero if it did not.
	lastWrite time.Time
	// message describes the other writer.
	message string
}

// NewWrites returns a ledger without writes.
func NewWrites(clock clock.WithDelayedExecution) *Writes {
	return &Writes{clock: clock, owners: map[cache.ObjectName]*ownerWrites{}}
}

// Seen returns nil if the caches show the last writes for the owner, else an ErrStaleCache: a sync would repeat them.
// Versions that are unknown or cannot be compared, and writes older than 30 s, do not hold a sync back.
func (w *Writes) Seen(owner cache.ObjectName) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	writes, ok := w.owners[owner]
	if !ok {
		return nil
	}
	for i := range writes.last {
		last := &writes.last[i]
		if err := last.seen(); err != nil && w.clock.Since(last.at) < writeTTL {
			return err
		}
		// A cache that is filled anew from a lagging API server may go back in time.
		last.version, last.deleted = "", nil
	}
	return nil
}

// seen returns nil if the cache shows the write and the deletions, else an ErrStaleCache.
func (w *write) seen() error {
	reached := w.store.LastStoreSyncResourceVersion()
	if order, err := resourceversion.CompareResourceVersion(reached, w.version); err == nil && order < 0 {
		return fmt.Errorf("%w: one has reached version %s of %s", ErrStaleCache, reached, w.version)
	}
	for key, uid := range w.deleted {
		// A store's GetByKey returns no error.
		if cached, exists, _ := w.store.GetByKey(key); exists && cached.(metav1.Object).GetUID() == uid && !isTerminating(cached.(metav1.Object)) {
			return fmt.Errorf("%w: one still has %s, which is deleted", ErrStaleCache, key)
		}
	}
	return nil
}

// Await makes Seen wait for the version that the API server answered to a write or a live read on behalf of the owner.
func (w *Writes) Await(owner metav1.Object, store VersionedStore, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.of(owner).in(store)
	last.version, last.at = version, w.clock.Now()
}

// AwaitDeletion makes Seen wait for the deletion of an object in that store, which the API server has accepted.
func (w *Writes) AwaitDeletion(owner metav1.Object, store VersionedStore, object metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.of(owner).in(store)
	if last.deleted == nil {
		last.deleted = map[string]types.UID{}
	}
	last.deleted[cache.MetaObjectToName(object).String()], last.at = object.GetUID(), w.clock.Now()
}

// state returns what is known of the dependent in that store, for the present generation of the owner.
func (w *Writes) state(owner metav1.Object, store VersionedStore) dependentState {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := dependentState{generation: owner.GetGeneration()}
	if writes, ok := w.owners[cache.MetaObjectToName(owner)]; ok && writes.uid == owner.GetUID() {
		known := &writes.in(store).dependentState
		if known.generation != state.generation {
			*known = state
		}
		w.expire(known)
		state = *known
	}
	return state
}

// setState replaces what is known of the owner's dependent in that store.
func (w *Writes) setState(owner metav1.Object, store VersionedStore, state dependentState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of(owner).in(store).dependentState = state
}

// forReplicas returns the state while that many replicas are wanted: for others repairs count anew.
func (s dependentState) forReplicas(wanted int32) dependentState {
	if s.replicas != wanted {
		s.replicas, s.repairs, s.message = wanted, 0, ""
	}
	return s
}

// withWrite returns the state after a write. It is a repair if the dependent is known in this generation of the owner.
func (s dependentState) withWrite(isRepair bool, now time.Time) dependentState {
	s.lastWrite = now
	if isRepair {
		s.repairs++
	}
	return s
}

// isContested reports whether the message about another writer is to be reported.
func (s dependentState) isContested() bool {
	return s.repairs >= contestedRepairs
}

// pause returns how long the next repair has to wait, so that two writers do not overwrite each other in a hot loop.
func (s dependentState) pause(now time.Time) time.Duration {
	if s.repairs == 0 {
		return 0
	}
	return max(0, s.lastWrite.Add(min(minRepairPause<<min(s.repairs-1, 16), maxRepairPause)).Sub(now))
}

// Forget drops what is known of the owner, which is gone.
func (w *Writes) Forget(owner cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owners, owner)
}

// of returns the entry of the owner, which it adds. The caller holds the lock.
func (w *Writes) of(owner metav1.Object) *ownerWrites {
	name := cache.MetaObjectToName(owner)
	writes, ok := w.owners[name]
	if !ok || writes.uid != owner.GetUID() {
		writes = &ownerWrites{uid: owner.GetUID()}
		w.owners[name] = writes
		w.sweepLater()
	}
	return writes
}

// in returns the entry for that store, which it adds.
func (w *ownerWrites) in(store VersionedStore) *write {
	i := slices.IndexFunc(w.last, func(last write) bool { return last.store == store })
	if i < 0 {
		i = len(w.last)
		w.last = append(w.last, write{store: store})
	}
	return &w.last[i]
}

// expire drops repairs that no longer count.
func (w *Writes) expire(state *dependentState) {
	if w.clock.Since(state.lastWrite) >= repairTTL {
		state.lastWrite, state.repairs, state.message = time.Time{}, 0, ""
	}
}

// sweepLater makes a timer call sweep. The caller holds the lock.
func (w *Writes) sweepLater() {
	if !w.sweeping {
		w.sweeping = true
		w.clock.AfterFunc(sweepPeriod, w.sweep)
	}
}

// sweep drops what no longer counts, so that an owner at rest needs neither a sync nor memory.
func (w *Writes) sweep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.owners, func(_ cache.ObjectName, writes *ownerWrites) bool {
		writes.last = slices.DeleteFunc(writes.last, func(last write) bool {
			w.expire(&last.dependentState)
			isSeen := last.version == "" && last.deleted == nil || w.clock.Since(last.at) >= writeTTL
			return isSeen && last.lastWrite.IsZero() && len(last.accepted) == 0 && last.overridden == ""
		})
		return len(writes.last) == 0
	})
	if len(w.owners) == 0 {
		w.owners = map[cache.ObjectName]*ownerWrites{} // A Go map never shrinks.
	}
	if w.sweeping = false; len(w.owners) > 0 {
		w.sweepLater()
	}
}
