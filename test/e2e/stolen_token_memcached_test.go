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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
)

// newEvilService returns a Service that a Memcached controls.
func newEvilService(owner *cachev1alpha1.Memcached) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "evil", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, schema.GroupVersion(cachev1alpha1.GroupVersion).WithKind("Memcached")),
		}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 11211}}, Selector: map[string]string{"app": "evil"}},
	}
}

// createMemcachedVictims creates a Memcached, and a Service of others.
func createMemcachedVictims(e *env) {
	e.Helper()
	theirs := newEvilService(e.createMemcached("x"))
	theirs.Name, theirs.OwnerReferences = "theirs", nil
	createObject(e, shared.kube.CoreV1().Services(e.namespace), theirs)
}

// createEvilService is an attempt to create a Service of Memcached x with these changes.
func createEvilService(what string, change func(*corev1.Service)) attempt {
	return attempt{what: what, try: func(ctx context.Context, t *attacker) error {
		service := newEvilService(getObject(t.env, t.memcacheds(), "x"))
		change(service)
		_, err := t.kube.CoreV1().Services(t.namespace).Create(ctx, service, dryCreate)
		return err
	}}
}

// memcachedAttempts take the rights of the controller of Memcacheds.
func memcachedAttempts() []attempt {
	return []attempt{
		createEvilService("create a Service that a Memcached controls, with any selector", func(*corev1.Service) {}),
		createEvilService("create a Service with externalIPs, and so receive traffic for them", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }),
		createEvilService("create a Service without an owner", func(s *corev1.Service) { s.OwnerReferences = nil }),
		{what: "change the selector in a Service of others", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.CoreV1().Services(t.namespace).Patch(ctx, "theirs", types.MergePatchType, []byte(`{"spec":{"selector":{"app":"evil2"}}}`), dryPatch)
			return err
		}},
		{what: "delete a Service", try: func(ctx context.Context, t *attacker) error {
			return t.kube.CoreV1().Services(t.namespace).Delete(ctx, "theirs", dryDelete)
		}},
		{what: "read all Pods and ReplicaSets, with what is in their environment", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				_, err = t.kube.AppsV1().ReplicaSets(t.namespace).List(ctx, metav1.ListOptions{})
			}
			return err
		}},
	}
}
