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
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
)

const metricsNamespace = "sample_controller"

// How a sync ended, in the result label.
const (
	// resultSuccess: nothing is left to do until an event arrives.
	resultSuccess = "success"
	// resultRequeue: the sync asked to be repeated after a delay, or waits for the caches.
	resultRequeue = "requeue"
	// resultConflict: an object changed during the sync.
	resultConflict = "conflict"
	// resultError: the sync failed, or the API server refused a write.
	resultError = "error"
)

// Metrics are those of the controllers, beside the ones that client-go and component-base
// register. Create them with NewMetrics.
type Metrics struct {
	registry MetricsRegistry

	mu      sync.Mutex
	byReady map[string]*readyCollector
	// +drop:crontab
	byTrue     map[string]*trueCollector
	histograms map[string]*metrics.Histogram
	// +drop:end

	syncs           *metrics.HistogramVec
	writes          *metrics.CounterVec
	staleCacheSkips *metrics.CounterVec
	panics          *metrics.CounterVec
	eventFailures   *metrics.Counter
}

// MetricsRegistry is where metrics are registered, such as a
// metrics.KubeRegistry.
type MetricsRegistry interface {
	MustRegister(...metrics.Registerable)
	CustomMustRegister(...metrics.StableCollector)
}

// NewMetrics returns metrics that are registered.
func NewMetrics(registry MetricsRegistry) *Metrics {
	m := &Metrics{
		registry: registry,
		byReady:  map[string]*readyCollector{},
		// +drop:crontab
		byTrue:     map[string]*trueCollector{},
		histograms: map[string]*metrics.Histogram{},
		// +drop:end
		syncs: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: metricsNamespace, Name: "sync_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "How long syncs took, in seconds, by controller and result: success, requeue (the sync asked to be repeated after a delay), conflict (an object changed meanwhile), error.",
			Buckets: metrics.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"controller", "result"}),
		writes: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: metricsNamespace, Name: "writes_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.",
		}, []string{"controller", "resource", "verb"}),
		staleCacheSkips: byController("stale_cache_skips_total", "Number of syncs delayed because the caches had not seen the last writes of this process, by controller."),
		panics:          byController("sync_panics_total", "Number of syncs that panicked, by controller."),
		eventFailures: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: metricsNamespace, Name: "event_failures_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of requests to record an event that failed. Events that are dropped before, because too many wait or the object has too many, are not counted.",
		}),
	}
	registry.MustRegister(m.syncs, m.writes, m.staleCacheSkips, m.panics, m.eventFailures)
	return m
}

func byController(name, help string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{"controller"})
}

// EventFailed counts a request to record an event that failed.
func (m *Metrics) EventFailed() {
	m.eventFailures.Inc()
}

// Counters are the metrics of one controller.
type Counters struct {
	metrics *Metrics
	name    string
}

// Of returns the metrics of the controller of that kind. It initializes the counters of
// rare events to 0, so that an alert sees their first increase.
func (m *Metrics) Of(kind string) Counters {
	name := nameOf(kind)
	m.staleCacheSkips.WithLabelValues(name)
	m.panics.WithLabelValues(name)
	return Counters{metrics: m, name: name}
}

// Wrote counts a write that the API server accepted.
func (c Counters) Wrote(resource, verb string) {
	c.metrics.writes.WithLabelValues(c.name, resource, verb).Inc()
}

func (c Counters) skippedStaleCache() {
	c.metrics.staleCacheSkips.WithLabelValues(c.name).Inc()
}

// Synced records the result and the duration of a sync.
func (c Counters) Synced(result string, took time.Duration) {
	c.metrics.syncs.WithLabelValues(c.name, result).Observe(took.Seconds())
}

func (c Counters) panicked() {
	c.metrics.panics.WithLabelValues(c.name).Inc()
}

// resultOf returns the label for what a sync returned.
func resultOf(requeueAfter time.Duration, err error) string {
	switch {
	case err == nil && requeueAfter == 0:
		return resultSuccess
	case err == nil, errors.Is(err, ErrStaleCache):
		return resultRequeue
	case apierrors.IsConflict(err):
		return resultConflict
	}
	return resultError
}

// Conditioned is an object with conditions.
type Conditioned interface {
	GetConditions() []metav1.Condition
}

