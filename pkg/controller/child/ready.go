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

package child

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

// The pure half of reporting: what the Ready condition of a parent says, and which
// of its changes are worth an event. The reasons are v1alpha1's, for every kind.

// eventErrResourceExists is the reason of the event that goes with
// v1alpha1.ReasonDeploymentNotOwned.
const eventErrResourceExists = "ErrResourceExists"

// Observation is what a sync found and did, all that a status is computed from.
type Observation struct {
	// Deployment is the one of the name that the parent asks for, nil if there is
	// none.
	Deployment *appsv1.Deployment
	// Fresh says that it is the API server's answer of this sync, not the cache's.
	Fresh bool
	// Ahead says that the cache did not have the Deployment when it was read live.
	Ahead bool
	// Invalid says why the spec cannot be acted upon, "" if it can.
	Invalid string
	// Rejected is the API server's final no, nil if it gave none.
	Rejected error
	// Former are the names of the Deployments that a rename has yet to delete.
	Former []string
	// Contested says what is fought over and with whom, "" without a fight.
	Contested string
	// Pause is how long a fight keeps the Deployment from being repaired.
	Pause time.Duration
}

// Again returns how long to wait before the next sync, 0 for until something happens.
// wait is how long the status is put off.
func (o Observation) Again(wait time.Duration) time.Duration {
	wait = max(wait, o.Pause)
	if o.Ahead && wait == 0 {
		// Should it be gone before the cache gets to see it, no event will tell.
		return controller.StaleCacheDelay
	}
	return wait
}

// SetReady puts the Ready condition that follows from the observation among the
// parent's conditions, and leaves those of other types alone. name is that of the
// Deployment, now stamps a transition.
func (k Kind) SetReady(conditions *[]metav1.Condition, parent metav1.Object, name string, seen Observation, now metav1.Time) {
	ready := k.readyCondition(parent, name, seen)
	if old := controller.ReadyOf(*conditions); sameRejection(old, ready, parent.GetGeneration()) {
		ready.Message = old.Message
	}
	controller.SetReady(conditions, ready, parent.GetGeneration(), now)
}

// sameRejection reports whether both conditions tell of one and the same
// refusal. The messages are not compared: a quota's quotes its current usage,
// and each change of that would otherwise be a write.
func sameRejection(old, new metav1.Condition, generation int64) bool {
	return new.Reason == v1alpha1.ReasonDeploymentRejected &&
		old.Reason == new.Reason &&
		old.ObservedGeneration == generation
}

// readyCondition returns status, reason and message of the Ready condition. The
// first that applies of: the spec, the API server's refusal, the owner, a fight,
// the rollout.
func (k Kind) readyCondition(parent metav1.Object, name string, seen Observation) metav1.Condition {
	switch {
	case seen.Invalid != "":
		return controller.NotReady(v1alpha1.ReasonInvalidSpec, seen.Invalid)
	case seen.Rejected != nil:
		return controller.NotReady(v1alpha1.ReasonDeploymentRejected, k.describeRejection(seen))
	case seen.Deployment == nil:
		return controller.NotReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q does not exist yet", name))
	case !k.Owns(parent, seen.Deployment):
		return controller.NotReady(v1alpha1.ReasonDeploymentNotOwned, k.describeHolder(parent, seen.Deployment))
	}
	if seen.Contested != "" {
		return controller.NotReady(v1alpha1.ReasonDeploymentContested, seen.Contested)
	}
	return rolloutCondition(seen.Deployment)
}

// IsProgress reports whether a Ready condition tells of nothing but a rollout under
// way. Such a status may wait for a second: by then it is often overtaken.
func IsProgress(ready metav1.Condition) bool {
	return ready.Reason == v1alpha1.ReasonDeploymentProgressing
}

// Transition returns the event that goes with the change of the Ready condition, or
// nil if there is nothing to tell.
func (k Kind) Transition(was, is metav1.Condition) *controller.Event {
	return controller.Transition(k.Kind, was, is, func(reason string) string {
		switch reason {
		case v1alpha1.ReasonDeploymentNotOwned:
			return eventErrResourceExists
		case v1alpha1.ReasonDeploymentRejected, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonDeploymentContested:
			return reason
		}
		return ""
	})
}

