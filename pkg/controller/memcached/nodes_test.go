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

package memcached

import (
	"fmt"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/test/fixture"
)

func TestNodes(t *testing.T) {
	owned := newOwned(newMemcached())
	foreign := newOwned(newMemcached(), func(d *appsv1.Deployment) { d.UID = "another" })
	first, second, theirs := newSet("first", owned), newSet("second", owned), newSet("theirs", foreign)
	lookalike := newPod("lookalike", first, func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	notController := newPod("not-controller", first, func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil })
	otherKind := newPod("other-kind", first, func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "StatefulSet" })
	var many []*corev1.Pod
	var names []string
	for i := range 1001 {
		names = append(names, fmt.Sprintf("pod-%04d", i))
		many = append(many, newPod(names[i], first))
	}
	tests := map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"rule M23: of more than a thousand the first thousand": {many, names[:1000]},
		"rule M23: no Pods": {},
		"rule M23: the Pods of all its ReplicaSets, sorted": {
			[]*corev1.Pod{newPod("c", first), newPod("a", second), newPod("b", first)}, []string{"a", "b", "c"}},
		"rule M23: one that waits for a node counts": {[]*corev1.Pod{newPod("a", first, phase(corev1.PodPending))}, []string{"a"}},
		"rule M23: one that is terminating does not": {[]*corev1.Pod{newPod("a", first, terminating), newPod("b", first)}, []string{"b"}},
		"rule M23: one that has ended does not": {
			[]*corev1.Pod{newPod("a", first, phase(corev1.PodSucceeded)), newPod("b", first, phase(corev1.PodFailed)), newPod("c", first)}, []string{"c"}},
		"rule M23: the Pods of another Deployment's ReplicaSet do not": {[]*corev1.Pod{newPod("a", theirs)}, nil},
		"rule M23: labels alone do not make a node":                    {[]*corev1.Pod{lookalike, notController, otherKind}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := newEnv(t, nil, nil)
				fixture.Fill(t, s.replicaSetIndexer, []*appsv1.ReplicaSet{first, second, theirs})
				fixture.Fill(t, s.podIndexer, test.pods)
				fixture.Differ(t, "nodes", test.want, s.nodesOf(owned))
			})
		})
	}
}

