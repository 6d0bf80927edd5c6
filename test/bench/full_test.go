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
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

// TestFull measures how long it takes on a whole cluster until all of many Foos, created at
// once, are ready. Before and after that it is measured of as many bare Deployments of the
// shape that the controller makes.
func TestFull(t *testing.T) {
	b := newBench(t)
	floors := []float64{b.fullFloor("floor-0", nil)}

	foos := b.watchFoos()
	controller := b.start()
	b.serveOne("first")
	asked, worked, own := b.requests(), b.cpu(), b.cpuOf(controller.pid())
	began := time.Now()
	b.createFoos("foo", b.objects)
	created := time.Since(began)
	foos.settleReady(b.objects+1, 1)
	took := time.Since(began)
	spent := b.since(asked)
	details := b.cpuSince(worked)
	details["CPU s of the controller"] = b.cpuOf(controller.pid()) - own
	controller.stop()

	floors = append(floors, b.fullFloor("floor-1", nil))
	// What the API server takes for Foos even if nobody reconciles them.
	same := b.fullFloor("floor-2", func() { b.createReported("reported") })
	details["s"], details["s of Deployments before"], details["s of Deployments after"] = took.Seconds(), floors[0], floors[1]
	details["created s"] = created.Seconds()
	details["of a plain client with the same requests"] = same / mean(floors...)
	details["requests/Foo"] = spent.all() / float64(b.objects)
	details["status writes/Foo"] = spent.sum("foos/status", anyVerb...) / float64(b.objects)
	b.report("full cluster", took.Seconds()/mean(floors...), details)
}

// createReported creates Foos that ask for nothing, and writes the status of each twice, which
// is what a controller writes of one that is not ready within a second.
func (b *bench) createReported(prefix string) {
	b.Helper()
	foos := b.foos.SamplecontrollerV1alpha1().Foos(namespace)
	b.inParallel(b.objects, b.workers, func(ctx context.Context, i int) error {
		foo, err := foos.Create(ctx, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name(prefix, i)}}, metav1.CreateOptions{})
		for _, available := range []int32{0, 1} {
			if err != nil {
				return err
			}
			foo.Status = v1alpha1.FooStatus{ObservedGeneration: 1, AvailableReplicas: available, Replicas: 1, Selector: "app=nginx,controller=" + foo.Name}
			foo.Status.Conditions = []metav1.Condition{{
				Type: controller.Ready, Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: metav1.Now(),
				Reason: "DeploymentProgressing", Message: fmt.Sprintf("%d of 1 Pods are available", available),
			}}
			foo, err = foos.UpdateStatus(ctx, foo, metav1.UpdateOptions{FieldManager: controller.FieldManager})
		}
		return err
	})
}

// fullFloor returns how many seconds it takes until all bare Deployments are available,
// and what is done at the same time, if anything.
func (b *bench) fullFloor(prefix string, meanwhile func()) float64 {
	b.Helper()
	var mu sync.Mutex
	ready := map[string]bool{}
	see := func(deployment *appsv1.Deployment) {
		if deployment.Status.AvailableReplicas > 0 && strings.HasPrefix(deployment.Name, prefix) {
			mu.Lock()
			defer mu.Unlock()
			ready[deployment.Name] = true
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	factory := kubeinformers.NewSharedInformerFactory(b.kube, 0)
	_, err := factory.Apps().V1().Deployments().TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, deployment *appsv1.Deployment) { see(deployment) },
	})
	b.must(err)
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	settle := func(count int) {
		b.eventually(func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if len(ready) < count {
				return fmt.Errorf("%d of %d are available", len(ready), count)
			}
			return nil
		})
	}
	// The control plane has its first one behind it, as with Foos.
	b.createDeployments(prefix+"-first", 1)
	settle(1)

	asked, worked := b.requests(), b.cpu()
	began := time.Now()
	var others sync.WaitGroup
	if meanwhile != nil {
		others.Go(meanwhile)
	}
	b.createDeployments(prefix, b.objects)
	others.Wait()
	settle(b.objects + 1)
	took := time.Since(began).Seconds()
	b.Logf("%s: %.1f s, %.1f requests each, %v", prefix, took, b.since(asked).all()/float64(b.objects), b.cpuSince(worked))
	cancel()
	factory.Shutdown()
	return took
}
