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
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fixtures "example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/stored"
)

// What the controller costs while nothing changes. Compare two commits by
//
//	go test -run='^$' -bench=. -count=10 . > former.txt
//	go tool -modfile=hack/tools/go.mod benchstat former.txt latter.txt

func BenchmarkSync(b *testing.B) {
	// What a sync costs must not depend on the size of the caches.
	for _, foos := range []int{1000, 100000} {
		b.Run(fmt.Sprintf("foos=%d", foos), func(b *testing.B) {
			sync := fillAndSync(b, newIdle(b), foos)
			// The garbage of this must not be collected during the measurement.
			runtime.GC()
			b.ReportAllocs()
			for b.Loop() {
				sync()
			}
		})
	}
}

// realReady returns Foo number i and its Deployment as the API server stores them once
// nothing changes any more.
func realReady(i int) (*v1alpha1.Foo, *appsv1.Deployment) {
	foo := stored.Foo(i)
	owned := newDeployment(foo)
	stored.Own(i, owned)
	fooStatus(findings{deployment: owned})(foo)
	return foo, owned
}

// newIdle returns a controller with empty caches, which logs nothing and fails the test if it sends a request.
func newIdle(t testing.TB) *fixture {
	t.Helper()
	f := newFixture(t)
	f.ctx = klog.NewContext(f.ctx, logr.Discard())
	t.Cleanup(func() {
		if sent := f.Requests(); len(sent) > 0 {
			t.Errorf("rule 15: the controller sent %v", sent)
		}
	})
	return f
}

// keep puts what a cache keeps of a decoded object into a cache.
func keep[T any](transform cache.TransformFunc, indexer cache.TypedIndexer[*T], object *T) {
	text, err := json.Marshal(object)
	decoded := new(T)
	fixtures.Must(errors.Join(err, json.Unmarshal(text, decoded)))
	kept, err := transform(decoded)
	fixtures.Must(err)
	fixtures.Must(indexer.Add(kept.(*T)))
}

// fillAndSync fills the caches with that many Foos and their Deployments, and returns what syncs one in the middle,
// which must find nothing to do.
func fillAndSync(t testing.TB, c *fixture, foos int) (sync func()) {
	t.Helper()
	transform := newTransform()
	for i := range foos {
		foo, owned := realReady(i)
		keep(transform, c.fooIndexer, foo)
		keep(transform, c.deploymentIndexer, owned)
	}
	key := cache.MetaObjectToName(stored.Foo(foos / 2))
	return func() {
		if requeueAfter, err := c.syncHandler(c.ctx, key); requeueAfter != 0 || err != nil {
			t.Fatalf("the sync asks for another one after %v, error %v", requeueAfter, err)
		}
	}
}

// skipWithRace skips a measurement that the race detector distorts. `make unit` runs these
// tests once more without it.
func skipWithRace(t *testing.T) {
	t.Helper()
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector changes what is measured")
	}
}

func heapInUse() uint64 {
	// The first collection moves the contents of a sync.Pool to its victim cache, the second
	// one frees them.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestBytesPerObject measures the caches with their indexes.
func TestBytesPerObject(t *testing.T) {
	skipWithRace(t)
	const (
		foos, foreign = 4000, 4000
		// maxFoo bounds a Foo with its Deployment, maxForeign a Deployment of another owner.
		maxFoo, maxForeign = 4000, 1600
	)
	c, transform := newIdle(t), newTransform()
	empty := heapInUse()
	fillAndSync(t, c, foos)
	full := heapInUse()
	for i := range foreign {
		keep(transform, c.deploymentIndexer, stored.Foreign(i))
	}
	perFoo, perForeign := (full-empty)/foos, (heapInUse()-full)/foreign
	runtime.KeepAlive(c)
	t.Logf("%d bytes a Foo with its Deployment, %d a Deployment of another owner", perFoo, perForeign)
	if perFoo > maxFoo || perForeign > maxForeign {
		t.Errorf("want %d and %d at most", maxFoo, maxForeign)
	}
}

// TestAllocations counts the allocations of a sync that finds nothing to do: most syncs do.
func TestAllocations(t *testing.T) {
	skipWithRace(t)
	const most = 70
	c := newIdle(t)
	got := testing.AllocsPerRun(1000, fillAndSync(t, c, 100))
	key := cache.MetaObjectToName(stored.Foo(50))
	// They are for the places of the key and its namespace.
	queued := testing.AllocsPerRun(1000, func() {
		c.Worker.Queue.Add(key)
		c.Worker.Queue.Get()
		c.Worker.Queue.Done(key)
	})
	t.Logf("%v allocations a sync, and %v to take its key through the queue", got, queued)
	if got > most || queued > 5 {
		t.Errorf("want %d and 5 at most", most)
	}
}
