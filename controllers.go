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
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/crontab"
	"example.com/sample-controller/pkg/controller/memcached"
)

// controllers returns what makes the unit of each controller of this program, by its
// name as in --controllers. Whoever adds one adds it here.
func controllers() map[string]func(*clients, *informers, controller.Options) *unit {
	return map[string]func(*clients, *informers, controller.Options) *unit{
		"crontab":   cronTabUnit,
		"foo":       fooUnit,
		"memcached": memcachedUnit,
	}
}

// controllerNames returns the names of all controllers, in alphabetical order.
func controllerNames() []string {
	return slices.Sorted(maps.Keys(controllers()))
}

// unitsOf returns all controllers, in that order.
func unitsOf(clients *clients, informers *informers, options controller.Options) []*unit {
	makes := controllers()
	var units []*unit
	for _, name := range controllerNames() {
		units = append(units, makes[name](clients, informers, options))
	}
	return units
}

func fooUnit(clients *clients, informers *informers, options controller.Options) *unit {
	foos, deployments := informers.foos, informers.deployments
	u := newUnit("foo", clients.foo.SamplecontrollerV1alpha1().RESTClient(), schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos"), "artifacts/examples/crd.yaml")
	u.build = func(ctx context.Context) (*controller.Loop, []cache.SharedIndexInformer, error) {
		c, err := NewController(ctx, ControllerOptions{
			KubeClient: clients.kube, FooClient: clients.foo, Deployments: deployments, Foos: foos, Options: options,
		})
		if err != nil {
			return nil, nil, err
		}
		return c.Loop, []cache.SharedIndexInformer{foos.Informer(), deployments.Informer()}, nil
	}
	return u
}

func memcachedUnit(clients *clients, informers *informers, options controller.Options) *unit {
	memcacheds, deployments, replicaSets, pods := informers.memcacheds, informers.deployments, informers.replicaSets, informers.pods
	u := newUnit("memcached", clients.foo.CacheV1alpha1().RESTClient(), schema.GroupVersion(cachev1alpha1.GroupVersion).WithResource("memcacheds"), "artifacts/examples/memcached-crd.yaml")
	u.build = func(ctx context.Context) (*controller.Loop, []cache.SharedIndexInformer, error) {
		c, err := memcached.New(ctx, memcached.Options{
			KubeClient: clients.kube, Client: clients.foo, Memcacheds: memcacheds, Deployments: deployments, ReplicaSets: replicaSets, Pods: pods, Options: options,
		})
		if err != nil {
			return nil, nil, err
		}
		return c.Loop, []cache.SharedIndexInformer{memcacheds.Informer(), deployments.Informer(), replicaSets.Informer(), pods.Informer()}, nil
	}
	return u
}

func cronTabUnit(clients *clients, informers *informers, options controller.Options) *unit {
	cronTabs, jobs := informers.cronTabs, informers.jobs
	u := newUnit("crontab", clients.foo.AlphaV1().RESTClient(), schema.GroupVersion(alphav1.GroupVersion).WithResource("crontabs"), "artifacts/examples/crontab-crd.yaml")
	u.build = func(ctx context.Context) (*controller.Loop, []cache.SharedIndexInformer, error) {
		c, err := crontab.New(ctx, crontab.Options{KubeClient: clients.kube, Client: clients.foo, CronTabs: cronTabs, Jobs: jobs, Options: options})
		if err != nil {
			return nil, nil, err
		}
		return c.Loop, []cache.SharedIndexInformer{cronTabs.Informer(), jobs.Informer()}, nil
	}
	return u
}

// newUnit returns a unit that works for a resource of a CustomResourceDefinition,
// which is installed with that manifest. It lacks how to build the controller.
func newUnit(name string, server rest.Interface, resource schema.GroupVersionResource, manifest string) *unit {
	install := "kubectl apply -f " + manifest
	return &unit{
		name:   name,
		served: func(ctx context.Context) (bool, error) { return client.IsServed(ctx, server, resource) },
		awaitServed: func(ctx context.Context, urgent bool) error {
			return client.WaitUntilServed(ctx, server, resource, install, urgent)
		},
		missing: fmt.Sprintf("the API server does not serve %s; %s", resource.GroupResource(), install),
	}
}
