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
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/random"
)

// simJudge checks the invariants S1 to S3 at each write of the controller's
// against what is true at that moment. What the process cannot know, because its
// caches have not been told, is no fault of its.
type simJudge struct {
	cluster *simCluster
	faults  []string
	// reads are the last times that the process read or wrote an object, by resource
	// and name.
	reads map[string]simRead
	// released is when a Foo was last right to give up Deployments. One sync may
	// delete several, and others ask for only one of them.
	released map[types.UID]time.Time
}

// simRead is when, and at which version of the cluster, the process last knew for
// sure.
type simRead struct {
	version int64
	at      time.Time
}

func newSimJudge(c *simCluster) *simJudge {
	return &simJudge{cluster: c, reads: map[string]simRead{}, released: map[types.UID]time.Time{}}
}

func (j *simJudge) report(format string, args ...any) {
	fault := fmt.Sprintf(format, args...)
	j.cluster.logf("!! %s", fault)
	j.faults = append(j.faults, fault)
}

func (j *simJudge) sawRead(t *simTable, name string) {
	j.reads[t.group.Resource+"/"+name] = simRead{j.cluster.version, time.Now()}
}

// outdated reports whether the event came after the process read the object in
// this very sync, so that it can know nothing of it. A sync takes no time here.
func (j *simJudge) outdated(t *simTable, event *simEvent) bool {
	read := j.reads[t.group.Resource+"/"+event.object.GetName()]
	return read.at.Equal(time.Now()) && event.version > read.version
}

// known reports whether the process's caches show that event by now. What they
// were told at this very instant may not have come through.
func known(event *simEvent) bool {
	return !event.shown.IsZero() && event.shown.Before(time.Now())
}

