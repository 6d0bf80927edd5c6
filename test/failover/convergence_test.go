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

package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
)

// What an env must look like once users have finished and components run again.

// markerPrefix begins the names of markers.
const markerPrefix = "marker-"

func isMarker(name string) bool { return strings.HasPrefix(name, markerPrefix) }

// quietRounds bounds how often checkNoMoreWrites tries.
const quietRounds = 20

// checkConverged returns nil if the namespace has the Foos and Deployments that the users
// want, all ready, and no others.
func (e *env) checkConverged(ctx context.Context, desired map[string]desiredFoo) error {
	fooList, err := e.foos.SamplecontrollerV1alpha1().Foos(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deploymentList, err := e.kube.AppsV1().Deployments(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	owned := map[types.UID][]*appsv1.Deployment{}
	var found violations
	for i := range deploymentList.Items {
		deployment := &deploymentList.Items[i]
		if ref := sim.Owner(deployment); ref != nil {
			owned[ref.UID] = append(owned[ref.UID], deployment)
		} else {
			found.add("no Foo controls Deployment %s", deployment.Name)
		}
	}
	missing := len(desired)
	for i := range fooList.Items {
		foo := &fooList.Items[i]
		if isMarker(foo.Name) {
			delete(owned, foo.UID)
			continue
		}
		want, ok := desired[foo.Name]
		if !ok || !want.matches(foo) {
			found.add("Foo %s does not have the spec that its user wants: %+v", foo.Name, foo.Spec)
			continue
		}
		missing--
		if controlled := owned[foo.UID]; !isFooReady(foo) || namesFormer(foo) || len(controlled) != 1 || controlled[0].Name != want.deployment || !sim.Conforms(controlled[0], &foo.Spec) || !sim.RolledOut(controlled[0]) {
			found.add("Foo %s (%s) has %d Deployments, status %+v", foo.Name, want.deployment, len(controlled), foo.Status)
		}
		delete(owned, foo.UID)
	}
	for uid := range owned {
		found.add("the Foo of Deployment %s does not exist", owned[uid][0].Name)
	}
	if missing > 0 {
		found.add("%d Foos are missing", missing)
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%d violations:\n%s", len(found), strings.Join(found[:min(len(found), 10)], "\n"))
}

// namesFormer reports whether the message of Ready names former Deployments. The controller deletes at most
// two in a sync, and then reports which are left.
func namesFormer(foo *v1alpha1.Foo) bool {
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
	return ready != nil && strings.Contains(ready.Message, "former Deployment")
}

// checkNoMoreWrites checks liveness L1: the controller has nothing left to write. It
// enqueues every Foo, and repeats that while other controllers still change Deployments.
func (e *env) checkNoMoreWrites(desired map[string]desiredFoo) {
	e.t.Helper()
	client := e.foos.SamplecontrollerV1alpha1().Foos(e.namespace)
	for range quietRounds {
		since, before := time.Now(), e.deploymentVersions()
		for name := range desired {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"example.com/touched":%q}}}`, e.uniqueName("touch"))
			e.poll("Foo "+name+" is labeled", func(ctx context.Context) error {
				_, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			})
		}
		e.awaitMarker()
		late := slices.DeleteFunc(slices.Concat(e.requestRecords()...), func(r request) bool {
			return isMarker(r.name) || !r.isWrite() || r.received.Before(since)
		})
		if len(late) == 0 {
			e.poll("the cluster stays converged", func(ctx context.Context) error { return e.checkConverged(ctx, desired) })
			return
		}
		if e.deploymentVersions() == before {
			e.lateWrites += len(late)
			for i := range late {
				e.t.Errorf("L1: %s was sent although there was nothing to do", &late[i])
			}
			return
		}
	}
	e.t.Errorf("L1: Deployments still change after %d rounds", quietRounds)
}

// deploymentVersions lists names and resource versions of all Deployments but markers'.
func (e *env) deploymentVersions() string {
	e.t.Helper()
	var all []string
	e.poll("the Deployments are listed", func(ctx context.Context) error {
		list, err := e.kube.AppsV1().Deployments(e.namespace).List(ctx, metav1.ListOptions{})
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

// awaitMarker creates a marker Foo, whose key is queued behind all others, and waits
// until it is ready.
func (e *env) awaitMarker() {
	e.t.Helper()
	name := e.uniqueName(markerPrefix + "x")
	e.poll("marker "+name+" is ready", func(ctx context.Context) error {
		client := e.foos.SamplecontrollerV1alpha1().Foos(e.namespace)
		marker, err := client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			marker, err = client.Create(ctx, markerFoo(name), metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
		if !isFooReady(marker) {
			return fmt.Errorf("the status is %+v", marker.Status)
		}
		return nil
	})
}

// deleteStuckPods deletes the Pods that do not start. kwok forgets a Pod if its update
// fails during an outage; a kubelet retries.
func (e *env) deleteStuckPods(ctx context.Context) error {
	pods, err := e.kube.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName == "" || time.Since(pod.CreationTimestamp.Time) < stuckAfter {
			continue
		}
		if err := e.kube.CoreV1().Pods(e.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			return err
		}
	}
	return nil
}

// deleteOrphans deletes the Deployments of Foos that no longer exist. The garbage collector
// of Kubernetes 1.37 never does if the controller created one after awaitGarbageCollector
// and the collector missed the deletion of the Foo.
func (e *env) deleteOrphans(ctx context.Context) error {
	// The Deployments come first, so that each has a Foo in the later list if it has one at all.
	deploymentList, err := e.kube.AppsV1().Deployments(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	fooList, err := e.foos.SamplecontrollerV1alpha1().Foos(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, orphan := range orphans(deploymentList.Items, fooList.Items) {
		e.t.Logf("Deleting Deployment %s, which the garbage collector left: %+v", orphan.Name, orphan.OwnerReferences)
		if err := e.kube.AppsV1().Deployments(e.namespace).Delete(ctx, orphan.Name, *metav1.NewPreconditionDeleteOptions(string(orphan.UID))); err != nil {
			return err
		}
	}
	return nil
}

// orphans returns the Deployments whose controller is a Foo that does not exist.
func orphans(deploymentList []appsv1.Deployment, fooList []v1alpha1.Foo) []appsv1.Deployment {
	return slices.DeleteFunc(slices.Clone(deploymentList), func(deployment appsv1.Deployment) bool {
		ref := sim.Owner(&deployment)
		return ref == nil || slices.ContainsFunc(fooList, func(foo v1alpha1.Foo) bool { return foo.UID == ref.UID })
	})
}

// TestOrphans tests that the test deletes no Deployment that the controller must handle.
func TestOrphans(t *testing.T) {
	found := orphans([]appsv1.Deployment{
		*newDeployment("of the Foo", "1", 1), *newDeployment("of the earlier Foo of the same name", "2", 1), *newDeployment("without a Foo", "", 1),
	}, []v1alpha1.Foo{*newFoo("1", 1, "a")})
	if len(found) != 1 || found[0].Name != "of the earlier Foo of the same name" {
		t.Errorf("orphans: %+v", found)
	}
}
