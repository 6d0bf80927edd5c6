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

package main

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooclient "example.com/sample-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
	generated "example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/explore"
	"example.com/sample-controller/test/sim"
)

// The clients and informers that the Foo controller gets while it is explored. A method that is not here panics.
type (
	exploredKube struct {
		kubernetes.Interface
		explore.Env
	}
	exploredApps struct {
		appsclient.AppsV1Interface
		explore.Env
	}
	exploredDeployments struct {
		explore.Client[*appsv1.Deployment]
		otherDeploymentMethods
	}
	otherDeploymentMethods struct{ appsclient.DeploymentInterface }
	exploredFooClientset   struct {
		clientset.Interface
		explore.Env
	}
	exploredFooGroup struct {
		fooclient.SamplecontrollerV1alpha1Interface
		explore.Env
	}
	exploredFoos struct {
		explore.Client[*v1alpha1.Foo]
		otherFooMethods
	}
	otherFooMethods struct{ fooclient.FooInterface }
)

func (k exploredKube) AppsV1() appsclient.AppsV1Interface { return exploredApps{Env: k.Env} }

func (a exploredApps) Deployments(string) appsclient.DeploymentInterface {
	return exploredDeployments{Client: explore.Client[*appsv1.Deployment]{Env: a.Env, Resource: sim.Deployments}}
}

func (c exploredFooClientset) SamplecontrollerV1alpha1() fooclient.SamplecontrollerV1alpha1Interface {
	return exploredFooGroup{Env: c.Env}
}

func (g exploredFooGroup) Foos(string) fooclient.FooInterface {
	return exploredFoos{Client: explore.Client[*v1alpha1.Foo]{Env: g.Env, Resource: sim.Foos}}
}

func (f exploredFoos) List(context.Context, metav1.ListOptions) (*v1alpha1.FooList, error) {
	return &v1alpha1.FooList{ListMeta: metav1.ListMeta{ResourceVersion: f.Env.Present()}}, nil
}

// newExplored returns the Foo controller for test/explore.
func newExplored(ctx context.Context, env explore.Env) explore.Controller {
	kubeInformers, informers := kubeinformers.NewSharedInformerFactory(nil, 0), generated.NewSharedInformerFactory(nil, 0)
	explore.Inform(env, newFooDescriptor().Informers, kubeInformers)
	explore.Inform(env, newFooDescriptor().Informers, informers)
	c, err := NewController(ctx, ControllerOptions{
		KubeClient: exploredKube{Env: env}, FooClient: exploredFooClientset{Env: env},
		Deployments: kubeInformers.Apps().V1().Deployments(), Foos: informers.Samplecontroller().V1alpha1().Foos(), Options: env.Options(fooKind),
	})
	if err != nil {
		panic(err)
	}
	return explore.Controller{Memory: []any{c}, Ignored: map[string]string{"main.Controller.fooIndexer": "a cache, which the explorer keeps"}}
}

// TestExplore explores six settled clusters.
func TestExplore(t *testing.T) {
	const x, y, a, b = "x", "y", "a", "b"
	background, orphan := metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan
	createX, createY := sim.Op{Verb: sim.CreateFoo, Foo: x, Deployment: a, Replicas: 1}, sim.Op{Verb: sim.CreateFoo, Foo: y, Deployment: b, Replicas: 1}
	waitingY := sim.Op{Verb: sim.CreateFoo, Foo: y, Deployment: a, Replicas: 2}
	renameX, renameY := sim.Op{Verb: sim.Rename, Foo: x, Deployment: b}, sim.Op{Verb: sim.Rename, Foo: y, Deployment: a}
	scaleX, imageX := sim.Op{Verb: sim.ScaleFoo, Foo: x, Replicas: 2}, sim.Op{Verb: sim.SetImage, Foo: x, NewImage: "nginx:2"}
	deleteX, orphanX := sim.Op{Verb: sim.DeleteFoo, Foo: x, Propagation: background}, sim.Op{Verb: sim.DeleteFoo, Foo: x, Propagation: orphan}
	editA := sim.Op{Verb: sim.EditDeployment, Deployment: a, Edit: sim.EditReplicas, Replicas: 3}
	deleteA := sim.Op{Verb: sim.DeleteDeployment, Deployment: a, Propagation: background}
	rewrite, refuse := sim.Op{Verb: sim.Rewrite}, sim.Op{Verb: sim.Refuse, Count: 1}
	stall := sim.Op{Verb: sim.SetImage, Foo: x, NewImage: sim.StalledImage}
	ops, kind := explore.FooOperations, explore.FooKind()
	kind.Build = newExplored
	explore.Check(t, kind,
		explore.Start{Name: "empty", Then: ops(createX, rewrite, refuse)},
		explore.Start{Name: "x has a", IsLarge: true, Operations: ops(createX), Then: ops(scaleX, imageX, renameX, deleteX, orphanX, editA, deleteA, rewrite, refuse)},
		explore.Start{Name: "x has a, y has b", Operations: ops(createX, createY), Then: ops(renameX, renameY, deleteX)},
		explore.Start{Name: "x has a, y waits for it", IsLarge: true, Operations: ops(createX, waitingY), Then: ops(renameX, deleteX, orphanX, deleteA)},
		explore.Start{Name: "x moves from a to b, which stalls", Operations: ops(createX, stall, renameX), Then: ops(imageX, sim.Op{Verb: sim.Rename, Foo: x, Deployment: a}, deleteX, deleteA, editA)},
		explore.Start{Name: "a is nobody's", Operations: ops(sim.Op{Verb: sim.CreateForeign, Deployment: a}), Then: ops(createX, deleteA, sim.Op{Verb: sim.EditDeployment, Deployment: a, Edit: sim.EditAskAdoption, Foo: x})},
	)
}