// lastChange returns the event by which the object of that name changed hands,
// generation or existence last.
func (t *simTable) lastChange(name string) *simEvent {
	var last *simEvent
	var before simObject
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

// liveOwner returns the Foo that controls the Deployment, nil if it is gone, and
// whether there is one that the process may think to be there.
func (j *simJudge) liveOwner(deployment *appsv1.Deployment) (foo *v1alpha1.Foo, plausible bool) {
	ref := random.Owner(deployment)
	if ref == nil {
		return nil, false
	}
	if foo := j.cluster.foo(ref.Name); foo != nil && foo.UID == ref.UID {
		return foo, true
	}
	for _, event := range j.cluster.foos.events {
		if event.object.GetUID() == ref.UID && event.kind == watch.Deleted {
			return nil, !known(event)
		}
	}
	return nil, false
}

// sawCreate checks S2: what is created was named by its owner's spec.
func (j *simJudge) sawCreate(deployment *appsv1.Deployment) {
	j.sawRead(j.cluster.deployments, deployment.Name)
	ref := random.Owner(deployment)
	if ref == nil {
		j.report("S2: Deployment %s was created without an owner", deployment.Name)
		return
	}
	if _, plausible := j.liveOwner(deployment); !plausible {
		j.report("S2: Deployment %s was created for a Foo that is known to be gone", deployment.Name)
	}
	if !slices.ContainsFunc(j.cluster.foos.events, func(event *simEvent) bool {
		return event.object.GetUID() == ref.UID && event.object.(*v1alpha1.Foo).Spec.DeploymentName == deployment.Name
	}) {
		j.report("S2: Deployment %s was created for Foo %s, whose spec never named it", deployment.Name, ref.Name)
	}
}

// sawPatch checks S1, and rule 4: what is none of ours stays.
func (j *simJudge) sawPatch(before, after *appsv1.Deployment) {
	j.sawRead(j.cluster.deployments, before.Name)
	foo, plausible := j.liveOwner(before)
	switch {
	case !plausible:
		j.report("S1: Deployment %s was patched, which belongs to %+v", before.Name, before.OwnerReferences)
	case before.DeletionTimestamp != nil:
		j.report("rule 7: Deployment %s was patched on its way out", before.Name)
	case foo != nil && foo.DeletionTimestamp != nil && known(j.cluster.foos.lastChange(foo.Name)):
		j.report("rule 2: Deployment %s was patched, whose Foo is on its way out", before.Name)
	}
	if random.Owner(after) == nil || random.Owner(before) != nil && random.Owner(after).UID != random.Owner(before).UID {
		j.report("S1: Deployment %s was given to %+v", before.Name, after.OwnerReferences)
	}
	if diff := differences(before, after); diff != "" {
		j.report("rule 4: Deployment %s was changed in a field that is not the controller's: %s", before.Name, diff)
	}
}

// differences compares all but the fields that the controller owns.
func differences(before, after *appsv1.Deployment) string {
	theirs := func(deployment *appsv1.Deployment) *appsv1.Deployment {
		deployment = copyOf(deployment)
		deployment.ResourceVersion, deployment.Generation, deployment.OwnerReferences, deployment.Spec.Replicas = "", 0, nil, nil
		delete(deployment.Labels, controller.ManagedByLabel)
		for i := range deployment.Spec.Template.Spec.Containers {
			if container := &deployment.Spec.Template.Spec.Containers[i]; container.Name == containerName {
				container.Image = ""
			}
		}
		return deployment
	}
	a, b := theirs(before), theirs(after)
	if equality.Semantic.DeepEqual(a, b) {
		return ""
	}
	return fmt.Sprintf("%+v became %+v", a, b)
}

// sawDelete checks S1 and rule 8: nothing is deleted but a former Deployment of a
// Foo that has the one it asks for, or is in a circle. The Foo's generation and
// that Deployment were read live before, so that only what happened after those
// reads is an excuse.
func (j *simJudge) sawDelete(before *appsv1.Deployment) {
	c := j.cluster
	ref := random.Owner(before)
	if ref == nil {
		j.report("S1: Deployment %s was deleted, which no Foo controls", before.Name)
		return
	}
	change := c.foos.lastChange(ref.Name)
	if change == nil {
		j.report("S1: Deployment %s was deleted, whose Foo never was", before.Name)
		return
	}
	if j.outdated(c.foos, change) {
		return
	}
	if !j.reads[random.Foos+"/"+ref.Name].at.Equal(time.Now()) {
		j.report("rule 8: Deployment %s was deleted without a look at its Foo", before.Name)
	}
	foo := c.foo(ref.Name)
	switch {
	case foo == nil || foo.UID != ref.UID || foo.DeletionTimestamp != nil:
		j.report("S1: Deployment %s was deleted for a Foo that was seen to be gone", before.Name)
	case foo.Spec.DeploymentName == before.Name:
		j.report("rule 8: Deployment %s was deleted, which its Foo asks for", before.Name)
	case j.mayRelease(foo, before):
		j.released[foo.UID] = time.Now()
	case !j.released[foo.UID].Equal(time.Now()):
		j.report("rule 8: Deployment %s was deleted, the last one of Foo %s, for which nobody waits", before.Name, foo.Name)
	}
}

// mayRelease reports whether a Foo may give up the Deployments of its former
// names, one of which was just deleted: it has the one it asks for, or another Foo
// asks for one of them.
func (j *simJudge) mayRelease(foo *v1alpha1.Foo, deleted *appsv1.Deployment) bool {
	c := j.cluster
	wanted := foo.Spec.DeploymentName
	if standing := c.deployment(wanted); standing != nil && standing.DeletionTimestamp == nil && belongs(standing, foo) {
		return true
	}
	if change := c.deployments.lastChange(wanted); change != nil && j.outdated(c.deployments, change) {
		// It stood when the process looked.
		return true
	}
	for _, name := range c.foos.names() {
		if name == foo.Name {
			continue
		}
		asked := c.deployment(c.foo(name).Spec.DeploymentName)
		if c.foo(name).Spec.DeploymentName == deleted.Name || asked != nil && belongs(asked, foo) ||
			j.outdated(c.foos, c.foos.lastChange(name)) {
			return true
		}
	}
	return false
}

func belongs(deployment *appsv1.Deployment, foo *v1alpha1.Foo) bool {
	ref := random.Owner(deployment)
	return ref != nil && ref.UID == foo.UID
}

// sawStatus checks S3.
func (j *simJudge) sawStatus(before, after *v1alpha1.Foo) {
	j.sawRead(j.cluster.foos, before.Name)
	was, is := before.Status.ObservedGeneration, after.Status.ObservedGeneration
	ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.FooReady)
	switch {
	case is > before.Generation:
		j.report("S3: Foo %s has observed generation %d of %d", before.Name, is, before.Generation)
	case is < was:
		j.report("S3: Foo %s has observed generation %d after %d", before.Name, is, was)
	case ready == nil || ready.ObservedGeneration != is:
		j.report("S3: Foo %s has observed generation %d, its condition is %+v", before.Name, is, ready)
	case before.DeletionTimestamp != nil:
		j.report("rule 2: the status of Foo %s was written on its way out", before.Name)
	case !j.actedUpon(before.UID, ready):
		j.report("S3: Foo %s says %s of generation %d, which was not applied", before.Name, ready.Reason, is)
	}
	for _, condition := range before.Status.Conditions {
		if kept := meta.FindStatusCondition(after.Status.Conditions, condition.Type); condition.Type != v1alpha1.FooReady && (kept == nil || !equality.Semantic.DeepEqual(*kept, condition)) {
			j.report("API: the condition %s of Foo %s became %+v", condition.Type, before.Name, kept)
		}
	}
}

// actedUpon reports whether there was, since the Foo came to that generation or in
// what the caches may still show, a Deployment as its spec asks for.
func (j *simJudge) actedUpon(foo types.UID, ready *metav1.Condition) bool {
	if ready.Reason != v1alpha1.ReasonDeploymentAvailable && ready.Reason != v1alpha1.ReasonDeploymentProgressing {
		return true
	}
	var spec *v1alpha1.FooSpec
	began := int64(0)
	for _, event := range j.cluster.foos.events {
		if event.object.GetUID() == foo && event.object.GetGeneration() == ready.ObservedGeneration {
			spec, began = &event.object.(*v1alpha1.Foo).Spec, event.version
			break
		}
	}
	if spec == nil {
		return false
	}
	events := slices.DeleteFunc(slices.Clone(j.cluster.deployments.events), func(event *simEvent) bool { return event.object.GetName() != spec.DeploymentName })
	for i, event := range events {
		superseded := i+1 < len(events) && events[i+1].version < began && known(events[i+1])
		deployment := event.object.(*appsv1.Deployment)
		ref := random.Owner(deployment)
		if superseded || event.kind == watch.Deleted || ref == nil || ref.UID != foo {
			continue
		}
		conforms := random.Conforms(deployment, spec)
		if ready.Status == metav1.ConditionTrue && conforms && random.RolledOut(deployment) ||
			ready.Status == metav1.ConditionFalse && (conforms || deployment.DeletionTimestamp != nil) {
			return true
		}
	}
	return false
}
