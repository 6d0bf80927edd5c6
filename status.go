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
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The pure half of reporting: what a Foo's status says, and which of its changes
// are worth an event.

// observation is what a sync found and did, all that a status is computed from.
type observation struct {
	// deployment is the one of the name that the spec asks for, nil if there is
	// none.
	deployment *appsv1.Deployment
	// fresh says that it is the API server's answer of this sync, not the cache's.
	fresh bool
	// ahead says that the cache did not have the Deployment when it was read live.
	ahead bool
	// invalid says why the spec cannot be acted upon, "" if it can.
	invalid string
	// rejected is the API server's final no, nil if it gave none.
	rejected error
	// former are the names of the Deployments that a rename has yet to delete.
	former []string
	// contested says what is fought over and with whom, "" without a fight.
	contested string
	// pause is how long a fight keeps the Deployment from being repaired.
	pause time.Duration
}

// newStatus returns the status that follows from the observation. now stamps a
// transition of the Ready condition. What is not ours in the present status,
// conditions of other types above all, is kept.
func newStatus(foo *v1alpha1.Foo, seen observation, now metav1.Time) v1alpha1.FooStatus {
	status := *foo.Status.DeepCopy()
	status.ObservedGeneration = foo.Generation
	status.AvailableReplicas, status.Replicas, status.Selector = 0, 0, ""
	if seen.deployment != nil && owns(foo, seen.deployment) {
		status.AvailableReplicas = seen.deployment.Status.AvailableReplicas
		status.Replicas = seen.deployment.Status.Replicas
		status.Selector = metav1.FormatLabelSelector(seen.deployment.Spec.Selector)
	}

	ready := readyCondition(foo, seen)
	ready.Type = v1alpha1.FooReady
	ready.ObservedGeneration = foo.Generation
	ready.LastTransitionTime = now
	if old := meta.FindStatusCondition(status.Conditions, v1alpha1.FooReady); old != nil && sameRejection(*old, ready) {
		ready.Message = old.Message
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	return status
}

// sameRejection reports whether both conditions tell of one and the same
// refusal. The messages are not compared: a quota's quotes its current usage,
// and each change of that would otherwise be a write.
func sameRejection(old, new metav1.Condition) bool {
	return new.Reason == v1alpha1.ReasonDeploymentRejected &&
		old.Reason == new.Reason &&
		old.ObservedGeneration == new.ObservedGeneration
}

// readyCondition returns status, reason and message of the Ready condition. The
// first that applies of: the spec, the API server's refusal, the owner, a fight,
// the rollout.
func readyCondition(foo *v1alpha1.Foo, seen observation) metav1.Condition {
	switch {
	case seen.invalid != "":
		return notReady(v1alpha1.ReasonInvalidSpec, seen.invalid)
	case seen.rejected != nil:
		return notReady(v1alpha1.ReasonDeploymentRejected, describeRejection(seen))
	case seen.deployment == nil:
		return notReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q does not exist yet", foo.Spec.DeploymentName))
	case !owns(foo, seen.deployment):
		return notReady(v1alpha1.ReasonDeploymentNotOwned, describeHolder(foo, seen.deployment))
	}
	if seen.contested != "" {
		return notReady(v1alpha1.ReasonDeploymentContested, seen.contested)
	}
	return rolloutCondition(seen.deployment)
}

// maxReason bounds what is repeated of the API server's words: a webhook may
// write a novel, and a condition's message ends at 32768 bytes.
const maxReason = 4096

// describeRejection repeats the API server's words and says what will happen.
func describeRejection(seen observation) string {
	reason := seen.rejected.Error()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	message := fmt.Sprintf("the API server refused: %s; it is tried again every 5 minutes at the latest, and at once when the Foo changes", reason)
	if len(seen.former) > 0 {
		message += fmt.Sprintf("; until it is accepted the former Deployment %s is kept, which counts against a quota: raise the quota by one for the time of the change", strings.Join(seen.former, ", "))
	}
	return message
}

func notReady(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// describeHolder says whose the Deployment is and how the Foo can get its name.
func describeHolder(foo *v1alpha1.Foo, deployment *appsv1.Deployment) string {
	name := deployment.Name
	ref := metav1.GetControllerOfNoCopy(deployment)
	if ref == nil {
		for _, owner := range deployment.OwnerReferences {
			if owner.UID == foo.UID {
				return fmt.Sprintf("Deployment %q lists this Foo as an owner but not as its controller; set controller: true in that owner reference, or delete the Deployment", name)
			}
		}
		return fmt.Sprintf("Deployment %q exists and has no controller; delete it, or ask for another name in spec.deploymentName", name)
	}
	if controllingFoo(deployment) == nil {
		return fmt.Sprintf("Deployment %q is controlled by %s %q; ask for another name in spec.deploymentName", name, ref.Kind, ref.Name)
	}
	if ref.Name == foo.Name {
		return fmt.Sprintf("Deployment %q belongs to an earlier Foo of this name (uid %s); waiting for the garbage collector to remove it", name, ref.UID)
	}
	return fmt.Sprintf("Deployment %q is controlled by Foo %q; this Foo takes the name over once that one is deleted or asks for another, or ask for another name in spec.deploymentName", name, ref.Name)
}

// rolloutCondition judges the rollout of an owned Deployment as `kubectl rollout
// status` does (k8s.io/kubectl/pkg/polymorphichelpers), and says beyond that
// whether it is paused or stalled.
func rolloutCondition(deployment *appsv1.Deployment) metav1.Condition {
	desired := ptr.Deref(deployment.Spec.Replicas, 1)
	status := &deployment.Status
	counts := fmt.Sprintf("%d updated Pods are available, %d are wanted", min(status.UpdatedReplicas, status.AvailableReplicas), desired)

	switch {
	case deployment.DeletionTimestamp != nil:
		return notReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q is being deleted and will be created anew", deployment.Name))
	case status.ObservedGeneration < deployment.Generation:
		return notReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q has not been acted upon yet", deployment.Name))
	case status.UpdatedReplicas >= desired && status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeploymentAvailable, Message: counts}
	case deployment.Spec.Paused:
		return notReady(v1alpha1.ReasonDeploymentPaused, fmt.Sprintf("the rollout of Deployment %q is paused: %s; continue it with kubectl rollout resume", deployment.Name, counts))
	}
	if problem := stallOf(deployment); problem != "" {
		return notReady(v1alpha1.ReasonDeploymentStalled, fmt.Sprintf("the rollout of Deployment %q is stalled: %s", deployment.Name, problem))
	}
	return notReady(v1alpha1.ReasonDeploymentProgressing, counts)
}

// stallOf returns the Deployment controller's own words on why the rollout does
// not go on, or "".
func stallOf(deployment *appsv1.Deployment) string {
	for _, condition := range deployment.Status.Conditions {
		switch {
		case condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue,
			condition.Type == appsv1.DeploymentProgressing && condition.Reason == "ProgressDeadlineExceeded":
			return condition.Message
		}
	}
	return ""
}

// isProgress reports whether a status tells of nothing but a rollout under way.
// Such a status may wait for a second: by then it is often overtaken. The status
// is one that newStatus made.
func isProgress(status *v1alpha1.FooStatus) bool {
	return meta.FindStatusCondition(status.Conditions, v1alpha1.FooReady).Reason == v1alpha1.ReasonDeploymentProgressing
}

// transition is an event worth telling because the Ready condition changed.
type transition struct {
	eventType, reason, message string
}

// transitionOf returns the event that goes with the change from the old status
// to the new one, or nil if there is nothing to tell.
func transitionOf(old, new *v1alpha1.FooStatus) *transition {
	was := meta.FindStatusCondition(old.Conditions, v1alpha1.FooReady)
	is := meta.FindStatusCondition(new.Conditions, v1alpha1.FooReady)
	if was == nil {
		was = &metav1.Condition{}
	}
	if is.Status == metav1.ConditionTrue {
		if was.Status == metav1.ConditionTrue {
			return nil
		}
		return &transition{corev1.EventTypeNormal, eventSynced, "Foo is ready: " + is.Message}
	}
	// A new generation with another message is another trouble of the same kind,
	// such as a second name that is taken.
	if was.Reason == is.Reason && (was.Message == is.Message || was.ObservedGeneration == is.ObservedGeneration) {
		return nil
	}
	switch is.Reason {
	case v1alpha1.ReasonDeploymentNotOwned:
		return &transition{corev1.EventTypeWarning, eventErrResourceExists, is.Message}
	case v1alpha1.ReasonDeploymentRejected, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonDeploymentContested:
		return &transition{corev1.EventTypeWarning, is.Reason, is.Message}
	}
	return nil
}

// Reasons of the events about a Foo, beside those that repeat a reason of its
// Ready condition.
const (
	eventCreated           = "Created"
	eventUpdated           = "Updated"
	eventDeleted           = "Deleted"
	eventSynced            = "Synced"
	eventErrResourceExists = "ErrResourceExists"
)
