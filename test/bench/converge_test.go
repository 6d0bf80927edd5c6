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
	"fmt"
	"testing"
	"time"

	"example.com/sample-controller/test/bench/result"
)

// TestConverge measures how fast the controller creates the Deployments of Foos that exist
// before it starts. Before and after each round, a plain client creates as many Deployments
// of the same size with as many concurrent requests.
func TestConverge(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	observer := e.observe()
	rounds := 8
	if e.objects > 5000 {
		// One round takes long enough to average out other load on the machine.
		rounds = 1
	}
	plain := []float64{e.plainRate(observer, "plain-0", 0, e.createOwned)}
	var rates []float64
	var details map[string]float64
	for round := range rounds {
		rate, roundDetails := e.converge(observer, fmt.Sprintf("foo-%d", round))
		rates = append(rates, rate)
		if round == 0 {
			details = roundDetails
		}
		plain = append(plain, e.plainRate(observer, fmt.Sprintf("plain-%d", round+1), 0, e.createOwned))
	}
	addRates(details, "created/s", rates)
	addRates(details, "POST/s", plain)
	e.record("converge", mean(rates...)/mean(plain...), details)
}

// converge returns how many Deployments per second a new controller creates for Foos that
// exist before it starts, and the details of that round.
func (e *env) converge(observer *observer, prefix string) (float64, map[string]float64) {
	e.Helper()
	e.createFoos(prefix, e.objects)
	before, start := e.requests(), time.Now()
	controller := e.start()
	rate := observer.rate(prefix, 0, e.objects)
	lastDeployment := time.Since(start)
	e.awaitStatuses(before, e.objects)
	lastStatus := time.Since(start)
	sent := e.since(before)
	peak := controller.memory("VmHWM")
	controller.stop()
	return rate, map[string]float64{
		"s to the last Deployment": lastDeployment.Seconds(), "s to the last status": lastStatus.Seconds(),
		"requests/Foo": (sent.sum("deployments", allVerbs...) + sent.sum("foos/status", allVerbs...) + sent.sum("foos", allVerbs...)) / float64(e.objects),
		"peak MB":      peak / 1e6,
	}
}

// TestGrowth measures how much longer each of many Foos takes than each of few. The few are
// converged twice before and twice after the many, on the same cluster.
func TestGrowth(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	observer := e.observe()
	many := e.objects
	var fewRates, fewPlain []float64
	var fewRequests float64
	few := func(prefix string) {
		e.objects = result.Few
		rate, details := e.converge(observer, prefix)
		fewRates, fewRequests = append(fewRates, rate), details["requests/Foo"]
		fewPlain = append(fewPlain, e.plainRate(observer, "plain-"+prefix, 0, e.createOwned))
	}
	few("few-0")
	few("few-1")
	e.objects = many
	rate, details := e.converge(observer, "most")
	plain := e.plainRate(observer, "plain-most", 0, e.createOwned)
	details["created/s"], details["POST/s"] = rate, plain
	e.record("converge", rate/plain, details)
	few("few-2")
	few("few-3")
	e.objects = many
	e.record("growth: time", mean(fewRates...)/rate, map[string]float64{
		"created/s of most": rate, "created/s of few": mean(fewRates...), "of a plain client": mean(fewPlain...) / plain,
		"before":                    mean(fewRates[:2]...) / rate,
		"before, of a plain client": mean(fewPlain[:2]...) / plain,
	})
	e.record("growth: requests", details["requests/Foo"]/fewRequests, nil)
}

// TestScale measures how fast the controller scales the Deployments of Foos that were
// scaled while it did not run. Before and after each round, a plain client scales as many
// Deployments of the same size with as many concurrent requests.
func TestScale(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	observer := e.observe()
	const rounds = 6
	for round := range rounds + 1 {
		e.createOwned(fmt.Sprintf("plain-%d", round), e.objects, creators)
	}
	e.createFoos("foo", e.objects)
	before := e.requests()
	controller := e.start()
	e.awaitStatuses(before, e.objects)
	controller.stop()

	plainRate := func(round int) float64 {
		return e.plainRate(observer, fmt.Sprintf("plain-%d", round), 1, e.patchDeployments)
	}
	details := map[string]float64{}
	plain := []float64{plainRate(0)}
	var rates []float64
	for round := range rounds {
		e.scaleFoos("foo", 2+round)
		before = e.requests()
		controller = e.start()
		rates = append(rates, observer.rate("foo", 1+round, e.objects))
		details[fmt.Sprintf("statuses by then, %d", round)] = e.since(before).sum("foos/status", allVerbs...)
		details[fmt.Sprintf("CPU s of the controller, %d", round)] = e.cpuOf(controller.pid())
		e.awaitStatuses(before, e.objects)
		controller.stop()
		plain = append(plain, plainRate(round+1))
	}
	addRates(details, "scaled/s", rates)
	addRates(details, "PATCH/s", plain)
	e.record("scale", mean(rates...)/mean(plain...), details)
}

// addRates adds the rate of each round and their mean to the details.
func addRates(details map[string]float64, unit string, rates []float64) {
	details[unit] = mean(rates...)
	for i, rate := range rates {
		details[fmt.Sprintf("%s, %d", unit, i)] = rate
	}
}
