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
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// outage is a way in which the control plane goes away while users are at work.
type outage struct {
	sentence string
	// users have foosEach Foos each.
	users, foosEach int
	strike          func(*stage)
}

const (
	// blows is how often one component is killed.
	blows = 4
	// between is how many operations users do from one blow to the next.
	between = 40
	// absence is how long all of the control plane is away.
	absence = time.Minute
)

var outages = []*outage{
	{sentence: "the API server is killed and started again", users: 8, foosEach: 25, strike: func(s *stage) {
		for range blows {
			s.awaitOperations()
			s.kill(apiServerName)
			s.start(apiServerName)
		}
		s.awaitOperations()
	}},
	{sentence: "etcd is killed and started again", users: 8, foosEach: 25, strike: func(s *stage) {
		for range blows {
			s.awaitOperations()
			s.kill(etcdName)
			s.start(etcdName)
		}
		s.awaitOperations()
	}},
	{sentence: "the whole control plane is away for a minute", users: 8, foosEach: 10, strike: func(s *stage) {
		s.awaitOperations()
		var all []string
		for _, c := range s.plane.components {
			all = append(all, c.name)
		}
		s.kill(all...)
		// This is the fault, not a wait.
		select {
		case <-time.After(absence):
		case <-s.t.Context().Done():
		}
		s.start(all...)
		s.awaitOperations()
	}},
	{sentence: "etcd is compacted and the controller's watches are too old", users: 8, foosEach: 10, strike: func(s *stage) {
		s.awaitOperations()
		tap := s.replicas[0].tap
		release := tap.watches.hold()
		defer release()
		s.awaitOperations()
		s.compact()
		// A new API server knows no event from before its start. The watches are held
		// until it serves: any other answer would have their caches filled anew too.
		s.renew(apiServerName)
		s.killed[apiServerName]++
		s.awaitReady()
		release()
		s.poll("both watches were told 410 Gone", func(context.Context) error {
			if tap.expired(foos) == 0 || tap.expired(deployments) == 0 {
				return fmt.Errorf("watches told: %d of Foos, %d of Deployments", tap.expired(foos), tap.expired(deployments))
			}
			return nil
		})
		s.awaitOperations()
	}},
}

// TestOutages takes parts of the control plane away while users change Foos, and
// checks what the controller did and what there is in the end. It needs a cluster
// of its own: hack/outages.sh
func TestOutages(t *testing.T) {
	control, etcd, release := newTheatre(t)
	defer release()
	table := &outageTable{}
	defer table.write(t)
	for _, o := range outages {
		t.Run(o.sentence, func(t *testing.T) {
			began := time.Now()
			s := newStage(t, control, etcd)
			before := control.restarts()
			defer func() { table.add(o, s, control.restarts()-before, time.Since(began)) }()
			s.startAlone()
			s.play(o.users, o.foosEach, o.strike)
			s.judge()
		})
	}
}

// outageTable is what hack/outages.sh prints in the end.
type outageTable struct {
	lines []string
}

func (r *outageTable) add(o *outage, s *stage, restarts int, took time.Duration) {
	var killed []string
	for _, c := range s.plane.components {
		if times := s.killed[c.name]; times > 0 {
			killed = append(killed, fmt.Sprintf("%s %d", c.name, times))
		}
	}
	lost, tap := 0, s.replicas[0].tap
	for _, request := range tap.recorded() {
		if request.lost {
			lost++
		}
	}
	r.lines = append(r.lines, fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t  %s (killed: %s; ended by themselves: %d)",
		o.users*o.foosEach, s.operations, len(s.history.foos)+len(s.history.deployments), len(tap.recorded()), lost,
		tap.expired(foos)+tap.expired(deployments), s.lateWrites, len(s.violations), took.Seconds(),
		o.sentence, strings.Join(killed, ", "), restarts))
}

func (r *outageTable) write(t *testing.T) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "Foos\toperations\tversions\trequests\tlost\t410\tlate writes\tviolations\tseconds\t  outage")
	for _, line := range r.lines {
		fmt.Fprintln(table, line)
	}
	if err := table.Flush(); err != nil {
		t.Error(err)
	}
	writeReport(t, text.String())
}

// writeReport leaves what the script that runs the suite prints.
func writeReport(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(shared.work, "report"), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}
