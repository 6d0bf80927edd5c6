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
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	foov1alpha1 "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	foolisters "example.com/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"
)

// Informers and caches that do not work: a mistake in the program, mostly, which
// must be told as what it is.

// brokenInformer refuses indexes or handlers.
type brokenInformer[T cache.Object] struct {
	cache.TypedSharedIndexInformer[T]
	indexes, handlers error
}

func (b brokenInformer[T]) AddTypedIndexers(indexes cache.TypedIndexers[T]) error {
	if b.indexes != nil {
		return b.indexes
	}
	return b.TypedSharedIndexInformer.AddTypedIndexers(indexes)
}

func (b brokenInformer[T]) AddTypedEventHandler(handler cache.TypedResourceEventHandler[T], options ...cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	if b.handlers != nil {
		return nil, b.handlers
	}
	return b.TypedSharedIndexInformer.AddTypedEventHandler(handler, options...)
}

type brokenFoos struct {
	foov1alpha1.TypedFooInformer
	brokenInformer[*v1alpha1.Foo]
}

func (b brokenFoos) TypedInformer() foov1alpha1.FooIndexInformer { return b.brokenInformer }

type brokenDeployments struct {
	appsinformers.TypedDeploymentInformer
	brokenInformer[*appsv1.Deployment]
}

func (b brokenDeployments) TypedInformer() appsinformers.DeploymentIndexInformer {
	return b.brokenInformer
}

func TestNewControllerFails(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		foos        brokenInformer[*v1alpha1.Foo]
		deployments brokenInformer[*appsv1.Deployment]
		want        string
	}{
		"no index of Foos": {
			foos: brokenInformer[*v1alpha1.Foo]{indexes: broken}, want: "adding an index to the Foo informer: broken"},
		"no index of Deployments": {
			deployments: brokenInformer[*appsv1.Deployment]{indexes: broken}, want: "adding an index to the Deployment informer: broken"},
		"no events of Foos": {
			foos: brokenInformer[*v1alpha1.Foo]{handlers: broken}, want: "adding an event handler to the Foo informer: broken"},
		"no events of Deployments": {
			deployments: brokenInformer[*appsv1.Deployment]{handlers: broken}, want: "adding an event handler to the Deployment informer: broken"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The bubble fails the test if the queue of the controller that was not
			// made still runs.
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, nil, nil)
				foos := fooinformers.NewSharedInformerFactory(f.foo, 0).Samplecontroller().V1alpha1().Foos()
				deployments := kubeinformers.NewSharedInformerFactory(f.kube, 0).Apps().V1().Deployments()
				test.foos.TypedSharedIndexInformer = foos.TypedInformer()
				test.deployments.TypedSharedIndexInformer = deployments.TypedInformer()
				options := f.options
				options.Foos, options.Deployments = brokenFoos{foos, test.foos}, brokenDeployments{deployments, test.deployments}
				options.Metrics = controller.NewMetrics(metrics.NewKubeRegistry())
				c, err := NewController(ctx, options)
				if c != nil || err == nil || err.Error() != test.want {
					t.Errorf("controller %v, error %v, want none and %q", c, err, test.want)
				}
			})
		})
	}
}

// brokenIndexer is a cache that cannot be read.
type brokenIndexer struct {
	cache.Indexer
}

func (brokenIndexer) GetByKey(string) (any, bool, error) {
	return nil, false, errors.New("broken")
}

func TestSyncWithABrokenCache(t *testing.T) {
	tests := map[string]struct {
		breakIt func(*fixture)
		want    string
	}{
		"the Foos": {
			func(f *fixture) { f.foos = foolisters.NewFooLister(brokenIndexer{}) }, "reading Foo from the cache: broken"},
		"the Deployments": {
			func(f *fixture) { f.keeper.Deployments = appslisters.NewDeploymentLister(brokenIndexer{}) }, `reading Deployment "web" from the cache: broken`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, nil, nil)
				f.fill(t, []*v1alpha1.Foo{newFoo()}, nil)
				test.breakIt(f)
				if _, err := f.syncHandler(ctx, testKey("foo")); err == nil || err.Error() != test.want {
					t.Errorf("error %v, want %q", err, test.want)
				}
				differ(t, "requests", []string(nil), f.requests())
			})
		})
	}
}

func TestMissingIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := newFixture(t, nil, nil)
		if got := panicOf(func() { controller.LookUp(f.fooIndex, "none", "ns/web") }); !strings.Contains(got, `index "none" was not added`) {
			t.Errorf("an index that is not there made the panic %q", got)
		}
	})
}

// panicOf returns what the function panicked with, in words, "" if it did not.
func panicOf(function func()) (words string) {
	defer func() {
		if r := recover(); r != nil {
			words = fmt.Sprint(r)
		}
	}()
	function()
	return ""
}
