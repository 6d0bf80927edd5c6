//go:build faults

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

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// What there must be on a stage once users and outages have come to an end.

// look returns nil if there is what the users want and nothing else.
func (s *stage) look(ctx context.Context, wishes map[string]wish) error {
	fooList, err := shared.foos.SamplecontrollerV1alpha1().Foos(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deploymentList, err := shared.kube.AppsV1().Deployments(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	owned := map[types.UID][]*appsv1.Deployment{}
	var wrong []string
	for i := range deploymentList.Items {
		deployment := &deploymentList.Items[i]
		if ref := controllerOf(deployment); ref != nil {
			owned[ref.UID] = append(owned[ref.UID], deployment)
		} else {
			wrong = append(wrong, "nobody owns Deployment "+deployment.Name)
		}
	}
	missing := len(wishes)
	for i := range fooList.Items {
		foo := &fooList.Items[i]
		if isMarker(foo.Name) {
			delete(owned, foo.UID)
			continue
		}
		want, ok := wishes[foo.Name]
		if !ok || !want.is(foo) {
			wrong = append(wrong, fmt.Sprintf("Foo %s is not what its user wants: %+v", foo.Name, foo.Spec))
			continue
		}
		missing--
		if mine := owned[foo.UID]; !isReady(foo) || len(mine) != 1 || mine[0].Name != want.deployment || !conforms(mine[0], foo) || !rolledOut(mine[0]) {
			wrong = append(wrong, fmt.Sprintf("Foo %s (%s) has %d Deployments, status %+v", foo.Name, want.deployment, len(mine), foo.Status))
		}
		delete(owned, foo.UID)
	}
	for uid := range owned {
		wrong = append(wrong, fmt.Sprintf("Deployment %s belongs to a Foo that is gone", owned[uid][0].Name))
	}
	if missing > 0 {
		wrong = append(wrong, fmt.Sprintf("%d Foos are missing", missing))
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%d things are wrong:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), 10)], "\n"))
}

// staysQuiet checks that nothing is left to write: it wakes the controller for
// every Foo, and again where the cluster itself was not at rest yet.
func (s *stage) staysQuiet(wishes map[string]wish) {
	s.t.Helper()
	for range quietRounds {
		since, before := time.Now(), s.versions()
		for name := range wishes {
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, touchedLabel, shared.unique("touch"))
			s.poll("Foo "+name+" is touched", func(ctx context.Context) error {
				_, err := shared.foos.SamplecontrollerV1alpha1().Foos(s.namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				return err
			})
		}
		s.mark()
		late := slices.DeleteFunc(slices.Concat(s.records()...), func(r request) bool {
			return isMarker(r.name) || !r.isWrite() || r.begun.Before(since)
		})
		if len(late) == 0 {
			s.poll("all wishes are fulfilled still", func(ctx context.Context) error { return s.look(ctx, wishes) })
			return
		}
		if s.versions() == before {
			s.lateWrites += len(late)
			for i := range late {
				s.t.Errorf("L1: %s was sent although nothing was left to do", &late[i])
			}
			return
		}
	}
	s.t.Errorf("L1: the Deployments still change after %d looks", quietRounds)
}

// versions names the versions of all Deployments but the markers'.
func (s *stage) versions() string {
	s.t.Helper()
	var all []string
	s.poll("a look at the Deployments", func(ctx context.Context) error {
		list, err := shared.kube.AppsV1().Deployments(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		all = nil
		for i := range list.Items {
			if !isMarker(list.Items[i].Name) {
				all = append(all, list.Items[i].Name+" "+list.Items[i].ResourceVersion)
			}
		}
		return nil
	})
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// mark makes another Foo, which the controller gets to after all others, and waits
// until it is ready.
func (s *stage) mark() {
	s.t.Helper()
	name := shared.unique(markerPrefix + "x")
	s.poll("marker "+name+" is ready", func(ctx context.Context) error {
		client := shared.foos.SamplecontrollerV1alpha1().Foos(s.namespace)
		marker, err := client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			marker, err = client.Create(ctx, &v1alpha1.Foo{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       v1alpha1.FooSpec{DeploymentName: name, Replicas: ptr.To[int32](0)},
			}, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
		if !isReady(marker) {
			return fmt.Errorf("its status: %+v", marker.Status)
		}
		return nil
	})
}

// replaceForgottenPods deletes the Pods that do not start: a simulated kubelet
// forgets a Pod whose update failed in an outage, which no real one does.
func (s *stage) replaceForgottenPods(ctx context.Context) error {
	pods, err := shared.kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName == "" || time.Since(pod.CreationTimestamp.Time) < forgotten {
			continue
		}
		if err := shared.kube.CoreV1().Pods(s.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			return err
		}
	}
	return nil
}
