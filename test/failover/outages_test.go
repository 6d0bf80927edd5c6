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

package failover

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// outage is a way in which the control plane fails while users change Foos.
type outage struct {
	name string
	// Each of the users has foosEach Foos.
	users, foosEach int
	disrupt         func(*env)
}

const (
	// killsPerOutage is how often an outage kills its component.
	killsPerOutage = 4
	// operationsBetween is how many operations users do between two disruptions.
	operationsBetween = 40
	// downtime is how long the whole control plane is down.
	downtime = time.Minute
)

var outages = []*outage{
	{name: "the API server is killed and restarted", users: 8, foosEach: 25, disrupt: func(e *env) {
		for range killsPerOutage {
			e.awaitOperations()
			e.killComponents(apiServerName)
			e.startComponents(apiServerName)
		}
		e.awaitOperations()
	}},
	{name: "etcd is killed and restarted", users: 8, foosEach: 25, disrupt: func(e *env) {
		for range killsPerOutage {
			e.awaitOperations()
			e.killComponents(etcdName)
			e.startComponents(etcdName)
		}
		e.awaitOperations()
	}},
	{name: "the whole control plane is down for a minute", users: 8, foosEach: 10, disrupt: func(e *env) {
		e.awaitOperations()
		var all []string
		for _, c := range e.control.components {
			all = append(all, c.name)
		}
		e.killComponents(all...)
		pause(e.t.Context(), downtime)
		e.startComponents(all...)
		e.awaitOperations()
	}},
	{name: "etcd is compacted and the controller's watches expire", users: 8, foosEach: 10, disrupt: func(e *env) {
		e.awaitOperations()
		proxy := e.replicas[0].proxy
		open := proxy.watchBarrier.close()
		defer open()
		e.awaitOperations()
		e.compactEtcd()
		// A new API server has no events from before its start. The watches are blocked
		// until it serves them: any other error would make the controller list again.
		e.restartComponent(apiServerName)
		e.kills[apiServerName]++
		e.awaitAPIServer()
		open()
		e.poll("both watches got 410 Gone", func(context.Context) error {
			if proxy.expiredCount(foos) == 0 || proxy.expiredCount(deployments) == 0 {
				return fmt.Errorf("watches that got it: %d of Foos, %d of Deployments", proxy.expiredCount(foos), proxy.expiredCount(deployments))
			}
			return nil
		})
		e.awaitOperations()
	}},
}

// TestOutages kills parts of the control plane while users change Foos, and checks what
// the controller wrote and the final state. It needs a cluster of its own:
// hack/e2e.sh outages
func TestOutages(t *testing.T) {
	c := setUp(t)
	c.report = []string{"Foos\toperations\tversions\trequests\tlost\t410\tlate writes\tviolations\tseconds\t  outage"}
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			began := time.Now()
			e := newEnv(t, c)
			before := c.control.restarts()
			defer func() { e.reportOutage(o, c.control.restarts()-before, time.Since(began)) }()
			e.startController()
			e.run(o.users, o.foosEach, o.disrupt)
			e.checkInvariants()
		})
	}
}

// reportOutage adds a line to the report.
func (e *env) reportOutage(o *outage, restarts int, took time.Duration) {
	lost, proxy := 0, e.replicas[0].proxy
	for _, request := range proxy.recorded() {
		if request.lost {
			lost++
		}
	}
	e.report = append(e.report, fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t  %s (killed: %v; exited by themselves: %d)",
		o.users*o.foosEach, e.operations, len(e.history.foos)+len(e.history.deployments), len(proxy.recorded()), lost,
		proxy.expiredCount(foos)+proxy.expiredCount(deployments), e.lateWrites, len(e.violations), took.Seconds(), o.name, e.kills, restarts))
}
