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
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
)

// When spec.deploymentName changes, syncHandler creates the Deployment of the new name
// first. This file deletes the old Deployment once the new one exists, or at once if two or
// more Foos wait in a cycle for each other's names.

// eventDeleted is the reason of the event about a deleted old Deployment.
const eventDeleted = "Deleted"

// claimDelay is how long a Foo waits before it enqueues the Foos whose Deployments it waits
// for.
const claimDelay = time.Second

// cleanupOldDeployments deletes the Deployments that foo owns under other names than the
// one that it asks for, if the Deployment of that name is foo's or foo is in a cycle.
func (c *Controller) cleanupOldDeployments(ctx context.Context, foo *v1alpha1.Foo, result deployment.Result) (err error) {
	if result.Deployment == nil {
		return nil
	}
	// Before a delete, the API server must have these Foos in the cached UID and generation.
	members := []*v1alpha1.Foo{foo}
	if owns(foo, result.Deployment) {
		if result.Deployment.DeletionTimestamp != nil {
			return nil
		}
	} else {
		chain, cycle := followClaims(foo, c.currentOwner)
		if !cycle {
			c.enqueueLater(chain)
			return nil
		}
		// After an error the backoff enqueues foo; enqueueing the others as well would make
		// the Foos of a cycle enqueue each other for ever.
		defer func() {
			if err == nil {
				c.enqueueLater(chain)
			}
		}()
		members = append(members, chain...)
	}

	old := c.oldDeployments(foo)
	if len(old) == 0 {
		return nil
	}
	for _, member := range members {
		if err := c.checkLiveFoo(ctx, member); err != nil {
			return err
		}
	}
	if ownsNew := len(members) == 1; ownsNew && !result.Written {
		// The new Deployment comes from the cache, and may be deleted already.
		if err := c.checkLiveDeployment(ctx, foo, result.Deployment); err != nil {
			return err
		}
	}
	for _, d := range old {
		if err := c.deleteOldDeployment(ctx, foo, d); err != nil {
			return err
		}
	}
	return nil
}

// followClaims goes from foo to the owner of the Deployment that it asks for, to the owner
// of the one which that Foo asks for, and so on, and returns these owners. currentOwner
// returns one such owner, nil if no Foo is. A Foo that owns the Deployment it asks for ends
// the chain. cycle reports that the chain returns to foo: the Foos swap or rotate names, and
// no other event will free them.
func followClaims(foo *v1alpha1.Foo, currentOwner func(*v1alpha1.Foo) *v1alpha1.Foo) (chain []*v1alpha1.Foo, cycle bool) {
	visited := map[string]bool{}
	for owner := currentOwner(foo); owner != nil && !visited[owner.Name]; owner = currentOwner(owner) {
		if owner.UID == foo.UID {
			return chain, true
		}
		visited[owner.Name] = true
		chain = append(chain, owner)
	}
	return chain, false
}

// currentOwner returns the Foo that owns the Deployment which foo asks for, nil if no live
// Foo does. It may be foo itself.
func (c *Controller) currentOwner(foo *v1alpha1.Foo) *v1alpha1.Foo {
	d, err := c.cachedDeployment(foo.Namespace, foo.Spec.DeploymentName)
	if err != nil || d == nil || d.DeletionTimestamp != nil {
		return nil
	}
	ref := controller.ControllerOf(d, fooGVK().GroupKind())
	if ref == nil {
		return nil
	}
	owner, err := c.foos.Foos(foo.Namespace).Get(ref.Name)
	if err != nil || owner.UID != ref.UID || owner.DeletionTimestamp != nil {
		return nil
	}
	return owner
}

// enqueueLater enqueues the Foos that own the names which foo waits for: the
// deploymentName of one of them may have changed, and no event announces that foo waits.
func (c *Controller) enqueueLater(chain []*v1alpha1.Foo) {
	for _, foo := range chain {
		c.worker.Queue.AddAfter(cache.MetaObjectToName(foo), claimDelay)
	}
}

// oldDeployments returns the Deployments that foo owns under other names than the one that
// it asks for and that are not terminating, sorted by name.
func (c *Controller) oldDeployments(foo *v1alpha1.Foo) []*appsv1.Deployment {
	var old []*appsv1.Deployment
	for _, d := range controller.LookUp(c.deploymentIndexer, deploymentByOwner, controller.OwnerKey(foo.Namespace, foo.UID)) {
		if d.Name != foo.Spec.DeploymentName && d.DeletionTimestamp == nil && !c.deletions.DeletionExpected(d.UID) {
			old = append(old, d)
		}
	}
	slices.SortFunc(old, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	return old
}

// oldDeploymentNames returns the quoted names of the old Deployments, for messages.
func (c *Controller) oldDeploymentNames(foo *v1alpha1.Foo) (names []string) {
	for _, d := range c.oldDeployments(foo) {
		names = append(names, strconv.Quote(d.Name))
	}
	return names
}

// checkLiveDeployment returns nil if the API server has the Deployment that the cache shows
// as foo's, not terminating. If its deletion has not reached the cache yet, deleting the
// old Deployment as well would leave the Foo without any.
func (c *Controller) checkLiveDeployment(ctx context.Context, foo *v1alpha1.Foo, cached *appsv1.Deployment) error {
	live, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return controller.ErrStaleCache
	}
	if err != nil {
		return fmt.Errorf("reading Deployment %q: %w", cached.Name, err)
	}
	if live.UID != cached.UID || live.DeletionTimestamp != nil || !owns(foo, live) {
		return controller.ErrStaleCache
	}
	return nil
}

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=delete

// deleteOldDeployment deletes the Deployment if it still is as the cache shows it.
func (c *Controller) deleteOldDeployment(ctx context.Context, foo *v1alpha1.Foo, old *appsv1.Deployment) error {
	err := c.kubeClient.AppsV1().Deployments(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if apierrors.IsNotFound(err) {
		c.deletions.ExpectDeletion(old.UID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting Deployment %q: %w", old.Name, err)
	}
	c.metrics.Wrote("deployments", "delete")
	c.deletions.ExpectDeletion(old.UID)
	klog.FromContext(ctx).V(2).Info("Deleted the old Deployment after spec.deploymentName changed", "deployment", klog.KObj(old))
	c.recorder.Eventf(foo, corev1.EventTypeNormal, eventDeleted, "Deleted Deployment %q: spec.deploymentName is now %q", old.Name, foo.Spec.DeploymentName)
	return nil
}
