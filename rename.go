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
	"cmp"
	"context"
	"fmt"
	"maps"
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

// When spec.deploymentName changes, syncHandler creates the Deployment of the new name as a
// copy of the former one, which keeps serving. This file makes that copy, and deletes the
// former Deployment once the rollout of the new one is complete, or at once to break a cycle
// of Foos that wait for each other's names.
//
// The Pods of a Deployment with strategy Recreate must not run beside its successor's. The
// successor is created with 0 replicas, which preserves the Pod template even if this
// process ends; the former Deployment is deleted in the foreground, so that the object goes
// only after its Pods; then a repair of its replicas scales the successor (docs/contract.md, rule 4).

// Reasons of Normal events.
const (
	// eventDeleted says that the controller deleted the former Deployment of a renamed Foo.
	eventDeleted = "Deleted"
)

const (
	// claimDelay is how long a Foo waits before it enqueues the Foos whose Deployments it
	// waits for.
	claimDelay = time.Second
	// maxCleanups bounds how many Deployments one sync deletes: each costs a live read. The
	// delete event enqueues the Foo for the next ones.
	maxCleanups = 2
	// maxNames bounds how many Deployments a message names.
	maxNames = 5
)

// oldDeployments are the Deployments that a Foo controls under other names than the one that
// it asks for.
type oldDeployments struct {
	// former are those that this program has written and that are not terminating. The first
	// is the one to copy: it has most available Pods, and is the oldest of those.
	former []*appsv1.Deployment
	// terminating are those that this program has written and that are terminating.
	terminating []*appsv1.Deployment
	// copies are those that this program has never written, sorted by name: a user made
	// them, owner reference included.
	copies []*appsv1.Deployment
}

