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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
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
// only after its Pods; then a repair of its replicas scales the successor.

const (
	// maxCleanups bounds how many Deployments one sync deletes: each costs a live read. The
	// delete event enqueues the Foo for the next ones.
	maxCleanups = 2
	// maxNames bounds how many Deployments a message names.
	maxNames = 5
	// maxCycle bounds how many Foos a sync follows that wait for each other's names.
	maxCycle = 100
)

// oldDeployments are the Deployments that a Foo controls under other names than the one that
// it asks for.
type oldDeployments struct {
	// former are those that this program has written and that are not terminating. The first
	// is the one to copy: it has most available Pods, and is the oldest of those.
	former []*appsv1.Deployment
	// terminating are those that this program has written and that are terminating.
	terminating []*appsv1.Deployment
	// unwritten are those that this program has never written: a user made them, owner reference
	// included.
	unwritten []*appsv1.Deployment
	// waitsFor are those of former and terminating that have strategy Recreate, unless the Foo wants no Pods or its
	// Deployment has some already: until these and their Pods are gone, that one has 0 replicas.
	waitsFor []*appsv1.Deployment
	// cycle are the other Foos that wait for each other's names if the Foo is one of them: the owner of
	// the Deployment that the Foo asks for, the owner of the one that that Foo asks for, and so on,
	// up to the Foo that asks for a former Deployment of this one. It has maxCycle Foos if there are
	// too many to follow.
	cycle []*v1alpha1.Foo
}

