//go:build bench

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

package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// The two halves of all namespaces, by the hash of their names (KEP-5866).
const (
	firstHalf  = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')"
	secondHalf = "shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')"
)

// shardNamespaces is the number of namespaces that hold the Deployments.
const shardNamespaces = 50

// shardNamespace returns the namespace of the i-th Deployment. The number comes first: the
// hash is FNV-1a, whose first bits select the shard and hardly depend on the last letters of
// a name, so that shard-00 to shard-49 would all be in one half.
func shardNamespace(i int) string {
	return fmt.Sprintf("%d-shard", i%shardNamespaces)
}

// TestShard compares the memory and the events of a client that lists and watches one of two
// shards with those of a client that lists and watches everything. The API server needs the
// feature gate ShardedListAndWatch.
func TestShard(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	for i := range shardNamespaces {
		_, err := e.kube.CoreV1().Namespaces().Create(e.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shardNamespace(i)}}, metav1.CreateOptions{})
		e.must(err)
	}
	e.inParallel(e.objects, func(ctx context.Context, i int) error {
		_, err := e.kube.AppsV1().Deployments(shardNamespace(i)).Create(ctx, newDeployment(name("shard", i)), metav1.CreateOptions{})
		return err
	})

	all := e.watchShard("")
	first := e.watchShard(firstHalf)
	second := e.watchShard(secondHalf)
	if len(all.keys) != e.objects || len(first.keys)+len(second.keys) != e.objects || len(first.keys) == 0 || len(second.keys) == 0 {
		e.Fatalf("of %d Deployments, %d are in the first shard and %d in the second", len(all.keys), len(first.keys), len(second.keys))
	}
	for key := range first.keys {
		if second.keys[key] {
			e.Fatalf("%s is in both shards", key)
		}
	}
	share := float64(len(first.keys)) / float64(e.objects)
	e.record("one of two shards: live heap over that of all", first.heap/all.heap, map[string]float64{
		"share of Deployments": share, "share of events": float64(first.events) / float64(all.events), "MB of all": all.heap / 1e6, "MB of the shard": first.heap / 1e6,
	})
}

// shard is what a client received and the live heap of its cache, in bytes.
type shard struct {
	keys   map[string]bool
	events int
	heap   float64
}

// watchShard fills a cache with the selected Deployments, changes every Deployment once, and
// waits for the events.
func (e *env) watchShard(selector string) shard {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	before := liveHeap()
	factory := kubeinformers.NewSharedInformerFactoryWithOptions(e.kube, 0, kubeinformers.WithTweakListOptions(func(options *metav1.ListOptions) { options.ShardSelector = selector }))
	informer := factory.Apps().V1().Deployments().Informer()
	var events atomic.Int64
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { events.Add(1) }})
	e.must(err)
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	got := shard{keys: map[string]bool{}, heap: liveHeap() - before}
	for _, key := range informer.GetStore().ListKeys() {
		got.keys[key] = true
	}
	all, err := e.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	e.must(err)
	e.inParallel(len(all.Items), func(ctx context.Context, i int) error {
		_, err := e.makeAvailable(ctx, &all.Items[i], all.Items[i].Status.Replicas+1)
		return err
	})
	e.waitForCount("events", len(got.keys), func() int { return int(events.Load()) })
	got.events = int(events.Load())
	cancel()
	factory.Shutdown()
	return got
}

// liveHeap returns the live heap of this process in bytes.
func liveHeap() float64 {
	// A sync.Pool drops its contents only in the second garbage collection.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
