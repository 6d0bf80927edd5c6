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
	"context"
	"fmt"
	"slices"
	"testing"

	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/explore"
	"example.com/sample-controller/test/sim"
)

// TestExplore explores what testdata/suites.yaml says of Memcacheds: every order in which watches, handlers, syncs, the
// garbage collector and the Deployment controller can go on after an operation of a user.
func TestExplore(t *testing.T) {
	owned := explore.ReadOwned(t, "../../..", "memcached", scheme.Scheme)
	owned.Kind.Build = func(ctx context.Context, env explore.Env) explore.Controller {
		kube, own := kubernetes.NewForConfigOrDie(env.Config()), clientset.NewForConfigOrDie(env.Config())
		kubeInformers, informers := kubeinformers.NewSharedInformerFactory(kube, 0), externalversions.NewSharedInformerFactory(own, 0)
		explore.Inform(env, NewDescriptor().Informers, kubeInformers)
		explore.Inform(env, NewDescriptor().Informers, informers)
		c, err := New(ctx, Options{
			KubeClient: kube, Client: own, Memcacheds: informers.Cache().V1alpha1().Memcacheds(), Deployments: kubeInformers.Apps().V1().Deployments(),
			Services: kubeInformers.Core().V1().Services(), ReplicaSets: kubeInformers.Apps().V1().ReplicaSets(), Pods: kubeInformers.Core().V1().Pods(),
			Options: env.Options(memcachedKind),
		})
		if err != nil {
			t.Fatal(err)
		}
		return explore.Controller{Memory: []any{c}, Ignored: map[string]string{
			"memcached.Controller.replicaSets": "a cache", "memcached.Controller.replicaSetIndexer": "a cache", "memcached.Controller.podIndexer": "a cache",
		}}
	}
	owned.Kind.Around = []explore.Around{{Name: "Deployment controller", Resource: sim.Deployments, Step: rollOut}}
	owned.Kind.IsCoarse, owned.Rest = true, checkNodes
	background := metav1.DeletePropagationBackground
	create := []explore.Operation{owned.Create()}
	image := explore.Operation{Story: "another image by hand", Do: func(store *sim.Store) {
		store.Change("deployments", "x", func(object sim.Object) { object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image = "theirs" })
	}}
	port := explore.Operation{Story: "another port by hand", Do: func(store *sim.Store) {
		store.Change("services", "x", func(object sim.Object) { object.(*corev1.Service).Spec.Ports[0].Port = 1 })
	}}
	starts := owned.Starts(owned.Edit("scaled down to nothing"), image, port, owned.Remove("services", background), owned.Remove("memcacheds", background), owned.Refuse())
	starts = append(starts,
		explore.Start{Name: "the name of the Service is taken", IsLarge: true, Part: "1+0", Operations: []explore.Operation{owned.TakeName("services")}, Then: create},
		explore.Start{Name: "settled, more Pods", All: "1+0", Operations: create, Then: []explore.Operation{
			owned.Edit("scaled up"), owned.Drift("edited by hand"), owned.Remove("deployments", background), owned.Remove("memcacheds", metav1.DeletePropagationOrphan),
		}})
	explore.Check(t, owned.Kind, starts...)
}

// rollOut is what the controllers of Deployments and ReplicaSets do about a Deployment, in one step.
func rollOut(store *sim.Store, name string) {
	for _, object := range store.Objects(sim.Deployments) {
		deployment := object.(*appsv1.Deployment)
		if deployment.Name != name || deployment.DeletionTimestamp != nil || metav1.GetControllerOf(deployment) == nil {
			continue
		}
		set := &appsv1.ReplicaSet{ObjectMeta: childOf(deployment, "Deployment", name)}
		store.Create("replicasets", set)
		if sets := store.Objects("replicasets"); !metav1.IsControlledBy(sets[0], deployment) {
			return // The garbage collector has to delete the former one first.
		}
		pods, wanted := len(store.Objects("pods")), int(ptr.Deref(deployment.Spec.Replicas, 1))
		for ; pods < wanted; pods++ {
			store.Create("pods", &corev1.Pod{ObjectMeta: childOf(store.Objects("replicasets")[0], "ReplicaSet", fmt.Sprint(name, pods))})
		}
		for ; pods > wanted; pods-- {
			store.Delete("pods", fmt.Sprint(name, pods-1), metav1.DeletePropagationBackground)
		}
		for store.RollOut(name) {
		}
	}
}

func childOf(owner metav1.Object, kind, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}}
}

// checkNodes checks the Service, and rules M23 and M30 at rest.
func checkNodes(store *sim.Store) (violations []string) {
	violated := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	for _, object := range store.Objects("memcacheds") {
		memcached := object.(*v1alpha1.Memcached)
		nodes := []string{}
		for _, deployment := range store.Objects(sim.Deployments) {
			for _, pod := range store.Objects("pods") {
				if owns(memcached, deployment) {
					nodes = append(nodes, pod.GetName())
				}
			}
		}
		if !slices.Equal(nodes, memcached.Status.Nodes) {
			violated("rule M23: the nodes are %v, and the status says %v", nodes, memcached.Status.Nodes)
		}
		for _, object := range store.Objects("services") {
			service := object.(*corev1.Service)
			if owns(memcached, service) && describeServicePorts(service.Spec.Ports...) != describeServicePorts(newService(memcached, nil).Spec.Ports...) {
				violated("rule M30: the Service has the ports %s", describeServicePorts(service.Spec.Ports...))
			}
		}
	}
	return violations
}
