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

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// version is one version of an object. Revisions order the versions of all objects of a cluster.
type version struct {
	resource string
	object   *unstructured.Unstructured
	revision int64
	deleted  bool
}

// history has every version of every recorded object in a namespace.
type history struct {
	mu         sync.Mutex
	versions   []version
	existing   map[types.UID]version
	lastChange time.Time
}

func (h *history) add(v version, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions = append(h.versions, v)
	h.lastChange = now
	if v.deleted {
		delete(h.existing, v.object.GetUID())
		return
	}
	h.existing[v.object.GetUID()] = v
}

// all returns the versions so far.
func (h *history) all() []version {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.versions[:len(h.versions):len(h.versions)]
}

// changedAt returns when the last change came.
func (h *history) changedAt() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastChange
}

// recorder keeps the history of each namespace.
type recorder struct {
	cluster *cluster
	// failed gets the error that ends the recording: with a gap nothing could be judged.
	failed func(error)

	mu        sync.Mutex
	histories map[string]*history
}

// startRecorder records all resources of the cluster until ctx ends.
func startRecorder(ctx context.Context, c *cluster, failed func(error)) (*recorder, error) {
	r := &recorder{cluster: c, failed: failed, histories: map[string]*history{}}
	for _, gvr := range c.recorded {
		client := c.client.Resource(gvr)
		now, err := client.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
		}
		events, err := watchtools.NewRetryWatcherWithContext(ctx, now.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: client.Watch})
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", gvr.GroupResource(), err)
		}
		go r.record(ctx, gvr, events)
	}
	return r, nil
}

func (r *recorder) record(ctx context.Context, gvr schema.GroupVersionResource, events watch.Interface) {
	for event := range events.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error {
			break
		}
		revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
		if err != nil {
			break
		}
		if h := r.find(object.GetNamespace()); h != nil && event.Type != watch.Bookmark && object.GetName() != "kube-root-ca.crt" {
			h.add(version{gvr.Resource, object, revision, event.Type == watch.Deleted}, r.cluster.clock.Now())
		}
	}
	if ctx.Err() == nil {
		r.failed(fmt.Errorf("the watch of %s ended", gvr.GroupResource()))
	}
}

func (r *recorder) find(namespace string) *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.histories[namespace]
}

// begin starts the history of a namespace.
func (r *recorder) begin(namespace string) *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &history{existing: map[types.UID]version{}, lastChange: r.cluster.clock.Now()}
	r.histories[namespace] = h
	return h
}

func (r *recorder) end(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.histories, namespace)
}
