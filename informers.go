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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

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
			kubeinformers.WithNamespace(options.namespace), kubeinformers.WithTransform(dropManagedFields)),
		foo: fooinformers.NewSharedInformerFactoryWithOptions(clients.foo, options.resyncPeriod, fooinformers.WithInformerName(name),
			fooinformers.WithNamespace(options.namespace), fooinformers.WithTransform(dropManagedFields)),
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

// dropManagedFields is a cache transform. Managed fields are a good part of an
// object's size, and a sync never reads them from the cache.
func dropManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
