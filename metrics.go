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
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	foolisters "example.com/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"
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

// Metrics are what the controller counts of its own doings, beside what client-go
// and component-base count by themselves. Create them with NewMetrics.
type Metrics struct {
	registry MetricsRegistry

	syncs           *metrics.HistogramVec
	writes          *metrics.CounterVec
	staleCacheSkips *metrics.Counter
	panics          *metrics.Counter
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
			Help:    "How long syncs of Foos took, in seconds, by result: success, requeue (it is to be looked at again at a certain time), conflict (an object changed meanwhile), error.",
			Buckets: metrics.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"result"}),
		writes: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: metricsNamespace, Name: "writes_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of writes that the API server accepted, by resource and verb. Events and the lease are not among them.",
		}, []string{"resource", "verb"}),
		staleCacheSkips: newCounter("stale_cache_skips_total", "Number of syncs put off because the caches had not seen the last writes of this process."),
		panics:          newCounter("sync_panics_total", "Number of syncs that panicked."),
		eventFailures:   newCounter("event_failures_total", "Number of requests to record an event that failed."),
	}
	registry.MustRegister(m.syncs, m.writes, m.staleCacheSkips, m.panics, m.eventFailures)
	return m
}

func newCounter(name, help string) *metrics.Counter {
	return metrics.NewCounter(&metrics.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help, StabilityLevel: metrics.ALPHA})
}

// synced notes the end of a sync.
func (m *Metrics) synced(result string, took time.Duration) {
	m.syncs.WithLabelValues(result).Observe(took.Seconds())
}

// resultOf returns the label for what a sync returned.
func resultOf(again time.Duration, err error) string {
	switch {
	case err == nil && again == 0:
		return resultSuccess
	case err == nil:
		return resultRequeue
	case isConflict(err):
		return resultConflict
	}
	return resultError
}

// wrote notes a write that the API server accepted.
func (m *Metrics) wrote(resource, verb string) {
	m.writes.WithLabelValues(resource, verb).Inc()
}

// EventFailed notes that an event could not be recorded.
func (m *Metrics) EventFailed() {
	m.eventFailures.Inc()
}

// watchFoos makes the Foos in the cache be counted whenever metrics are read.
func (m *Metrics) watchFoos(foos foolisters.FooLister) {
	m.registry.CustomMustRegister(&fooCollector{
		foos: foos,
		desc: metrics.NewDesc(metricsNamespace+"_foos",
			"Number of Foos in this process's cache, by the status and the reason of their Ready condition; Unknown and an empty reason for those that have none. Every replica reports all.",
			[]string{"ready", "reason"}, nil, metrics.ALPHA, ""),
	})
}

// fooCollector counts Foos when it is asked.
type fooCollector struct {
	metrics.BaseStableCollector

	foos foolisters.FooLister
	desc *metrics.Desc
}

// DescribeWithStability implements metrics.StableCollector.
func (c *fooCollector) DescribeWithStability(descriptions chan<- *metrics.Desc) {
	descriptions <- c.desc
}

// CollectWithStability implements metrics.StableCollector.
func (c *fooCollector) CollectWithStability(found chan<- metrics.Metric) {
	foos, err := c.foos.List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Counting the Foos of the cache failed")
		return
	}
	type state struct{ ready, reason string }
	counts := map[state]float64{}
	for _, foo := range foos {
		now := state{ready: "Unknown"}
		if ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady); ready != nil {
			now = state{string(ready.Status), ready.Reason}
		}
		counts[now]++
	}
	for now, count := range counts {
		found <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, count, now.ready, now.reason)
	}
}
