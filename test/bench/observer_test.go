//go:build bench

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

package bench

import (
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fooinformersv1alpha1 "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
)

// observer records when a watch first delivered objects in each state.
type observer struct {
	*env

	mu      sync.Mutex
	reached map[milestone]*reached
	// updated is closed when an object reaches a milestone.
	updated chan struct{}
}

// milestone is a state of the objects of a group.
type milestone struct {
	group, state string
}

// reached are the objects that have reached a milestone, and when the first and the last one did.
type reached struct {
	names       sets.Set[string]
	first, last time.Time
}

func (e *env) newObserver() *observer {
	return &observer{env: e, reached: map[milestone]*reached{}, updated: make(chan struct{})}
}

// note records that an object is in that state.
func (o *observer) note(name, state string) {
	now, at := time.Now(), milestone{group(name), state}
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.reached[at]
	if r == nil {
		r = &reached{names: sets.New[string](), first: now}
		o.reached[at] = r
	}
	if r.names.Has(name) {
		return
	}
	r.names.Insert(name)
	r.last = now
	close(o.updated)
	o.updated = make(chan struct{})
}

// await waits until so many objects of the group have been in that state, and returns when the watch delivered the first
// and the last one.
func (o *observer) await(group, state string, count int) (first, last time.Time) {
	o.Helper()
	deadline, got := time.After(timeout), 0
	for {
		o.mu.Lock()
		updated := o.updated
		if r := o.reached[milestone{group, state}]; r != nil {
			first, last, got = r.first, r.last, r.names.Len()
		}
		o.mu.Unlock()
		if got >= count {
			return first, last
		}
		select {
		case <-updated:
		case <-deadline:
			o.Fatalf("timed out: %d of %d objects %s are %s", got, count, group, state)
		}
	}
}

// observeDeployments watches Deployments until the measurement ends: "generation 1" is the state in which they are
// created. It watches metadata only, to take little CPU from the measured program.
func (e *env) observeDeployments() *observer {
	e.Helper()
	o, factory := e.newObserver(), metadatainformer.NewSharedInformerFactory(e.metadata, 0)
	record := func(event any) {
		object, err := meta.Accessor(event)
		if err != nil {
			e.Error(err)
			return
		}
		for generation := range object.GetGeneration() {
			o.note(object.GetName(), fmt.Sprint("generation ", generation+1))
		}
	}
	informer := factory.ForResource(appsv1.SchemeGroupVersion.WithResource("deployments")).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: record, UpdateFunc: func(_, object any) { record(object) }})
	e.must(err)
	factory.Start(e.Context().Done())
	factory.WaitForCacheSync(e.Context().Done())
	return o
}

// observeFoos watches Foos until the measurement ends: they are "reported" once they have a condition, and "available N"
// with so many available replicas.
func (e *env) observeFoos() *observer {
	e.Helper()
	o, factory := e.newObserver(), fooinformers.NewSharedInformerFactory(e.foos, 0)
	record := func(foo *v1alpha1.Foo) {
		o.note(foo.Name, fmt.Sprint("available ", foo.Status.AvailableReplicas))
		if len(foo.Status.Conditions) > 0 {
			o.note(foo.Name, "reported")
		}
	}
	_, err := factory.Samplecontroller().V1alpha1().Foos().TypedInformer().AddTypedEventHandler(fooinformersv1alpha1.FooHandlerFuncs{
		AddFunc: record, UpdateFunc: func(_, foo *v1alpha1.Foo) { record(foo) },
	})
	e.must(err)
	factory.StartWithContext(e.Context())
	factory.WaitForCacheSyncWithContext(e.Context())
	return o
}

// simulateDeploymentController makes every owned Deployment available as soon as the watch delivers its spec.
func (e *env) simulateDeploymentController() {
	e.Helper()
	outdated, factory := make(chan *appsv1.Deployment, 10*e.objects), kubeinformers.NewSharedInformerFactory(e.kube, 0)
	handle := func(deployment *appsv1.Deployment) {
		if deployment.Status.ObservedGeneration < deployment.Generation && metav1.GetControllerOf(deployment) != nil {
			outdated <- deployment
		}
	}
	_, err := factory.Apps().V1().Deployments().TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, deployment *appsv1.Deployment) { handle(deployment) },
	})
	e.must(err)
	factory.StartWithContext(e.Context())
	factory.WaitForCacheSyncWithContext(e.Context())
	for range creators {
		go func() {
			for {
				select {
				case deployment := <-outdated:
					if _, err := e.makeAvailable(e.Context(), deployment, *deployment.Spec.Replicas); err != nil && e.Context().Err() == nil {
						e.Errorf("updating the status of Deployment %s: %v", deployment.Name, err)
					}
				case <-e.Context().Done():
					return
				}
			}
		}()
	}
}
