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

package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// invariants checks the invariants S1 to S4 at each write of the controller against the
// state of the API server. A write that is wrong only because of an event that the process
// has not received yet is no violation.
type invariants struct {
	cluster    *simCluster
	violations []string
	// reads are the last live reads and writes of each object, by resource and name.
	reads map[string]lastRead
}

// lastRead is when, and at which version of the cluster, the process last read an object
// live.
type lastRead struct {
	version int64
	at      time.Time
}

func newInvariants(c *simCluster) *invariants {
	return &invariants{cluster: c, reads: map[string]lastRead{}}
}

func (inv *invariants) violated(format string, args ...any) {
	violation := fmt.Sprintf(format, args...)
	inv.cluster.logf("!! %s", violation)
	inv.violations = append(inv.violations, violation)
}

// check checks the answer to a request about an object.
func (inv *invariants) check(r *Request, before, after Object, err error) {
	deployment, _ := before.(*appsv1.Deployment)
	switch {
	case apierrors.IsMethodNotSupported(err):
		inv.violated("S1: the controller has no reason for the request %s", r)
	case r.Verb == "get":
		inv.noteRead(inv.cluster.table(r.Resource), r.Name)
	case err != nil:
	case r.Verb == "create":
		inv.checkCreate(after.(*appsv1.Deployment))
	case r.Verb == "delete":
		inv.checkDelete(deployment, r.Options)
	case r.Subresource == "status":
		inv.checkStatus(before.(*v1alpha1.Foo), after.(*v1alpha1.Foo))
	default:
		inv.checkPatch(deployment, after.(*appsv1.Deployment))
	}
}

func (inv *invariants) now() time.Time { return inv.cluster.clock.Now() }

func (inv *invariants) noteRead(t *table, name string) {
	inv.reads[t.group.Resource+"/"+name] = lastRead{inv.cluster.version, inv.now()}
}

// cameAfterRead reports whether the object changed after the same sync has read it live. A
// sync takes no time in the simulation.
func (inv *invariants) cameAfterRead(t *table, event *watchEvent) bool {
	read := inv.reads[t.group.Resource+"/"+event.object.GetName()]
	return read.at.Equal(inv.now()) && event.version > read.version
}

// known reports whether the caches of the process show that event. One that was delivered
// at this instant may still be in the informer.
func (inv *invariants) known(event *watchEvent) bool {
	return !event.delivered.IsZero() && event.delivered.Before(inv.now())
}

// lastChange returns the last event that changed owner, generation or existence of the
// object of that name.
func (t *table) lastChange(name string) *watchEvent {
	var last *watchEvent
	var before Object
	for _, event := range t.events {
		if event.object.GetName() != name {
			continue
		}
		if before == nil || event.kind != watch.Modified || event.object.GetUID() != before.GetUID() ||
			event.object.GetGeneration() != before.GetGeneration() || !equality.Semantic.DeepEqual(event.object.GetOwnerReferences(), before.GetOwnerReferences()) {
			last = event
		}
		before = event.object
	}
	return last
}

// liveOwner returns the Foo that controls the Deployment, nil if it is gone. plausible says
// that it exists, or that the process may not know yet that it is gone.
func (inv *invariants) liveOwner(deployment *appsv1.Deployment) (foo *v1alpha1.Foo, plausible bool) {
	ref := Owner(deployment)
	if ref == nil {
		return nil, false
	}
	if foo := inv.cluster.foo(ref.Name); foo != nil && foo.UID == ref.UID {
		return foo, true
	}
	for _, event := range inv.cluster.foos.events {
		if event.object.GetUID() == ref.UID && event.kind == watch.Deleted {
			return nil, !inv.known(event)
		}
	}
	return nil, false
}

// checkCreate checks S2: the spec of the owner names the Deployment.
func (inv *invariants) checkCreate(deployment *appsv1.Deployment) {
	inv.noteRead(inv.cluster.deployments, deployment.Name)
	ref := Owner(deployment)
	if ref == nil {
		inv.violated("S2: Deployment %s was created without an owner", deployment.Name)
		return
	}
	if _, plausible := inv.liveOwner(deployment); !plausible {
		inv.violated("S2: Deployment %s was created for a Foo that is known to be gone", deployment.Name)
	}
	if !slices.ContainsFunc(inv.cluster.foos.events, func(event *watchEvent) bool {
		return event.object.GetUID() == ref.UID && event.object.(*v1alpha1.Foo).Spec.DeploymentName == deployment.Name
	}) {
		inv.violated("S2: Deployment %s was created for Foo %s, whose spec never named it", deployment.Name, ref.Name)
	}
	inv.checkRecreate(deployment)
}

