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
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRequests counts the requests that a Foo costs the API server: until it is ready, when
// it is scaled, while nothing changes, and at a restart of the controller.
func TestRequests(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	e.simulateDeploymentController()
	foos := e.observeFoos()
	controller := e.start("--resync-period=1s")

	before := e.requests()
	e.createFoos("foo", e.objects)
	foos.awaitAll("foo", e.objects, 1)
	e.awaitNoWrites()
	e.recordRequests("create", e.since(before))

	before = e.requests()
	e.scaleFoos("foo", 2)
	foos.awaitAll("foo", e.objects, 2)
	e.awaitNoWrites()
	sent := e.since(before)
	sent["PATCH foos"] -= float64(e.objects)
	e.recordRequests("scale", sent)

	before = e.requests()
	syncs := controller.syncs()
	e.waitForCount("resyncs", 10*e.objects, func() int { return controller.syncs() - syncs })
	e.record("steady state", e.since(before).writes(), nil)

	controller.stop()
	before = e.requests()
	controller = e.start()
	e.waitForCount("syncs", e.objects, controller.syncs)
	e.awaitNoWrites()
	e.record("restart", e.since(before).writes(), nil)
	// The API server counts a list by watch as a watch, and only once it has ended.
	controller.stop()
	sent = e.since(before)
	lists := 0.0
	for _, resource := range []string{"foos", "deployments"} {
		lists = max(lists, sent.sum(resource, "LIST", "WATCH", "WATCHLIST"))
	}
	e.record("restart lists", lists, sent)
}

// recordRequests records the requests per Foo of a step.
func (e *env) recordRequests(step string, sent requests) {
	e.Helper()
	perFoo := func(count float64) float64 { return count / float64(e.objects) }
	e.record(step+": Deployment writes", perFoo(sent.sum("deployments", writeVerbs...)), sent)
	e.record(step+": status writes", perFoo(sent.statusWrites()), nil)
	if step == "create" {
		e.record(step+": events", perFoo(sent.sum("events", writeVerbs...)), nil)
	}
	e.record(step+": reads", perFoo(sent.sum("foos", "GET", "LIST")+sent.sum("deployments", "GET", "LIST")), nil)
}

// TestProgress measures the seconds until the status of a Foo whose Deployment does not become
// available says so, while the controller has nothing else to do. It records the longest time.
func TestProgress(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	foos := e.observeFoos()
	e.start()
	e.createFoos("first", 1)
	foos.awaitReport(name("first", 0))
	var longest time.Duration
	for i := range e.objects {
		prefix := fmt.Sprintf("alone-%d", i)
		start := time.Now()
		e.createFoos(prefix, 1)
		longest = max(longest, foos.awaitReport(name(prefix, 0)).Sub(start))
	}
	e.record("progress of one Foo", longest.Seconds(), nil)
}

// simulateDeploymentController makes every owned Deployment available as soon as the watch
// delivers its spec.
func (e *env) simulateDeploymentController() {
	e.Helper()
	outdated := make(chan *appsv1.Deployment, 10*e.objects)
	e.watchDeployments(func(deployment *appsv1.Deployment) {
		if deployment.Status.ObservedGeneration < deployment.Generation && metav1.GetControllerOf(deployment) != nil {
			outdated <- deployment
		}
	})
	for range creators {
		go func() {
			for {
				select {
				case deployment := <-outdated:
					if _, err := e.makeAvailable(e.Context(), deployment, *deployment.Spec.Replicas); err != nil && e.Context().Err() == nil {
						e.Errorf("updating the status of Deployment %s: %v", deployment.Name, err)
					}
				case <-e.Context().Done():
					return
				}
			}
		}()
	}
}

// awaitNoWrites waits until the API server has received no write for two seconds. Events
// are the last: the controller sends 20 per second.
func (e *env) awaitNoWrites() {
	e.Helper()
	last, unchanged := -1.0, 0
	e.eventually(func(context.Context) error {
		now := e.requests().writes()
		if now != last {
			last, unchanged = now, 0
			return errors.New("the API server still receives writes")
		}
		if unchanged++; unchanged < 20 {
			return errors.New("the API server received writes within the last two seconds")
		}
		return nil
	})
}
