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

// users is how many Foos of users there are beside those of the backlog.
const users = 10

// TestBacklog measures how long it takes from a user's change of a Foo until its
// Deployment has changed, while nothing else happens, and while the controller works off
// the Foos that were created in its absence.
func TestBacklog(t *testing.T) {
	b := newBench(t)
	b.pauseOthers()
	observer := b.observe()
	asked := b.requests()
	controller := b.start()
	b.createFoos("user", users)
	b.settle(asked, users)

	changes := 0
	change := func() time.Duration {
		user, times := name("user", changes%users), 1+changes/users
		changes++
		began := time.Now()
		b.must(b.scaleFoo(b.Context(), user, 1+times%2))
		return observer.changed(user, times).Sub(began)
	}
	var idle, busy []time.Duration
	for range 100 {
		idle = append(idle, change())
	}
	controller.stop()

	b.createFoos("foo", b.objects)
	b.start()
	done := func() int { return len(observer.times("foo", 0)) }
	for done() == 0 {
		b.must(b.Context().Err())
		time.Sleep(time.Millisecond)
	}
	from := done()
	// Only what ends while there still is a backlog counts.
	for {
		took := change()
		if done() >= b.objects {
			break
		}
		busy = append(busy, took)
		// As a user, and not as a load of its own.
		time.Sleep(20 * time.Millisecond)
	}
	if len(busy) < 20 {
		b.Fatalf("the backlog was too short for a measurement: %d changes from %d Foos on", len(busy), from)
	}
	idle, busy = sorted(idle), sorted(busy)
	b.report("fresh change under a backlog", quantile(busy, 0.5).Seconds()/quantile(idle, 0.5).Seconds(), map[string]float64{
		"ms idle": quantile(idle, 0.5).Seconds() * 1e3, "ms busy": quantile(busy, 0.5).Seconds() * 1e3,
		"p99 ms idle": quantile(idle, 0.99).Seconds() * 1e3, "p99 ms busy": quantile(busy, 0.99).Seconds() * 1e3,
		"changes": float64(len(busy)),
	})
}