// oldDeployments returns the old Deployments of foo.
func (c *Controller) oldDeployments(foo *v1alpha1.Foo) oldDeployments {
	var old oldDeployments
	for _, d := range controller.LookUp(c.deploymentIndexer, deploymentByOwner, controller.OwnerKey(foo.Namespace, foo.UID)) {
		switch terminating := d.DeletionTimestamp != nil || c.deletions.DeletionExpected(d.UID); {
		case d.Name == foo.Spec.DeploymentName:
		case !deployment.WrittenByUs(d):
			old.copies = append(old.copies, d)
		case terminating:
			old.terminating = append(old.terminating, d)
		default:
			old.former = append(old.former, d)
		}
	}
	slices.SortFunc(old.former, func(a, b *appsv1.Deployment) int {
		return cmp.Or(cmp.Compare(b.Status.AvailableReplicas, a.Status.AvailableReplicas), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(old.terminating, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(old.copies, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	return old
}

func quotedNames(deployments []*appsv1.Deployment) (names []string) {
	for _, d := range deployments {
		if len(names) == maxNames {
			return append(names, fmt.Sprintf("and %d more", len(deployments)-maxNames))
		}
		names = append(names, strconv.Quote(d.Name))
	}
	return names
}

func recreates(d *appsv1.Deployment) bool {
	return d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// recreated returns the first terminating Deployment with strategy Recreate, nil if there is
// none.
func (o *oldDeployments) recreated() *appsv1.Deployment {
	if i := slices.IndexFunc(o.terminating, recreates); i >= 0 {
		return o.terminating[i]
	}
	return nil
}

// applyNow returns the Foo to apply to current, the Deployment that foo asks for, nil if there
// is none. Until the former Deployments with strategy Recreate are gone it asks for 0
// replicas, and waits says why. A Deployment that has replicas is not scaled down.
func applyNow(foo *v1alpha1.Foo, current *appsv1.Deployment, old oldDeployments) (applied *v1alpha1.Foo, waits string) {
	if current != nil && (!owns(foo, current) || ptr.Deref(current.Spec.Replicas, 1) > 0) {
		return foo, ""
	}
	before := slices.DeleteFunc(slices.Concat(old.former, old.terminating), func(d *appsv1.Deployment) bool { return !recreates(d) })
	if len(before) == 0 || desiredReplicas(foo) <= 0 {
		return foo, ""
	}
	waiting := *foo
	waiting.Spec.Replicas = ptr.To[int32](0)
	return &waiting, fmt.Sprintf("Deployment %q waits with 0 replicas until the former Deployment %s, whose strategy is Recreate, and its Pods are gone",
		foo.Spec.DeploymentName, strings.Join(quotedNames(before), ", "))
}

// decideNow decides about the Deployment of the name that the Foo asks for. applied is the Foo
// as far as it is to be applied now.
func decideNow(foo *v1alpha1.Foo, current *appsv1.Deployment, old oldDeployments, admitted ...controller.FieldValue) (applied *v1alpha1.Foo, d deployment.Decision) {
	applied, waits := applyNow(foo, current, old)
	d = decide(applied, current, admitted...)
	d.Waits = waits
	return applied, d
}

// copyFormer returns the Deployment to create: a copy of the former Deployment of foo, read
// live because the cache does not hold its Pod template, or desired if there is none.
func (c *Controller) copyFormer(ctx context.Context, foo *v1alpha1.Foo, desired *appsv1.Deployment) (*appsv1.Deployment, error) {
	former := c.oldDeployments(foo).former
	if len(former) == 0 {
		return desired, nil
	}
	live, err := c.liveFormer(ctx, foo, former[0])
	if err != nil {
		return nil, err
	}
	return copyDeployment(foo, live), nil
}

// copyDeployment returns the Deployment to create for foo that runs what source runs.
func copyDeployment(foo *v1alpha1.Foo, source *appsv1.Deployment) *appsv1.Deployment {
	d := newDeployment(foo)
	labels := maps.Clone(source.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, d.Spec.Selector.MatchLabels)
	source.Spec.Template.DeepCopyInto(&d.Spec.Template)
	d.Spec.Template.Labels = labels
	d.Spec.Strategy = *source.Spec.Strategy.DeepCopy()
	d.Spec.MinReadySeconds = source.Spec.MinReadySeconds
	d.Spec.RevisionHistoryLimit = source.Spec.RevisionHistoryLimit
	d.Spec.ProgressDeadlineSeconds = source.Spec.ProgressDeadlineSeconds
	if container := deployment.Container(d, containerName); container != nil && foo.Spec.Image != "" {
		container.Image = foo.Spec.Image
	}
	return d
}

// liveFormer reads the former Deployment live. It returns controller.ErrStaleCache if that
// is not, or no longer, a former Deployment of foo with the cached strategy.
func (c *Controller) liveFormer(ctx context.Context, foo *v1alpha1.Foo, cached *appsv1.Deployment) (*appsv1.Deployment, error) {
	live, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, controller.ErrStaleCache
	case err != nil:
		return nil, fmt.Errorf("reading Deployment %q: %w", cached.Name, err)
	case live.UID != cached.UID || live.DeletionTimestamp != nil || !owns(foo, live) || !deployment.WrittenByUs(live) || recreates(live) != recreates(cached):
		return nil, controller.ErrStaleCache
	}
	return live, nil
}

// cleanupOldDeployments deletes former Deployments of foo once the rollout of the Deployment
// that it asks for is complete, or if foo is in a cycle. It drops them from old.
func (c *Controller) cleanupOldDeployments(ctx context.Context, foo *v1alpha1.Foo, old *oldDeployments, result *deployment.Result) error {
	if result.Deployment == nil {
		return nil
	}
	if !owns(foo, result.Deployment) {
		return c.cleanupInCycle(ctx, foo, old, result)
	}
	needsPods, due := desiredReplicas(foo) > 0, slices.Clone(old.former)
	if result.Waits != "" {
		// The new Deployment has no Pods: only what it waits for may go.
		needsPods = false
		due = slices.DeleteFunc(due, func(d *appsv1.Deployment) bool { return !recreates(d) })
	}
	if len(due) == 0 || !isRolledOut(result.Deployment, needsPods, c.clock.Now()) {
		return nil
	}
	if err := c.checkLiveFoo(ctx, foo); err != nil {
		return err
	}
	if err := c.checkLiveDeployment(ctx, foo, result.Deployment, needsPods); err != nil {
		return err
	}
	message := fmt.Sprintf("spec.deploymentName is now %q", foo.Spec.DeploymentName)
	var refused error
	for deleted := 0; len(due) > 0 && deleted < maxCleanups; due = due[1:] {
		switch err := c.deleteOldDeployment(ctx, foo, due[0], message); {
		case controller.IsRejection(err):
			// A policy that keeps one Deployment must not keep the others.
			refused = cmp.Or(refused, err)
		case err != nil:
			return err
		default:
			deleted++
			old.former = slices.DeleteFunc(old.former, func(former *appsv1.Deployment) bool { return former.UID == due[0].UID })
		}
	}
	return refused
}

// cleanupInCycle deletes the former Deployment of foo that another Foo asks for if both are
// in a cycle and foo has the smallest name in it. That breaks the cycle: the other Foos take
// over one after the other (docs/contract.md, rule 9), and each keeps a copy of what it runs. If two of them
// deleted at the same time, the Pod templates of both would be lost. Outside of a cycle the
// former Deployment keeps running.
func (c *Controller) cleanupInCycle(ctx context.Context, foo *v1alpha1.Foo, old *oldDeployments, result *deployment.Result) error {
	chain, cycle := followClaims(foo, c.currentOwner)
	result.OwnerMoved = c.ownerMoved(foo, result.Deployment)
	if !cycle {
		c.enqueueLater(chain...)
		return nil
	}
	if first := slices.MinFunc(chain, func(a, b *v1alpha1.Foo) int { return strings.Compare(a.Name, b.Name) }); first.Name < foo.Name {
		// Only the Foo that breaks the cycle is enqueued. If all were, and its delete is refused,
		// they would enqueue each other for ever.
		c.enqueueLater(first)
		return nil
	}
	last := chain[len(chain)-1]
	i := slices.IndexFunc(old.former, func(d *appsv1.Deployment) bool { return d.Name == last.Spec.DeploymentName })
	if i >= 0 {
		// The API server must have all Foos of the cycle in the cached UID and generation.
		for _, member := range append([]*v1alpha1.Foo{foo}, chain...) {
			if err := c.checkLiveFoo(ctx, member); err != nil {
				return err
			}
		}
		message := fmt.Sprintf("Foo %q waits for that name in a cycle of renames; Deployment %q will not be a copy of it but the default one", last.Name, foo.Spec.DeploymentName)
		if err := c.deleteOldDeployment(ctx, foo, old.former[i], message); err != nil {
			// The backoff enqueues foo.
			return err
		}
		old.former = slices.Delete(old.former, i, i+1)
	}
	c.enqueueLater(chain...)
	return nil
}

// followClaims goes from foo to the owner of the Deployment that it asks for, to the owner
// of the one which that Foo asks for, and so on, and returns these owners. currentOwner
// returns one such owner, nil if no Foo is. A Foo that owns the Deployment it asks for ends
// the chain. cycle reports that the chain returns to foo through others: the Foos swap or rotate
// names, and no other event will free them.
func followClaims(foo *v1alpha1.Foo, currentOwner func(*v1alpha1.Foo) *v1alpha1.Foo) (chain []*v1alpha1.Foo, cycle bool) {
	visited := map[string]bool{}
	for owner := currentOwner(foo); owner != nil && !visited[owner.Name]; owner = currentOwner(owner) {
		if owner.UID == foo.UID {
			return chain, len(chain) > 0
		}
		visited[owner.Name] = true
		chain = append(chain, owner)
	}
	return chain, false
}

// currentOwner returns the Foo that owns the Deployment which foo asks for, nil if no Foo
// does, if that Foo is terminating, or if it would not delete a Deployment that a user made. It may
// be foo itself.
func (c *Controller) currentOwner(foo *v1alpha1.Foo) *v1alpha1.Foo {
	d, err := c.cachedDeployment(foo.Namespace, foo.Spec.DeploymentName)
	if err != nil || d == nil || d.DeletionTimestamp != nil || !deployment.WrittenByUs(d) {
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

// enqueueLater enqueues, after claimDelay, Foos that own a name which another Foo waits for:
// no event tells them that it waits.
func (c *Controller) enqueueLater(foos ...*v1alpha1.Foo) {
	for _, foo := range foos {
		c.worker.Queue.AddAfter(cache.MetaObjectToName(foo), claimDelay)
	}
}

// ownerMoved reports whether the Foo that controls d asks for another name.
func (c *Controller) ownerMoved(foo *v1alpha1.Foo, d *appsv1.Deployment) bool {
	ref := controller.ControllerOf(d, fooGVK().GroupKind())
	if ref == nil || !deployment.WrittenByUs(d) {
		return false
	}
	owner, err := c.foos.Foos(foo.Namespace).Get(ref.Name)
	return err == nil && owner.UID == ref.UID && owner.DeletionTimestamp == nil && owner.Spec.DeploymentName != d.Name
}

// isRolledOut reports whether the rollout of the Deployment is complete. With needsPods it has
// an available Pod as well: another writer may hold it at 0 replicas, and nothing would serve.
func isRolledOut(d *appsv1.Deployment, needsPods bool, now time.Time) bool {
	state, _ := deployment.Rollout(d, now)
	return state == deployment.RolloutComplete && (!needsPods || d.Status.AvailableReplicas > 0)
}

// checkLiveDeployment returns nil if the API server has the Deployment that the cache shows
// as foo's, rolled out and not terminating. If its deletion has not reached the cache yet,
// deleting the former Deployment as well would leave the Foo without any.
func (c *Controller) checkLiveDeployment(ctx context.Context, foo *v1alpha1.Foo, cached *appsv1.Deployment, needsPods bool) error {
	live, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return controller.ErrStaleCache
	}
	if err != nil {
		return fmt.Errorf("reading Deployment %q: %w", cached.Name, err)
	}
	if live.UID != cached.UID || live.DeletionTimestamp != nil || !owns(foo, live) || !isRolledOut(live, needsPods, c.clock.Now()) {
		return controller.ErrStaleCache
	}
	return nil
}

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=delete

// deleteOldDeployment deletes the former Deployment if a live read shows it as one. why ends
// the message of the event.
func (c *Controller) deleteOldDeployment(ctx context.Context, foo *v1alpha1.Foo, former *appsv1.Deployment, why string) error {
	live, err := c.liveFormer(ctx, foo, former)
	if err != nil {
		return err
	}
	propagation := metav1.DeletePropagationBackground
	if recreates(live) {
		propagation = metav1.DeletePropagationForeground
	}
	err = c.kubeClient.AppsV1().Deployments(live.Namespace).Delete(ctx, live.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion},
		PropagationPolicy: &propagation,
	})
	if apierrors.IsNotFound(err) {
		c.deletions.ExpectDeletion(live.UID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting Deployment %q: %w", live.Name, err)
	}
	c.metrics.Wrote("deployments", "delete")
	c.deletions.ExpectDeletion(live.UID)
	klog.FromContext(ctx).V(2).Info("Deleted the former Deployment after spec.deploymentName changed", "deployment", klog.KObj(live))
	c.recorder.Eventf(foo, corev1.EventTypeNormal, eventDeleted, "Deleted Deployment %q: %s", live.Name, why)
	return nil
}

// describeOldDeployments returns what the message of Ready says about the old Deployments, ""
// if there are none. result is that of the Deployment which foo asks for.
func describeOldDeployments(foo *v1alpha1.Foo, result deployment.Result, old oldDeployments) string {
	var sentences []string
	if len(old.former) > 0 {
		first := old.former[0]
		serves := "is kept"
		if first.Status.AvailableReplicas > 0 {
			serves = "still serves"
		}
		sentence := fmt.Sprintf("until this Foo has its Deployment %q rolled out, the former Deployment %s %s", foo.Spec.DeploymentName, strings.Join(quotedNames(old.former), ", "), serves)
		switch {
		case result.CreateRefused:
			sentence += fmt.Sprintf("; if a quota counts it, raise the quota for the time of the change, or do without its Pods: kubectl delete deployment %s -n %s", first.Name, first.Namespace)
		case result.Deployment != nil && owns(foo, result.Deployment) && result.Waits == "" && result.Rejected == nil:
			sentence += fmt.Sprintf("; if its Pods keep the new ones from starting (quota, hostPort, a volume for one node), the way out is: kubectl delete deployment %s -n %s", first.Name, first.Namespace)
		}
		sentences = append(sentences, sentence)
	}
	if len(old.copies) > 0 {
		sentences = append(sentences, fmt.Sprintf("Deployment %s carries this Foo's owner reference but was not made by this controller, which leaves it alone; remove that reference or delete the Deployment",
			strings.Join(quotedNames(old.copies), ", ")))
	}
	return strings.Join(sentences, "; ")
}

// addOldDeployments adds to the Ready condition what is to be said about the Deployments of
// other names. A Deployment that waits for the end of a former one is not ready.
func addOldDeployments(ready metav1.Condition, result deployment.Result, now time.Time) metav1.Condition {
	if result.Waits != "" && (ready.Status == metav1.ConditionTrue || ready.Reason == v1alpha1.ReasonDeploymentProgressing) {
		ready = controller.NotReady(v1alpha1.ReasonDeploymentProgressing, result.Waits)
		if result.WaitsFor != nil {
			if stalled := deployment.DescribeStalledTermination(result.WaitsFor, now); stalled != "" {
				ready = controller.NotReady(v1alpha1.ReasonDeploymentStalled, result.Waits+"; "+stalled)
			}
		}
	}
	if result.Others != "" {
		ready.Message += "; " + result.Others
	}
	return ready
}
