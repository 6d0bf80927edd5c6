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

package deployment

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	reasons "example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

// Reasons of Warning events, beside those of conditions.
const (
	// EventErrResourceExists says that an object of the name exists that the owner does not
	// control. The controller does not change it.
	EventErrResourceExists = "ErrResourceExists"
)

// ReadyCondition returns the Ready condition of an owner of a Deployment, by the
// state of the rollout and by what became of the owner's writes.
func ReadyCondition(d *appsv1.Deployment, writes controller.Report, now time.Time) metav1.Condition {
	state, message := Rollout(d, now)
	if state == RolloutComplete && writes.Drift != "" {
		state, message = RolloutProgressing, fmt.Sprintf("Deployment %q was changed by another writer and is about to be repaired: %s", d.Name, writes.Drift)
	}
	if writes.Accepted != "" {
		message += "; accepted from admission webhooks or policies: " + writes.Accepted
	}
	switch state {
	case RolloutComplete:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: reasons.ReasonDeploymentAvailable, Message: message}
	case RolloutPaused:
		return controller.NotReady(reasons.ReasonDeploymentPaused, message)
	case RolloutStalled:
		return controller.NotReady(reasons.ReasonDeploymentStalled, message)
	}
	return controller.NotReady(reasons.ReasonDeploymentProgressing, message)
}

// ReadyEvent returns the event about a change of the Ready condition of an owner of that kind: it
// became Ready, or its user has to change something. It returns nil for other changes.
func ReadyEvent(kind string, old, ready metav1.Condition) *controller.Event {
	if ready.Status == metav1.ConditionTrue && old.Status != metav1.ConditionTrue {
		return &controller.Event{Type: corev1.EventTypeNormal, Reason: controller.EventSynced, Message: kind + " is ready: " + ready.Message}
	}
	reason := ready.Reason
	switch reason {
	case reasons.ReasonDeploymentNotOwned:
		reason = EventErrResourceExists
	case reasons.ReasonDeploymentRejected, reasons.ReasonInvalidSpec, reasons.ReasonDeploymentContested:
	default:
		return nil
	}
	if !controller.IsNews(old, ready) {
		return nil
	}
	return &controller.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: ready.Message}
}

// Container returns the container of that name in the Pod template, nil if there is none.
func Container(deployment *appsv1.Deployment, name string) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &containers[i]
	}
	return nil
}
