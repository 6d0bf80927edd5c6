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
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
	"example.com/sample-controller/pkg/controller/crontab"
	"example.com/sample-controller/pkg/controller/memcached"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	alphainformers "example.com/sample-controller/pkg/generated/informers/externalversions/alpha/v1"
	cacheinformers "example.com/sample-controller/pkg/generated/informers/externalversions/cache/v1alpha1"
	sampleinformers "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	alphalisters "example.com/sample-controller/pkg/generated/listers/alpha/v1"
	cachelisters "example.com/sample-controller/pkg/generated/listers/cache/v1alpha1"
	samplelisters "example.com/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/namespaces"
)

// informers fill the caches. Controllers share them: a Deployment is cached once.
type informers struct {
	foos        sampleinformers.TypedFooInformer
	memcacheds  cacheinformers.TypedMemcachedInformer
	cronTabs    alphainformers.TypedCronTabInformer
	deployments appsinformers.TypedDeploymentInformer
	jobs        batchinformers.TypedJobInformer
	// replicaSets and pods are those of Memcacheds, and no others.
	replicaSets appsinformers.TypedReplicaSetInformer
	pods        coreinformers.TypedPodInformer

	// factories make the informers that those are made of.
	factories []factory

	mu sync.Mutex
	// refusals holds whom to tell when the API server forbids an informer to fill
	// its cache.
	refusals map[cache.Store]map[int]func(error)
	next     int
}

// factory is what factories of all groups have in common.
type factory interface {
	StartWithContext(ctx context.Context)
	Shutdown()
}

// factories are those of one namespace, or of all.
type factories struct {
	foo  fooinformers.SharedInformerFactory
	kube kubeinformers.SharedInformerFactory
	// pods select and strip more than kube does.
	pods kubeinformers.SharedInformerFactory
}

// newInformers returns the informers of the namespaces in the options.
func newInformers(clients *clients, options *options) (*informers, error) {
	served := options.namespaces
	if len(served) == 0 {
		served = []string{metav1.NamespaceAll}
	}
	by := map[string]*factories{}
	stripper := newStripper()
	for _, namespace := range served {
		name := controllerName
		if len(served) > 1 {
			// Of informers of one resource and one name only the first is in the metrics.
			name += "/" + namespace
		}
		var err error
		if by[namespace], err = newFactories(clients, options, name, namespace, stripper.strip); err != nil {
			return nil, err
		}
	}
	return informersFrom(by), nil
}

func newFactories(clients *clients, options *options, name, namespace string, strip cache.TransformFunc) (*factories, error) {
	// The name is in the metrics of the caches.
	informerName, err := cache.NewInformerName(name)
	if err != nil {
		return nil, fmt.Errorf("naming the informers: %w", err)
	}
	return &factories{
		foo: fooinformers.NewSharedInformerFactoryWithOptions(clients.foo, options.resyncPeriod, fooinformers.WithInformerName(informerName),
			fooinformers.WithNamespace(namespace), fooinformers.WithTransform(strip)),
		kube: kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, options.resyncPeriod, kubeinformers.WithInformerName(informerName),
			kubeinformers.WithNamespace(namespace), kubeinformers.WithTransform(strip)),
		pods: kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, 0, kubeinformers.WithInformerName(informerName),
			kubeinformers.WithNamespace(namespace), kubeinformers.WithTweakListOptions(memcached.SelectPods), kubeinformers.WithTransform(memcached.StripPods)),
	}, nil
}

// informersFrom returns the informers that are made of those of each namespace.
func informersFrom(by map[string]*factories) *informers {
	i := &informers{
		foos: sampleinformers.ToTypedFooInformer(over(by, samplelisters.NewFooLister, func(f *factories) cache.SharedIndexInformer {
			return f.foo.Samplecontroller().V1alpha1().Foos().Informer()
		})),
		memcacheds: cacheinformers.ToTypedMemcachedInformer(over(by, cachelisters.NewMemcachedLister, func(f *factories) cache.SharedIndexInformer {
			return f.foo.Cache().V1alpha1().Memcacheds().Informer()
		})),
		cronTabs: alphainformers.ToTypedCronTabInformer(over(by, alphalisters.NewCronTabLister, func(f *factories) cache.SharedIndexInformer {
			return f.foo.Alpha().V1().CronTabs().Informer()
		})),
		deployments: appsinformers.ToTypedDeploymentInformer(over(by, appslisters.NewDeploymentLister, func(f *factories) cache.SharedIndexInformer {
			return f.kube.Apps().V1().Deployments().Informer()
		})),
		jobs: batchinformers.ToTypedJobInformer(over(by, batchlisters.NewJobLister, func(f *factories) cache.SharedIndexInformer {
			return f.kube.Batch().V1().Jobs().Informer()
		})),
		replicaSets: appsinformers.ToTypedReplicaSetInformer(over(by, appslisters.NewReplicaSetLister, func(f *factories) cache.SharedIndexInformer {
			return f.pods.Apps().V1().ReplicaSets().Informer()
		})),
		pods: coreinformers.ToTypedPodInformer(over(by, corelisters.NewPodLister, func(f *factories) cache.SharedIndexInformer {
			return f.pods.Core().V1().Pods().Informer()
		})),
		refusals: map[cache.Store]map[int]func(error){},
	}
	for _, f := range by {
		i.factories = append(i.factories, f.foo, f.kube, f.pods)
	}
	return i
}