// TestEventHandlers is rule M19: which events enqueue which Memcacheds.
func TestEventHandlers(t *testing.T) {
	memcached := newMemcached()
	owned, foreign := newOwned(memcached), newForeign()
	set := newSet("rs", owned)
	pod := newPod("a", set)
	changed := func(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		pod = pod.DeepCopy()
		pod.ResourceVersion = "11"
		change(pod)
		return pod
	}
	orphan := func(pod *corev1.Pod) { pod.OwnerReferences = nil }
	tests := map[string]struct {
		deployment *appsv1.Deployment
		sets       []*appsv1.ReplicaSet
		event      func(*env)
		want       []string
	}{
		"rule M19: a new Memcached is enqueued": {event: func(s *env) { s.enqueueMemcached(memcached) }, want: []string{"mc"}},
		"rule M19: a relist enqueues nothing":   {event: func(s *env) { s.updateMemcached(memcached, newMemcached()) }},
		"rule M19: a changed Memcached is enqueued": {event: func(s *env) {
			s.updateMemcached(memcached, newMemcached(func(m *v1alpha1.Memcached) { m.ResourceVersion = "11" }))
		}, want: []string{"mc"}},
		"rule 11: the event of its own status write enqueues nothing": {event: func(s *env) {
			s.consistency.WroteAt(testKey(), memcached.UID, v1alpha1.Resource("memcacheds"), "11")
			s.updateMemcached(memcached, newMemcached(func(m *v1alpha1.Memcached) { m.ResourceVersion = "11" }))
		}},
		"rule M19: a deleted Memcached is enqueued": {event: func(s *env) {
			s.deleteMemcached(cache.DeletedObject[*v1alpha1.Memcached]{OptionalObj: memcached})
		}, want: []string{"mc"}},
		"rule M19: its Deployment enqueues it":                  {event: func(s *env) { s.handleObject(owned) }, want: []string{"mc"}},
		"rule M5: a foreign Deployment of its name enqueues it": {event: func(s *env) { s.handleObject(foreign) }, want: []string{"mc"}},
		"rule M5: the end of a foreign Deployment of its name enqueues it": {event: func(s *env) {
			s.deleteDeployment(cache.DeletedObject[*appsv1.Deployment]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/mc"}})
		}, want: []string{"mc"}},
		"rule M19: a Deployment of a name that no Memcached has enqueues nothing": {event: func(s *env) {
			s.handleObject(newForeign(func(d *appsv1.Deployment) { d.Name = "other" }))
		}},
		"rule M17: a Memcached of another group is no owner": {event: func(s *env) {
			s.handleObject(newForeign(func(d *appsv1.Deployment) { d.Name = "other" }, ownedBy(metav1.OwnerReference{APIVersion: "example.org/v1", Kind: "Memcached", Name: "mc", UID: "uid-mc", Controller: new(true)})))
		}},

		"rule M23: a new ReplicaSet enqueues it":                          {deployment: owned, event: func(s *env) { s.replicaSetHandlers().AddFunc(set) }, want: []string{"mc"}},
		"rule M23: a ReplicaSet that changed its counts enqueues nothing": {deployment: owned, event: func(s *env) { s.replicaSetHandlers().UpdateFunc(set, set.DeepCopy()) }},
		"rule M23: a ReplicaSet that is handed over enqueues it": {deployment: owned, event: func(s *env) {
			orphan := set.DeepCopy()
			orphan.OwnerReferences = nil
			s.replicaSetHandlers().UpdateFunc(orphan, set)
		}, want: []string{"mc"}},
		"rule M23: a ReplicaSet that is released enqueues it": {deployment: owned, event: func(s *env) {
			orphan := set.DeepCopy()
			orphan.OwnerReferences = nil
			s.replicaSetHandlers().UpdateFunc(set, orphan)
		}, want: []string{"mc"}},
		"rule M23: a ReplicaSet that another Deployment had enqueues it": {deployment: owned, event: func(s *env) {
			theirs := set.DeepCopy()
			theirs.OwnerReferences[0].UID = "other"
			s.replicaSetHandlers().UpdateFunc(theirs, set)
		}, want: []string{"mc"}},
		"rule M23: a ReplicaSet that goes enqueues it": {deployment: owned, event: func(s *env) {
			s.replicaSetHandlers().DeleteFunc(cache.DeletedObject[*appsv1.ReplicaSet]{OptionalObj: set})
		}, want: []string{"mc"}},
		"rule M23: a ReplicaSet of which only the key is known enqueues nothing": {deployment: owned, event: func(s *env) {
			s.replicaSetHandlers().DeleteFunc(cache.DeletedObject[*appsv1.ReplicaSet]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/rs"}})
		}},
		"rule M23: a ReplicaSet of an earlier Deployment of the name enqueues nothing": {
			deployment: newOwned(memcached, func(d *appsv1.Deployment) { d.UID = "newer" }), event: func(s *env) { s.replicaSetHandlers().AddFunc(set) }},
		"rule M23: a ReplicaSet before its Deployment enqueues nothing": {event: func(s *env) { s.replicaSetHandlers().AddFunc(set) }},

		"rule M23: a new Pod enqueues it": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) { s.podHandlers().AddFunc(pod) }, want: []string{"mc"}},
		"rule M23: a new Pod that has ended enqueues nothing": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().AddFunc(newPod("a", set, phase(corev1.PodFailed)))
		}},
		"rule M23: a Pod before its ReplicaSet enqueues nothing": {deployment: owned, event: func(s *env) { s.podHandlers().AddFunc(pod) }},
		"rule M23: a Pod of an earlier ReplicaSet of the name enqueues nothing": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().AddFunc(changed(pod, func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "earlier" }))
		}},
		"rule M23: a Pod that began to run enqueues nothing": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().UpdateFunc(newPod("a", set, phase(corev1.PodPending)), changed(pod, func(*corev1.Pod) {}))
		}},
		"rule M23: a Pod that terminates enqueues it": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().UpdateFunc(pod, changed(pod, terminating))
		}, want: []string{"mc"}},
		"rule M23: a Pod that fails enqueues it": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().UpdateFunc(pod, changed(pod, phase(corev1.PodFailed)))
		}, want: []string{"mc"}},
		"rule M23: a Pod that is released enqueues it": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().UpdateFunc(pod, changed(pod, orphan))
		}, want: []string{"mc"}},
		"rule M23: a Pod that is taken on enqueues it": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().UpdateFunc(changed(pod, orphan), pod)
		}, want: []string{"mc"}},
		"rule M23: a Pod of which only the key is known enqueues nothing": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().DeleteFunc(cache.DeletedObject[*corev1.Pod]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/a"}})
		}},
		"rule M23: another Pod of the same name enqueues it": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().UpdateFunc(pod, changed(pod, func(pod *corev1.Pod) { pod.UID = "newer" }))
		}, want: []string{"mc"}},
		"rule M23: a Pod that goes without notice enqueues it": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().DeleteFunc(cache.DeletedObject[*corev1.Pod]{OptionalObj: pod})
		}, want: []string{"mc"}},
		"rule M23: a Pod whose last state says that it terminates enqueues it, since no earlier event may have said so": {deployment: owned, sets: []*appsv1.ReplicaSet{set}, event: func(s *env) {
			s.podHandlers().DeleteFunc(cache.DeletedObject[*corev1.Pod]{OptionalObj: newPod("a", set, terminating)})
		}, want: []string{"mc"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := newEnv(t, nil, nil)
				fixture.Fill(t, s.memcachedIndexer(), []*v1alpha1.Memcached{memcached})
				if test.deployment != nil {
					fixture.Fill(t, s.deploymentIndexer(), cached(test.deployment))
				}
				fixture.Fill(t, s.replicaSetIndexer, test.sets)
				test.event(s)
				fixture.Differ(t, "enqueued", test.want, fixture.Enqueued(s.worker, 0))
				fixture.Differ(t, "requests", []string(nil), s.requests())
			})
		})
	}
}

func TestTrimNode(t *testing.T) {
	set := newSet("rs", newOwned(newMemcached()))
	pod := newPod("a", set, terminating)
	full := pod.DeepCopy()
	full.Labels, full.Annotations, full.ManagedFields = map[string]string{"x": "y"}, map[string]string{"x": "y"}, []metav1.ManagedFieldsEntry{{}}
	full.OwnerReferences = append([]metav1.OwnerReference{{Name: "other"}}, full.OwnerReferences...)
	full.Spec.Containers, full.Status.PodIP = []corev1.Container{{}}, "10.0.0.1"
	pod.Labels = nil
	orphan := pod.DeepCopy()
	orphan.OwnerReferences = nil
	fullSet := set.DeepCopy()
	fullSet.Spec.Template.Labels, fullSet.Status.Replicas = map[string]string{"x": "y"}, 4
	for _, test := range []struct{ full, want any }{{full, pod}, {orphan, orphan}, {fullSet, set}, {"else", nil}} {
		fixture.Differ(t, "rule M23: what is left in the cache", test.want, TrimNode(test.full))
	}
}
