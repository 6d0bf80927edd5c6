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
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/client/trim"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
)

// newContext returns the clients and informer factories of the controller in a namespace.
func (d *ControllerDescriptor) newContext(clients *clients, options *Options, namespace string) (*ControllerContext, error) {
	// Metrics show only the first informer of a resource and a name.
	informerName := name + "/" + d.Name
	if namespace != metav1.NamespaceAll {
		informerName += "/" + namespace
	}
	identity, err := cache.NewInformerName(informerName)
	if err != nil {
		return nil, fmt.Errorf("naming the informers: %w", err)
	}
	newKubeInformers := func(resync time.Duration, selector string) kubeinformers.SharedInformerFactory {
		return kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, resync,
			kubeinformers.WithInformerName(identity), kubeinformers.WithNamespace(namespace),
			kubeinformers.WithTweakListOptions(func(list *metav1.ListOptions) { list.LabelSelector = selector }))
	}
	c := &ControllerContext{
		KubeClient:    clients.kube,
		Client:        clients.own,
		KubeInformers: newKubeInformers(options.resyncPeriod, ""),
		Informers: externalversions.NewSharedInformerFactoryWithOptions(clients.own, options.resyncPeriod,
			externalversions.WithInformerName(identity), externalversions.WithNamespace(namespace)),
		WrapTransport: clients.fence.Wrap,
	}
	c.SelectedKubeInformers = map[string]kubeinformers.SharedInformerFactory{"": c.KubeInformers}
	for _, of := range d.Informers {
		if c.SelectedKubeInformers[of.Selector] == nil {
			// They have no resync: it would only repeat that of the objects that own theirs.
			c.SelectedKubeInformers[of.Selector] = newKubeInformers(0, of.Selector)
		}
	}
	return c, nil
}

// factory is what the factories of all clients have in common.
type factory interface {
	StartWithContext(ctx context.Context)
	Shutdown()
}

func (c *controllerState) factories() (all []factory) {
	for _, in := range c.contexts {
		all = append(all, in.Informers)
		for _, selected := range in.SelectedKubeInformers {
			all = append(all, selected)
		}
	}
	return all
}

// informer is the informer of a resource in one namespace or in all. It knows why its cache is not filled.
type informer struct {
	cache.SharedIndexInformer

	// what is the resource, and the namespace if it is only one.
	what string
	// remedy tells how to get a right that is missing.
	remedy string
	// failure is the error of the last list or watch that failed.
	failure atomic.Pointer[error]
	// missingRight logs the first one that the API server has forbidden.
	missingRight sync.Once
}

// newInformer prepares the informer that the typed methods of the factories return as well.
func newInformer(in *ControllerContext, of Informer, remedy string) (*informer, error) {
	found, err := in.SelectedKubeInformers[of.Selector].ForResource(of.Resource)
	if err != nil && of.Selector == "" {
		found, err = in.Informers.ForResource(of.Resource)
	}
	if err != nil {
		return nil, err
	}
	shared := found.Informer()
	i := &informer{SharedIndexInformer: shared, what: of.Resource.GroupResource().String(), remedy: remedy}
	if namespace := in.Options.Namespace; namespace != metav1.NamespaceAll {
		i.what += " in namespace " + namespace
	}
	if err := shared.SetTransform(of.Transform); err != nil {
		return nil, err
	}
	return i, shared.SetWatchErrorHandlerWithContext(i.failed)
}

// failed is told that a list or watch has failed. The informer tries again by itself. A
// right that is missing is logged once, with the remedy: it may take hours to be granted.
func (i *informer) failed(ctx context.Context, r *cache.Reflector, err error) {
	i.failure.Store(&err)
	if i.HasSynced() || !apierrors.IsForbidden(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	i.missingRight.Do(func() {
		klog.FromContext(ctx).Error(err, "Not allowed to fill a cache, waiting for the right", "remedy", i.remedy+", or disable the controller with --controllers")
	})
}

// isForbidden reports whether the process lacks a right to fill the cache.
func (i *informer) isForbidden() bool {
	failure := i.failure.Load()
	return !i.HasSynced() && failure != nil && apierrors.IsForbidden(*failure)
}

// check returns nil if the cache is filled, or why it is not.
func (i *informer) check() error {
	if i.HasSynced() {
		return nil
	}
	if err := i.failure.Load(); err != nil {
		return fmt.Errorf("filling the cache of %s: %w", i.what, *err)
	}
	return fmt.Errorf("the cache of %s is not filled yet", i.what)
}

// Transform is the cache transform: a cache keeps only what the controller reads, since a
// cluster may have very many Deployments, and most of them do not concern the controller.
func (i Informer) Transform(object any) (any, error) {
	// client-go transforms no tombstones.
	from := object.(metav1.Object)
	if i.Trim == nil {
		trim.Metadata(from)
		return object, nil
	}
	if kept := i.Trim(object); kept != nil {
		return kept, nil
	}
	kept := reflect.New(reflect.TypeOf(object).Elem()).Interface()
	trim.SetIdentity(kept.(metav1.Object), from)
	return kept, nil
}

// TypedTrim returns a Trim for an Informer from one for objects of one type.
func TypedTrim[T any](trim func(*T) *T) func(object any) any {
	return func(object any) any {
		if typed, ok := object.(*T); ok {
			if kept := trim(typed); kept != nil {
				return kept
			}
		}
		return nil
	}
}
