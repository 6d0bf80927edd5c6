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
	"maps"
	"testing"
	"time"
)

// TestFull measures on a complete cluster how long it takes until the status of Foos that are
// created at once, and then of Foos that are scaled at once, tells that all their replicas are
// available.
func TestFull(t *testing.T) {
	e := newEnv(t)
	foos := e.observeFoos()
	program := e.start()
	// One Foo first excludes what the control plane does only once.
	e.createFoos("first", 1)
	foos.awaitAll("first", 1, 1)

	for _, step := range []struct {
		row      string
		change   func()
		replicas int32
	}{
		{"full cluster: creation", func() { e.createFoos("foo", e.objects) }, 1},
		{"full cluster: scaling", func() { e.scaleFoos("foo", 2) }, 2},
	} {
		before, cpu, cpuBefore := e.requests(), e.cpu(), e.cpuOf(program.pid())
		start := time.Now()
		step.change()
		changed := time.Since(start)
		took := foos.awaitAll("foo", e.objects, step.replicas).Sub(start)
		details := e.cost(program, before, e.objects)
		details["CPU s of the program"] -= cpuBefore
		details["s until all Foos were changed"] = changed.Seconds()
		details["requests/Foo, of all clients"] = e.since(before).all() / float64(e.objects)
		maps.Copy(details, e.cpuSince(cpu))
		e.record(step.row, took.Seconds(), details)
	}
}
