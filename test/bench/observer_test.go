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
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fooinformersv1alpha1 "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
)

// notifier guards what a watch has observed and notifies waiting goroutines of each update.
type notifier struct {
	sync.Mutex
	updated chan struct{}
}

func newNotifier() notifier {
	return notifier{updated: make(chan struct{})}
}

// update calls change with the lock held, then notifies.
func (n *notifier) update(change func()) {
	n.Lock()
	defer n.Unlock()
	change()
	close(n.updated)
	n.updated = make(chan struct{})
}

// await waits until done, which it calls with the lock held, returns true.
func (n *notifier) await(e *env, what string, done func() bool) {
	e.Helper()
	deadline := time.After(timeout)
	for {
		n.Lock()
		ok, updated := done(), n.updated
		n.Unlock()
		if ok {
			return
		}
		select {
		case <-updated:
		case <-deadline:
			e.Fatalf("timed out waiting for %s", what)
		}
	}
}

// observer records when the watch first delivered each Deployment and each of its
// generations. It watches metadata only, to take little CPU from the measured controller.
type observer struct {
	notifier
	e *env

	deployments map[string]times
	// counts is the number of Deployments that reached each milestone. Reading it is cheap
	// enough for a busy wait, which counting the Deployments is not.
	counts map[milestone]int
}

// times is when the watch delivered a Deployment and each generation after the first.
type times struct {
	created time.Time
	changed []time.Time
}

// milestone is the creation (change 0) or the n-th spec change of Deployments whose names
// start with prefix.
type milestone struct {
	prefix string
	change int
}

// observe watches Deployments until the measurement ends. There must be none yet.
func (e *env) observe() *observer {
	e.Helper()
	o := &observer{notifier: newNotifier(), e: e, deployments: map[string]times{}, counts: map[milestone]int{}}
	factory := metadatainformer.NewSharedInformerFactory(e.metadata, 0)
	informer := factory.ForResource(appsv1.SchemeGroupVersion.WithResource("deployments")).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: o.record, UpdateFunc: func(_, object any) { o.record(object) }})
	e.must(err)
	factory.Start(e.Context().Done())
	factory.WaitForCacheSync(e.Context().Done())
	if names := informer.GetStore().ListKeys(); len(names) > 0 {
		e.Fatalf("there are Deployments already, such as %s", names[0])
	}
	return o
}

// record is the event handler.
func (o *observer) record(event any) {
	object, err := meta.Accessor(event)
	if err != nil {
		o.e.Error(err)
		return
	}
	now, name := time.Now(), object.GetName()
	prefix := name[:strings.LastIndex(name, "-")+1]
	o.update(func() {
		t := o.deployments[name]
		if t.created.IsZero() {
			t.created = now
			o.counts[milestone{prefix, 0}]++
		}
		for int64(len(t.changed)) < object.GetGeneration()-1 {
			t.changed = append(t.changed, now)
			o.counts[milestone{prefix, len(t.changed)}]++
		}
		o.deployments[name] = t
	})
}

// count returns how many Deployments reached the milestone.
func (o *observer) count(prefix string, change int) int {
	o.Lock()
	defer o.Unlock()
	return o.counts[milestone{prefix + "-", change}]
}

// rate waits until count Deployments have reached the milestone and returns their number per
// second, from the first to the last.
func (o *observer) rate(prefix string, change, count int) float64 {
	o.e.Helper()
	o.e.waitForCount("Deployments", count, func() int { return o.count(prefix, change) })
	o.Lock()
	defer o.Unlock()
	var first, last time.Time
	for name, t := range o.deployments {
		if !strings.HasPrefix(name, prefix+"-") || len(t.changed) < change {
			continue
		}
		at := t.created
		if change > 0 {
			at = t.changed[change-1]
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return float64(count-1) / last.Sub(first).Seconds()
}

// awaitChange waits for the n-th spec change of a Deployment and returns when the watch
// delivered it.
func (o *observer) awaitChange(name string, change int) (at time.Time) {
	o.e.Helper()
	o.await(o.e, fmt.Sprintf("change %d of Deployment %s", change, name), func() bool {
		changed := o.deployments[name].changed
		if len(changed) < change {
			return false
		}
		at = changed[change-1]
		return true
	})
	return at
}

// watchDeployments watches Deployments until the measurement ends and calls handle for each
// added or updated one. It returns once the cache is synced.
func (e *env) watchDeployments(handle func(*appsv1.Deployment)) {
	e.Helper()
	factory := kubeinformers.NewSharedInformerFactory(e.kube, 0)
	informer := factory.Apps().V1().Deployments().TypedInformer()
	_, err := informer.AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, deployment *appsv1.Deployment) { handle(deployment) },
	})
	e.must(err)
	factory.StartWithContext(e.Context())
	factory.WaitForCacheSyncWithContext(e.Context())
}

// fooObserver records the status of each Foo.
type fooObserver struct {
	notifier
	e *env

	available map[string]replicas
	// reported is when the watch first delivered a condition.
	reported map[string]time.Time
}

// replicas is a number of replicas and when the watch first delivered it.
type replicas struct {
	count int32
	at    time.Time
}

// observeFoos watches Foos until the measurement ends.
func (e *env) observeFoos() *fooObserver {
	e.Helper()
	o := &fooObserver{notifier: newNotifier(), e: e, available: map[string]replicas{}, reported: map[string]time.Time{}}
	record := func(foo *v1alpha1.Foo) {
		now := time.Now()
		o.update(func() {
			if last, known := o.available[foo.Name]; !known || last.count != foo.Status.AvailableReplicas {
				o.available[foo.Name] = replicas{foo.Status.AvailableReplicas, now}
			}
			if o.reported[foo.Name].IsZero() && len(foo.Status.Conditions) > 0 {
				o.reported[foo.Name] = now
			}
		})
	}
	factory := fooinformers.NewSharedInformerFactory(e.foos, 0)
	_, err := factory.Samplecontroller().V1alpha1().Foos().TypedInformer().AddTypedEventHandler(fooinformersv1alpha1.FooHandlerFuncs{
		AddFunc: record, UpdateFunc: func(_, foo *v1alpha1.Foo) { record(foo) },
	})
	e.must(err)
	factory.StartWithContext(e.Context())
	factory.WaitForCacheSyncWithContext(e.Context())
	return o
}

// awaitReplicas waits until the Foo's status has the number of available replicas and
// returns when the watch delivered it.
func (o *fooObserver) awaitReplicas(name string, count int32) (at time.Time) {
	o.e.Helper()
	o.await(o.e, fmt.Sprintf("%d available replicas of Foo %s", count, name), func() bool {
		at = o.available[name].at
		return o.available[name].count == count
	})
	return at
}

// awaitReport waits for the first condition of the Foo and returns when the watch delivered it.
func (o *fooObserver) awaitReport(name string) (at time.Time) {
	o.e.Helper()
	o.await(o.e, "a condition of Foo "+name, func() bool {
		at = o.reported[name]
		return !at.IsZero()
	})
	return at
}

// awaitAll waits until all Foos of a group, at least so many, have the number of available
// replicas. It returns when the watch delivered the last one.
func (o *fooObserver) awaitAll(prefix string, foos int, count int32) (last time.Time) {
	o.e.Helper()
	o.e.waitForCount(fmt.Sprintf("Foos have %d available replicas", count), foos, func() int {
		o.Lock()
		defer o.Unlock()
		found := 0
		for name, available := range o.available {
			if strings.HasPrefix(name, prefix+"-") && available.count == count {
				found++
				if available.at.After(last) {
					last = available.at
				}
			}
		}
		return found
	})
	return last
}
