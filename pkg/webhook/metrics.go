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

package webhook

import (
	"k8s.io/component-base/metrics"

	"example.com/sample-controller/pkg/controller"
)

const (
	namespace = "sample_controller"
	subsystem = "webhook"
)

// Metrics are the metrics of the webhooks. Create them with NewMetrics.
type Metrics struct {
	requests    *metrics.HistogramVec
	refusals    *metrics.Counter
	conversions *metrics.CounterVec
	panics      *metrics.Counter
}

// NewMetrics returns metrics that are registered with the registry.
func NewMetrics(registry controller.MetricsRegistry) *Metrics {
	m := &Metrics{
		requests: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "request_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Duration of the API server's requests to the webhooks in seconds, by path and HTTP status code.",
			Buckets: metrics.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"path", "code"}),
		refusals: counter("admission_refusals_total", "Number of Foos that were refused because the name of their Deployment is taken."),
		conversions: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "conversions_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of objects in conversion requests, by result: success, failure.",
		}, []string{"result"}),
		panics: counter("panics_total", "Number of webhook requests that ended in a panic."),
	}
	registry.MustRegister(m.requests, m.refusals, m.conversions, m.panics)
	return m
}

func counter(name, help string) *metrics.Counter {
	return metrics.NewCounter(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	})
}
