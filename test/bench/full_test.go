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
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

// TestFull measures on a complete cluster how long it takes until Foos, created at once, are
// all ready. A plain client creates as many Deployments of the same shape before and after.
func TestFull(t *testing.T) {
	e := newEnv(t)
	plain := []float64{e.plainFull("plain-0", nil)}

	foos := e.observeFoos()
	controller := e.start()
	e.syncOneFoo("first")
	before, cpu, controllerCPU := e.requests(), e.cpu(), e.cpuOf(controller.pid())
	start := time.Now()
	e.createFoos("foo", e.objects)
	created := time.Since(start)
	foos.awaitAll(e.objects+1, 1)
	ready := time.Since(start)
	sent := e.since(before)
	details := e.cpuSince(cpu)
	details["CPU s of the controller"] = e.cpuOf(controller.pid()) - controllerCPU
	controller.stop()

	plain = append(plain, e.plainFull("plain-1", nil))
	// The cost of the Foos' own requests, without a controller.
	sameRequests := e.plainFull("plain-2", func() { e.createFoosWithStatus("static") })
	details["s"], details["s of Deployments before"], details["s of Deployments after"] = ready.Seconds(), plain[0], plain[1]
	details["created s"] = created.Seconds()
	details["of a plain client with the same requests"] = sameRequests / mean(plain...)
	details["requests/Foo"] = sent.all() / float64(e.objects)
	details["status writes/Foo"] = sent.statusWrites() / float64(e.objects)
	e.record("full cluster", ready.Seconds()/mean(plain...), details)
}

// createFoosWithStatus creates Foos without a Deployment name and writes the status of each
// twice, as the controller does for a Foo that is not ready within a second.
func (e *env) createFoosWithStatus(prefix string) {
	e.Helper()
	e.inParallel(e.objects, e.workers, func(ctx context.Context, i int) error {
		foo, err := e.fooClient().Create(ctx, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name(prefix, i)}}, metav1.CreateOptions{})
		for _, available := range []int32{0, 1} {
			if err != nil {
				return err
			}
			foo.Status = v1alpha1.FooStatus{ObservedGeneration: 1, AvailableReplicas: available, Replicas: 1, Selector: "app=nginx,controller=" + foo.Name}
			foo.Status.Conditions = []metav1.Condition{{
				Type: controller.Ready, Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: metav1.Now(),
				Reason: "DeploymentProgressing", Message: fmt.Sprintf("%d of 1 Pods are available", available),
			}}
			foo, err = e.fooClient().UpdateStatus(ctx, foo, metav1.UpdateOptions{FieldManager: controller.FieldManager})
		}
		return err
	})
}

// plainFull returns the seconds until all Deployments of a plain client are available and
// background, which runs at the same time if not nil, has returned.
func (e *env) plainFull(prefix string, background func()) float64 {
	e.Helper()
	var mu sync.Mutex
	available := map[string]bool{}
	stop := e.watchDeployments(func(deployment *appsv1.Deployment) {
		if deployment.Status.AvailableReplicas > 0 && strings.HasPrefix(deployment.Name, prefix) {
			mu.Lock()
			defer mu.Unlock()
			available[deployment.Name] = true
		}
	})
	defer stop()
	awaitAvailable := func(count int) {
		e.waitForCount("Deployments are available", count, func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(available)
		})
	}
	// One Deployment first, as before the Foos, excludes what the control plane does only once.
	e.createDeployments(prefix+"-first", 1)
	awaitAvailable(1)

	before, cpu := e.requests(), e.cpu()
	start := time.Now()
	var running sync.WaitGroup
	if background != nil {
		running.Go(background)
	}
	e.createDeployments(prefix, e.objects)
	running.Wait()
	awaitAvailable(e.objects + 1)
	seconds := time.Since(start).Seconds()
	e.Logf("%s: %.1f s, %.1f requests each, %v", prefix, seconds, e.since(before).all()/float64(e.objects), e.cpuSince(cpu))
	return seconds
}
