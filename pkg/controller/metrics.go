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

package controller

import (
	"cmp"
	"errors"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
)

const metricsNamespace = "sample_controller"

// Metrics are those of the controllers, beside client-go's and component-base's. Create them with NewMetrics.
type Metrics struct {
	// Registry is where others may be registered.
	Registry metrics.KubeRegistry

	mu     sync.Mutex
	shared map[string]any

	syncs           *metrics.HistogramVec
	writes          *metrics.CounterVec
	staleCacheSkips *metrics.CounterVec
	panics          *metrics.CounterVec
	eventFailures   *metrics.CounterVec
}

// NewMetrics returns metrics that are registered.
func NewMetrics(registry metrics.KubeRegistry) *Metrics {
	m := &Metrics{
		Registry: registry,
		shared:   map[string]any{},
		syncs: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: metricsNamespace, Name: "sync_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "How long syncs took, in seconds, by controller and result: success, requeue (the sync asked to be repeated after a delay), conflict (an object changed meanwhile), error.",
			Buckets: metrics.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"controller", "result"}),
		writes: newCounter("writes_total", "Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.",
			"controller", "resource", "verb"),
		staleCacheSkips: newCounter("stale_cache_skips_total", "Number of syncs delayed because the caches had not seen the last writes of this process, by controller.", "controller"),
		panics:          newCounter("sync_panics_total", "Number of syncs that panicked, by controller.", "controller"),
		eventFailures:   newCounter("event_failures_total", "Number of requests to record an event that failed. Events that are dropped before, because too many wait or the object has too many, are not counted."),
	}
	registry.MustRegister(m.syncs, m.writes, m.staleCacheSkips, m.panics, m.eventFailures)
	m.eventFailures.WithLabelValues()
	return m
}

func newCounter(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
}

// EventFailed counts a request to record an event that failed.
func (m *Metrics) EventFailed() {
	m.eventFailures.WithLabelValues().Inc()
}

// Shared returns what create returned for the first controller of that name: a process has one for each namespace.
func Shared[T any](m *Metrics, name string, create func(metrics.KubeRegistry) T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.shared[name]; !ok {
		m.shared[name] = create(m.Registry)
	}
	return m.shared[name].(T)
}

// Wrote counts a write of the controller of that kind that the API server accepted.
func (m *Metrics) Wrote(kind, resource, verb string) {
	m.writes.WithLabelValues(strings.ToLower(kind), resource, verb).Inc()
}

// Synced records what a sync of the controller of that kind returned and how long it took.
func (m *Metrics) Synced(kind string, requeueAfter time.Duration, err error, took time.Duration) {
	name, result := strings.ToLower(kind), "error"
	switch {
	case err == nil && requeueAfter == 0:
		result = "success"
	case err == nil:
		result = "requeue"
	case errors.Is(err, ErrStaleCache):
		m.staleCacheSkips.WithLabelValues(name).Inc()
		result = "requeue"
	case apierrors.IsConflict(err):
		result = "conflict"
	}
	m.syncs.WithLabelValues(name, result).Observe(took.Seconds())
}

// Conditioned is an object with conditions.
type Conditioned interface {
	GetConditions() []metav1.Condition
}

// CountByReady registers a gauge of the objects of a store by their Ready condition. plural is that of the kind: Foos.
func (m *Metrics) CountByReady(plural string, store cache.Store) {
	help := "Number of " + plural + " in this process's cache, by the status and the reason of their Ready condition; Unknown and an empty reason for those that have none. Every replica reports all."
	m.CountStored(strings.ToLower(plural), help, []string{"ready", "reason"}, store, func(objects []any, found func(float64, ...string)) {
		counts := map[[2]string]float64{}
		for _, object := range objects {
			ready := GetReady(object.(Conditioned).GetConditions())
			counts[[2]string{string(cmp.Or(ready.Status, metav1.ConditionUnknown)), ready.Reason}]++
		}
		for labels, count := range counts {
			found(count, labels[:]...)
		}
	})
}

// CountStored registers a gauge of the objects of a store, and of the other stores with that name.
// Whenever metrics are read, count calls found with each number of objects and its label values.
func (m *Metrics) CountStored(name, help string, labels []string, store cache.Store, count func(objects []any, found func(float64, ...string))) {
	collector := Shared(m, name, func(registry metrics.KubeRegistry) *storeCollector {
		c := &storeCollector{desc: metrics.NewDesc(metricsNamespace+"_"+name, help, labels, nil, metrics.ALPHA, ""), count: count}
		registry.CustomMustRegister(c)
		return c
	})
	collector.mu.Lock()
	defer collector.mu.Unlock()
	collector.stores = append(collector.stores, store)
}

// storeCollector counts objects when it is asked.
type storeCollector struct {
	metrics.BaseStableCollector

	desc  *metrics.Desc
	count func(objects []any, found func(float64, ...string))

	mu     sync.Mutex
	stores []cache.Store
}

// DescribeWithStability implements metrics.StableCollector.
func (c *storeCollector) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	descriptions <- c.desc
}

// CollectWithStability implements metrics.StableCollector.
func (c *storeCollector) CollectWithStability(found chan<- metrics.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var objects []any
	for _, store := range c.stores {
		objects = append(objects, store.List()...)
	}
	c.count(objects, func(count float64, labels ...string) {
		found <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, count, labels...)
	})
}