// merged is an informer as the generated code has it, over all namespaces.
type merged[L any] struct {
	// informer is made when it is first asked for, by the controller that needs it: a
	// factory starts all that it has made, and a resource that is not served would
	// never be listed.
	informer  func() cache.SharedIndexInformer
	newLister func(cache.Indexer) L
}

// over returns what informerOf returns for each namespace, as one.
func over[L any](by map[string]*factories, newLister func(cache.Indexer) L, informerOf func(*factories) cache.SharedIndexInformer) merged[L] {
	return merged[L]{newLister: newLister, informer: sync.OnceValue(func() cache.SharedIndexInformer {
		members := map[string]cache.SharedIndexInformer{}
		for namespace, f := range by {
			members[namespace] = informerOf(f)
		}
		return namespaces.Merge(members)
	})}
}

// Informer implements what has it in the generated code.
func (r merged[L]) Informer() cache.SharedIndexInformer { return r.informer() }

// Lister implements what has it in the generated code.
func (r merged[L]) Lister() L { return r.newLister(r.informer().GetIndexer()) }

// start starts the informers that were asked for, and has refuse called when the API
// server forbids one of those to fill its cache, until stop is called.
func (i *informers) start(ctx context.Context, those []cache.SharedIndexInformer, refuse func(error)) (stop func(), err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.next++
	id := i.next
	for _, informer := range those {
		filled := informer.GetStore()
		if i.refusals[filled] == nil {
			// It has not been started: whoever did would have come by here.
			if err := informer.SetWatchErrorHandlerWithContext(i.watchError(filled)); err != nil {
				return nil, fmt.Errorf("preparing an informer: %w", err)
			}
			i.refusals[filled] = map[int]func(error){}
		}
		i.refusals[filled][id] = refuse
	}
	for _, f := range i.factories {
		f.StartWithContext(ctx)
	}
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		for _, informer := range those {
			delete(i.refusals[informer.GetStore()], id)
		}
	}, nil
}

// watchError returns what is to happen when an informer cannot list or watch for the
// cache that it fills.
func (i *informers) watchError(filled cache.Store) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			i.mu.Lock()
			told := len(i.refusals[filled])
			for _, refuse := range i.refusals[filled] {
				refuse(err)
			}
			i.mu.Unlock()
			if told > 0 {
				return
			}
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// shutdown waits for the informers, whose context has ended.
func (i *informers) shutdown(ctx context.Context) {
	controller.AwaitInformers(ctx, func() {
		for _, f := range i.factories {
			f.Shutdown()
		}
	})
}

// stripper has the cache transforms. They drop what nobody reads from the cache, and hold
// once what many objects have in common.
type stripper struct {
	shared *child.Shared
}

func newStripper() stripper {
	return stripper{shared: child.NewShared()}
}

// strip is a cache transform.
func (s stripper) strip(object any) (any, error) {
	if crontab.Strip(object) {
		return object, nil
	}
	if deployment, ok := object.(*appsv1.Deployment); ok {
		return s.deployment(deployment), nil
	}
	if accessor, err := meta.Accessor(object); err == nil {
		// A status is written by a PUT of the cached object, and yet these are not lost:
		// of a PUT to the status of a custom resource the API server takes the status
		// alone, and the managed fields of what it has (statusStrategy.PrepareForUpdate in
		// k8s.io/apiextensions-apiserver, decodeLiveOrNew in k8s.io/apimachinery). A CRD
		// without that subresource answers 404.
		accessor.SetManagedFields(nil)
		accessor.SetNamespace(child.Once(accessor.GetNamespace()))
		dropLastApplied(accessor)
	}
	if foo, ok := object.(*v1alpha1.Foo); ok {
		for i := range foo.Status.Conditions {
			condition := &foo.Status.Conditions[i]
			condition.Type, condition.Reason = child.Once(condition.Type), child.Once(condition.Reason)
		}
	}
	return object, nil
}

// deployment leaves of a Deployment what the controller of its controller's kind
// reads. Each event brings a whole one, so that it does not matter whose it was before.
func (s stripper) deployment(deployment *appsv1.Deployment) *appsv1.Deployment {
	if kindOfFoo().ControllerOf(deployment) != nil {
		return s.shared.Extract(deployment, comparedTemplate(deployment, s.shared))
	}
	if kept := memcached.Extract(deployment, s.shared); kept != nil {
		return kept
	}
	return child.Stub(deployment)
}

// dropLastApplied drops the copy of the object that kubectl apply keeps in it. Other
// annotations stay: admission webhooks get to see the object of our PUT.
func dropLastApplied(object metav1.Object) {
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if len(annotations) == 0 {
		object.SetAnnotations(nil)
	}
}
