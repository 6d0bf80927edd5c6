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
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
)

const metricsNamespace = "sample_controller"

// How a sync ended, in the result label.
const (
	// resultSuccess: there is nothing to do until something happens.
	resultSuccess = "success"
	// resultRequeue: it is to be looked at again at a certain time.
	resultRequeue = "requeue"
	// resultConflict: somebody changed an object meanwhile.
	resultConflict = "conflict"
	// resultError: it failed, or was refused.
	resultError = "error"
)

// Metrics are what the controllers count of their own doings, beside what client-go
// and component-base count by themselves. Create them with NewMetrics.
type Metrics struct {
	registry MetricsRegistry

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
		syncs: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: metricsNamespace, Name: "sync_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "How long syncs took, in seconds, by controller and result: success, requeue (it is to be looked at again at a certain time), conflict (an object changed meanwhile), error.",
			Buckets: metrics.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"controller", "result"}),
		writes: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: metricsNamespace, Name: "writes_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.",
		}, []string{"controller", "resource", "verb"}),
		staleCacheSkips: byController("stale_cache_skips_total", "Number of syncs put off because the caches had not seen the last writes of this process, by controller."),
		panics:          byController("sync_panics_total", "Number of syncs that panicked, by controller."),
		eventFailures: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: metricsNamespace, Name: "event_failures_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of requests to record an event that failed.",
		}),
	}
	registry.MustRegister(m.syncs, m.writes, m.staleCacheSkips, m.panics, m.eventFailures)
	return m
}

func byController(name, help string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{"controller"})
}

// EventFailed notes that an event could not be recorded.
func (m *Metrics) EventFailed() {
	m.eventFailures.Inc()
}

// Counters are the metrics of one controller.
type Counters struct {
	metrics *Metrics
	name    string
}

// Of returns the metrics of the controller of that kind. From now on those of
// rare events are 0, and not missing.
func (m *Metrics) Of(kind string) Counters {
	name := nameOf(kind)
	m.staleCacheSkips.WithLabelValues(name)
	m.panics.WithLabelValues(name)
	return Counters{metrics: m, name: name}
}

// Wrote notes a write that the API server accepted.
func (c Counters) Wrote(resource, verb string) {
	c.metrics.writes.WithLabelValues(c.name, resource, verb).Inc()
}

// SkippedStaleCache notes that a sync was put off, because of Gate.CaughtUp.
func (c Counters) SkippedStaleCache() {
	c.metrics.staleCacheSkips.WithLabelValues(c.name).Inc()
}

// Synced notes the end of a sync, with the label of its result.
func (c Counters) Synced(result string, took time.Duration) {
	c.metrics.syncs.WithLabelValues(c.name, result).Observe(took.Seconds())
}

func (c Counters) panicked() {
	c.metrics.panics.WithLabelValues(c.name).Inc()
}

// resultOf returns the label for what a sync returned.
func resultOf(again time.Duration, err error) string {
	switch {
	case err == nil && again == 0:
		return resultSuccess
	case err == nil:
		return resultRequeue
	case IsConflict(err):
		return resultConflict
	}
	return resultError
}

// CountByReady makes the objects of a cache be counted by their Ready condition,
// whenever metrics are read. plural is that of the kind, as in Foos; in lower case it
// ends the metric's name.
func CountByReady[T any](m *Metrics, plural string, list func(labels.Selector) ([]T, error), conditionsOf func(T) []metav1.Condition) {
	m.registry.CustomMustRegister(&readyCollector[T]{
		list: list, conditionsOf: conditionsOf, plural: plural,
		desc: metrics.NewDesc(metricsNamespace+"_"+strings.ToLower(plural),
			"Number of "+plural+" in this process's cache, by the status and the reason of their Ready condition; Unknown and an empty reason for those that have none. Every replica reports all.",
			[]string{"ready", "reason"}, nil, metrics.ALPHA, ""),
	})
}

// readyCollector counts objects when it is asked.
type readyCollector[T any] struct {
	metrics.BaseStableCollector

	list         func(labels.Selector) ([]T, error)
	conditionsOf func(T) []metav1.Condition
	plural       string
	desc         *metrics.Desc
}

// DescribeWithStability implements metrics.StableCollector.
func (c *readyCollector[T]) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	descriptions <- c.desc
}

// CollectWithStability implements metrics.StableCollector.
func (c *readyCollector[T]) CollectWithStability(found chan<- metrics.Metric) {
	objects, err := c.list(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Counting what is in the cache failed", "of", c.plural)
		return
	}
	type state struct{ ready, reason string }
	counts := map[state]float64{}
	for _, object := range objects {
		now := state{ready: "Unknown"}
		if ready := ReadyOf(c.conditionsOf(object)); ready.Status != "" {
			now = state{string(ready.Status), ready.Reason}
		}
		counts[now]++
	}
	for now, count := range counts {
		found <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, count, now.ready, now.reason)
	}
}
