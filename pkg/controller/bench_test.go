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

	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// BenchmarkLoop is what the loop costs a sync that finds nothing to do, from the event to
// the end.
func BenchmarkLoop(b *testing.B) {
	turn := newTurn(b)
	b.ReportAllocs()
	for b.Loop() {
		turn()
	}
}

// newTurn returns what takes one key through the loop.
func newTurn(t testing.TB) func() {
	l := NewLoop("Foo", answer(0, nil), Caches{}, Options{Clock: clock.RealClock{}, Metrics: NewMetrics(metrics.NewKubeRegistry()), Workers: 1})
	t.Cleanup(l.Queue.ShutDown)
	ctx, key := klog.NewContext(t.Context(), klog.Background()), testKey("foo")
	return func() {
		l.Queue.Add(key)
		l.processNextWorkItem(ctx, ctx)
	}
}
