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

package namespaces

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// LastStoreSyncResourceVersion returns how far a store has come in that namespace, "" if
// that is unknown. In another namespace it may be far behind or ahead.
func LastStoreSyncResourceVersion(store cache.Store, namespace string) string {
	if merged, ok := store.(*indexer); ok {
		member, ok := merged.members[namespace]
		if !ok {
			return ""
		}
		store = member
	}
	return store.LastStoreSyncResourceVersion()
}

// indexer is one that was made of several. What has a namespace is looked up in that
// namespace's, and everything else in all of them.
type indexer struct {
	// names are the namespaces, in alphabetical order.
	names   []string
	members map[string]cache.Indexer
}

var _ cache.Indexer = &indexer{}

// errNamespace is that of an object of no namespace that there is a member for.
var errNamespace = errors.New("there is no cache for its namespace")

// of returns the member that an object belongs to.
func (i *indexer) of(object any) (cache.Indexer, error) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return nil, err
	}
	member, ok := i.members[name.Namespace]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, errNamespace)
	}
	return member, nil
}

// fromAll returns what all members return.
func fromAll[T any](i *indexer, get func(cache.Indexer) ([]T, error)) ([]T, error) {
	var all []T
	for _, name := range i.names {
		some, err := get(i.members[name])
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Add implements cache.Store.
func (i *indexer) Add(object any) error {
	member, err := i.of(object)
	if err != nil {
		return err
	}
	return member.Add(object)
}

// Update implements cache.Store.
func (i *indexer) Update(object any) error {
	member, err := i.of(object)
	if err != nil {
		return err
	}
	return member.Update(object)
}

// Delete implements cache.Store.
func (i *indexer) Delete(object any) error {
	member, err := i.of(object)
	if err != nil {
		return err
	}
	return member.Delete(object)
}

// Get implements cache.Store.
func (i *indexer) Get(object any) (any, bool, error) {
	member, err := i.of(object)
	if errors.Is(err, errNamespace) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return member.Get(object)
}

// GetByKey implements cache.Store.
func (i *indexer) GetByKey(key string) (any, bool, error) {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return nil, false, err
	}
	member, ok := i.members[name.Namespace]
	if !ok {
		return nil, false, nil
	}
	return member.GetByKey(key)
}

// List implements cache.Store.
func (i *indexer) List() []any {
	// It never fails.
	all, _ := fromAll(i, func(member cache.Indexer) ([]any, error) { return member.List(), nil })
	return all
}

// ListKeys implements cache.Store.
func (i *indexer) ListKeys() []string {
	all, _ := fromAll(i, func(member cache.Indexer) ([]string, error) { return member.ListKeys(), nil })
	return all
}

// LastStoreSyncResourceVersion implements cache.Store. It is unknown: each namespace has
// its own, which the function of that name returns.
func (i *indexer) LastStoreSyncResourceVersion() string { return "" }

// Bookmark implements cache.Store. What is true of one namespace is not of another.
func (i *indexer) Bookmark(string) {}

// Replace implements cache.Store.
func (i *indexer) Replace([]any, string) error {
	return errors.New("the caches of several namespaces cannot be replaced by one list")
}

// Resync implements cache.Store.
func (i *indexer) Resync() error {
	_, err := fromAll(i, func(member cache.Indexer) ([]any, error) { return nil, member.Resync() })
	return err
}

// Index implements cache.Indexer.
func (i *indexer) Index(index string, object any) ([]any, error) {
	return fromAll(i, func(member cache.Indexer) ([]any, error) { return member.Index(index, object) })
}

// IndexKeys implements cache.Indexer.
func (i *indexer) IndexKeys(index, value string) ([]string, error) {
	return fromAll(i, func(member cache.Indexer) ([]string, error) { return member.IndexKeys(index, value) })
}

// ListIndexFuncValues implements cache.Indexer.
func (i *indexer) ListIndexFuncValues(index string) []string {
	all, _ := fromAll(i, func(member cache.Indexer) ([]string, error) { return member.ListIndexFuncValues(index), nil })
	slices.Sort(all)
	return slices.Compact(all)
}

// ByIndex implements cache.Indexer.
func (i *indexer) ByIndex(index, value string) ([]any, error) {
	return fromAll(i, func(member cache.Indexer) ([]any, error) { return member.ByIndex(index, value) })
}

// GetIndexers implements cache.Indexer. All members have the same.
func (i *indexer) GetIndexers() cache.Indexers { return i.members[i.names[0]].GetIndexers() }

// AddIndexers implements cache.Indexer.
func (i *indexer) AddIndexers(indexers cache.Indexers) error {
	_, err := fromAll(i, func(member cache.Indexer) ([]any, error) { return nil, member.AddIndexers(indexers) })
	return err
}
