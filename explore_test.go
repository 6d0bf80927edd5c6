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
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	generated "example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/explore"
	"example.com/sample-controller/test/sim"
)

// newExplored returns the Foo controller for test/explore.
func newExplored(ctx context.Context, env explore.Env) explore.Controller {
	kubeInformers, informers := kubeinformers.NewSharedInformerFactory(nil, 0), generated.NewSharedInformerFactory(nil, 0)
	explore.Inform(env, newFooDescriptor().Informers, kubeInformers)
	explore.Inform(env, newFooDescriptor().Informers, informers)
	c, err := NewController(ctx, ControllerOptions{
		KubeClient: kubernetes.NewForConfigOrDie(env.Config()), FooClient: clientset.NewForConfigOrDie(env.Config()),
		Deployments: kubeInformers.Apps().V1().Deployments(), Foos: informers.Samplecontroller().V1alpha1().Foos(), Options: env.Options(fooKind),
	})
	if err != nil {
		panic(err)
	}
	return explore.Controller{Memory: []any{c}, Ignored: map[string]string{"main.Controller.fooIndexer": "a cache, which the explorer keeps"}}
}

// background is how users delete objects, unless it says otherwise.
const background = metav1.DeletePropagationBackground

// exploredStarts are the settled clusters, with what users may do there.
func exploredStarts() []explore.Start {
	const x, y, a = "x", "y", "a"
	orphan := metav1.DeletePropagationOrphan
	then := explore.FooOperations
	createX, waitingY := sim.Op{Verb: sim.CreateFoo, Foo: x, Deployment: a, Replicas: 1}, sim.Op{Verb: sim.CreateFoo, Foo: y, Deployment: a, Replicas: 2}
	scaleX, imageX := sim.Op{Verb: sim.ScaleFoo, Foo: x, Replicas: 2}, sim.Op{Verb: sim.SetImage, Foo: x, NewImage: "nginx:2"}
	deleteX, orphanX := sim.Op{Verb: sim.DeleteFoo, Foo: x, Propagation: background}, sim.Op{Verb: sim.DeleteFoo, Foo: x, Propagation: orphan}
	recreateX := sim.Op{Verb: sim.RecreateFoo, Foo: x}
	editA := sim.Op{Verb: sim.EditDeployment, Deployment: a, Edit: sim.EditReplicas, Replicas: 3}
	deleteA := sim.Op{Verb: sim.DeleteDeployment, Deployment: a, Propagation: background}
	adoptA := sim.Op{Verb: sim.EditDeployment, Deployment: a, Edit: sim.EditAskAdoption, Foo: x}
	rewrite := sim.Op{Verb: sim.Rewrite}
	policies := []explore.Operation{
		{Story: "a policy refuses the writes to Deployments, each time with another text", Do: func(store *sim.Store) {
			store.Refused, store.Retells = sim.Deployments, true
		}},
		{Story: "a policy removes owner references", Do: func(store *sim.Store) { store.Strips = true }},
	}
	hold := explore.Operation{Story: "Deployment a gets a finalizer of others, and is deleted", Do: func(store *sim.Store) {
		store.Do(sim.Op{Verb: sim.EditDeployment, Deployment: a, Edit: sim.EditAddFinalizer})
		store.Do(deleteA)
	}}
	contend := explore.Operation{Story: "another client deletes or scales a Deployment that is written, six times in turns", Do: func(store *sim.Store) { store.Rivals = 6 }}
	status := explore.Operation{Story: "another client writes the status of Foo x", Do: func(store *sim.Store) {
		store.Change(sim.Foos, x, func(foo sim.Object) { foo.(*v1alpha1.Foo).Status.AvailableReplicas = 7 })
	}}
	both := explore.Operation{Story: "Foos x and y are created, and both ask for a", Do: func(store *sim.Store) {
		store.Do(createX)
		store.Do(waitingY)
	}}
	container := explore.Operation{Story: "kubectl edit deployment a: another name of the container", Do: func(store *sim.Store) {
		store.Change(sim.Deployments, a, func(d sim.Object) { d.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Name = "web" })
	}}
	starts := []explore.Start{
		{Name: "x has a, y waits for it", Operations: then(createX, waitingY), Then: then(deleteX, orphanX, deleteA), IsLarge: true, Part: "1+0", All: "1+1"},
		{
			Name: "x has a", Operations: then(createX), IsLarge: true, Part: "1+0", All: "1+0 1+1",
			Then: append(then(createX, scaleX, imageX, deleteX, orphanX, recreateX, editA, deleteA, rewrite), append(policies, status, contend, hold)...),
		},
		{
			Name: "a policy takes a from x", Operations: append([]explore.Operation{policies[1]}, then(createX)...),
			Then: then(scaleX, deleteA, adoptA), Part: "1+0", All: "2+0",
		},
		{Name: "x is older than the schema", Operations: then(sim.Op{Verb: sim.CreateFoo, Foo: x}), Then: then(deleteX, recreateX), Part: "1+1"},
		{Name: "x has a with an image", Operations: then(createX, imageX), Then: append(then(scaleX, rewrite), container), Part: "2+0", All: "1+1 2+0"},
		{Name: "empty", Then: append(then(createX, rewrite), policies...), Part: "1+1 2+0", All: "1+1 2+0 2+1"},
		{Name: "empty, two workers", Then: then(createX), Workers: 2, Part: "1+1", All: "1+1"},
		{Name: "empty, two workers, two Foos", Then: []explore.Operation{both}, Workers: 2, All: "1+0"},
		{Name: "a is nobody's", Operations: then(sim.Op{Verb: sim.CreateForeign, Deployment: a}), Then: then(createX, deleteA, adoptA), Part: "1+1 2+0", All: "1+2 2+1"},
	}
	starts = withRenames(starts) // +drop:rename
	return starts
}

