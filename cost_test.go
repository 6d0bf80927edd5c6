//go:build !race

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
	"fmt"
	"runtime"
	"testing"
)

// What is measured here the race detector changes: `make unit` runs these tests once
// more without it.

func heapInUse() uint64 {
	// What the first leaves in pools the second takes away.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// weigh returns how many bytes it takes to have the crowd in the caches.
func weigh(t *testing.T, foos, foreign int) (bytes uint64) {
	t.Helper()
	t.Run(fmt.Sprintf("foos=%d,foreign=%d", foos, foreign), func(t *testing.T) {
		c, fill := (&crowd{t: t, foos: foos, foreign: foreign}).connect(t.Context())
		before := heapInUse()
		fill()
		bytes = heapInUse() - before
		runtime.KeepAlive(c)
	})
	return bytes
}

// TestBytesPerObject weighs what the caches keep, with all that is needed to find it.
func TestBytesPerObject(t *testing.T) {
	const (
		foos, foreign = 4000, 4000
		// What a Foo with its Deployment may weigh, and a Deployment of others.
		maxFoo, maxForeign = 7000, 1600
	)
	without, with := weigh(t, foos, 0), weigh(t, foos, foreign)
	perFoo, perForeign := without/foos, (with-without)/foreign
	t.Logf("%d bytes a Foo with its Deployment, %d a Deployment of others", perFoo, perForeign)
	if perFoo > maxFoo || perForeign > maxForeign {
		t.Errorf("want %d and %d at most", maxFoo, maxForeign)
	}
}

// TestAllocations counts those of a sync that finds nothing to do, which nearly all do.
func TestAllocations(t *testing.T) {
	const most = 12
	c, key := newResting(t, 100), keyOf(50)
	got := testing.AllocsPerRun(1000, func() {
		if again, err := c.syncHandler(t.Context(), key); again != 0 || err != nil {
			t.Fatalf("to be synced after %v, %v", again, err)
		}
	})
	t.Logf("%v allocations a sync", got)
	if got > most {
		t.Errorf("want %d at most", most)
	}
}
