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
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// users is how many Foos of users there are beside those of the backlog.
const users = 10

// userPace is how far apart their changes are at least.
const userPace = 40 * time.Millisecond

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
	var idle []time.Duration
	for range 100 {
		idle = append(idle, change())
	}
	controller.stop()

	b.createFoos("foo", b.objects)
	controller = b.start()
	done := func() int { return observer.count("foo", 0) }
	for done() == 0 {
		b.must(b.Context().Err())
		time.Sleep(time.Millisecond)
	}
	from := done()
	busy := changesUntil(change, func() bool { return done() >= b.objects })
	if len(busy) < 20 {
		b.Fatalf("the backlog was too short for a measurement: %d changes from %d Foos on", len(busy), from)
	}
	b.eventually(func(context.Context) error {
		if got := done(); got < b.objects {
			return fmt.Errorf("%d of %d Foos have their Deployments", got, b.objects)
		}
		return nil
	})
	controller.stop()
	idle, busy = sorted(idle), sorted(busy)
	b.report("fresh change under a backlog", quantile(busy, 0.5).Seconds()/quantile(idle, 0.5).Seconds(), map[string]float64{
		"ms idle": quantile(idle, 0.5).Seconds() * 1e3, "ms busy": quantile(busy, 0.5).Seconds() * 1e3,
		"p99 ms idle": quantile(idle, 0.99).Seconds() * 1e3, "p99 ms busy": quantile(busy, 0.99).Seconds() * 1e3,
		"changes": float64(len(busy)), "of a plain client": b.plainBacklog(observer),
	})
}

// changesUntil makes one change after the other, as a user and not as a load of its own,
// and returns how long each took that ended before it was over.
func changesUntil(change func() time.Duration, over func() bool) []time.Duration {
	pace := time.NewTicker(userPace)
	defer pace.Stop()
	var all []time.Duration
	for range pace.C {
		took := change()
		if over() {
			break
		}
		all = append(all, took)
	}
	return all
}

// plainBacklog returns the same of a plain client, which writes what the user and the
// controller write, one after the other, while another one creates Deployments with as many
// requests at a time as the controller has workers.
func (b *bench) plainBacklog(observer *observer) float64 {
	b.Helper()
	b.createFoosFor("plain", "nothing", 1)
	b.createDeployments("plain", 1)
	changes := 0
	change := func() time.Duration {
		changes++
		began := time.Now()
		replicas := 1 + changes%2
		b.must(b.scaleFoo(b.Context(), name("plain", 0), replicas))
		_, err := b.kube.AppsV1().Deployments(namespace).Patch(b.Context(), name("plain", 0), types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
		b.must(err)
		return observer.changed(name("plain", 0), changes).Sub(began)
	}
	var idle []time.Duration
	for range 100 {
		idle = append(idle, change())
	}
	var load sync.WaitGroup
	load.Go(func() { b.createOwned("load", b.objects, b.workers) })
	busy := changesUntil(change, func() bool { return b.Failed() || observer.count("load", 0) >= b.objects/2 })
	load.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return quantile(sorted(busy), 0.5).Seconds() / quantile(sorted(idle), 0.5).Seconds()
}
