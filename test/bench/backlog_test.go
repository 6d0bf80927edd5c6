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
	"testing"
	"time"
)

const (
	// users is the number of Foos that are changed while the program works off the backlog.
	users = 10
	// userInterval is the least time between two changes, so that they are no load of their own.
	userInterval = 40 * time.Millisecond
	// idleChanges is the number of changes to time without a backlog.
	idleChanges = 200
)

// TestBacklog measures how many times as long it takes from a user's change of a Foo to the
// event of its changed Deployment while the program works off Foos that were created before
// its start, as while nothing else happens.
func TestBacklog(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	observer := e.observe()
	program := e.start()
	e.createFoos("user", users)
	e.waitForCount("Foos have their Deployments", users, func() int { return observer.count("user", 0) })

	changes := 0
	change := func() time.Duration {
		user, nth := name("user", changes%users), 1+changes/users
		changes++
		start := time.Now()
		e.must(e.scaleFoo(e.Context(), user, 1+nth%2))
		return observer.awaitChange(user, nth).Sub(start)
	}
	var idle []time.Duration
	for range idleChanges {
		idle = append(idle, change())
	}
	idle = sorted(idle)
	program.stop()

	e.createFoos("foo", e.objects)
	e.start()
	created := func() int { return observer.count("foo", 0) }
	for created() == 0 {
		e.must(e.Context().Err())
		time.Sleep(time.Millisecond)
	}
	atStart := created()
	busy := changesUntil(change, func() bool { return e.Failed() || created() >= e.objects })
	if len(busy) < 20 {
		e.Fatalf("the backlog was too short for a measurement: %d changes, the first after %d Foos", len(busy), atStart)
	}
	e.record("fresh change under a backlog", quantile(busy, 0.5)/quantile(idle, 0.5), map[string]float64{
		"ms idle": quantile(idle, 0.5) * 1e3, "ms busy": quantile(busy, 0.5) * 1e3,
		"p99 ms idle": quantile(idle, 0.99) * 1e3, "p99 ms busy": quantile(busy, 0.99) * 1e3,
		"changes": float64(len(busy)),
	})
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
