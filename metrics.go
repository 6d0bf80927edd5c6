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

import "k8s.io/component-base/metrics"

// controllerMetrics are what the controller counts of its own doings, beside
// what client-go and component-base count by themselves.
type controllerMetrics struct {
	// staleCacheSkips counts the syncs put off because the caches had not seen
	// the last writes.
	staleCacheSkips *metrics.Counter
	// panics counts the syncs that panicked.
	panics *metrics.Counter
}

// newMetrics returns the metrics after registering them with register.
func newMetrics(register func(...metrics.Registerable)) *controllerMetrics {
	counter := func(name, help string) *metrics.Counter {
		c := metrics.NewCounter(&metrics.CounterOpts{Namespace: "sample_controller", Name: name, Help: help, StabilityLevel: metrics.ALPHA})
		register(c)
		return c
	}
	return &controllerMetrics{
		staleCacheSkips: counter("stale_cache_skips_total", "Number of syncs put off because the caches had not seen the last writes of this process."),
		panics:          counter("sync_panics_total", "Number of syncs that panicked."),
	}
}
