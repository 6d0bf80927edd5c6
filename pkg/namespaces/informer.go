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

// Package namespaces makes one informer of several that have a namespace each. Whoever
// reads it needs not know that it is not one of the whole cluster, for which there may be
// no right.
package namespaces

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// Merge returns an informer of all that these have, each of which is of the namespace
// that it stands under. A single one is returned as it is.
//
// Handlers are told of what happens in one namespace in order, and of what happens in two
// at the same time.
func Merge(members map[string]cache.SharedIndexInformer) cache.SharedIndexInformer {
	merged := &informer{indexer: &indexer{members: map[string]cache.Indexer{}}}
	for _, namespace := range slices.Sorted(maps.Keys(members)) {
		merged.members = append(merged.members, members[namespace])
		merged.indexer.names = append(merged.indexer.names, namespace)
		merged.indexer.members[namespace] = members[namespace].GetIndexer()
	}
	if len(merged.members) == 1 {
		return merged.members[0]
	}
	return merged
}

// SyncCheckers returns what is to be waited for until a handler has been told of all that
// the caches are filled with.
func SyncCheckers(registered cache.ResourceEventHandlerRegistration) []cache.DoneChecker {
	if merged, ok := registered.(*registration); ok {
		return merged.checkers()
	}
	return []cache.DoneChecker{registered.HasSyncedChecker()}
}

// informer is one that was made of several.
type informer struct {
	members []cache.SharedIndexInformer
	indexer *indexer
}

var _ cache.SharedIndexInformer = &informer{}

// each calls do with every member.
func (i *informer) each(do func(cache.SharedIndexInformer) error) error {
	var failures []error
	for _, member := range i.members {
		failures = append(failures, do(member))
	}
	return errors.Join(failures...)
}

// AddEventHandler implements cache.SharedInformer.
func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	all := &registration{}
	for _, member := range i.members {
		one, err := member.AddEventHandlerWithOptions(handler, options)
		if err != nil {
			// Half a subscription is of use to nobody.
			return nil, errors.Join(err, i.RemoveEventHandler(all))
		}
		all.members = append(all.members, one)
	}
	return all, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	all, ok := handle.(*registration)
	if !ok {
		return errors.New("the handler was not added here")
	}
	var failures []error
	for at, one := range all.members {
		failures = append(failures, i.members[at].RemoveEventHandler(one))
	}
	return errors.Join(failures...)
}

// AddIndexers implements cache.SharedIndexInformer.
func (i *informer) AddIndexers(indexers cache.Indexers) error {
	return i.each(func(member cache.SharedIndexInformer) error { return member.AddIndexers(indexers) })
}

// GetIndexer implements cache.SharedIndexInformer.
func (i *informer) GetIndexer() cache.Indexer { return i.indexer }

// GetStore implements cache.SharedInformer.
func (i *informer) GetStore() cache.Store { return i.indexer }

// GetController implements cache.SharedInformer, in which it is deprecated.
func (i *informer) GetController() cache.Controller { return i.members[0].GetController() }

// Run implements cache.SharedInformer.
func (i *informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext implements cache.SharedInformer.
func (i *informer) RunWithContext(ctx context.Context) {
	var running sync.WaitGroup
	for _, member := range i.members {
		running.Go(func() { member.RunWithContext(ctx) })
	}
	running.Wait()
}

// HasSynced implements cache.SharedInformer.
func (i *informer) HasSynced() bool {
	return !slices.ContainsFunc(i.members, func(member cache.SharedIndexInformer) bool { return !member.HasSynced() })
}

// HasSyncedChecker implements cache.SharedInformer.
func (i *informer) HasSyncedChecker() cache.DoneChecker {
	var all allDone
	for _, member := range i.members {
		all = append(all, member.HasSyncedChecker())
	}
	return all
}

// LastSyncResourceVersion implements cache.SharedInformer. It is unknown: each namespace
// has its own.
func (i *informer) LastSyncResourceVersion() string { return "" }

// SetWatchErrorHandler implements cache.SharedInformer.
func (i *informer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return i.each(func(member cache.SharedIndexInformer) error { return member.SetWatchErrorHandler(handler) })
}

// SetWatchErrorHandlerWithContext implements cache.SharedInformer.
func (i *informer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	return i.each(func(member cache.SharedIndexInformer) error { return member.SetWatchErrorHandlerWithContext(handler) })
}

// SetTransform implements cache.SharedInformer.
func (i *informer) SetTransform(transform cache.TransformFunc) error {
	return i.each(func(member cache.SharedIndexInformer) error { return member.SetTransform(transform) })
}

// IsStopped implements cache.SharedInformer.
func (i *informer) IsStopped() bool {
	return slices.ContainsFunc(i.members, cache.SharedIndexInformer.IsStopped)
}

// registration is that of one handler with all members.
type registration struct {
	members []cache.ResourceEventHandlerRegistration
}

func (r *registration) checkers() allDone {
	var all allDone
	for _, member := range r.members {
		all = append(all, member.HasSyncedChecker())
	}
	return all
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool {
	return !slices.ContainsFunc(r.members, func(member cache.ResourceEventHandlerRegistration) bool { return !member.HasSynced() })
}

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() cache.DoneChecker { return r.checkers() }

// allDone is done when all of these are.
type allDone []cache.DoneChecker

// Name implements cache.DoneChecker, by the first that is awaited.
func (a allDone) Name() string {
	for _, one := range a {
		if !cache.IsDone(one) {
			return one.Name()
		}
	}
	return a[0].Name()
}

// Done implements cache.DoneChecker. One channel of several takes a goroutine, which ends
// only with the last of them; SyncCheckers takes none.
func (a allDone) Done() <-chan struct{} {
	if !slices.ContainsFunc(a, func(one cache.DoneChecker) bool { return !cache.IsDone(one) }) {
		return a[0].Done()
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		for _, one := range a {
			<-one.Done()
		}
	}()
	return all
}
