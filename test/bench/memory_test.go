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
	"fmt"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// restTime is how long the controller rests while its garbage collections are measured.
const restTime = time.Minute

// TestMemory measures the controller's memory, with the limit of the manifests, for three
// groups of objects: Foos with their own Deployments, twice as many Deployments that no Foo
// owns, and three quarters as many Foos whose Deployment name is taken by one of those.
func TestMemory(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	e.simulateDeploymentController()
	foos := e.observeFoos()
	foreign, blocked := 2*e.objects, e.objects*3/4
	controller := e.startLimited()

	// The first Foo makes the controller allocate what it needs once.
	e.createFoos("first", 1)
	foos.awaitAll("first", 1, 1)
	empty := controller.liveHeap()
	e.createDeployments("foreign", foreign)
	// By the time of a Foo's status, the caches show all that was created before the Foo.
	e.createFoos("second", 1)
	foos.awaitAll("second", 1, 1)
	withForeign := controller.liveHeap()
	e.createFoos("foo", e.objects)
	foos.awaitAll("foo", e.objects, 1)
	withFoos := controller.liveHeap()
	e.record("live heap of a foreign Deployment", (withForeign-empty)/float64(foreign)/1e3, map[string]float64{"live heap MB before": empty / 1e6})
	e.record("live heap of a Foo", (withFoos-withForeign)/float64(e.objects)/1e3, nil)

	e.createFoosFor("blocked", "foreign", blocked)
	for i := range blocked {
		foos.awaitReport(name("blocked", i))
	}
	peak := controller.memory("VmHWM")
	controller.stop()
	e.restartMemory(peak, e.objects+blocked+2)
}

// restartMemory records the memory of a controller that starts with all objects. peak is that
// of the previous one, in which the measurement of the live heap has forced garbage
// collections: they make room that a controller without them would not have.
func (e *env) restartMemory(peak float64, foos int) {
	e.Helper()
	start := time.Now()
	controller := e.startLimited()
	e.waitForCount("syncs", foos, controller.syncs)
	restart := time.Since(start)
	e.awaitNoWrites()
	collections := controller.metric("go_cpu_classes_gc_total_cpu_seconds_total")
	start = time.Now()
	<-time.After(restTime)
	collections = controller.metric("go_cpu_classes_gc_total_cpu_seconds_total") - collections
	e.record("garbage collection at rest", collections/time.Since(start).Seconds(), nil)

	const mebi = 1 << 20
	restartPeak := controller.memory("VmHWM")
	e.record("peak resident memory", max(peak, restartPeak)/mebi, map[string]float64{
		"MiB without a restart": peak / mebi, "MiB of a restart": restartPeak / mebi,
		"MiB at rest":                 controller.memory("VmRSS") / mebi,
		"anonymous MiB at rest":       controller.memory("RssAnon") / mebi,
		"MiB of files at rest":        controller.memory("RssFile") / mebi,
		"s until all Foos are synced": restart.Seconds(),
	})
	e.record("live heap", controller.liveHeap()/1e6, nil)
}

// TestSizing measures what an operator plans for: the memory of a controller of all kinds, with
// one Foo and with many. TestFull measures the CPU time that a new one takes.
func TestSizing(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	e.simulateDeploymentController()
	foos := e.observeFoos()
	controller := e.start("--controllers=*")
	e.createFoos("first", 1)
	foos.awaitAll("first", 1, 1)
	controller.liveHeap()
	one := controller.memory("VmRSS")
	e.createFoos("foo", e.objects)
	foos.awaitAll("foo", e.objects, 1)
	e.awaitNoWrites()
	controller.liveHeap()
	e.record("sizing: resident memory", controller.memory("VmRSS")/(1<<20), map[string]float64{"MiB with one Foo": one / (1 << 20)})
}

// startLimited starts the controller with the memory limit that it has in the manifests' Pod:
// Go's is 90 % of the container's.
func (e *env) startLimited() *process {
	e.Helper()
	text, err := os.ReadFile("../../artifacts/deploy/controller/deployment.yaml")
	e.must(err)
	var deployment appsv1.Deployment
	e.must(yaml.Unmarshal(text, &deployment))
	limit := deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	return e.startWith([]string{fmt.Sprintf("GOMEMLIMIT=%d", limit/10*9)})
}
