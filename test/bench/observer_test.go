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
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// observer notes when each Deployment was first seen, and when with a changed spec. It
// watches no more than their metadata, so that it takes little from those it observes.
type observer struct {
	b *bench

	mu   sync.Mutex
	seen map[string]sighting
	// counts are how many have come so far. Whoever waits looks often, and must not take
	// the time of those it observes.
	counts map[milestone]int
	// told is closed and made anew with each event.
	told chan struct{}
}

// sighting is when a Deployment was seen. changed has the time of each generation after
// the first.
type sighting struct {
	born    time.Time
	changed []time.Time
}

// milestone is the birth of Deployments whose names begin like that, or their change 1, 2
// and so on.
type milestone struct {
	prefix string
	change int
}

// observe watches Deployments, of which there are none yet, until the measurement ends.
func (b *bench) observe() *observer {
	b.Helper()
	o := &observer{b: b, seen: map[string]sighting{}, counts: map[milestone]int{}, told: make(chan struct{})}
	factory := metadatainformer.NewSharedInformerFactory(b.metadata, 0)
	informer := factory.ForResource(appsv1.SchemeGroupVersion.WithResource("deployments")).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: o.see, UpdateFunc: func(_, object any) { o.see(object) }})
	b.must(err)
	factory.Start(b.Context().Done())
	factory.WaitForCacheSync(b.Context().Done())
	if names := informer.GetStore().ListKeys(); len(names) > 0 {
		b.Fatalf("there are Deployments already, such as %s", names[0])
	}
	return o
}

// see notes what an event tells.
func (o *observer) see(seen any) {
	object, err := meta.Accessor(seen)
	if err != nil {
		o.b.Error(err)
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.seen[object.GetName()]
	prefix := object.GetName()[:strings.LastIndex(object.GetName(), "-")+1]
	if s.born.IsZero() {
		s.born = now
		o.counts[milestone{prefix, 0}]++
	}
	for int64(len(s.changed)) < object.GetGeneration()-1 {
		s.changed = append(s.changed, now)
		o.counts[milestone{prefix, len(s.changed)}]++
	}
	o.seen[object.GetName()] = s
	close(o.told)
	o.told = make(chan struct{})
}

// count returns how many Deployments were born whose names begin like that, or with change
// 1, 2 and so on were changed for that time.
func (o *observer) count(prefix string, change int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts[milestone{prefix + "-", change}]
}

// times returns when each Deployment was born whose name begins like that, or with
// change 1, 2 and so on when it was changed for that time.
func (o *observer) times(prefix string, change int) []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	var times []time.Time
	for name, s := range o.seen {
		switch {
		case !strings.HasPrefix(name, prefix+"-"):
		case change == 0:
			times = append(times, s.born)
		case len(s.changed) >= change:
			times = append(times, s.changed[change-1])
		}
	}
	return times
}

// rate waits until that has happened to so many and returns how many it were a second,
// from the first to the last.
func (o *observer) rate(prefix string, change, count int) float64 {
	o.b.Helper()
	o.b.eventually(func(context.Context) error {
		if got := o.count(prefix, change); got < count {
			return fmt.Errorf("%d of %d", got, count)
		}
		return nil
	})
	times := o.times(prefix, change)
	first, last := times[0], times[0]
	for _, at := range times {
		if at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return float64(count-1) / last.Sub(first).Seconds()
}

// changed waits until the spec of a Deployment has changed so often, and returns when it
// was seen.
func (o *observer) changed(name string, change int) time.Time {
	o.b.Helper()
	deadline := time.After(patience)
	for {
		o.mu.Lock()
		s, told := o.seen[name], o.told
		o.mu.Unlock()
		if len(s.changed) >= change {
			return s.changed[change-1]
		}
		select {
		case <-told:
		case <-deadline:
			o.b.Fatalf("Deployment %s was not changed for the time %d", name, change)
		}
	}
}
