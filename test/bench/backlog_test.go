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
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// users is the number of Foos that are changed while the controller works off the backlog.
	users = 10
	// userInterval is the least time between two changes, so that they are no load of their own.
	userInterval = 40 * time.Millisecond
	// idleChanges is the number of changes to time without a backlog.
	idleChanges = 100
)

// TestBacklog measures the time from a user's change of a Foo to the event of its changed
// Deployment: while nothing else happens, and while the controller works off Foos that were
// created while it did not run.
func TestBacklog(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	observer := e.observe()
	before := e.requests()
	controller := e.start()
	e.createFoos("user", users)
	e.awaitStatuses(before, users)

	changes := 0
	change := func() time.Duration {
		user, nth := name("user", changes%users), 1+changes/users
		changes++
		start := time.Now()
		e.must(e.scaleFoo(e.Context(), user, 1+nth%2))
		return observer.awaitChange(user, nth).Sub(start)
	}
	idle := repeat(idleChanges, change)
	controller.stop()

	e.createFoos("foo", e.objects)
	controller = e.start()
	created := func() int { return observer.count("foo", 0) }
	for created() == 0 {
		e.must(e.Context().Err())
		time.Sleep(time.Millisecond)
	}
	atStart := created()
	busy := changesUntil(change, func() bool { return created() >= e.objects })
	if len(busy) < 20 {
		e.Fatalf("the backlog was too short for a measurement: %d changes, the first after %d Foos", len(busy), atStart)
	}
	e.waitForCount("Foos have their Deployments", e.objects, created)
	controller.stop()
	e.record("fresh change under a backlog", quantile(busy, 0.5)/quantile(idle, 0.5), map[string]float64{
		"ms idle": quantile(idle, 0.5) * 1e3, "ms busy": quantile(busy, 0.5) * 1e3,
		"p99 ms idle": quantile(idle, 0.99) * 1e3, "p99 ms busy": quantile(busy, 0.99) * 1e3,
		"changes": float64(len(busy)), "of a plain client": e.plainBacklog(observer),
	})
}

// repeat returns the times of count changes, one after the other, in ascending order.
func repeat(count int, change func() time.Duration) []time.Duration {
	var times []time.Duration
	for range count {
		times = append(times, change())
	}
	return sorted(times)
}

// changesUntil returns the times of all changes that ended before done, one after the
// other, in ascending order.
func changesUntil(change func() time.Duration, done func() bool) []time.Duration {
	ticker := time.NewTicker(userInterval)
	defer ticker.Stop()
	var times []time.Duration
	for range ticker.C {
		took := change()
		if done() {
			break
		}
		times = append(times, took)
	}
	return sorted(times)
}

// plainBacklog returns the same ratio for a plain client, which sends the user's and the
// controller's write one after the other. The backlog is another client that creates
// Deployments with as many concurrent requests as the controller has workers.
func (e *env) plainBacklog(observer *observer) float64 {
	e.Helper()
	e.createFoosFor("plain", "nothing", 1)
	e.createDeployments("plain", 1)
	object, changes := name("plain", 0), 0
	change := func() time.Duration {
		changes++
		start := time.Now()
		replicas := 1 + changes%2
		e.must(e.scaleFoo(e.Context(), object, replicas))
		_, err := e.deploymentClient().Patch(e.Context(), object, types.StrategicMergePatchType,
			replicasPatch(replicas), metav1.PatchOptions{})
		e.must(err)
		return observer.awaitChange(object, changes).Sub(start)
	}
	idle := repeat(idleChanges, change)
	var load sync.WaitGroup
	load.Go(func() { e.createOwned("load", e.objects, e.workers) })
	busy := changesUntil(change, func() bool { return e.Failed() || observer.count("load", 0) >= e.objects/2 })
	load.Wait()
	if e.Failed() {
		e.FailNow()
	}
	return quantile(busy, 0.5) / quantile(idle, 0.5)
}