// TestExplore explores what becomes of operations of users in settled clusters (docs/explore.md).
func TestExplore(t *testing.T) { explore.Check(t, explore.FooKind(newExplored), exploredStarts()...) }

// TestRandom walks at random through operations of users on three Foos and four names, with two workers and more
// deviations than TestExplore has (docs/explore.md). `make random` takes more walks, and others each time.
func TestRandom(t *testing.T) {
	explore.Walks(t, 200, func(r *rapid.T) (explore.Kind, explore.Scope) {
		ops := rapid.SliceOfN(sim.Operations(), 1, 30).Draw(r, "operations")
		for _, name := range []string{"a", "b", "c", "d"} {
			ops = append(ops, sim.Op{Verb: sim.EditDeployment, Edit: sim.EditRemoveFinalizer, Deployment: name})
		}
		faults := rapid.IntRange(0, 15).Draw(r, "faults")
		return explore.FooKind(newExplored), explore.Scope{Start: explore.Start{Then: explore.FooOperations(ops...), Workers: 2}, Budget: explore.Budget{Deviations: faults}}
	})
}

// planted is what planted faults remember without telling the explorer.
type planted struct{ count int }

var plantedCount int // A package variable, which no explorer can see.

// TestExploreIsSound plants what would make an exploration worthless, and a fault that is repeated by its path.
func TestExploreIsSound(t *testing.T) {
	closure := 0
	for name, hidden := range map[string]func(*planted) *int{
		"forgotten field":  func(p *planted) *int { return &p.count },
		"package variable": func(*planted) *int { return &plantedCount },
		"closure counter":  func(*planted) *int { return &closure },
	} {
		t.Run(name, func(t *testing.T) {
			expectPlanted(t, "UNSOUND: step", func(c *Controller, p *planted, key cache.ObjectName) {
				if n := hidden(p); *n%2 == 1 {
					c.Worker.Queue.AddAfter(key, time.Minute)
				}
				*hidden(p)++
			})
		})
	}
	t.Run("changed cache", func(t *testing.T) {
		expectPlanted(t, "UNSOUND: *v1alpha1.Foo x was changed in a cache", func(c *Controller, _ *planted, key cache.ObjectName) {
			if foo, exists := c.foos.Cached(key); exists {
				foo.Spec.Image = "changed"
			}
		})
	})
	t.Run("writes at rest", func(t *testing.T) {
		expectPlanted(t, "L1: at rest: rule 15: a re", func(c *Controller, _ *planted, key cache.ObjectName) {
			if d := c.deployments.Get(key.Namespace, "a"); d != nil {
				patch := fmt.Appendf(nil, `{"metadata": {"resourceVersion": %q}}`, d.ResourceVersion)
				_, _ = c.deployments.Client(key.Namespace).Patch(context.Background(), "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			}
		})
	})
	t.Run("path", func(t *testing.T) {
		fault := func(c *Controller, _ *planted, key cache.ObjectName) {
			_ = c.deployments.Client(key.Namespace).Delete(context.Background(), "a", metav1.DeleteOptions{})
		}
		v := expectPlanted(t, "S5: a delete of a without preconditions", fault)
		_, got := explore.New(t.Context(), explore.FooKind(plant(fault))).Replay(exploredEmpty(t), v.Path)
		if want := fmt.Sprintf(`{ t.Setenv("EXPLORE_PATH", "empty/1/1+0/%s"); TestExplore(t) }`, strings.Trim(fmt.Sprint(v.Path), "[]")); !slices.Contains(got, v.What) || !strings.HasSuffix(v.Test, want) {
			t.Errorf("%s\nrepeats %q", v, got)
		}
	})
}

// plant builds a controller that does something else before each sync.
func plant(fault func(*Controller, *planted, cache.ObjectName)) func(context.Context, explore.Env) explore.Controller {
	return func(ctx context.Context, env explore.Env) explore.Controller {
		built, hidden := newExplored(ctx, env), &planted{}
		c := built.Memory[0].(*Controller)
		c.Worker.Handle(metav1.NamespaceAll, func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
			fault(c, hidden, key)
			return c.syncHandler(ctx, key)
		})
		built.Memory = append(built.Memory, hidden)
		built.Ignored["main.planted.count"] = "planted"
		return built
	}
}

// exploredEmpty is the scope of a planted fault.
func exploredEmpty(t *testing.T) explore.Scope {
	starts := exploredStarts()
	i := slices.IndexFunc(starts, func(start explore.Start) bool { return start.Name == "empty" })
	return starts[i].Scope(t, 1, "1+0")
}

// expectPlanted expects that an exploration finds a planted fault.
func expectPlanted(t *testing.T, want string, fault func(*Controller, *planted, cache.ObjectName)) (found explore.Violation) {
	t.Helper()
	scope := exploredEmpty(t)
	scope.Zeal = 100
	for _, v := range explore.New(t.Context(), explore.FooKind(plant(fault))).Run(scope).Violations {
		if strings.HasPrefix(v.What, want) {
			return v
		}
		t.Log(v)
	}
	t.Errorf("nothing says %q", want)
	return found
}