// checkRecreate checks rule 8: no Pods of the Deployment run beside those of one with strategy
// Recreate that it follows.
func (inv *invariants) checkRecreate(deployment *appsv1.Deployment) {
	if ptr.Deref(deployment.Spec.Replicas, 1) == 0 {
		return
	}
	for _, name := range inv.cluster.deployments.names() {
		former := inv.cluster.deployment(name)
		if name == deployment.Name || former.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || former.Status.Replicas == 0 || !WrittenByController(former) {
			continue
		}
		if ref := Owner(former); ref != nil && ref.UID == Owner(deployment).UID && inv.known(inv.cluster.deployments.lastChange(name)) {
			inv.violated("rule 8: Deployment %s was given Pods beside those of %s, whose strategy is Recreate", deployment.Name, name)
		}
	}
}

// checkPatch checks S1, and rule 4: the controller changes only the fields that it owns.
func (inv *invariants) checkPatch(before, after *appsv1.Deployment) {
	inv.noteRead(inv.cluster.deployments, before.Name)
	if metav1.GetControllerOfNoCopy(before) == nil {
		inv.checkAdoption(before, after)
		return
	}
	foo, plausible := inv.liveOwner(before)
	switch {
	case !plausible:
		inv.violated("S1: Deployment %s was patched, which belongs to %+v", before.Name, before.OwnerReferences)
	case before.DeletionTimestamp != nil:
		inv.violated("rule 7: Deployment %s was patched while it is being deleted", before.Name)
	case foo != nil && foo.DeletionTimestamp != nil && inv.known(inv.cluster.foos.lastChange(foo.Name)):
		inv.violated("rule 2: Deployment %s was patched, whose Foo is being deleted", before.Name)
	}
	if Owner(after) == nil || Owner(before) != nil && Owner(after).UID != Owner(before).UID {
		inv.violated("S1: Deployment %s was given to %+v", before.Name, after.OwnerReferences)
	}
	if ptr.Deref(before.Spec.Replicas, 1) == 0 && Owner(after) != nil {
		inv.checkRecreate(after)
	}
	if diff := UnownedDiff(before, after); diff != "" {
		inv.violated("rule 4: Deployment %s was changed in a field that the controller does not own: %s", before.Name, diff)
	}
}

// checkAdoption checks the exception to S1, rule 10: the controller gives a Deployment that
// has no controller to the Foo that the annotation names. It reads that Foo live before, so
// that only a change after that read is an excuse.
func (inv *invariants) checkAdoption(before, after *appsv1.Deployment) {
	c, name, ref := inv.cluster, before.Annotations[v1alpha1.AdoptByAnnotation], Owner(after)
	if ref == nil || ref.Name != name || before.DeletionTimestamp != nil {
		inv.violated("S1: Deployment %s was patched, which has no controller and asks for the Foo %q; its owners became %+v", before.Name, name, after.OwnerReferences)
		return
	}
	want := copyOf(before)
	delete(want.Annotations, v1alpha1.AdoptByAnnotation)
	want.ResourceVersion, want.OwnerReferences, want.Generation = after.ResourceVersion, after.OwnerReferences, after.Generation
	noteManager(before, want, true)
	c.admit(want)
	if !equality.Semantic.DeepEqual(want, after) {
		inv.violated("rule 10: Deployment %s was adopted and changed otherwise: %+v became %+v", before.Name, before, after)
	}
	if change := c.foos.lastChange(name); change != nil && inv.cameAfterRead(c.foos, change) {
		return
	}
	foo := c.foo(name)
	switch {
	case !inv.reads[Foos+"/"+name].at.Equal(inv.now()):
		inv.violated("rule 10: Deployment %s was adopted without a live read of its Foo", before.Name)
	case foo == nil || foo.UID != ref.UID || foo.DeletionTimestamp != nil:
		inv.violated("rule 10: Deployment %s was adopted for a Foo that the live read showed to be gone", before.Name)
	case foo.Spec.DeploymentName != before.Name:
		inv.violated("rule 10: Deployment %s was adopted for the Foo %s, which asks for %s", before.Name, name, foo.Spec.DeploymentName)
	}
}

