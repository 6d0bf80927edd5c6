//go:build e2e

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

package e2e

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// createCronTabVictims creates a CronTab, and a Job of others.
func createCronTabVictims(e *env) {
	e.Helper()
	e.createCronTab("x", "@yearly")
	createObject(e, e.jobs(), newForeignJob("theirs"))
}

// createEvilJob is an attempt to create a Job of CronTab x with these changes.
func createEvilJob(what string, change func(*batchv1.Job)) attempt {
	return attempt{what: what, try: func(ctx context.Context, t *attacker) error {
		job := newForeignJob("evil")
		owner := getObject(t.env, t.cronTabs(), "x")
		job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, schema.GroupVersion(alphav1.GroupVersion).WithKind("CronTab"))}
		change(job)
		namespace := t.namespace
		if job.Namespace != "" {
			namespace = job.Namespace
		}
		_, err := t.kube.BatchV1().Jobs(namespace).Create(ctx, job, dryCreate)
		return err
	}}
}

// createEvilJobOf is an attempt to create a Job of CronTab x with this Pod template.
func createEvilJobOf(what string, change func(*corev1.PodSpec)) attempt {
	return createEvilJob(what, func(job *batchv1.Job) { change(&job.Spec.Template.Spec) })
}

// cronTabAttempts take the rights of the controller of CronTabs.
func cronTabAttempts() []attempt {
	return []attempt{
		createEvilJob("create a Job that a CronTab controls, with any image and command", func(*batchv1.Job) {}),
		createEvilJobOf("create a Job with any service account of the namespace, and so get its token", otherAccount),
		createEvilJob("create a Job without an owner", func(job *batchv1.Job) { job.OwnerReferences = nil }),
		createEvilJob("create a Job in kube-system", func(job *batchv1.Job) { job.Namespace = metav1.NamespaceSystem }),
		createEvilJobOf("create a Job with a hostPath volume", hostPath),
		createEvilJobOf("create a Job with a privileged container", privileged),
		createEvilJobOf("create a Job in a namespace of the host", func(pod *corev1.PodSpec) { pod.HostPID = true }),
		{what: "delete a Job of others", try: func(ctx context.Context, t *attacker) error {
			return t.kube.BatchV1().Jobs(t.namespace).Delete(ctx, "theirs", dryDelete)
		}},
		{what: "read all Jobs, with what is in their environment", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.BatchV1().Jobs(t.namespace).List(ctx, metav1.ListOptions{})
			return err
		}},
	}
}
