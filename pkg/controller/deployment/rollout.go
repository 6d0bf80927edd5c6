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

// Package deployment has helpers for controllers that own a Deployment: the decision and the
// result of a sync, the state of the rollout, the smallest patch, messages, and what a cache
// must hold. They take and return values; the controllers make all API calls.
package deployment

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// RolloutState says how far the rollout of a Deployment has come.
type RolloutState string

const (
	// RolloutComplete says that all desired Pods are updated and available.
	RolloutComplete RolloutState = "Complete"
	// RolloutProgressing says that the Deployment controller is still at work.
	RolloutProgressing RolloutState = "Progressing"
	// RolloutPaused says that spec.paused stopped the unfinished rollout.
	RolloutPaused RolloutState = "Paused"
	// RolloutStalled says that the Deployment controller reports that it cannot go on.
	RolloutStalled RolloutState = "Stalled"
)

// Rollout returns the state of the Deployment's rollout and a message that explains it. A
// rollout is complete under the conditions that `kubectl rollout status` waits for
// (k8s.io/kubectl/pkg/polymorphichelpers), with the available Pods compared with
// spec.replicas.
func Rollout(deployment *appsv1.Deployment) (RolloutState, string) {
	desired := ptr.Deref(deployment.Spec.Replicas, 1)
	status := &deployment.Status
	counts := fmt.Sprintf("%d updated Pods are available, %d are wanted", min(status.UpdatedReplicas, status.AvailableReplicas), desired)

	switch {
	case deployment.DeletionTimestamp != nil:
		return RolloutProgressing, fmt.Sprintf("Deployment %q is being deleted and will be created anew", deployment.Name)
	case status.ObservedGeneration < deployment.Generation:
		return RolloutProgressing, fmt.Sprintf("Deployment %q has not been acted upon yet", deployment.Name)
	case status.UpdatedReplicas >= desired && status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired:
		return RolloutComplete, counts
	case deployment.Spec.Paused:
		return RolloutPaused, fmt.Sprintf("the rollout of Deployment %q is paused: %s; continue it with kubectl rollout resume", deployment.Name, counts)
	}
	for i := range status.Conditions {
		if condition := &status.Conditions[i]; isStalled(condition) {
			return RolloutStalled, fmt.Sprintf("the rollout of Deployment %q is stalled: %s", deployment.Name, condition.Message)
		}
	}
	return RolloutProgressing, counts
}

// isStalled reports whether the condition says that a rollout cannot go on.
func isStalled(condition *appsv1.DeploymentCondition) bool {
	return condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue ||
		condition.Type == appsv1.DeploymentProgressing && condition.Reason == "ProgressDeadlineExceeded"
}

// FormatSelector returns the string form of a Deployment's selector, as
// metav1.FormatLabelSelector does. Every sync calls it, so it skips the parsing and
// validation that the API server has already done: 1 allocation in place of 21
// (docs/decisions/2026-11-22-weighed.md).
func FormatSelector(selector *metav1.LabelSelector) string {
	if selector == nil || len(selector.MatchLabels) == 0 || len(selector.MatchExpressions) > 0 {
		return metav1.FormatLabelSelector(selector)
	}
	labels := make([]string, 0, 4)
	for label := range selector.MatchLabels {
		labels = append(labels, label)
	}
	slices.Sort(labels)
	var formatted strings.Builder
	formatted.Grow(64)
	for i, label := range labels {
		if i > 0 {
			formatted.WriteByte(',')
		}
		formatted.WriteString(label)
		formatted.WriteByte('=')
		formatted.WriteString(selector.MatchLabels[label])
	}
	return formatted.String()
}
