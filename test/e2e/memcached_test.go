//go:build e2e

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

package e2e

import (
	"fmt"
	"testing"
)

// applyMemcached applies a Memcached, or changes its size.
func (e *env) applyMemcached(name string, size int) {
	e.Helper()
	e.apply(fmt.Sprintf("{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {name: %s}, spec: {size: %d}}", name, size))
}

// TestWalkthrough6 runs the commands of walkthrough 6.
func TestWalkthrough6(t *testing.T) {
	t.Parallel()
	e := startEnv(t, "--controllers=memcached")
	e.script("walkthrough6_memcached")
	e.controller.stop()
	e.controller.requireNoErrors()
}

// TestMemcached has what a simulated API server would not show of the Memcached contract.
func TestMemcached(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("memcached")
}

// createMemcachedVictims creates a Memcached, and a Service of others.
func createMemcachedVictims(e *env) {
	e.Helper()
	e.applyMemcached("x", 1)
	e.kubectl("create service clusterip theirs --tcp=11211")
}