// UnownedDiff returns how two versions of a Deployment differ in fields that the controller
// does not own, "" if they do not.
func UnownedDiff(before, after *appsv1.Deployment) string {
	unowned := func(deployment *appsv1.Deployment) *appsv1.Deployment {
		deployment = copyOf(deployment)
		deployment.ResourceVersion, deployment.Generation, deployment.OwnerReferences, deployment.Spec.Replicas = "", 0, nil, nil
		deployment.ManagedFields = nil
		delete(deployment.Labels, managedByLabel)
		for i := range deployment.Spec.Template.Spec.Containers {
			if container := &deployment.Spec.Template.Spec.Containers[i]; container.Name == containerName {
				container.Image = ""
			} else {
				container.Image = strings.TrimPrefix(container.Image, Mirror)
			}
		}
		return deployment
	}
	a, b := unowned(before), unowned(after)
	if equality.Semantic.DeepEqual(a, b) {
		return ""
	}
	return fmt.Sprintf("%+v became %+v", a, b)
}

// checkDelete checks S1, S4 and rule 8: the controller deletes only former Deployments, of a
// Foo whose new one is rolled out or that is part of a cycle of renames. It reads the Foo and
// both Deployments live before, so that only changes after those reads are an excuse.
func (inv *invariants) checkDelete(before *appsv1.Deployment, options metav1.DeleteOptions) {
	c := inv.cluster
	ref := Owner(before)
	if ref == nil {
		inv.violated("S1: Deployment %s was deleted, which no Foo controls", before.Name)
		return
	}
	if !WrittenByController(before) {
		inv.violated("rule 8: Deployment %s was deleted, which a user made", before.Name)
	}
	if before.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && ptr.Deref(options.PropagationPolicy, "") != metav1.DeletePropagationForeground {
		inv.violated("rule 8: Deployment %s was deleted before its Pods, and its strategy is Recreate", before.Name)
	}
	if preconditions := options.Preconditions; preconditions == nil || preconditions.UID == nil || preconditions.ResourceVersion == nil {
		inv.violated("rule 8: Deployment %s was deleted without the preconditions uid and resourceVersion", before.Name)
	}
	change := c.foos.lastChange(ref.Name)
	if change == nil {
		inv.violated("S1: Deployment %s was deleted, whose Foo never existed", before.Name)
		return
	}
	if inv.cameAfterRead(c.foos, change) {
		return
	}
	if !inv.reads[Foos+"/"+ref.Name].at.Equal(inv.now()) {
		inv.violated("rule 8: Deployment %s was deleted without a live read of its Foo", before.Name)
	}
	foo := c.foo(ref.Name)
	switch {
	case foo == nil || foo.UID != ref.UID || foo.DeletionTimestamp != nil:
		inv.violated("S1: Deployment %s was deleted for a Foo that the live read showed to be gone", before.Name)
	case foo.Spec.DeploymentName == before.Name:
		inv.violated("rule 8: Deployment %s was deleted, which its Foo asks for", before.Name)
	case !inv.mayDelete(foo, before):
		inv.violated("S4: Deployment %s was deleted with %d available Pods, while %s, which its Foo %s asks for, is not rolled out",
			before.Name, before.Status.AvailableReplicas, foo.Spec.DeploymentName, foo.Name)
	}
}

