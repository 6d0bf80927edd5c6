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
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMemory measures what the controller keeps: of twice as many foreign Deployments as
// there are Foos with a Deployment of their own, of these, and of three quarters as many
// Foos that wait for the name of a foreign one.
func TestMemory(t *testing.T) {
	b := newBench(t)
	b.pauseOthers()
	// What it is for: less memory for more work of the collector.
	b.gogc = "5"
	controller := b.start()
	foreign, blocked := 2*b.objects, b.objects*3/4

	// Once one Foo is served, all is in use that is needed once.
	b.serveOne("first")
	empty := b.heap(controller)
	b.createDeployments("foreign", foreign)
	b.serveOne("second")
	withForeign := b.heap(controller)

	asked := b.requests()
	b.createFoos("foo", b.objects)
	b.settle(asked, b.objects)
	list, err := b.kube.AppsV1().Deployments(namespace).List(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
	b.must(err)
	asked = b.requests()
	b.inParallel(len(list.Items), creators, func(ctx context.Context, i int) error {
		if metav1.GetControllerOf(&list.Items[i]) == nil {
			return nil
		}
		_, err := b.makeAvailable(ctx, &list.Items[i], 1)
		return err
	})
	b.settle(asked, b.objects)
	withFoos := b.heap(controller)

	asked = b.requests()
	b.createFoosFor("blocked", "foreign", blocked)
	b.settle(asked, blocked)
	all := b.heap(controller)
	resident := controller.resident("VmRSS")
	peak := controller.resident("VmHWM")

	controller.stop()
	began := time.Now()
	controller = b.start()
	// It has nothing to do but to read.
	b.serveOne("third")
	restarted := time.Since(began)
	b.report("resident memory", resident/1e6, map[string]float64{
		"foreign Deployments": float64(foreign), "Foos that wait": float64(blocked), "live heap MB": all / 1e6, "s until a restarted one works": restarted.Seconds(), "peak MB": peak / 1e6, "anonymous MB of a restart": controller.resident("RssAnon") / 1e6, "MB of files of a restart": controller.resident("RssFile") / 1e6,
		"MB after a restart": controller.resident("VmRSS") / 1e6, "peak MB of a restart": controller.resident("VmHWM") / 1e6,
	})
	if !b.isPeer() {
		b.report("live heap of a foreign Deployment", (withForeign-empty)/float64(foreign)/1e3, map[string]float64{"live heap MB before": empty / 1e6})
		b.report("live heap of a Foo", (withFoos-withForeign)/float64(b.objects)/1e3, nil)
	}
}

// heap returns the live heap of the controller, 0 of a peer, who does not tell.
func (b *bench) heap(controller *process) float64 {
	b.Helper()
	if b.isPeer() {
		return 0
	}
	return controller.heap()
}

// serveOne returns once a new Foo is served, and with it the caches show all that was
// there before.
func (b *bench) serveOne(prefix string) {
	b.Helper()
	b.createFoos(prefix, 1)
	b.eventually(func(ctx context.Context) error {
		foo, err := b.foos.SamplecontrollerV1alpha1().Foos(namespace).Get(ctx, name(prefix, 0), metav1.GetOptions{})
		if err == nil && len(foo.Status.Conditions) == 0 {
			err = errors.New("it has no status")
		}
		return err
	})
}
