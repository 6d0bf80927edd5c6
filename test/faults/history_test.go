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
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// version is one version of an object. Revisions order the versions of all objects: the
// cluster has one etcd, and resource versions are its revisions.
type version[T metav1.Object] struct {
	object   T
	revision int64
	// deleted marks the deletion; object is then the last state.
	deleted bool
	// observedAt is when the test received the event.
	observedAt time.Time
}

// history has every version of every object in a namespace, in order. The kinds that the
// run does not use have none.
type history struct {
	mu      sync.Mutex
	changed chan struct{}
	// concurrentControllers is set if two controllers worked at the same time, as without
	// a lease.
	concurrentControllers bool
	// concurrentUsers is set if users did not wait for the controller between their
	// operations.
	concurrentUsers bool
	// objects are the versions by resource. The others are the same ones, for the kinds that
	// have invariants of their own.
	objects     map[string][]version[*unstructured.Unstructured]
	foos        []version[*v1alpha1.Foo]
	deployments []version[*appsv1.Deployment]
	cronTabs    []version[*alphav1.CronTab] // +drop:crontab
	jobs        []version[*batchv1.Job]
}

// published is the ConfigMap that kube-controller-manager keeps in each namespace. It is created
// some time after the namespace, and concerns no controller under test.
const published = "kube-root-ca.crt"

// add appends a version of an object of the resource.
func (h *history) add(resource string, v version[*unstructured.Unstructured]) {
	if resource == "configmaps" && v.object.GetName() == published {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects[resource] = append(h.objects[resource], v)
	appendTyped(&h.foos, resource == foos, v)
	appendTyped(&h.deployments, resource == deployments, v)
	appendTyped(&h.cronTabs, resource == cronTabs, v) // +drop:crontab
	appendTyped(&h.jobs, resource == jobs, v)
	close(h.changed)
	h.changed = make(chan struct{})
}

// appendTyped appends the version in its Go type if it is of that type.
func appendTyped[T any, P interface {
	*T
	metav1.Object
}](to *[]version[P], matches bool, v version[*unstructured.Unstructured]) {
	if !matches {
		return
	}
	object := P(new(T))
	convert(v.object, object)
	*to = append(*to, version[P]{object, v.revision, v.deleted, v.observedAt})
}

// locked calls f with the lock held.
func (h *history) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// await waits until check returns nil. It calls check after each change, with the lock
// held.
func (h *history) await(ctx context.Context, check func() error) error {
	for {
		h.mu.Lock()
		last, changed := check(), h.changed
		h.mu.Unlock()
		if last == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), last)
		}
	}
}

// existing returns the objects that exist now, by name.
func existing[T metav1.Object](versions []version[T]) map[string]T {
	return existingBefore(versions, math.MaxInt64)
}

// existingBefore returns the objects that existed just before that revision, by name.
func existingBefore[T metav1.Object](versions []version[T], revision int64) map[string]T {
	objects := map[string]T{}
	for _, v := range versions {
		switch {
		case v.revision >= revision:
			return objects
		case v.deleted:
			delete(objects, v.object.GetName())
		default:
			objects[v.object.GetName()] = v.object
		}
	}
	return objects
}

// supersededAt returns the revision of the next version, false if there is none.
func supersededAt[T metav1.Object](versions []version[T], index int) (int64, bool) {
	if v := nextVersion(versions, index); v != nil {
		return v.revision, true
	}
	return 0, false
}

// nextVersion returns the next version of the same object, nil if there is none.
func nextVersion[T metav1.Object](versions []version[T], index int) *version[T] {
	uid := versions[index].object.GetUID()
	for i := index + 1; i < len(versions); i++ {
		if versions[i].object.GetUID() == uid {
			return &versions[i]
		}
	}
	return nil
}

// recorder keeps the history of each namespace.
type recorder struct {
	mu        sync.Mutex
	histories map[string]*history
}

// startRecorder records the owners and dependents of all kinds until ctx ends.
func startRecorder(ctx context.Context, suites []*kindSuite) (*recorder, error) {
	r := &recorder{histories: map[string]*history{}}
	watched := map[schema.GroupVersionResource]bool{}
	for _, k := range suites {
		for resource, gvr := range k.gvrs {
			if watched[gvr] || k.roles[resource] == others {
				continue
			}
			watched[gvr] = true
			if err := r.watch(ctx, gvr); err != nil {
				return nil, fmt.Errorf("watching %s: %w", gvr.GroupResource(), err)
			}
		}
	}
	return r, nil
}

// watch records the changes of a resource without a gap. The API server ends the
// watch of a slow client, such as a test on a busy machine; RetryWatcher then continues
// from the last resource version.
func (r *recorder) watch(ctx context.Context, gvr schema.GroupVersionResource) error {
	client := cluster.dynamic.Resource(gvr)
	now, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	events, err := watchtools.NewRetryWatcherWithContext(ctx, now.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: client.Watch})
	if err != nil {
		return err
	}
	go r.recordEvents(ctx, gvr.Resource, events)
	return nil
}

// recordEvents appends the events to the histories. It exits the test binary if the watch
// fails: with a gap in the history the checkers would prove nothing.
func (r *recorder) recordEvents(ctx context.Context, resource string, events watch.Interface) {
	for event := range events.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error {
			break
		}
		number, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
		if err != nil {
			break
		}
		r.historyOf(object.GetNamespace()).add(resource, version[*unstructured.Unstructured]{
			object: object, revision: number, deleted: event.Type == watch.Deleted, observedAt: time.Now(),
		})
	}
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "A watch of the test failed: the cluster does not work.")
		os.Exit(1)
	}
}

func (r *recorder) historyOf(namespace string) *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.histories[namespace]
	if !ok {
		h = &history{changed: make(chan struct{}), objects: map[string][]version[*unstructured.Unstructured]{}}
		r.histories[namespace] = h
	}
	return h
}

func (r *recorder) remove(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.histories, namespace)
}

// TestPublishedObjects: what appears in each namespace some time after its creation would make the
// same runs end in different states.
func TestPublishedObjects(t *testing.T) {
	h := &history{changed: make(chan struct{}), objects: map[string][]version[*unstructured.Unstructured]{}}
	for _, name := range []string{"kube-root-ca.crt", "x"} {
		h.add("configmaps", version[*unstructured.Unstructured]{object: decode(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`)})
	}
	if got := slices.Collect(maps.Keys(existing(h.objects["configmaps"]))); !slices.Equal(got, []string{"x"}) {
		t.Errorf("the history has %q", got)
	}
}
