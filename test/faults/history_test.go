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
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
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
	foos            []version[*v1alpha1.Foo]
	deployments     []version[*appsv1.Deployment]
	memcacheds      []version[*cachev1alpha1.Memcached]
	cronTabs        []version[*alphav1.CronTab]
	jobs            []version[*batchv1.Job]
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

// startRecorder records until ctx ends.
func startRecorder(ctx context.Context, kube kubernetes.Interface, foos clientset.Interface) (*recorder, error) {
	r := &recorder{histories: map[string]*history{}}
	fooClient, deploymentClient := foos.SamplecontrollerV1alpha1().Foos(metav1.NamespaceAll), kube.AppsV1().Deployments(metav1.NamespaceAll)
	memcachedClient := foos.CacheV1alpha1().Memcacheds(metav1.NamespaceAll)
	cronTabClient, jobClient := foos.AlphaV1().CronTabs(metav1.NamespaceAll), kube.BatchV1().Jobs(metav1.NamespaceAll)
	return r, errors.Join(
		watchResource(ctx, r, fooClient.List, fooClient.Watch, func(h *history, v version[*v1alpha1.Foo]) { h.foos = append(h.foos, v) }),
		watchResource(ctx, r, deploymentClient.List, deploymentClient.Watch, func(h *history, v version[*appsv1.Deployment]) { h.deployments = append(h.deployments, v) }),
		watchResource(ctx, r, memcachedClient.List, memcachedClient.Watch, func(h *history, v version[*cachev1alpha1.Memcached]) { h.memcacheds = append(h.memcacheds, v) }),
		watchResource(ctx, r, cronTabClient.List, cronTabClient.Watch, func(h *history, v version[*alphav1.CronTab]) { h.cronTabs = append(h.cronTabs, v) }),
		watchResource(ctx, r, jobClient.List, jobClient.Watch, func(h *history, v version[*batchv1.Job]) { h.jobs = append(h.jobs, v) }),
	)
}

// watchResource records the changes of a resource without a gap. The API server ends the
// watch of a slow client, such as a test on a busy machine; RetryWatcher then continues
// from the last resource version.
func watchResource[T metav1.Object, L metav1.ListInterface](ctx context.Context, r *recorder, list func(context.Context, metav1.ListOptions) (L, error),
	open func(context.Context, metav1.ListOptions) (watch.Interface, error), add func(*history, version[T])) error {
	now, err := list(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing %T: %w", now, err)
	}
	events, err := watchtools.NewRetryWatcherWithContext(ctx, now.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: open})
	if err != nil {
		return fmt.Errorf("watching %T: %w", now, err)
	}
	go recordEvents(ctx, r, events, add)
	return nil
}

// recordEvents appends the events to the histories. It exits the test binary if the watch
// fails: with a gap in the history the checkers would prove nothing.
func recordEvents[T metav1.Object](ctx context.Context, r *recorder, events watch.Interface, add func(*history, version[T])) {
	for event := range events.ResultChan() {
		object, ok := event.Object.(T)
		if !ok {
			break
		}
		number, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
		if err != nil {
			break
		}
		h := r.historyOf(object.GetNamespace())
		h.mu.Lock()
		add(h, version[T]{object: object, revision: number, deleted: event.Type == watch.Deleted, observedAt: time.Now()})
		close(h.changed)
		h.changed = make(chan struct{})
		h.mu.Unlock()
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
		h = &history{changed: make(chan struct{})}
		r.histories[namespace] = h
	}
	return h
}

func (r *recorder) remove(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.histories, namespace)
}
