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

package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// BenchmarkWorker measures what the Worker adds to a sync, from the event to the end.
func BenchmarkWorker(b *testing.B) {
	round := newRound(b)
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
}

// newRound returns a function that takes one key through the Worker.
func newRound(t testing.TB) func() {
	w := NewWorker("Foo", WorkerOptions{Clock: clock.RealClock{}, Metrics: NewMetrics(metrics.NewKubeRegistry()), Workers: 1})
	w.Handle(metav1.NamespaceAll, answer(0, nil))
	t.Cleanup(w.Queue.ShutDown)
	ctx, key := klog.NewContext(t.Context(), klog.Background()), testKey("foo")
	return func() {
		w.Queue.Add(key)
		w.processNextWorkItem(ctx, ctx)
	}
}
