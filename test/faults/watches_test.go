//go:build faults

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

package faults

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// exploreWatches plays the scenario, the one of that index, with each fault of
// the watches, or with every nth of them, another one for each scenario.
func (s *scenario) exploreWatches(t *testing.T, rows []watchRow, index, nth int, end string) {
	for i, fault := range watchFaults {
		if (index+i)%nth != 0 || !s.kind.knows(fault.about) {
			continue
		}
		t.Run("watches: "+s.kind.named(fault.name), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			var r *run
			t.Cleanup(func() { rows[i].ended(time.Since(began), t.Failed(), r) })
			r = newRun(t, s, fault)
			r.play(point{}, nil, end)
			r.close()
		})
	}
}

// watchRow is what the report says of one fault of the watches.
type watchRow struct {
	mu sync.Mutex
	// A fault that had no occasion to strike has not passed.
	runs, passed, failed, idle int
	strikes, requests          int
	longest                    time.Duration
}

// ended counts a run, which may have failed before there was one.
func (w *watchRow) ended(took time.Duration, failed bool, r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs++
	w.longest = max(w.longest, took)
	strikes := 0
	if r != nil {
		strikes = r.proxy.watches.struck()
		w.requests += len(r.proxy.recorded())
	}
	w.strikes += strikes
	switch {
	case failed:
		w.failed++
	case strikes == 0:
		w.idle++
	default:
		w.passed++
	}
}

// aboutWatches returns the part of the report on the faults of the watches, ""
// if none was played.
func (r *report) aboutWatches(t *testing.T) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\nscenarios\tpassed\tfailed\tnot struck\tstrikes\trequests\tlongest\t  watch fault")
	line := func(w *watchRow, name string) {
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t  %s\n",
			w.runs, w.passed, w.failed, w.idle, w.strikes, w.requests, w.longest.Seconds(), name)
	}
	total := &watchRow{}
	for i := range r.watches {
		w := &r.watches[i]
		if w.runs == 0 {
			continue
		}
		line(w, r.kind.named(watchFaults[i].name))
		total.runs += w.runs
		total.passed += w.passed
		total.failed += w.failed
		total.idle += w.idle
		total.strikes += w.strikes
		total.requests += w.requests
		total.longest = max(total.longest, w.longest)
	}
	if total.runs == 0 {
		return ""
	}
	line(total, "all of "+r.kind.parent)
	if err := table.Flush(); err != nil {
		t.Error(err)
	}
	return text.String()
}
