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
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// byLabel is an index whose values are the same in all namespaces.
const byLabel = "label"

func indexByLabel(object *corev1.ConfigMap) ([]string, error) {
	return []string{object.Labels["x"]}, nil
}

// newObject returns an object with that label and its name for a resource version.
func newObject(namespace, name, label string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"x": label}}}
}

// stage is a merged informer of the namespaces a and b, and an API server with an object
// in each of a, b and c.
type stage struct {
	cache.TypedSharedIndexInformer[*corev1.ConfigMap]

	client  *fake.Clientset
	members map[string]cache.SharedIndexInformer
	// forbidden is the namespace whose objects may not be listed.
	forbidden string

	mu     sync.Mutex
	events []string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{
		client:  fake.NewClientset(newObject("a", "one", "l"), newObject("b", "two", "l"), newObject("c", "three", "l")),
		members: map[string]cache.SharedIndexInformer{},
	}
	s.client.PrependReactor("list", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetNamespace() == s.forbidden, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no right in "+s.forbidden))
	})
	for _, namespace := range []string{"a", "b"} {
		s.members[namespace] = informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithNamespace(namespace)).Core().V1().ConfigMaps().Informer()
	}
	s.TypedSharedIndexInformer = cache.NewTypedSharedIndexInformer[*corev1.ConfigMap](Merge(s.members))
	if err := s.AddTypedIndexers(cache.TypedIndexers[*corev1.ConfigMap]{byLabel: indexByLabel}); err != nil {
		t.Fatal(err)
	}
	return s
}

// subscribe has events noted.
func (s *stage) subscribe(t *testing.T) cache.ResourceEventHandlerRegistration {
	t.Helper()
	note := func(verb string, object metav1.Object) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, verb+" "+cache.MetaObjectToName(object).String())
	}
	registered, err := s.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.ConfigMap]{
		AddFunc:    func(object *corev1.ConfigMap) { note("add", object) },
		UpdateFunc: func(_, object *corev1.ConfigMap) { note("update", object) },
		DeleteFunc: func(gone cache.DeletedObject[*corev1.ConfigMap]) { note("delete", gone.OptionalObj) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return registered
}

// run runs the informer until the returned function is called.
func (s *stage) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.RunWithContext(ctx)
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-stopped
	}
}

// told returns the events since the last call, in alphabetical order.
func (s *stage) told() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.events = nil }()
	return strings.Join(slices.Sorted(slices.Values(s.events)), ", ")
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// namesOf returns where the objects are, in order.
func namesOf(objects []*corev1.ConfigMap) string {
	var names []string
	for _, object := range objects {
		names = append(names, cache.MetaObjectToName(object).String())
	}
	return strings.Join(names, ", ")
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		registered := s.subscribe(t)
		stop := s.run(t)
		equal(t, "at first", s.told(), "add a/one, add b/two")
		changed := newObject("b", "two", "other")
		_, updateErr := s.client.CoreV1().ConfigMaps("b").Update(t.Context(), changed, metav1.UpdateOptions{})
		_, elsewhereErr := s.client.CoreV1().ConfigMaps("c").Create(t.Context(), newObject("c", "four", ""), metav1.CreateOptions{})
		if err := errors.Join(updateErr, elsewhereErr, s.client.CoreV1().ConfigMaps("a").Delete(t.Context(), "one", metav1.DeleteOptions{})); err != nil {
			t.Fatal(err)
		}
		equal(t, "later", s.told(), "delete a/one, update b/two")
		if err := s.RemoveEventHandler(registered); err != nil {
			t.Fatal(err)
		}
		if err := s.client.CoreV1().ConfigMaps("b").Delete(t.Context(), "two", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		equal(t, "when the handler is removed", s.told(), "")
		stop()
		equal(t, "stopped", s.IsStopped(), true)
	})
}

func TestReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		defer s.run(t)()
		lister := corelisters.NewConfigMapLister(s.GetIndexer())
		list := func(namespace string) string {
			objects, err := lister.ConfigMaps(namespace).List(labels.Everything())
			if err != nil {
				t.Error(err)
			}
			return namesOf(objects)
		}
		get := func(namespace, name string) string {
			object, err := lister.ConfigMaps(namespace).Get(name)
			if apierrors.IsNotFound(err) {
				return "none"
			}
			return namesOf([]*corev1.ConfigMap{object})
		}
		equal(t, "all", list(metav1.NamespaceAll), "a/one, b/two")
		equal(t, "those of a", list("a"), "a/one")
		equal(t, "those of b", list("b"), "b/two")
		equal(t, "those of a namespace that is not among them", list("c"), "")
		equal(t, "a/one", get("a", "one"), "a/one")
		equal(t, "b/one, which is in a", get("b", "one"), "none")
		equal(t, "c/three, whose namespace is not among them", get("c", "three"), "none")

		found, err := s.GetTypedIndexer().ByTypedIndex(byLabel, "l")
		equal(t, "by index", namesOf(found), "a/one, b/two")
		alike, alikeErr := s.GetTypedIndexer().TypedIndex(byLabel, newObject("c", "three", "l"))
		equal(t, "by index of an object", namesOf(alike), "a/one, b/two")
		keys, keysErr := s.GetIndexer().IndexKeys(byLabel, "l")
		equal(t, "keys by index", strings.Join(keys, ", "), "a/one, b/two")
		equal(t, "values of an index", strings.Join(s.GetIndexer().ListIndexFuncValues(byLabel), ", "), "l")
		equal(t, "keys", strings.Join(s.GetStore().ListKeys(), ", "), "a/one, b/two")
		if err := errors.Join(err, alikeErr, keysErr); err != nil {
			t.Error(err)
		}
		if _, err := s.GetIndexer().ByIndex("other", "l"); err == nil {
			t.Error("an index that was not added has no error")
		}
		if _, _, err := s.GetStore().GetByKey("a/b/c"); err == nil {
			t.Error("a key that is none has no error")
		}
		equal(t, "indexes", len(s.GetIndexer().GetIndexers()), 2)
	})
}

