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
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	cacheclient "example.com/sample-controller/pkg/generated/clientset/versioned/typed/cache/v1alpha1"
)

func (e *env) memcacheds() cacheclient.MemcachedInterface {
	return shared.clientset.CacheV1alpha1().Memcacheds(e.namespace)
}

func size(count int32) func(*cachev1alpha1.MemcachedSpec) {
	return func(spec *cachev1alpha1.MemcachedSpec) { spec.Size = &count }
}

func memcachedImage(image string) func(*cachev1alpha1.MemcachedSpec) {
	return func(spec *cachev1alpha1.MemcachedSpec) { spec.Image = image }
}

func port(number int32) func(*cachev1alpha1.MemcachedSpec) {
	return func(spec *cachev1alpha1.MemcachedSpec) { spec.Port = &number }
}

func (e *env) createMemcached(name string, changes ...func(*cachev1alpha1.MemcachedSpec)) *cachev1alpha1.Memcached {
	e.Helper()
	memcached := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, change := range changes {
		change(&memcached.Spec)
	}
	return createObject(e, e.memcacheds(), memcached)
}

func (e *env) updateMemcached(name string, changes ...func(*cachev1alpha1.MemcachedSpec)) {
	e.Helper()
	updateObject(e, e.memcacheds(), name, func(memcached *cachev1alpha1.Memcached) {
		for _, change := range changes {
			change(&memcached.Spec)
		}
	})
}

// awaitMemcachedReason is awaitReason for a Memcached.
func (e *env) awaitMemcachedReason(name, reason string) (*cachev1alpha1.Memcached, metav1.Condition) {
	e.Helper()
	var ready metav1.Condition
	memcached := awaitObject(e, e.memcacheds(), name, reason, func(memcached *cachev1alpha1.Memcached) (err error) {
		ready, err = hasReason(reason, memcached.Generation, memcached.Status.ObservedGeneration, memcached.Status.Conditions)
		return err
	})
	return memcached, ready
}

// awaitMemcachedReady waits until the Memcached is ready in its current generation, and its
// status names the Pods that exist.
func (e *env) awaitMemcachedReady(name string) *cachev1alpha1.Memcached {
	e.Helper()
	return awaitObject(e, e.memcacheds(), name, "is ready and names its Pods", func(memcached *cachev1alpha1.Memcached) error {
		if _, err := hasReason(v1alpha1.ReasonDeploymentAvailable, memcached.Generation, memcached.Status.ObservedGeneration, memcached.Status.Conditions); err != nil {
			return err
		}
		if want := e.livePods("memcached_cr=" + name); int(*memcached.Spec.Size) != len(want) || !slices.Equal(memcached.Status.Nodes, want) {
			return fmt.Errorf("the size is %d, the nodes are %q, the Pods %q", *memcached.Spec.Size, memcached.Status.Nodes, want)
		}
		return nil
	})
}

// livePods returns the names of the Pods that the selector matches, that have a controller
// and that are neither terminating nor finished, sorted.
func (e *env) livePods(selector string) []string {
	e.Helper()
	list, err := shared.kube.CoreV1().Pods(e.namespace).List(e.Context(), metav1.ListOptions{LabelSelector: selector})
	e.must(err)
	names := []string{}
	for i := range list.Items {
		pod := &list.Items[i]
		if metav1.GetControllerOf(pod) != nil && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// driftMemcachedService removes the controller's label from the Service of memcached-new: the
// controller patches the Service, and reads it live once that is contention.
func (e *env) driftMemcachedService(ctx context.Context) {
	if service, err := e.memcachedServices().Get(ctx, "memcached-new", metav1.GetOptions{}); err == nil && service.Labels[managedBy] != "" {
		delete(service.Labels, managedBy)
		_, _ = e.memcachedServices().Update(ctx, service, metav1.UpdateOptions{})
	}
}

// keepMemcachedsBusy creates a Memcached that has no Deployment yet.
func keepMemcachedsBusy(e *env, _, _ string) (flags string) {
	e.Helper()
	e.createMemcached("memcached-new")
	return ""
}

// memcachedPolicy tries the limits of memcached-policy.yaml.
func memcachedPolicy(t *testing.T, limited, registries string) {
	t.Helper()
	apply := func(spec string) string {
		return fmt.Sprintf("kubectl apply --namespace=%s -f - << EOF\napiVersion: cache.example.com/v1alpha1\nkind: Memcached\nmetadata: {name: limited}\n%s\nEOF", limited, spec)
	}
	sh(t, apply("spec: {size: 10, image: registry.k8s.io/memcached}"))
	mustContain(t, shFails(t, apply("spec: {size: 11, image: registry.k8s.io/memcached}")), "spec.size: 11 are more than the 10 that ConfigMap foo-limits allows")
	mustContain(t, shFails(t, "kubectl scale memcached limited --replicas=11 --namespace="+limited), "spec.size: 11 are more than the 10")
	mustContain(t, shFails(t, apply("spec: {size: 1, image: null}")), "spec.image: memcached:1.6-alpine"+registries)
}
