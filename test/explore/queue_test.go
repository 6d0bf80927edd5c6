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

package explore

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/controller"
)

// TestQueue ties the explorer's queue, from which any key may be next, to the shipped one: whatever that hands out
// is in the explorer's, and it hands out something whenever the explorer's has a key that no worker has.
func TestQueue(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { compareQueues(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func compareQueues(t *testing.T, random *rand.Rand) {
	options := controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: controller.NewMetrics(metrics.NewKubeRegistry()), Workers: 1, GracePeriod: time.Second}
	shipped := controller.NewWorker("Test", options).Queue
	defer shipped.ShutDown()
	explored := &fakeQueue{clock: &fakeClock{}}
	var taken []cache.ObjectName
	for range 60 {
		explored.clock.set(time.Now())
		key := cache.NewObjectName([]string{"n", "m"}[random.IntN(2)], string(rune('a'+random.IntN(3))))
		switch random.IntN(6) {
		case 0:
			shipped.Add(key)
			explored.Add(key)
		case 1:
			shipped.AddHighPriority(key)
			explored.Add(key)
		case 2:
			delay := time.Duration(1+random.IntN(5)) * time.Second
			shipped.AddAfter(key, delay)
			explored.AddAfter(key, delay)
		case 3:
			time.Sleep(time.Second)
			explored.clock.set(time.Now())
			for timers := explored.clock.timers; len(timers) > 0 && !timers[0].due.After(time.Now()); timers = explored.clock.timers {
				explored.clock.timers = timers[1:]
				explored.Add(timers[0].key)
			}
		case 4:
			if len(taken) > 0 {
				shipped.Done(taken[0])
				taken = taken[1:]
			}
		}
		synctest.Wait()
		waiting := slices.DeleteFunc(slices.Clone(explored.keys), func(key cache.ObjectName) bool { return slices.Contains(taken, key) })
		if (shipped.Len() > 0) != (len(waiting) > 0) {
			t.Fatalf("the shipped queue has %d keys, that of the explorer %v", shipped.Len(), waiting)
		}
		if len(waiting) == 0 || random.IntN(2) == 0 {
			continue
		}
		next, _ := shipped.Get()
		if !slices.Contains(waiting, next) {
			t.Fatalf("the shipped queue hands out %s, that of the explorer has %v", next, waiting)
		}
		taken = append(taken, next)
		explored.keys = slices.DeleteFunc(slices.Clone(explored.keys), func(key cache.ObjectName) bool { return key == next })
	}
}