func TestWrites(t *testing.T) {
	s := newStage(t)
	store, indexer := s.GetStore(), s.GetTypedIndexer()
	if err := errors.Join(store.Add(newObject("a", "one", "l")), store.Add(newObject("b", "two", "l")), store.Add(newObject("b", "three", "l")),
		store.Update(newObject("b", "two", "m")), store.Delete(newObject("b", "three", "l")), store.Resync()); err != nil {
		t.Fatal(err)
	}
	equal(t, "in a's own cache", strings.Join(s.members["a"].GetStore().ListKeys(), ", "), "a/one")
	equal(t, "in b's own cache", strings.Join(s.members["b"].GetStore().ListKeys(), ", "), "b/two")
	equal(t, "all", len(store.List()), 2)
	found, err := indexer.ByTypedIndex(byLabel, "m")
	equal(t, "changed", namesOf(found), "b/two")
	_, known, knownErr := store.Get(newObject("b", "two", ""))
	_, foreign, foreignErr := store.Get(newObject("c", "three", ""))
	if err := errors.Join(err, knownErr, foreignErr); err != nil || !known || foreign {
		t.Errorf("b/two is there: %v; c/three is there: %v; %v", known, foreign, err)
	}
	for name, write := range map[string]func(any) error{"add": store.Add, "update": store.Update, "delete": store.Delete} {
		if err := write(newObject("c", "three", "l")); !errors.Is(err, errNamespace) || !strings.Contains(err.Error(), "c/three") {
			t.Errorf("%s in a namespace that is not among them: %v", name, err)
		}
		if err := write("no object"); err == nil {
			t.Errorf("%s what is no object: no error", name)
		}
	}
	if err := store.Replace(nil, "1"); err == nil {
		t.Error("one list replaced the caches of two namespaces")
	}
}

func TestSynced(t *testing.T) {
	for forbidden, want := range map[string]bool{"": true, "a": false, "b": false} {
		t.Run("without the right to "+forbidden, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.forbidden = forbidden
				var refused []string
				var mu sync.Mutex
				if err := s.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
					mu.Lock()
					defer mu.Unlock()
					refused = append(refused, err.Error())
				}); err != nil {
					t.Fatal(err)
				}
				registered := s.subscribe(t)
				checkers := SyncCheckers(registered)
				equal(t, "what is to be waited for", len(checkers), 2)
				stop := s.run(t)
				equal(t, "the informer has synced", s.HasSynced(), want)
				equal(t, "the handler has synced", registered.HasSynced(), want)
				equal(t, "all checkers are done", !slices.ContainsFunc(checkers, func(c cache.DoneChecker) bool { return !cache.IsDone(c) }), want)
				stop()
				equal(t, "it was refused", len(refused) > 0, !want)
			})
		})
	}
}

// TestSyncedLater waits for informers that have not begun.
func TestSyncedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		of := s.HasSyncedChecker()
		if registered := s.subscribe(t); registered.HasSyncedChecker().Name() == "" || of.Name() == "" {
			t.Error("what is waited for has no name")
		}
		synced := make(chan bool)
		go func() { synced <- cache.WaitFor(t.Context(), "", of) }()
		stop := s.run(t)
		equal(t, "synced", <-synced, true)
		equal(t, "it has a name when it is done", of.Name() != "", true)
		stop()
	})
}

// TestVersions: each namespace has come as far as its own cache has.
func TestVersions(t *testing.T) {
	s := newStage(t)
	s.members["a"].GetStore().Bookmark("5")
	s.members["b"].GetStore().Bookmark("7")
	s.GetStore().Bookmark("9")
	for namespace, want := range map[string]string{"a": "5", "b": "7", "c": ""} {
		equal(t, "version of "+namespace, LastStoreSyncResourceVersion(s.GetStore(), namespace), want)
	}
	equal(t, "version of one that was not merged", LastStoreSyncResourceVersion(s.members["a"].GetStore(), "any"), "5")
	equal(t, "version of all", s.GetStore().LastStoreSyncResourceVersion()+s.LastSyncResourceVersion(), "")
}

func TestMergeOne(t *testing.T) {
	member := newStage(t).members["a"]
	if got := Merge(map[string]cache.SharedIndexInformer{"a": member}); got != member {
		t.Errorf("one informer became another: %v", got)
	}
}
