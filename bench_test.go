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
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/client"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
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
			c, fill := connect(b, newListServer(b, foos, 0))
			fill()
			key, ctx := cache.MetaObjectToName(stored.Foo(foos/2)), b.Context()
			// The garbage of this must not be collected during the measurement.
			runtime.GC()
			b.ReportAllocs()
			for b.Loop() {
				if requeueAfter, err := c.syncHandler(ctx, key); requeueAfter != 0 || err != nil {
					b.Fatalf("to be synced after %v, %v", requeueAfter, err)
				}
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

// newListServer returns an API server with that many Foos, each with its Deployment, and
// that many Deployments of other owners.
func newListServer(t testing.TB, foos, foreign int) *stored.ListServer {
	return &stored.ListServer{
		T: t,
		Foos: each(foos, func(i int) *v1alpha1.Foo {
			foo, _ := realReady(i)
			return foo
		}),
		Deployments: each(foos+foreign, func(i int) *appsv1.Deployment {
			if i >= foos {
				return stored.Foreign(i - foos)
			}
			_, owned := realReady(i)
			return owned
		}),
	}
}

func each[T any](count int, get func(int) T) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for i := 0; i < count && yield(get(i)); {
			i++
		}
	}
}

// connect returns a controller with empty caches, which logs nothing. fill fills them from the server, and syncs
// all keys: each sync must find nothing to do.
func connect(t testing.TB, handler *stored.ListServer) (c *instance, fill func()) {
	t.Helper()
	server := httptest.NewServer(handler)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	handler.Cancel = cancel
	// As the program: JSON for custom resources, Protobuf for built-in ones, no rate limit.
	config := &rest.Config{Host: server.URL, QPS: client.Unlimited}
	c = newInstance(ctx, env{
		KubeClient: kubernetes.NewForConfigOrDie(client.ForBuiltin(config)), FooClient: clientset.NewForConfigOrDie(config),
		Recorder: &record.FakeRecorder{}, Workers: 1,
	})
	t.Cleanup(func() {
		c.Worker.Queue.ShutDown()
		cancel()
		for _, factory := range c.informers {
			factory.Shutdown()
		}
		server.Close()
	})

	return c, func() {
		for _, factory := range c.informers {
			factory.StartWithContext(ctx)
		}
		if err := c.Worker.StartEventHandlers(ctx); err != nil {
			t.Fatal(err)
		}
		for c.Worker.Queue.Len() > 0 {
			key, _ := c.Worker.Queue.Get()
			if requeueAfter, err := c.syncHandler(ctx, key); requeueAfter != 0 || err != nil {
				t.Fatalf("the first sync of %s asks for another one after %v, error %v", key, requeueAfter, err)
			}
			c.Worker.Queue.Forget(key)
			c.Worker.Queue.Done(key)
		}
	}
}

// TestCachesAreFilled checks how the informers list: as streams, those of built-in types in
// protobuf. Converged Foos cause no other request.
func TestCachesAreFilled(t *testing.T) {
	few := newListServer(t, 3, 2)
	c, fill := connect(t, few)
	fill()
	if few.ProtobufDeployments.Load() != 1 || few.JSONFoos.Load() != 1 {
		t.Errorf("%d streams of Deployments in protobuf and %d of Foos, want one each", few.ProtobufDeployments.Load(), few.JSONFoos.Load())
	}
	if foos, deployments := len(c.fooIndexer.List()), len(c.deploymentIndexer.List()); foos != 3 || deployments != 5 {
		t.Errorf("the caches have %d Foos and %d Deployments, want 3 and 5", foos, deployments)
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

// measureCaches returns how many bytes the caches need for that many objects.
func measureCaches(t *testing.T, foos, foreign int) (bytes uint64) {
	t.Helper()
	t.Run(fmt.Sprintf("foos=%d,foreign=%d", foos, foreign), func(t *testing.T) {
		c, fill := connect(t, newListServer(t, foos, foreign))
		before := heapInUse()
		fill()
		bytes = heapInUse() - before
		runtime.KeepAlive(c)
	})
	return bytes
}

// TestBytesPerObject measures the caches with their indexes.
func TestBytesPerObject(t *testing.T) {
	skipWithRace(t)
	const (
		foos, foreign = 4000, 4000
		// maxFoo bounds a Foo with its Deployment, maxForeign a Deployment of another owner.
		maxFoo, maxForeign = 4000, 1600
	)
	without, with := measureCaches(t, foos, 0), measureCaches(t, foos, foreign)
	perFoo, perForeign := without/foos, (with-without)/foreign
	t.Logf("%d bytes a Foo with its Deployment, %d a Deployment of another owner", perFoo, perForeign)
	if perFoo > maxFoo || perForeign > maxForeign {
		t.Errorf("want %d and %d at most", maxFoo, maxForeign)
	}
}

// TestAllocations counts the allocations of a sync that finds nothing to do: most syncs do.
func TestAllocations(t *testing.T) {
	skipWithRace(t)
	const most = 70
	c, fill := connect(t, newListServer(t, 100, 0))
	fill()
	key := cache.MetaObjectToName(stored.Foo(50))
	got := testing.AllocsPerRun(1000, func() {
		if requeueAfter, err := c.syncHandler(t.Context(), key); requeueAfter != 0 || err != nil {
			t.Fatalf("the sync asks for another one after %v, error %v", requeueAfter, err)
		}
	})
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
