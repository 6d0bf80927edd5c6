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

package app

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
)

// informers are the informers of all controllers. Controllers share them: a Deployment is
// cached once.
type informers struct {
	descriptors []ControllerDescriptor
	// namespaces have a set of factories each. There is one for metav1.NamespaceAll if
	// the process works in all namespaces.
	namespaces []*ControllerContext
	started    map[informerKey]*informer
	// remedy tells in the log how to get a right that is missing.
	remedy string
	// changed is called when an informer fails.
	changed func()
}

type informerKey struct {
	namespace string
	resource  schema.GroupVersionResource
	selector  string
}

// newInformers returns the informers for the descriptors in the namespaces of the
// options.
func newInformers(clients *clients, options *Options, descriptors []ControllerDescriptor, changed func()) (*informers, error) {
	i := &informers{descriptors: descriptors, started: map[informerKey]*informer{}, remedy: grantRemedy(options.namespaces), changed: changed}
	namespaces := options.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		informerName := name
		if len(namespaces) > 1 {
			// Metrics show only the first informer of a resource and a name.
			informerName += "/" + namespace
		}
		c, err := newControllerContext(clients, options, descriptors, informerName, namespace)
		if err != nil {
			return nil, err
		}
		i.namespaces = append(i.namespaces, c)
	}
	return i, nil
}

// newControllerContext returns the clients and factories for a namespace.
func newControllerContext(clients *clients, options *Options, descriptors []ControllerDescriptor, informerName, namespace string) (*ControllerContext, error) {
	identity, err := cache.NewInformerName(informerName)
	if err != nil {
		return nil, fmt.Errorf("naming the informers: %w", err)
	}
	c := &ControllerContext{
		KubeClient: clients.kube,
		Client:     clients.own,
		KubeInformers: kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, options.resyncPeriod,
			kubeinformers.WithInformerName(identity), kubeinformers.WithNamespace(namespace)),
		Informers: externalversions.NewSharedInformerFactoryWithOptions(clients.own, options.resyncPeriod,
			externalversions.WithInformerName(identity), externalversions.WithNamespace(namespace)),
		SelectedKubeInformers: map[string]kubeinformers.SharedInformerFactory{},
		WrapTransport:         clients.wrapTransport,
		Options:               controller.Options{Namespace: namespace},
	}
	for _, descriptor := range descriptors {
		for _, of := range descriptor.Informers {
			if of.Selector != "" && c.SelectedKubeInformers[of.Selector] == nil {
				// They have no resync: it would only repeat that of the objects that own theirs.
				c.SelectedKubeInformers[of.Selector] = kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, 0,
					kubeinformers.WithInformerName(identity), kubeinformers.WithNamespace(namespace),
					kubeinformers.WithTweakListOptions(func(list *metav1.ListOptions) { list.LabelSelector = of.Selector }))
			}
		}
	}
	return c, nil
}

// forNamespace returns the factories of the namespace, nil if the process does not work
// in it.
func (i *informers) forNamespace(namespace string) *ControllerContext {
	for _, c := range i.namespaces {
		if c.Options.Namespace == namespace || c.Options.Namespace == metav1.NamespaceAll {
			return c
		}
	}
	return nil
}

// prepare returns the informers that the controller reads. Those that no controller
// before it reads are not started yet, so that it can set their transform.
func (i *informers) prepare(descriptor *ControllerDescriptor) ([]*informer, error) {
	var all []*informer
	for _, c := range i.namespaces {
		for _, of := range descriptor.Informers {
			key := informerKey{c.Options.Namespace, of.Resource, of.Selector}
			if i.started[key] == nil {
				prepared, err := i.newInformer(c, key)
				if err != nil {
					return nil, fmt.Errorf("preparing the informer of %s: %w", of.Resource.GroupResource(), err)
				}
				i.started[key] = prepared
			}
			all = append(all, i.started[key])
		}
	}
	return all, nil
}

