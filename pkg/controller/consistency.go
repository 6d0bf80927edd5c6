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
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// writeTTL is how long syncs are postponed for a cache that lags behind a write. After it
// they go on with the stale cache: each write has a precondition.
const writeTTL = 30 * time.Second

// LastSyncRVGetter is the part of an informer's store that tells how far it has come.
type LastSyncRVGetter interface {
	// LastStoreSyncResourceVersion returns the resource version that the store has
	// reached, "" if it is unknown.
	LastStoreSyncResourceVersion() string
}

// ConsistencyStore lets a sync read its own writes (KEP-5647): it remembers the resource
// version of the last write, or live read, of each resource that this process made for an
// owner, and tells whether the informers' stores have reached it. Without it a sync would act
// on a cache that does not show the previous sync's writes, and repeat them. Create it with
// NewConsistencyStore.
type ConsistencyStore struct {
	clock  clock.PassiveClock
	stores map[schema.GroupResource]LastSyncRVGetter

	mu     sync.Mutex
	writes map[cache.ObjectName]*ownerWrites
}

// ownerWrites are the last writes for one owner. Resource versions of different
// resources cannot be compared, so each resource has its own.
type ownerWrites struct {
	uid types.UID
	// last has at most one write of each resource: a map would take several times the memory.
	last []write
}

type write struct {
	resource schema.GroupResource
	version  string
	at       time.Time
}

// StaleCacheError is returned by EnsureReady while a store is behind a write. A sync returns
// it to the Worker, and does nothing before.
type StaleCacheError struct {
	Resource                    schema.GroupResource
	ReadVersion, WrittenVersion string
}

// Error implements error.
func (e *StaleCacheError) Error() string {
	return fmt.Sprintf("the cache of %s has reached version %s, behind version %s of the last write or live read", e.Resource, e.ReadVersion, e.WrittenVersion)
}

func isStaleCacheError(err error) bool {
	var stale *StaleCacheError
	return errors.As(err, &stale)
}

// NewConsistencyStore returns a store without writes. stores are the informers' stores of
// the resources that the controller writes.
func NewConsistencyStore(clock clock.PassiveClock, stores map[schema.GroupResource]LastSyncRVGetter) *ConsistencyStore {
	return &ConsistencyStore{clock: clock, stores: stores, writes: map[cache.ObjectName]*ownerWrites{}}
}

// WroteAt records the resource version that the API server answered to a write to, or a live
// read of, resource on behalf of the owner.
func (s *ConsistencyStore) WroteAt(owner cache.ObjectName, uid types.UID, resource schema.GroupResource, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes, ok := s.writes[owner]
	if !ok || writes.uid != uid {
		writes = &ownerWrites{uid: uid}
		s.writes[owner] = writes
	}
	writes.last = slices.DeleteFunc(writes.last, func(w write) bool { return w.resource == resource })
	writes.last = append(writes.last, write{resource: resource, version: version, at: s.clock.Now()})
}

// WriteObserved reports whether that version is the answer to the last write to resource on
// behalf of the owner, and forgets that write. Its event tells the controller nothing new.
func (s *ConsistencyStore) WriteObserved(owner cache.ObjectName, uid types.UID, resource schema.GroupResource, version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes, ok := s.writes[owner]
	if !ok || writes.uid != uid {
		return false
	}
	index := slices.IndexFunc(writes.last, func(w write) bool { return w.resource == resource && w.version == version })
	if index < 0 {
		return false
	}
	if writes.last = slices.Delete(writes.last, index, index+1); len(writes.last) == 0 {
		s.clear(owner)
	}
	return true
}

// EnsureReady returns nil if the stores show every write recorded for the owner, else a
// *StaleCacheError. Versions that are unknown or cannot be compared, and writes older than
// 30 s, do not hold a sync back.
func (s *ConsistencyStore) EnsureReady(owner cache.ObjectName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes, ok := s.writes[owner]
	if !ok {
		return nil
	}
	for _, last := range writes.last {
		store, ok := s.stores[last.resource]
		if !ok {
			continue
		}
		read := store.LastStoreSyncResourceVersion()
		order, err := resourceversion.CompareResourceVersion(read, last.version)
		if err == nil && order < 0 && s.clock.Since(last.at) < writeTTL {
			return &StaleCacheError{Resource: last.resource, ReadVersion: read, WrittenVersion: last.version}
		}
	}
	s.clear(owner)
	return nil
}

// Clear drops the writes recorded for the owner with that UID, or for the owner whatever
// its UID if uid is empty.
func (s *ConsistencyStore) Clear(owner cache.ObjectName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if writes, ok := s.writes[owner]; ok && (uid == "" || writes.uid == uid) {
		s.clear(owner)
	}
}

// clear drops the owner's writes. The caller holds the lock.
func (s *ConsistencyStore) clear(owner cache.ObjectName) {
	delete(s.writes, owner)
	if len(s.writes) == 0 {
		// A Go map never shrinks, and this one has held an entry for each of very many
		// owners.
		s.writes = map[cache.ObjectName]*ownerWrites{}
	}
}
