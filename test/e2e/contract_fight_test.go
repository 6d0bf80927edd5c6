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
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Other writers that do not let go of what the controller enforces: rule 21.
// The bounds are the contract's: five repairs in a row, and then pauses of ten
// seconds, twenty, forty and so on.

const (
	// freeRepairs are those before it counts as a fight.
	freeRepairs = 5
	// firstPause is how long the controller then waits for the next.
	firstPause = 10 * time.Second
)

func instantRival(t *testing.T) {
	s := newScene(t, "")
	foo := s.create("x")
	s.ready("x")
	mark := s.mark()
	stop := s.rival("x", 2)
	mustContain(t, s.notReady("x", v1alpha1.ReasonDeploymentContested),
		`Deployment "x"`, "replicas (by rival through scale)", "scale or change the Foo instead")

	// The next repair comes, and the rival undoes it, but not for ten seconds.
	s.awaitRepairs(mark, "x", freeRepairs+1)
	stop()
	repairs := s.repairs(mark, "x")
	if pause := repairs[freeRepairs].at().Sub(repairs[freeRepairs-1].at()); pause < firstPause {
		t.Errorf("the controller let the rival alone for %s, want %s", pause, firstPause)
	}
	s.oneEvent(foo, v1alpha1.ReasonDeploymentContested)

	s.update("x", replicas(3))
	if foo := s.ready("x"); foo.Status.AvailableReplicas != 3 {
		t.Errorf("status %+v", foo.Status)
	}
}

func autoscalerOnDeployment(t *testing.T) {
	s := newScene(t, "")
	foo := s.create("x")
	s.ready("x")
	mark := s.mark()
	// It raises any number of replicas to its minimum, without metrics.
	s.createAutoscaler("on-deployment", autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"}, 3)
	mustContain(t, s.notReady("x", v1alpha1.ReasonDeploymentContested),
		"replicas (by kube-controller-manager through scale)", "stop that writer", "a HorizontalPodAutoscaler belongs on the Foo")
	if repairs := s.repairs(mark, "x"); len(repairs) > freeRepairs {
		t.Errorf("%d repairs, want %d at most", len(repairs), freeRepairs)
	}
	s.oneEvent(foo, v1alpha1.ReasonDeploymentContested)

	// What the message says works.
	s.kubectl("delete horizontalpodautoscaler on-deployment")
	s.createAutoscaler("on-foo", autoscalingv2.CrossVersionObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Foo", Name: "x"}, 3)
	s.eventually("the autoscaler scales the Foo", func(context.Context) error {
		if foo := s.foo("x"); ptr.Deref(foo.Spec.Replicas, 1) != 3 {
			return fmt.Errorf("spec %+v", foo.Spec)
		}
		return nil
	})
	if foo := s.ready("x"); foo.Status.AvailableReplicas != 3 {
		t.Errorf("status %+v", foo.Status)
	}
}

// createAutoscaler makes a HorizontalPodAutoscaler with that minimum.
func (s *scene) createAutoscaler(name string, target autoscalingv2.CrossVersionObjectReference, minimum int32) {
	s.Helper()
	_, err := shared.kube.AutoscalingV2().HorizontalPodAutoscalers(s.namespace).Create(s.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: target, MinReplicas: &minimum, MaxReplicas: minimum + 2},
	}, metav1.CreateOptions{})
	s.must(err)
}

// rival sets the Deployment's replicas at once, every time that they are not
// those, until it is stopped.
func (s *scene) rival(name string, replicas int32) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	events, err := s.deployments().Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: name}))
	s.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range events.ResultChan() {
			if err := s.setReplicas(ctx, name, replicas); err != nil && ctx.Err() == nil {
				s.Errorf("the rival: %v", err)
			}
		}
		if ctx.Err() == nil {
			s.Error("the rival's watch ended")
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// setReplicas scales the Deployment as a rival does.
func (s *scene) setReplicas(ctx context.Context, name string, replicas int32) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		scale, err := s.deployments().GetScale(ctx, name, metav1.GetOptions{})
		if err != nil || scale.Spec.Replicas == replicas {
			return err
		}
		scale.Spec.Replicas = replicas
		_, err = s.deployments().UpdateScale(ctx, name, scale, metav1.UpdateOptions{FieldManager: "rival"})
		return err
	})
}

// repairs returns the patches of the Deployment that the API server has accepted
// since the mark.
func (s *scene) repairs(since int, name string) []*request {
	s.Helper()
	var repairs []*request
	for _, r := range s.requests(since) {
		if r.String() == "patch deployments "+name && r.ResponseStatus.Code < http.StatusBadRequest {
			repairs = append(repairs, r)
		}
	}
	return repairs
}

// awaitRepairs waits until there are as many.
func (s *scene) awaitRepairs(since int, name string, count int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d repairs", count), func(context.Context) error {
		if len(s.repairs(since, name)) < count {
			return errors.New("there are less")
		}
		return nil
	})
}