func (i *informers) newInformer(c *ControllerContext, key informerKey) (*informer, error) {
	shared, err := c.genericInformer(key.resource, key.selector)
	if err != nil {
		return nil, err
	}
	prepared := &informer{SharedIndexInformer: shared, informerKey: key}
	for _, descriptor := range i.descriptors {
		for _, of := range descriptor.Informers {
			if of.Resource == key.resource && of.Selector == key.selector {
				prepared.readers = append(prepared.readers, descriptor.Name)
			}
		}
	}
	if err := shared.SetTransform(NewTransform(i.descriptors, key.resource, key.selector)); err != nil {
		return nil, err
	}
	return prepared, shared.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		prepared.failed(ctx, r, err, i.remedy)
		i.changed()
	})
}

// genericInformer returns the informer of the resource that the typed methods of the
// factories return as well.
func (c *ControllerContext) genericInformer(resource schema.GroupVersionResource, selector string) (cache.SharedIndexInformer, error) {
	if selector != "" {
		generic, err := c.SelectedKubeInformers[selector].ForResource(resource)
		if err != nil {
			return nil, err
		}
		return generic.Informer(), nil
	}
	if own, err := c.Informers.ForResource(resource); err == nil {
		return own.Informer(), nil
	}
	generic, err := c.KubeInformers.ForResource(resource)
	if err != nil {
		return nil, err
	}
	return generic.Informer(), nil
}

// factory is what the factories of all clients have in common.
type factory interface {
	StartWithContext(ctx context.Context)
	Shutdown()
}

func (i *informers) factories() []factory {
	var all []factory
	for _, c := range i.namespaces {
		all = append(all, c.Informers, c.KubeInformers)
		for _, selected := range c.SelectedKubeInformers {
			all = append(all, selected)
		}
	}
	return all
}

// start starts the informers that were prepared.
func (i *informers) start(ctx context.Context) {
	for _, f := range i.factories() {
		f.StartWithContext(ctx)
	}
}

// shutdown waits for the informers, whose context has ended.
func (i *informers) shutdown(ctx context.Context) {
	controller.AwaitInformers(ctx, func() {
		for _, f := range i.factories() {
			f.Shutdown()
		}
	})
}

// informer is the informer of a resource in one namespace or in all. It knows why its
// cache is not filled.
type informer struct {
	cache.SharedIndexInformer
	informerKey

	// readers are the names of the controllers that read it.
	readers []string

	mu sync.Mutex
	// err is the error of the last list or watch that failed.
	err error
	// forbidden says that the API server has forbidden a list or watch. It stays set when later lists
	// fail in another way: the right is still missing.
	forbidden bool
}

// failed is told that a list or watch has failed. The informer tries again by itself. A
// right that is missing is logged once, with the remedy: it may take hours to be granted.
func (i *informer) failed(ctx context.Context, r *cache.Reflector, err error, remedy string) {
	i.mu.Lock()
	known := i.forbidden
	i.err, i.forbidden = err, known || apierrors.IsForbidden(err)
	i.mu.Unlock()
	switch {
	case i.HasSynced() || !apierrors.IsForbidden(err):
		cache.DefaultWatchErrorHandler(ctx, r, err)
	case !known:
		klog.FromContext(ctx).Error(err, "Not allowed to fill a cache, waiting for the right", "controllers", i.readers, "remedy", remedy+", or disable the controller with --controllers")
	}
}

// check returns nil if the cache is filled, or why it is not.
func (i *informer) check() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.HasSynced():
		return nil
	case i.err != nil:
		return fmt.Errorf("filling the cache of %s: %w", i.where(), i.err)
	}
	return fmt.Errorf("the cache of %s is not filled yet", i.where())
}

// hasFailed reports whether the cache is not filled and a list or watch has failed.
func (i *informer) hasFailed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err != nil && !i.HasSynced()
}

// isForbidden reports whether the cache is not filled and the API server has forbidden a list or watch.
func (i *informer) isForbidden() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.forbidden && !i.HasSynced()
}

func (i *informer) where() string {
	if i.namespace == metav1.NamespaceAll {
		return i.resource.GroupResource().String()
	}
	return fmt.Sprintf("%s in namespace %s", i.resource.GroupResource(), i.namespace)
}