// oldDeployments returns the old Deployments of foo, which asks for current.
func (c *Controller) oldDeployments(foo *v1alpha1.Foo, current *appsv1.Deployment) oldDeployments {
	var old oldDeployments
	for _, d := range c.deployments.Of(foo) {
		switch {
		case d.Name == foo.Spec.DeploymentName:
		case !deployment.WrittenByUs(d):
			old.unwritten = append(old.unwritten, d)
		case d.DeletionTimestamp != nil:
			old.terminating = append(old.terminating, d)
		default:
			old.former = append(old.former, d)
		}
	}
	slices.SortStableFunc(old.former, func(a, b *appsv1.Deployment) int {
		return cmp.Or(cmp.Compare(b.Status.AvailableReplicas, a.Status.AvailableReplicas), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	if specReplicas(foo) > 0 && (current == nil || ptr.Deref(current.Spec.Replicas, 1) == 0) {
		old.waitsFor = slices.DeleteFunc(slices.Concat(old.former, old.terminating), func(d *appsv1.Deployment) bool {
			return d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType
		})
	}
	if current != nil && len(old.former) > 0 && !owns(foo, current) {
		old.cycle = followNames(foo, c.currentOwner)
	}
	return old
}

// wantedReplicas returns spec.replicas, 0 while the Deployment waits for former ones.
func wantedReplicas(foo *v1alpha1.Foo, old oldDeployments) int32 {
	if len(old.waitsFor) > 0 {
		return 0
	}
	return specReplicas(foo)
}

// copyDeployment returns the desired Deployment of foo, but it runs what former runs. The labels
// of its Pods stay, so that they stay in their Services. Only the label controller gets this Foo's value.
// What diffDeployment compares must have the desired value here, too.
func copyDeployment(foo *v1alpha1.Foo, desired, former *appsv1.Deployment) *appsv1.Deployment {
	d := desired.DeepCopy()
	labels := map[string]string{controllerLabel: d.Spec.Selector.MatchLabels[controllerLabel]}
	if app, ok := former.Spec.Template.Labels["app"]; ok {
		labels["app"] = app
	}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	former.Spec.Template.DeepCopyInto(&d.Spec.Template)
	if d.Spec.Template.Labels == nil {
		d.Spec.Template.Labels = map[string]string{}
	}
	maps.Copy(d.Spec.Template.Labels, labels)
	d.Spec.Strategy = *former.Spec.Strategy.DeepCopy()
	d.Spec.MinReadySeconds = former.Spec.MinReadySeconds
	d.Spec.RevisionHistoryLimit = former.Spec.RevisionHistoryLimit
	d.Spec.ProgressDeadlineSeconds = former.Spec.ProgressDeadlineSeconds
	if container := deployment.Container(d, containerName); container != nil && foo.Spec.Image != "" {
		container.Image = foo.Spec.Image
	}
	return d
}

// createCopy creates the copy of the former Deployment, read live: its Pod template is not in the cache.
func (c *Controller) createCopy(ctx context.Context, foo *v1alpha1.Foo, desired, former *appsv1.Deployment) (*appsv1.Deployment, error) {
	live, err := c.deployments.Live(ctx, foo, former)
	if err != nil {
		return nil, err
	}
	return c.deployments.Create(ctx, foo, copyDeployment(foo, desired, live))
}

// planCleanup returns the former Deployments to delete, and why: those of foo once the rollout of
// current is complete; those with strategy Recreate once current is rolled out with 0 replicas; or
// the one that another Foo of a cycle asks for. Only the Foo of the smallest name in the cycle
// deletes: if two did at the same time, the Pod templates of both would be lost.
func planCleanup(foo *v1alpha1.Foo, current *appsv1.Deployment, old oldDeployments, now time.Time) (due []*appsv1.Deployment, why string) {
	switch {
	case current == nil || len(old.former) == 0 || validateSpec(foo) != "":
		return nil, ""
	case owns(foo, current):
		if !isRolledOut(current, wantedReplicas(foo, old) > 0, now) {
			return nil, ""
		}
		due = old.former
		if len(old.waitsFor) > 0 {
			due = slices.DeleteFunc(slices.Clone(old.waitsFor), func(d *appsv1.Deployment) bool { return d.DeletionTimestamp != nil })
		}
		return due, fmt.Sprintf("spec.deploymentName is now %q", foo.Spec.DeploymentName)
	case old.breaker(foo) != foo:
		return nil, ""
	}
	last := old.cycle[len(old.cycle)-1]
	due = slices.DeleteFunc(slices.Clone(old.former), func(d *appsv1.Deployment) bool { return d.Name != last.Spec.DeploymentName })
	return due, fmt.Sprintf("Foo %q waits for that name in a cycle of renames; Deployment %q will not be a copy of it but the default one", last.Name, foo.Spec.DeploymentName)
}

// isRolledOut reports whether the rollout of the Deployment is complete. With needsPods it has
// an available Pod as well: another writer may hold it at 0 replicas, and nothing would serve.
func isRolledOut(d *appsv1.Deployment, needsPods bool, now time.Time) bool {
	return deployment.Rollout(d, now).Status == metav1.ConditionTrue && (!needsPods || d.Status.AvailableReplicas > 0)
}

// cleanUp deletes what planCleanup plans, after live reads of all that it depends on: the caches may
// be behind. Each deletion also reads the Foo live. It returns the old Deployments that are left, and the
// refusal that it got, of a write to current, with those of deletions. It does nothing after another error.
func (c *Controller) cleanUp(ctx context.Context, foo *v1alpha1.Foo, current *appsv1.Deployment, old oldDeployments, refused error) (oldDeployments, error) {
	if refused != nil && !controller.IsRefusal(refused) {
		return old, refused
	}
	due, why := planCleanup(foo, current, old, c.Clock.Now())
	if len(due) == 0 {
		if breaker := old.breaker(foo); breaker != nil && breaker != foo {
			// No event enqueues the Foo that has to break the cycle when the cycle closes. If all enqueued
			// each other, they would do so for ever.
			c.Worker.Queue.AddHighPriority(cache.MetaObjectToName(breaker))
		}
		return old, refused
	}
	if err := c.checkCleanup(ctx, foo, current, old); err != nil {
		return old, errors.Join(refused, err)
	}
	var deleted []*appsv1.Deployment
	for _, former := range due {
		propagation := metav1.DeletePropagationBackground
		if former.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
			propagation = metav1.DeletePropagationForeground
		}
		switch err := c.deployments.Delete(ctx, foo, former, propagation, why); {
		case controller.IsRefusal(err):
			// A policy that keeps one Deployment must not keep the others.
			refused = errors.Join(refused, err)
		case err != nil:
			return old, errors.Join(refused, err)
		default:
			deleted = append(deleted, former)
		}
		if len(deleted) == maxCleanups {
			break
		}
	}
	// The next sync waits until the cache shows that.
	isDeleted := func(former *appsv1.Deployment) bool { return slices.Contains(deleted, former) }
	old.former, old.terminating = slices.DeleteFunc(old.former, isDeleted), slices.Concat(old.terminating, deleted)
	return old, refused
}

// checkCleanup reads live what the plan depends on: the Foo's own Deployment is rolled out, or, in a
// cycle, another Foo still owns the one that this Foo asks for, and all Foos still ask for the same names.
func (c *Controller) checkCleanup(ctx context.Context, foo *v1alpha1.Foo, current *appsv1.Deployment, old oldDeployments) error {
	if len(old.cycle) > 0 {
		// The first Foo of the cycle owns current.
		if _, err := c.deployments.Live(ctx, old.cycle[0], current); err != nil {
			return err
		}
		for _, other := range old.cycle {
			if err := c.foos.CheckLive(ctx, other); err != nil {
				return err
			}
		}
		return nil
	}
	live, err := c.deployments.Live(ctx, foo, current)
	if err != nil {
		return err
	}
	if due, _ := planCleanup(foo, live, old, c.Clock.Now()); len(due) == 0 {
		return controller.NewConflict(appsv1.Resource("deployments"), current.Name)
	}
	return nil
}

// breaker returns the Foo that has to break the cycle of foo, nil if there is none or it is too long to be followed.
func (o *oldDeployments) breaker(foo *v1alpha1.Foo) *v1alpha1.Foo {
	if len(o.cycle) == 0 || len(o.cycle) == maxCycle {
		return nil
	}
	return slices.MinFunc(append(slices.Clip(o.cycle), foo), func(a, b *v1alpha1.Foo) int { return strings.Compare(a.Name, b.Name) })
}

// followNames goes from foo to the owner of the Deployment that it asks for, to the owner of the
// one which that Foo asks for, and so on. If that leads back to foo, it returns these owners: the
// Foos swap or rotate names, and no event will free one. It returns nil if not, and maxCycle
// owners if it did not get to the end. currentOwner returns one such owner, nil if no Foo is.
func followNames(foo *v1alpha1.Foo, currentOwner func(*v1alpha1.Foo) *v1alpha1.Foo) (cycle []*v1alpha1.Foo) {
	visited := map[string]bool{}
	for owner := currentOwner(foo); owner != nil && !visited[owner.Name]; owner = currentOwner(owner) {
		if owner.UID == foo.UID || len(cycle) == maxCycle {
			return cycle
		}
		visited[owner.Name] = true
		cycle = append(cycle, owner)
	}
	return nil
}

// currentOwner returns the Foo that owns the Deployment which foo asks for, maybe foo itself. It returns nil
// if no Foo does, if the Deployment or that Foo is terminating, or if a user made the Deployment: its owner
// would never delete it.
func (c *Controller) currentOwner(foo *v1alpha1.Foo) *v1alpha1.Foo {
	d := c.deployments.Get(foo.Namespace, foo.Spec.DeploymentName)
	if d == nil || d.DeletionTimestamp != nil || !deployment.WrittenByUs(d) {
		return nil
	}
	ref := controller.ControllerOf(d, fooGVK().GroupKind())
	if ref == nil {
		return nil
	}
	owner, exists := c.foos.Cached(cache.NewObjectName(foo.Namespace, ref.Name))
	if !exists || owner.UID != ref.UID || owner.DeletionTimestamp != nil {
		return nil
	}
	return owner
}

// describeWait returns the Ready condition of a Foo whose Deployment waits with 0 replicas for the end of
// former ones.
func describeWait(foo *v1alpha1.Foo, old oldDeployments, now time.Time) metav1.Condition {
	message := fmt.Sprintf("Deployment %q waits with 0 replicas until the former Deployment %s, whose strategy is Recreate, and its Pods are gone",
		foo.Spec.DeploymentName, quotedNames(old.waitsFor))
	for _, former := range old.waitsFor {
		if stalled := deployment.DescribeStalledTermination(former, now); stalled != "" {
			return controller.NotReady(v1alpha1.ReasonDeploymentStalled, message+"; "+stalled)
		}
	}
	return controller.NotReady(v1alpha1.ReasonDeploymentProgressing, message)
}

// addOldDeployments returns the Ready condition with what there is to say about old Deployments: in place of the
// reasons Available and Progressing comes the wait for those with strategy Recreate, if they must go first.
func addOldDeployments(ready metav1.Condition, foo *v1alpha1.Foo, f findings, now time.Time) metav1.Condition {
	mayWait := ready.Status == metav1.ConditionTrue || ready.Reason == v1alpha1.ReasonDeploymentProgressing
	if mayWait && f.deployment != nil && len(f.old.waitsFor) > 0 {
		ready = describeWait(foo, f.old, now)
	}
	if others := describeOldDeployments(foo, f, now); others != "" {
		ready.Message += "; " + others
	}
	return ready
}

// describeOldDeployments returns what the message of Ready adds about the old Deployments, "" if
// there is nothing to add.
func describeOldDeployments(foo *v1alpha1.Foo, f findings, now time.Time) string {
	var sentences []string
	if len(f.old.former) > 0 {
		first := f.old.former[0]
		serves := "is kept"
		if first.Status.AvailableReplicas > 0 {
			serves = "still serves"
		}
		until, advice := fmt.Sprintf("this Foo has its Deployment %q rolled out", foo.Spec.DeploymentName), ""
		switch d := f.deployment; {
		case validateSpec(foo) != "":
			until = "the spec is valid"
		case d == nil && f.refused != nil:
			// It is the only copy of the Pod template.
			advice = "; if a quota counts it, raise the quota for the time of the change"
		case d != nil && owns(foo, d) && isRolledOut(d, specReplicas(foo) > 0, now):
			until = "it is deleted"
		case d != nil && owns(foo, d) && f.refused == nil && len(f.old.waitsFor) == 0:
			advice = fmt.Sprintf("; if its Pods keep the new ones from starting (quota, hostPort, a volume for one node), the way out is: kubectl delete deployment %s -n %s", first.Name, first.Namespace)
		}
		sentences = append(sentences, fmt.Sprintf("until %s, the former Deployment %s %s%s", until, quotedNames(f.old.former), serves, advice))
	}
	if len(f.old.cycle) == maxCycle {
		sentences = append(sentences, fmt.Sprintf("%d or more Foos wait for each other's names, which is too many to see whether it is a cycle; rename one of them to a name that is free", maxCycle))
	}
	if len(f.old.unwritten) > 0 {
		sentences = append(sentences, fmt.Sprintf("Deployment %s carries this Foo's owner reference but was not made by this controller, which leaves it alone; remove that reference or delete the Deployment",
			quotedNames(f.old.unwritten)))
	}
	return strings.Join(sentences, "; ")
}

// quotedNames returns the names of the Deployments, of many the first ones.
func quotedNames(deployments []*appsv1.Deployment) string {
	var names []string
	for _, d := range deployments {
		if len(names) == maxNames {
			names = append(names, fmt.Sprintf("and %d more", len(deployments)-maxNames))
			break
		}
		names = append(names, strconv.Quote(d.Name))
	}
	return strings.Join(names, ", ")
}
