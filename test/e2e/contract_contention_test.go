//go:build e2e

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

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Rule 21: writers that undo the controller's repairs. The contract allows five repairs of a
// field in ten minutes, and then pauses of ten seconds, twenty, forty and so on.

const (
	// maxRepairs is the number of repairs before the controller reports contention.
	maxRepairs = 5
	// firstPause is the time from the last of these repairs to the next one.
	firstPause = 10 * time.Second

	repair = "patch deployments x"
)

func contendingWriter(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("x")
	e.awaitReady("x")
	mark := e.mark()
	stop := e.startContender("x", 2)
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentContested),
		`Deployment "x"`, "replicas (by contender through scale)", "scale or change the Foo instead")

	e.awaitWrites(mark, repair, maxRepairs+1)
	stop()
	repairs := e.accepted(mark, repair)
	if pause := repairs[maxRepairs].at().Sub(repairs[maxRepairs-1].at()); pause < firstPause {
		t.Errorf("the controller paused for %s, want %s", pause, firstPause)
	}
	e.awaitOneEvent(foo, v1alpha1.ReasonDeploymentContested)

	e.update("x", replicas(3))
	if foo := e.awaitReady("x"); foo.Status.AvailableReplicas != 3 {
		t.Errorf("status %+v", foo.Status)
	}
}

func autoscalerOnDeployment(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("x")
	e.awaitReady("x")
	mark := e.mark()
	// Without metrics the autoscaler raises the replicas to its minimum.
	e.createAutoscaler("on-deployment", autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"}, 3)
	e.awaitDriftsOfAutoscaler(mark)
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentContested),
		"replicas (by kube-controller-manager through scale)", "stop that writer", "a HorizontalPodAutoscaler belongs on the Foo")
	// The first pause ends before the autoscaler acts again.
	if repairs := e.accepted(mark, repair); len(repairs) > maxRepairs+1 {
		t.Errorf("%d repairs, want %d at most", len(repairs), maxRepairs+1)
	}
	e.awaitOneEvent(foo, v1alpha1.ReasonDeploymentContested)

	// The remedy in the message works.
	e.kubectl("delete horizontalpodautoscaler on-deployment")
	e.createAutoscaler("on-foo", autoscalingv2.CrossVersionObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Foo", Name: "x"}, 3)
	e.eventually("the autoscaler scales the Foo", func(context.Context) error {
		if foo := e.foo("x"); ptr.Deref(foo.Spec.Replicas, 1) != 3 {
			return fmt.Errorf("spec %+v", foo.Spec)
		}
		return nil
	})
	if foo := e.awaitReady("x"); foo.Status.AvailableReplicas != 3 {
		t.Errorf("status %+v", foo.Status)
	}
}

func deletingClient(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("x")
	e.awaitReady("x")
	mark := e.mark()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	events, err := e.deployments().Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: "x"}))
	e.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			if event.Type == watch.Added {
				_ = e.deployments().Delete(ctx, "x", metav1.DeleteOptions{})
			}
		}
	}()
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentContested), `another client keeps changing or deleting Deployment "x"`)
	const creation = "create deployments x"
	e.awaitWrites(mark, creation, maxRepairs+1)
	cancel()
	<-done
	creations := e.accepted(mark, creation)
	if pause := creations[maxRepairs].at().Sub(creations[maxRepairs-1].at()); pause < firstPause {
		t.Errorf("the controller paused for %s, want %s", pause, firstPause)
	}
	e.awaitOneEvent(foo, v1alpha1.ReasonDeploymentContested)
	e.update("x", replicas(2))
	e.awaitReady("x")
}

// awaitDriftsOfAutoscaler waits for the repairs before the contention. An autoscaler acts every
// 15 seconds, so that six drifts take longer than one wait may.
func (e *env) awaitDriftsOfAutoscaler(since int) {
	e.Helper()
	e.awaitWrites(since, repair, maxRepairs/2)
	e.awaitWrites(since, repair, maxRepairs)
}

// awaitWrites waits until the API server has accepted that many such requests.
func (e *env) awaitWrites(since int, write string, count int) {
	e.Helper()
	e.eventually(fmt.Sprintf("%d of %s", count, write), func(context.Context) error {
		if got := len(e.accepted(since, write)); got < count {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}

// createAutoscaler creates a HorizontalPodAutoscaler with that minimum.
func (e *env) createAutoscaler(name string, target autoscalingv2.CrossVersionObjectReference, minimum int32) {
	e.Helper()
	createObject(e, shared.kube.AutoscalingV2().HorizontalPodAutoscalers(e.namespace), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: target, MinReplicas: &minimum, MaxReplicas: minimum + 2},
	})
}

// startContender starts a writer that sets the Deployment's replicas whenever they differ,
// until it is stopped.
func (e *env) startContender(name string, replicas int32) (stop func()) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	e.Cleanup(cancel)
	events, err := e.deployments().Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: name}))
	e.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range events.ResultChan() {
			if err := e.setReplicas(ctx, name, replicas); err != nil && ctx.Err() == nil {
				e.Errorf("the contender: %v", err)
			}
		}
		if ctx.Err() == nil {
			e.Error("the contender's watch ended")
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// setReplicas scales the Deployment as the field manager "contender".
func (e *env) setReplicas(ctx context.Context, name string, replicas int32) error {
	return retry.RetryOnConflict(conflictBackoff(), func() error {
		scale, err := e.deployments().GetScale(ctx, name, metav1.GetOptions{})
		if err != nil || scale.Spec.Replicas == replicas {
			return err
		}
		scale.Spec.Replicas = replicas
		_, err = e.deployments().UpdateScale(ctx, name, scale, metav1.UpdateOptions{FieldManager: "contender"})
		return err
	})
}
