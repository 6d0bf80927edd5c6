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

// Package deployment has helpers for controllers that own a Deployment: the Ready condition that follows
// from its rollout, messages, and what a cache must hold. They take and return values; the controllers
// make all API calls.
package deployment

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	reasons "example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/client/trim"
	"example.com/sample-controller/pkg/controller"
)

const (
	// defaultProgressDeadline is what the API server fills in.
	defaultProgressDeadline = 600
	// maxFinalizers is how many finalizers are kept and named of a terminating Deployment.
	maxFinalizers = 8
	// replicaSetCreateError is the reason with which the Deployment controller reports that
	// it cannot create a ReplicaSet (pkg/controller/deployment/util in k8s.io/kubernetes).
	replicaSetCreateError = "ReplicaSetCreateError"
)

// ReadyCondition returns the Ready condition of an owner of a Deployment, by its rollout and by what
// became of the owner's writes.
func ReadyCondition(d *appsv1.Deployment, writes controller.Report, now time.Time) metav1.Condition {
	ready := Rollout(d, now)
	if ready.Status == metav1.ConditionTrue && writes.Drift != "" {
		ready = controller.NotReady(reasons.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q was changed by another writer and is about to be repaired: %s", d.Name, writes.Drift))
	}
	if writes.Accepted != "" {
		ready.Message += "; accepted from admission webhooks or policies: " + writes.Accepted
	}
	return ready
}

// Rollout returns the Ready condition by the rollout alone. It is True once the rollout is complete
// under the conditions that `kubectl rollout status` waits for (k8s.io/kubectl/pkg/polymorphichelpers),
// with the available Pods compared with spec.replicas.
func Rollout(d *appsv1.Deployment, now time.Time) metav1.Condition {
	desired := ptr.Deref(d.Spec.Replicas, 1)
	status := &d.Status
	// The status does not say which Pods are available. The old ones usually are.
	old := max(0, status.Replicas-status.UpdatedReplicas)
	counts := fmt.Sprintf("%d updated Pods are available, %d are wanted", max(0, min(status.UpdatedReplicas, status.AvailableReplicas-old)), desired)

	stalled := stalledCondition(status.Conditions)
	switch {
	case d.DeletionTimestamp != nil:
		if UntilTerminationStalls(d, now) > 0 {
			return controller.NotReady(reasons.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q is being deleted and will be created anew", d.Name))
		}
		return controller.NotReady(reasons.ReasonDeploymentStalled, DescribeStalledTermination(d, now)+"; it is created anew when it is gone")
	case stalled != nil && stalled.Reason == replicaSetCreateError:
		// The Deployment controller does not raise observedGeneration in this case.
		return controller.NotReady(reasons.ReasonDeploymentStalled, describeStalled(d, stalled))
	case status.ObservedGeneration < d.Generation:
		return controller.NotReady(reasons.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q has not been acted upon yet", d.Name))
	case status.UpdatedReplicas >= desired && status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: reasons.ReasonDeploymentAvailable, Message: counts}
	case d.Spec.Paused:
		return controller.NotReady(reasons.ReasonDeploymentPaused, fmt.Sprintf("the rollout of Deployment %q is paused: %s; continue it with kubectl rollout resume deployment %s -n %s", d.Name, counts, d.Name, d.Namespace))
	case stalled != nil:
		return controller.NotReady(reasons.ReasonDeploymentStalled, describeStalled(d, stalled))
	}
	return controller.NotReady(reasons.ReasonDeploymentProgressing, counts)
}

// ReadyEvent is controller.ReadyEvent for an owner of a Deployment, whose own events tell of a stalled rollout.
func ReadyEvent(kind string, old, ready metav1.Condition) *controller.Event {
	return controller.ReadyEvent(kind, old, ready,
		reasons.ReasonDeploymentNotOwned, reasons.ReasonDeploymentRejected, reasons.ReasonInvalidSpec, reasons.ReasonDeploymentContested)
}

// Container returns the container of that name in the Pod template, nil if there is none.
func Container(deployment *appsv1.Deployment, name string) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &containers[i]
	}
	return nil
}

