//go:build faults

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

package faults

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// What policies.yaml makes of Deployments with names that begin so.
const (
	heldPrefix       = "held-"
	admittedPrefix   = "admitted-"
	admittedReplicas = 2
	admittedRegistry = "mirror.example/"
)

// awaitPolicies waits until the API server applies the policies: it reads them late.
func awaitPolicies(t *testing.T) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		last = checkPolicies(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("the policies do not apply: %v; last: %v", err, last)
	}
}

// checkPolicies returns nil if the API server applies the policies.
func checkPolicies(ctx context.Context) error {
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	deployment, err := cluster.kube.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, foreignDeployment(admittedPrefix+"probe"), dryRun)
	if err != nil {
		return err
	}
	pod, err := cluster.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: heldPrefix}, Spec: deployment.Spec.Template.Spec,
	}, dryRun)
	if err != nil {
		return err
	}
	if pod.Spec.SchedulerName != "none" || ptr.Deref(deployment.Spec.Replicas, 0) != admittedReplicas {
		return fmt.Errorf("admission made %+v and %+v of them", deployment.Spec, pod.Spec)
	}
	return nil
}
