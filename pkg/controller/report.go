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
	"fmt"
	"strings"
	"time"
)

// Report is what became of the writes to an owner's dependent. A text is "" if there is nothing to say.
type Report struct {
	// Contested tells of another writer that keeps undoing the repairs.
	Contested string
	// Accepted says which fields admission has changed, and Drift which ones wait for a repair.
	Accepted, Drift string
	// Next is when to sync the owner again because of repairs, zero if not by time.
	Next time.Time
}

// Report tells what became of the writes that make current, which may be nil or another owner's, the desired
// dependent.
func (d *Dependents[O, T]) Report(owner O, current, desired T) (report Report) {
	state, now := d.state(owner), d.owners.Clock.Now()
	if state.repairs >= contestedRepairs {
		report.Contested, report.Next = state.message, state.repaired.Add(repairTTL)
	}
	if pause := state.pause(state.replicas, now); pause > 0 {
		report.Next = now.Add(pause)
	}
	if current != *new(T) && d.isControlledBy(current, owner) && !d.Diff(owner, desired, current).IsEmpty() {
		drift, accepted := d.Diff(owner, desired, d.Trim(current)).split(state.answered)
		report.Accepted, report.Drift = describe(accepted, "%[1]s %[2]s in place of %[3]s"), drift.String()
	}
	return report
}

// describeWriter says which fields of the patch another writer keeps changing, who that is, and what
// the user can do.
func (d *Dependents[O, T]) describeWriter(live T, patch Patch) string {
	var fields []string
	for _, change := range patch.Changes {
		fields = append(fields, change.Field+" (by "+managerOf(change, live)+")")
	}
	return fmt.Sprintf("another writer keeps changing what this %s enforces on %s %q: %s; stop that writer, %s",
		d.owners.Kind.Kind, d.Kind, live.GetName(), strings.Join(fields, ", "), d.Advice)
}
