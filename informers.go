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
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller/child"
	"example.com/sample-controller/pkg/controller/crontab"
	"example.com/sample-controller/pkg/controller/memcached"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
)

// informers fill the caches. Controllers share them: a Deployment is cached once.
type informers struct {
	kube kubeinformers.SharedInformerFactory
	foo  fooinformers.SharedInformerFactory
	// pods are those of the Pods and ReplicaSets of Memcacheds, and no others.
	pods kubeinformers.SharedInformerFactory

	mu sync.Mutex
	// refusals holds whom to tell when the API server forbids an informer to fill
	// its cache. A factory wraps an informer anew each time that it is asked for it;
	// the cache inside is one.
	refusals map[cache.Store]map[int]func(error)
	next     int
}

func newInformers(clients *clients, options *options) (*informers, error) {
	// The name is in the metrics of the caches.
	name, err := cache.NewInformerName(controllerName)
	if err != nil {
		return nil, fmt.Errorf("naming the informers: %w", err)
	}
	return &informers{
		kube: kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, options.resyncPeriod, kubeinformers.WithInformerName(name),
			kubeinformers.WithNamespace(options.namespace), kubeinformers.WithTransform(strip)),
		foo: fooinformers.NewSharedInformerFactoryWithOptions(clients.foo, options.resyncPeriod, fooinformers.WithInformerName(name),
			fooinformers.WithNamespace(options.namespace), fooinformers.WithTransform(strip)),
		pods: kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, 0, kubeinformers.WithInformerName(name),
			kubeinformers.WithNamespace(options.namespace), kubeinformers.WithTweakListOptions(memcached.SelectPods), kubeinformers.WithTransform(memcached.StripPods)),
		refusals: map[cache.Store]map[int]func(error){},
	}, nil
}

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
	i.kube.StartWithContext(ctx)
	i.foo.StartWithContext(ctx)
	i.pods.StartWithContext(ctx)
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

// shutdown returns when the informers have, whose context has ended.
func (i *informers) shutdown() {
	i.kube.Shutdown()
	i.foo.Shutdown()
	i.pods.Shutdown()
}

// strip is a cache transform. It drops what nobody reads from the cache.
func strip(object any) (any, error) {
	if crontab.Strip(object) {
		return object, nil
	}
	if deployment, ok := object.(*appsv1.Deployment); ok {
		return stripDeployment(deployment), nil
	}
	if accessor, err := meta.Accessor(object); err == nil {
		// A status is written by a PUT of the cached object, and yet these are not lost:
		// of a PUT to the status of a custom resource the API server takes the status
		// alone, and the managed fields of what it has (statusStrategy.PrepareForUpdate in
		// k8s.io/apiextensions-apiserver, decodeLiveOrNew in k8s.io/apimachinery). A CRD
		// without that subresource answers 404.
		accessor.SetManagedFields(nil)
		dropLastApplied(accessor)
	}
	return object, nil
}

// stripDeployment leaves of a Deployment what the controller of its controller's kind
// reads. Each event brings a whole one, so that it does not matter whose it was before.
func stripDeployment(deployment *appsv1.Deployment) *appsv1.Deployment {
	if kindOfFoo().ControllerOf(deployment) != nil {
		return child.Extract(deployment, comparedTemplate(deployment))
	}
	if kept := memcached.Extract(deployment); kept != nil {
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