// stalledCondition returns the condition which says that a rollout cannot go on, nil if
// there is none. The inability to create a ReplicaSet comes first.
func stalledCondition(conditions []appsv1.DeploymentCondition) *appsv1.DeploymentCondition {
	var stalled *appsv1.DeploymentCondition
	for i := range conditions {
		if condition := &conditions[i]; isStalled(condition) && (stalled == nil || condition.Reason == replicaSetCreateError) {
			stalled = condition
		}
	}
	return stalled
}

// isStalled reports whether the condition says that a rollout cannot go on.
func isStalled(condition *appsv1.DeploymentCondition) bool {
	return condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue ||
		condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse &&
			(condition.Reason == "ProgressDeadlineExceeded" || condition.Reason == replicaSetCreateError)
}

func describeStalled(deployment *appsv1.Deployment, stalled *appsv1.DeploymentCondition) string {
	message := fmt.Sprintf("the rollout of Deployment %q is stalled: %s", deployment.Name, trim.BoundedMessage(stalled.Message))
	if strings.Contains(stalled.Message, "violates PodSecurity") { // There is no reason of its own for that.
		message += fmt.Sprintf("; set the securityContext in the Pod template as the Pod Security level of the namespace requires (kubectl edit deployment %s -n %s); an image that runs as root needs another user or image", deployment.Name, deployment.Namespace)
	}
	return message
}

// progressDeadline returns the progress deadline of the Deployment. The API says that the
// highest number stands for none; it is 68 years.
func progressDeadline(deployment *appsv1.Deployment) time.Duration {
	return time.Duration(ptr.Deref(deployment.Spec.ProgressDeadlineSeconds, defaultProgressDeadline)) * time.Second
}

// UntilTerminationStalls returns how long it is until the Deployment will have been
// terminating for its progress deadline, 0 if it has been, or if it is not terminating.
func UntilTerminationStalls(deployment *appsv1.Deployment, now time.Time) time.Duration {
	if deployment == nil || deployment.DeletionTimestamp == nil {
		return 0
	}
	deadline := progressDeadline(deployment)
	// The clocks of the API server and of this process may differ.
	return min(deadline, max(0, deployment.DeletionTimestamp.Add(deadline).Sub(now)))
}

// DescribeStalledTermination says what holds a Deployment that has been terminating for longer
// than its progress deadline, "" if the Deployment has not.
func DescribeStalledTermination(deployment *appsv1.Deployment, now time.Time) string {
	if deployment.DeletionTimestamp == nil || UntilTerminationStalls(deployment, now) > 0 {
		return ""
	}
	held := "no finalizer holds it; look at the garbage collector of kube-controller-manager"
	if names := trimFinalizers(deployment.Finalizers); len(names) > 0 {
		held = fmt.Sprintf("it is held by the finalizers %s; see why the controllers that they belong to do not remove them", strings.Join(names, ", "))
	}
	return fmt.Sprintf("Deployment %q has been terminating for longer than its progress deadline of %v: %s", deployment.Name, progressDeadline(deployment), held)
}

// trimFinalizers returns the first finalizers. The API server bounds the length of each.
func trimFinalizers(finalizers []string) []string {
	return slices.Clone(finalizers[:min(len(finalizers), maxFinalizers)])
}

// maxSelector bounds a selector, in bytes of its protobuf form, which is longer than the string form: users
// choose the selector of a Deployment that they create with an owner reference to an object. It is the
// maximum of status.selector in the CRDs.
const maxSelector = 4096

// FormatSelector returns the string form of a Deployment's selector, "" for one that is missing or too
// long for a status.
func FormatSelector(selector *metav1.LabelSelector) string {
	if selector == nil || selector.Size() > maxSelector {
		return ""
	}
	return metav1.FormatLabelSelector(selector)
}
