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

// shardNamespaces is among how many namespaces the Deployments are spread.
const shardNamespaces = 50

// shardNamespace returns the name of the i-th namespace. The hash is FNV-1a, of which the
// first bits, by which ranges are told apart, hardly depend on the last letters of a name:
// shard-00 to shard-49 would all be of one half.
func shardNamespace(i int) string {
	return fmt.Sprintf("%d-shard", i%shardNamespaces)
}

// TestShard measures what a client takes that lists and watches one of two shards, over
// one that lists and watches all. The API server needs its feature gate
// ShardedListAndWatch.
func TestShard(t *testing.T) {
	b := newBench(t)
	b.pauseOthers()
	for i := range shardNamespaces {
		_, err := b.kube.CoreV1().Namespaces().Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shardNamespace(i)}}, metav1.CreateOptions{})
		b.must(err)
	}
	b.inParallel(b.objects, creators, func(ctx context.Context, i int) error {
		_, err := b.kube.AppsV1().Deployments(shardNamespace(i)).Create(ctx, bareDeployment(name("shard", i)), metav1.CreateOptions{})
		return err
	})

	all := b.watchShard("")
	first := b.watchShard(firstHalf)
	second := b.watchShard(secondHalf)
	if len(all.keys) != b.objects || len(first.keys)+len(second.keys) != b.objects || len(first.keys) == 0 || len(second.keys) == 0 {
		b.Fatalf("%d and %d of %d Deployments are in a shard", len(first.keys), len(second.keys), len(all.keys))
	}
	for key := range first.keys {
		if second.keys[key] {
			b.Fatalf("%s is in both shards", key)
		}
	}
	share := float64(len(first.keys)) / float64(b.objects)
	b.report("one of two shards: live heap over that of all", first.heap/all.heap, map[string]float64{
		"share of Deployments": share, "share of events": float64(first.events) / float64(all.events), "MB of all": all.heap / 1e6, "MB of the shard": first.heap / 1e6,
	})
}

// shard is what a client got.
type shard struct {
	keys   map[string]bool
	events int64
	heap   float64
}

// watchShard fills a cache with what the selector selects, has every Deployment changed
// once, and returns what came.
func (b *bench) watchShard(selector string) shard {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	before := liveHeap()
	factory := kubeinformers.NewSharedInformerFactoryWithOptions(b.kube, 0, kubeinformers.WithTweakListOptions(func(options *metav1.ListOptions) { options.ShardSelector = selector }))
	informer := factory.Apps().V1().Deployments().Informer()
	var events atomic.Int64
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { events.Add(1) }})
	b.must(err)
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	got := shard{keys: map[string]bool{}, heap: liveHeap() - before}
	for _, key := range informer.GetStore().ListKeys() {
		got.keys[key] = true
	}
	all, err := b.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	b.must(err)
	b.inParallel(len(all.Items), creators, func(ctx context.Context, i int) error {
		changed := available(&all.Items[i], all.Items[i].Status.Replicas+1)
		_, err := b.kube.AppsV1().Deployments(changed.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		return err
	})
	b.eventually(func(context.Context) error {
		if got := events.Load(); got < int64(len(informer.GetStore().ListKeys())) {
			return fmt.Errorf("%d events", got)
		}
		return nil
	})
	got.events = events.Load()
	cancel()
	factory.Shutdown()
	return got
}

// liveHeap returns what this process has in use after a collection.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