// mayDelete reports whether a former Deployment of the Foo may be deleted: the one that the
// Foo asks for is rolled out, or another Foo asks for the former one in a cycle, in which this
// Foo has the smallest name.
func (inv *invariants) mayDelete(foo *v1alpha1.Foo, former *appsv1.Deployment) bool {
	c := inv.cluster
	wanted := foo.Spec.DeploymentName
	present := c.deployment(wanted)
	switch {
	case present != nil && present.DeletionTimestamp == nil && owns(foo, present) && RolledOut(present):
		// With strategy Recreate the present one has no Pods yet. It must not come to that if
		// another former Deployment serves.
		return ptr.Deref(present.Spec.Replicas, 1) > 0 || ptr.Deref(foo.Spec.Replicas, 1) == 0 || former.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
	case inv.reads[Deployments+"/"+wanted].at.Equal(inv.now()) && inv.changedAfterRead(c.deployments, wanted):
		return true
	case present != nil && owns(foo, present) && inv.known(c.deployments.lastChange(wanted)):
		return false
	}
	for _, name := range c.foos.names() {
		if name > foo.Name && c.foo(name).Spec.DeploymentName == former.Name || name != foo.Name && inv.cameAfterRead(c.foos, c.foos.lastChange(name)) {
			return true
		}
	}
	return false
}

// changedAfterRead reports whether any version of the object is newer than the last live
// read of it.
func (inv *invariants) changedAfterRead(t *table, name string) bool {
	read := inv.reads[t.group.Resource+"/"+name]
	return slices.ContainsFunc(t.events, func(event *watchEvent) bool { return event.object.GetName() == name && event.version > read.version })
}

func owns(foo *v1alpha1.Foo, deployment *appsv1.Deployment) bool {
	ref := Owner(deployment)
	return ref != nil && ref.UID == foo.UID
}

// checkStatus checks S3.
func (inv *invariants) checkStatus(before, after *v1alpha1.Foo) {
	inv.noteRead(inv.cluster.foos, before.Name)
	was, is := before.Status.ObservedGeneration, after.Status.ObservedGeneration
	ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.FooReady)
	switch {
	case is > before.Generation:
		inv.violated("S3: Foo %s has observed generation %d of %d", before.Name, is, before.Generation)
	case is < was:
		inv.violated("S3: Foo %s has observed generation %d after %d", before.Name, is, was)
	case ready == nil || ready.ObservedGeneration != is:
		inv.violated("S3: Foo %s has observed generation %d, its condition is %+v", before.Name, is, ready)
	case before.DeletionTimestamp != nil:
		inv.violated("rule 2: the status of Foo %s was written while it is being deleted", before.Name)
	case !inv.applied(before.UID, ready):
		inv.violated("S3: Foo %s says %s of generation %d, which was not applied", before.Name, ready.Reason, is)
	}
	for _, condition := range before.Status.Conditions {
		if kept := meta.FindStatusCondition(after.Status.Conditions, condition.Type); condition.Type != v1alpha1.FooReady && (kept == nil || !equality.Semantic.DeepEqual(*kept, condition)) {
			inv.violated("API: the condition %s of Foo %s became %+v", condition.Type, before.Name, kept)
		}
	}
}

// applied reports whether a Deployment conformed to the spec that the condition tells of,
// since the Foo has that generation or in what the caches may still show.
func (inv *invariants) applied(foo types.UID, ready *metav1.Condition) bool {
	if ready.Reason != v1alpha1.ReasonDeploymentAvailable && ready.Reason != v1alpha1.ReasonDeploymentProgressing {
		return true
	}
	var spec *v1alpha1.FooSpec
	began := int64(0)
	for _, event := range inv.cluster.foos.events {
		if event.object.GetUID() == foo && event.object.GetGeneration() == ready.ObservedGeneration {
			spec, began = &event.object.(*v1alpha1.Foo).Spec, event.version
			break
		}
	}
	if spec == nil {
		return false
	}
	events := slices.DeleteFunc(slices.Clone(inv.cluster.deployments.events), func(event *watchEvent) bool { return event.object.GetName() != spec.DeploymentName })
	for i, event := range events {
		superseded := i+1 < len(events) && events[i+1].version < began && inv.known(events[i+1])
		deployment := event.object.(*appsv1.Deployment)
		ref := Owner(deployment)
		if superseded || event.kind == watch.Deleted || ref == nil || ref.UID != foo {
			continue
		}
		conforms := Conforms(deployment, spec)
		waits := ptr.Deref(deployment.Spec.Replicas, 1) == 0 && strings.Contains(ready.Message, "waits with 0 replicas")
		if ready.Status == metav1.ConditionTrue && conforms && RolledOut(deployment) ||
			ready.Status == metav1.ConditionFalse && (conforms || waits || deployment.DeletionTimestamp != nil) {
			return true
		}
	}
	return false
}