// maxReason bounds what is repeated of the API server's words: a webhook may
// write a novel, and a condition's message ends at 32768 bytes.
const maxReason = 4096

// describeRejection repeats the API server's words and says what will happen.
func (k Kind) describeRejection(seen Observation) string {
	reason := seen.Rejected.Error()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	message := fmt.Sprintf("the API server refused: %s; it is tried again every 5 minutes at the latest, and at once when the %s changes", reason, k.Kind)
	if len(seen.Former) > 0 {
		message += fmt.Sprintf("; until it is accepted the former Deployment %s is kept, which counts against a quota: raise the quota by one for the time of the change", strings.Join(seen.Former, ", "))
	}
	return message
}

// describeHolder says whose the Deployment is and how the parent can get its name.
func (k Kind) describeHolder(parent metav1.Object, deployment *appsv1.Deployment) string {
	name := deployment.Name
	ref := metav1.GetControllerOfNoCopy(deployment)
	if ref == nil {
		for _, owner := range deployment.OwnerReferences {
			if owner.UID == parent.GetUID() {
				return fmt.Sprintf("Deployment %q lists this %s as an owner but not as its controller; set controller: true in that owner reference, or delete the Deployment", name, k.Kind)
			}
		}
		return fmt.Sprintf("Deployment %q exists and has no controller; delete it, or %s", name, k.Elsewhere)
	}
	if k.ControllerOf(deployment) == nil {
		return fmt.Sprintf("Deployment %q is controlled by %s %q; %s", name, ref.Kind, ref.Name, k.Elsewhere)
	}
	if ref.Name == parent.GetName() {
		return fmt.Sprintf("Deployment %q belongs to an earlier %s of this name (uid %s); waiting for the garbage collector to remove it", name, k.Kind, ref.UID)
	}
	return fmt.Sprintf("Deployment %q is controlled by %s %q; this %s takes the name over once that one %s, or %s", name, k.Kind, ref.Name, k.Kind, k.LetsGo, k.Elsewhere)
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
		return controller.NotReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q is being deleted and will be created anew", deployment.Name))
	case status.ObservedGeneration < deployment.Generation:
		return controller.NotReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q has not been acted upon yet", deployment.Name))
	case status.UpdatedReplicas >= desired && status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeploymentAvailable, Message: counts}
	case deployment.Spec.Paused:
		return controller.NotReady(v1alpha1.ReasonDeploymentPaused, fmt.Sprintf("the rollout of Deployment %q is paused: %s; continue it with kubectl rollout resume", deployment.Name, counts))
	}
	if problem := stallOf(deployment); problem != "" {
		return controller.NotReady(v1alpha1.ReasonDeploymentStalled, fmt.Sprintf("the rollout of Deployment %q is stalled: %s", deployment.Name, problem))
	}
	return controller.NotReady(v1alpha1.ReasonDeploymentProgressing, counts)
}

// stallOf returns the Deployment controller's own words on why the rollout does
// not go on, or "".
func stallOf(deployment *appsv1.Deployment) string {
	for i := range deployment.Status.Conditions {
		if condition := &deployment.Status.Conditions[i]; isStall(condition) {
			return condition.Message
		}
	}
	return ""
}

// isStall reports whether the condition tells that a rollout does not go on.
func isStall(condition *appsv1.DeploymentCondition) bool {
	return condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue ||
		condition.Type == appsv1.DeploymentProgressing && condition.Reason == "ProgressDeadlineExceeded"
}

// FormatSelector returns a selector in words, as metav1.FormatLabelSelector does of one
// that the API server admits. Every sync needs it, and that one would parse and check the
// selector first.
func FormatSelector(selector *metav1.LabelSelector) string {
	if selector == nil || len(selector.MatchLabels) == 0 || len(selector.MatchExpressions) > 0 {
		return metav1.FormatLabelSelector(selector)
	}
	labels := make([]string, 0, 8)
	size := 0
	for label, value := range selector.MatchLabels {
		labels = append(labels, label)
		size += len(label) + len(value) + len("=,")
	}
	slices.Sort(labels)
	var words strings.Builder
	words.Grow(size)
	for i, label := range labels {
		if i > 0 {
			words.WriteByte(',')
		}
		words.WriteString(label)
		words.WriteByte('=')
		words.WriteString(selector.MatchLabels[label])
	}
	return words.String()
}
