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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	cacheclient "example.com/sample-controller/pkg/generated/clientset/versioned/typed/cache/v1alpha1"
)

// What a scene has for Memcacheds.

func (s *scene) memcacheds() cacheclient.MemcachedInterface {
	return shared.foos.CacheV1alpha1().Memcacheds(s.namespace)
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

func (s *scene) createMemcached(name string, changes ...func(*cachev1alpha1.MemcachedSpec)) *cachev1alpha1.Memcached {
	s.Helper()
	memcached := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, change := range changes {
		change(&memcached.Spec)
	}
	memcached, err := s.memcacheds().Create(s.Context(), memcached, metav1.CreateOptions{})
	s.must(err)
	return memcached
}

func (s *scene) updateMemcached(name string, changes ...func(*cachev1alpha1.MemcachedSpec)) {
	s.Helper()
	s.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		memcached, err := s.memcacheds().Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, change := range changes {
			change(&memcached.Spec)
		}
		_, err = s.memcacheds().Update(s.Context(), memcached, metav1.UpdateOptions{})
		return err
	}))
}

// memcachedCondition is condition for a Memcached.
func (s *scene) memcachedCondition(name, reason string) (*cachev1alpha1.Memcached, metav1.Condition) {
	s.Helper()
	var memcached *cachev1alpha1.Memcached
	var ready metav1.Condition
	s.eventually(fmt.Sprintf("Memcached %s has the reason %s", name, reason), func(ctx context.Context) (err error) {
		if memcached, err = s.memcacheds().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		ready, err = hasReason(reason, memcached.Generation, memcached.Status.ObservedGeneration, memcached.Status.Conditions)
		return err
	})
	return memcached, ready
}

// memcachedReady waits until the Memcached is ready as its spec stands now, and its
// status has the names of the Pods that there are.
func (s *scene) memcachedReady(name string) *cachev1alpha1.Memcached {
	s.Helper()
	var memcached *cachev1alpha1.Memcached
	s.eventually("Memcached "+name+" is ready and tells of its Pods", func(ctx context.Context) (err error) {
		if memcached, err = s.memcacheds().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if _, err = hasReason(v1alpha1.ReasonDeploymentAvailable, memcached.Generation, memcached.Status.ObservedGeneration, memcached.Status.Conditions); err != nil {
			return err
		}
		if want := s.livePods("memcached_cr=" + name); int(*memcached.Spec.Size) != len(want) || !slices.Equal(memcached.Status.Nodes, want) {
			return fmt.Errorf("the size is %d, the nodes are %q, the Pods %q", *memcached.Spec.Size, memcached.Status.Nodes, want)
		}
		return nil
	})
	return memcached
}

// livePods returns the names of the Pods with those labels that some ReplicaSet
// controls and that are not on their way out, sorted.
func (s *scene) livePods(selector string) []string {
	s.Helper()
	list, err := shared.kube.CoreV1().Pods(s.namespace).List(s.Context(), metav1.ListOptions{LabelSelector: selector})
	s.must(err)
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
