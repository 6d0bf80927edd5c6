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
	"fmt"
	"runtime"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
)

// What the controller costs while nothing changes. Compare two commits by
//
//	go test -run='^$' -bench=. -count=10 . > former.txt
//	go run golang.org/x/perf/cmd/benchstat@latest former.txt latter.txt

// newResting returns a controller with that many Foos at rest in its caches. Requests
// lead nowhere.
func newResting(t testing.TB, foos int) *Controller {
	t.Helper()
	clients := &clients{kube: kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://0.0.0.0:1"}), foo: clientset.NewForConfigOrDie(&rest.Config{Host: "http://0.0.0.0:1"})}
	kube, foo := kubeinformers.NewSharedInformerFactory(clients.kube, 0), fooinformers.NewSharedInformerFactory(clients.foo, 0)
	c := newQuiet(t.Context(), t, clients, kube.Apps().V1().Deployments(), foo.Samplecontroller().V1alpha1().Foos())
	s := newStripper()
	for i := range foos {
		foo, deployment := realReady(i)
		for store, object := range map[cache.Store]any{c.fooIndex: foo, c.deploymentIndex: deployment} {
			object, err := s.strip(object)
			if err == nil {
				err = store.Add(object)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	// What this leaves behind is not to be swept up while something is measured.
	runtime.GC()
	return c
}

// keyOf returns the key of the Foo of that number.
func keyOf(i int) cache.ObjectName {
	return cache.MetaObjectToName(realFoo(i))
}

// crowds are the sizes of the caches. What a sync costs must not depend on them.
func crowds() []int {
	return []int{1000, 100000}
}

func BenchmarkSync(b *testing.B) {
	for _, foos := range crowds() {
		b.Run(fmt.Sprintf("foos=%d", foos), func(b *testing.B) {
			c, key := newResting(b, foos), keyOf(foos/2)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if again, err := c.syncHandler(ctx, key); again != 0 || err != nil {
					b.Fatalf("to be synced after %v, %v", again, err)
				}
			}
		})
	}
}

// BenchmarkSyncAll syncs one Foo after the other, as a resync does: with many of them
// the processor's own caches miss.
func BenchmarkSyncAll(b *testing.B) {
	for _, foos := range crowds() {
		b.Run(fmt.Sprintf("foos=%d", foos), func(b *testing.B) {
			c := newResting(b, foos)
			keys := make([]cache.ObjectName, foos)
			for i := range keys {
				keys[i] = keyOf(i)
			}
			ctx, next := b.Context(), 0
			b.ReportAllocs()
			for b.Loop() {
				if again, err := c.syncHandler(ctx, keys[next%foos]); again != 0 || err != nil {
					b.Fatalf("to be synced after %v, %v", again, err)
				}
				next++
			}
		})
	}
}

// take takes from the queue what an event put there.
func take(b *testing.B, c *Controller) {
	if c.Queue.Len() != 1 {
		b.Fatalf("%d keys are in the queue, want 1", c.Queue.Len())
	}
	key, _ := c.Queue.Get()
	c.Queue.Done(key)
}

func BenchmarkFooEvent(b *testing.B) {
	c := newResting(b, 1000)
	old, _ := realReady(500)
	foo := old.DeepCopy()
	foo.ResourceVersion = "3000000"
	b.ReportAllocs()
	for b.Loop() {
		c.fooUpdated(old, foo)
		take(b, c)
	}
}

func BenchmarkDeploymentEvent(b *testing.B) {
	c := newResting(b, 1000)
	_, old := realReady(500)
	deployment := old.DeepCopy()
	deployment.ResourceVersion = "3000000"
	handlers := kindOfFoo().Handlers(c.Loop, c.enqueueAskers)
	b.ReportAllocs()
	for b.Loop() {
		handlers.UpdateFunc(old, deployment)
		take(b, c)
	}
}

func BenchmarkStrip(b *testing.B) {
	foo, owned := realReady(0)
	b.Run("foo", func(b *testing.B) { benchmarkStrip(b, foo, func(foo v1alpha1.Foo) any { return &foo }) })
	b.Run("owned", func(b *testing.B) {
		benchmarkStrip(b, owned, func(deployment appsv1.Deployment) any { return &deployment })
	})
	b.Run("foreign", func(b *testing.B) {
		benchmarkStrip(b, realForeign(0), func(deployment appsv1.Deployment) any { return &deployment })
	})
}

// benchmarkStrip strips a copy of the object each time, which is an allocation more.
func benchmarkStrip[T any](b *testing.B, object *T, copied func(T) any) {
	s := newStripper()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.strip(copied(*object)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	foo, deployment := realReady(0)
	b.ReportAllocs()
	for b.Loop() {
		if verdict := decide(foo, deployment); len(verdict.Repair.Changes) > 0 {
			b.Fatalf("to be repaired: %v", verdict.Repair)
		}
	}
}