// Registry returns the registry of the metrics, to which others may be added.
func (m *Metrics) Registry() MetricsRegistry {
	return m.registry
}

// +drop:crontab

// CountTrue registers a gauge of the objects of a store whose condition of that type is True.
// Like CountByReady it counts when metrics are collected. The metric's name ends in that of the type, in lower case.
func (m *Metrics) CountTrue(plural, conditionType string, store cache.Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := metricsNamespace + "_" + strings.ToLower(plural+"_"+conditionType)
	if known, ok := m.byTrue[name]; ok {
		known.add(store)
		return
	}
	collector := &trueCollector{conditionType: conditionType, readyCollector: readyCollector{
		stores: []cache.Store{store},
		desc: metrics.NewDesc(name, "Number of "+plural+" in this process's cache whose "+conditionType+" condition is True. Every replica reports all.",
			nil, nil, metrics.ALPHA, ""),
	}}
	m.byTrue[name] = collector
	m.registry.CustomMustRegister(collector)
}

// trueCollector counts objects when it is asked.
type trueCollector struct {
	readyCollector

	conditionType string
}

// CollectWithStability implements metrics.StableCollector.
func (c *trueCollector) CollectWithStability(found chan<- metrics.Metric) {
	count := 0
	for _, object := range c.objects() {
		if slices.ContainsFunc(object.(Conditioned).GetConditions(), func(condition metav1.Condition) bool {
			return condition.Type == c.conditionType && condition.Status == metav1.ConditionTrue
		}) {
			count++
		}
	}
	found <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, float64(count))
}

// Histogram returns a histogram of one controller. It registers the first one of that name:
// the process calls New of a controller once for each namespace.
func (m *Metrics) Histogram(options *metrics.HistogramOpts) *metrics.Histogram {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := metrics.BuildFQName(options.Namespace, options.Subsystem, options.Name)
	if _, ok := m.histograms[name]; !ok {
		m.histograms[name] = metrics.NewHistogram(options)
		m.registry.MustRegister(m.histograms[name])
	}
	return m.histograms[name]
}

// +drop:end

// CountByReady makes the objects of a store be counted by their Ready condition whenever
// metrics are read. plural is that of the kind, such as Foos; in lower case it ends the
// metric's name. Stores of one plural, such as those of several namespaces, are counted
// together.
func (m *Metrics) CountByReady(plural string, store cache.Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.byReady[plural]; ok {
		known.add(store)
		return
	}
	collector := &readyCollector{
		stores: []cache.Store{store},
		desc: metrics.NewDesc(metricsNamespace+"_"+strings.ToLower(plural),
			"Number of "+plural+" in this process's cache, by the status and the reason of their Ready condition; Unknown and an empty reason for those that have none. Every replica reports all.",
			[]string{"ready", "reason"}, nil, metrics.ALPHA, ""),
	}
	m.byReady[plural] = collector
	m.registry.CustomMustRegister(collector)
}

// readyCollector counts objects when it is asked.
type readyCollector struct {
	metrics.BaseStableCollector

	desc *metrics.Desc

	mu     sync.Mutex
	stores []cache.Store
}

func (c *readyCollector) add(store cache.Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores = append(c.stores, store)
}

// objects returns the objects of all stores.
func (c *readyCollector) objects() []any {
	c.mu.Lock()
	stores := slices.Clone(c.stores)
	c.mu.Unlock()
	var objects []any
	for _, store := range stores {
		objects = append(objects, store.List()...)
	}
	return objects
}

// DescribeWithStability implements metrics.StableCollector.
func (c *readyCollector) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	descriptions <- c.desc
}

// CollectWithStability implements metrics.StableCollector.
func (c *readyCollector) CollectWithStability(found chan<- metrics.Metric) {
	type state struct{ ready, reason string }
	counts := map[state]float64{}
	for _, object := range c.objects() {
		current := state{ready: string(metav1.ConditionUnknown)}
		if ready := GetReady(object.(Conditioned).GetConditions()); ready.Status != "" {
			current = state{string(ready.Status), ready.Reason}
		}
		counts[current]++
	}
	for current, count := range counts {
		found <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, count, current.ready, current.reason)
	}
}
