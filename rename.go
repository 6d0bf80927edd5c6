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

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
)

// What a changed spec.deploymentName leaves behind: the Deployments of former
// names. They go once the new one stands, or at once where two or more Foos wait
// in a circle for each other's names.

// eventDeleted is the reason of the event that tells so.
const eventDeleted = "Deleted"

// release deletes the Deployments of foo's former names if the time has come.
func (c *Controller) release(ctx context.Context, foo *v1alpha1.Foo, seen child.Observation) (err error) {
	if seen.Deployment == nil {
		return nil
	}
	// Whoever these Foos are, they must be as the cache has them before anything
	// is deleted on their account.
	members := []*v1alpha1.Foo{foo}
	if kindOfFoo().Owns(foo, seen.Deployment) {
		if seen.Deployment.DeletionTimestamp != nil {
			return nil
		}
	} else {
		chain, cycle := followBlockers(foo, c.holder)
		if !cycle {
			c.wakeLater(chain)
			return nil
		}
		// Were they woken although nothing could be released, they would wake each
		// other for ever.
		defer func() {
			if err == nil {
				c.wakeLater(chain)
			}
		}()
		members = append(members, chain...)
	}

	formers := c.formerDeployments(foo)
	if len(formers) == 0 {
		return nil
	}
	for _, member := range members {
		if err := c.confirm(ctx, member); err != nil {
			return err
		}
	}
	if len(members) == 1 && !seen.Fresh {
		if err := c.confirmDeployment(ctx, foo, seen.Deployment); err != nil {
			return err
		}
	}
	for _, former := range formers {
		if err := c.delete(ctx, foo, former); err != nil {
			return err
		}
	}
	return nil
}

// wakeLater syncs the Foos that stand in the way: they may have to move first.
func (c *Controller) wakeLater(chain []*v1alpha1.Foo) {
	for _, blocker := range chain {
		c.Queue.AddAfter(cache.MetaObjectToName(blocker), blockerDelay)
	}
}

// holder returns the Foo that has the name which foo asks for, or nil if no live
// Foo has. It may be foo itself; there a chain of blockers ends.
func (c *Controller) holder(foo *v1alpha1.Foo) *v1alpha1.Foo {
	deployment, err := c.keeper.Cached(foo.Namespace, foo.Spec.DeploymentName)
	if err != nil || deployment == nil || deployment.DeletionTimestamp != nil {
		return nil
	}
	ref := kindOfFoo().ControllerOf(deployment)
	if ref == nil {
		return nil
	}
	holder, err := c.foos.Foos(foo.Namespace).Get(ref.Name)
	if err != nil || holder.UID != ref.UID || holder.DeletionTimestamp != nil {
		return nil
	}
	return holder
}

// formerDeployments returns the Deployments that foo controls under other names
// than the one it asks for, less those that are on their way out, by name.
func (c *Controller) formerDeployments(foo *v1alpha1.Foo) []*appsv1.Deployment {
	var formers []*appsv1.Deployment
	for _, deployment := range controller.LookUp(c.deploymentIndex, byOwner, controller.OwnerKey(foo.Namespace, foo.UID)) {
		if deployment.Name != foo.Spec.DeploymentName && deployment.DeletionTimestamp == nil && !c.Gate.IsDeleted(deployment.UID) {
			formers = append(formers, deployment)
		}
	}
	slices.SortFunc(formers, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	return formers
}

// formerNames returns the names of those Deployments, for messages.
func (c *Controller) formerNames(foo *v1alpha1.Foo) (names []string) {
	for _, former := range c.formerDeployments(foo) {
		names = append(names, strconv.Quote(former.Name))
	}
	return names
}

// confirmDeployment returns nil if the API server has the Deployment that the
// cache shows as foo's, alive. Its deletion may be on the way to the cache, and
// with the former one gone as well the Foo would have none.
func (c *Controller) confirmDeployment(ctx context.Context, foo *v1alpha1.Foo, cached *appsv1.Deployment) error {
	live, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return controller.ErrCacheBehind
	}
	if err != nil {
		return fmt.Errorf("reading Deployment %q: %w", cached.Name, err)
	}
	if live.UID != cached.UID || live.DeletionTimestamp != nil || !kindOfFoo().Owns(foo, live) {
		return controller.ErrCacheBehind
	}
	return nil
}

// confirm returns nil if the API server has the Foo in the generation that the
// cache has. Another process may have acted on a newer one.
func (c *Controller) confirm(ctx context.Context, foo *v1alpha1.Foo) error {
	live, err := c.fooClient.SamplecontrollerV1alpha1().Foos(foo.Namespace).Get(ctx, foo.Name, metav1.GetOptions{})
	if err := controller.Confirm(foo, live, err); err != nil {
		return fmt.Errorf("reading Foo %s: %w", klog.KObj(foo), err)
	}
	return nil
}

// delete removes a Deployment that the cache shows as foo's, provided that it is
// unchanged.
func (c *Controller) delete(ctx context.Context, foo *v1alpha1.Foo, former *appsv1.Deployment) error {
	err := c.kubeClient.AppsV1().Deployments(former.Namespace).Delete(ctx, former.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &former.UID, ResourceVersion: &former.ResourceVersion},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if apierrors.IsNotFound(err) {
		c.Gate.WroteDelete(former.UID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting Deployment %q: %w", former.Name, err)
	}
	c.metrics.Wrote("deployments", "delete")
	c.Gate.WroteDelete(former.UID)
	klog.FromContext(ctx).V(2).Info("Deleted Deployment of a former name", "deployment", klog.KObj(former))
	c.recorder.Eventf(foo, corev1.EventTypeNormal, eventDeleted, "Deleted Deployment %q: spec.deploymentName is now %q", former.Name, foo.Spec.DeploymentName)
	return nil
}
