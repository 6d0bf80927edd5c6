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
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMemory measures the controller's memory with three groups of objects: Foos with their
// own Deployments, twice as many Deployments that no Foo owns, and three quarters as many
// Foos whose Deployment name is taken by one of those.
func TestMemory(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	// A low GOGC trades CPU for memory.
	e.gogc = "5"
	controller := e.start()
	foreign, blocked := 2*e.objects, e.objects*3/4

	// The first Foo makes the controller allocate what it needs once.
	e.syncOneFoo("first")
	empty := controller.liveHeap()
	e.createDeployments("foreign", foreign)
	e.syncOneFoo("second")
	withForeign := controller.liveHeap()

	e.createAvailableFoos("foo")
	withFoos := controller.liveHeap()

	before := e.requests()
	e.createFoosFor("blocked", "foreign", blocked)
	e.awaitStatuses(before, blocked)
	all := controller.liveHeap()
	resident, peak := controller.memory("VmRSS"), controller.memory("VmHWM")

	controller.stop()
	start := time.Now()
	controller = e.start()
	e.syncOneFoo("third")
	restart := time.Since(start)
	e.record("resident memory", resident/1e6, map[string]float64{
		"foreign Deployments": float64(foreign), "Foos that wait": float64(blocked),
		"live heap MB": all / 1e6, "peak MB": peak / 1e6,
		"s until a restarted one works": restart.Seconds(),
		"MB after a restart":            controller.memory("VmRSS") / 1e6,
		"peak MB of a restart":          controller.memory("VmHWM") / 1e6,
		"anonymous MB of a restart":     controller.memory("RssAnon") / 1e6,
		"MB of files of a restart":      controller.memory("RssFile") / 1e6,
	})
	if !e.isPeer() {
		e.record("live heap of a foreign Deployment", (withForeign-empty)/float64(foreign)/1e3, map[string]float64{"live heap MB before": empty / 1e6})
		e.record("live heap of a Foo", (withFoos-withForeign)/float64(e.objects)/1e3, nil)
	}
}

// createAvailableFoos creates Foos, makes all owned Deployments available and waits until
// the controller has updated the Foos' status.
func (e *env) createAvailableFoos(prefix string) {
	e.Helper()
	before := e.requests()
	e.createFoos(prefix, e.objects)
	e.awaitStatuses(before, e.objects)
	list, err := e.deploymentClient().List(e.Context(), metav1.ListOptions{ResourceVersion: "0"})
	e.must(err)
	before = e.requests()
	e.inParallel(len(list.Items), creators, func(ctx context.Context, i int) error {
		if metav1.GetControllerOf(&list.Items[i]) == nil {
			return nil
		}
		_, err := e.makeAvailable(ctx, &list.Items[i], 1)
		return err
	})
	e.awaitStatuses(before, e.objects)
}
