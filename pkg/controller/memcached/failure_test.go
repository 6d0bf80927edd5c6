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

package memcached

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	kubeinformers "k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	memcachedlisters "example.com/sample-controller/pkg/generated/listers/cache/v1alpha1"
	"example.com/sample-controller/test/fixture"
)

// TestNewFails makes a second controller on informers of which one does not allow it.
// The bubble fails the test if the queue of the controller that was not made still runs.
func TestNewFails(t *testing.T) {
	tests := map[string]struct {
		take func(*env, *Options)
		want string
	}{
		"the index of ReplicaSets is taken": {
			func(s *env, options *Options) { options.ReplicaSets = s.options().ReplicaSets }, "adding an index to the ReplicaSet informer"},
		"the index of Pods is taken": {
			func(s *env, options *Options) { options.Pods = s.options().Pods }, "adding an index to the Pod informer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, s := newEnv(t, nil, nil)
				options, informers := s.options(), kubeinformers.NewSharedInformerFactory(s.kube, 0)
				options.ReplicaSets, options.Pods = informers.Apps().V1().ReplicaSets(), informers.Core().V1().Pods()
				test.take(s, &options)
				c, err := New(ctx, options)
				if c != nil || err == nil || !strings.Contains(err.Error(), test.want) {
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
		breakIt func(*env)
		want    string
	}{
		"the Memcacheds": {
			func(s *env) { s.memcacheds = memcachedlisters.NewMemcachedLister(brokenIndexer{}) }, "reading Memcached from the cache: broken"},
		"the Deployments": {
			func(s *env) { s.deployments = appslisters.NewDeploymentLister(brokenIndexer{}) }, `reading Deployment "mc" from the cache: broken`},
		"the Services": {
			func(s *env) { s.services = corelisters.NewServiceLister(brokenIndexer{}) }, `reading Service "mc" from the cache: broken`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, s := newEnv(t, nil, nil)
				fixture.Fill(t, s.memcachedIndexer(), []*v1alpha1.Memcached{newMemcached()})
				test.breakIt(s)
				if _, err := s.syncHandler(ctx, testKey()); err == nil || err.Error() != test.want {
					t.Errorf("error %v, want %q", err, test.want)
				}
				fixture.Differ(t, "requests", []string(nil), s.requests())
			})
		})
	}
}
