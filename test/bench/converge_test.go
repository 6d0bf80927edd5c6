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
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/sample-controller/test/bench/result"
)

// TestConverge measures how fast the controller makes the Deployments of Foos that were
// there before it. Before and after each round, a plain client makes as many Deployments of
// the same size, with as many requests at a time, which is the floor.
func TestConverge(t *testing.T) {
	b := newBench(t)
	b.pauseOthers()
	observer := b.observe()
	rounds := 8
	if b.objects > 5000 {
		// Long enough to even out what else the machine does.
		rounds = 1
	}
	floors := []float64{b.floor(observer, "floor-0", 0, b.createOwned)}
	var rates []float64
	var details map[string]float64
	for round := range rounds {
		rate, of := b.converge(observer, fmt.Sprintf("foo-%d", round))
		rates = append(rates, rate)
		if round == 0 {
			details = of
		}
		floors = append(floors, b.floor(observer, fmt.Sprintf("floor-%d", round+1), 0, b.createOwned))
	}
	addRates(details, "created/s", rates)
	addRates(details, "POST/s", floors)
	b.report("converge", mean(rates...)/mean(floors...), details)
}

// converge returns how many Deployments a second a controller makes of new Foos that are
// there before it, and what else there is to know.
func (b *bench) converge(observer *observer, prefix string) (float64, map[string]float64) {
	b.Helper()
	b.createFoos(prefix, b.objects)
	asked := b.requests()
	began := time.Now()
	controller := b.start()
	created := observer.rate(prefix, 0, b.objects)
	took := time.Since(began)
	b.settle(asked, b.objects)
	settled := time.Since(began)
	spent := b.since(asked)
	peak := controller.resident("VmHWM")
	controller.stop()
	return created, map[string]float64{
		"s to the last Deployment": took.Seconds(), "s to the last status": settled.Seconds(),
		"requests/Foo": (spent.sum("deployments", anyVerb...) + spent.sum("foos/status", anyVerb...) + spent.sum("foos", anyVerb...)) / float64(b.objects),
		"peak MB":      peak / 1e6,
	}
}

// TestGrowth measures how much longer each of very many Foos takes than of few, which are
// converged before and after the many, on the same cluster.
func TestGrowth(t *testing.T) {
	b := newBench(t)
	b.pauseOthers()
	observer := b.observe()
	most := b.objects
	// round returns the rates of the controller and of a plain client.
	round := func(of string, objects int) (rate, floor, requests float64) {
		b.objects = objects
		rate, details := b.converge(observer, of)
		floor = b.floor(observer, "floor-"+of, 0, b.createOwned)
		if objects == most {
			details["created/s"], details["POST/s"] = rate, floor
			b.report("converge", rate/floor, details)
		}
		return rate, floor, details["requests/Foo"]
	}
	var fewRates, fewFloors []float64
	asked := 0.0
	small := func(of string) {
		rate, floor, requests := round(of, result.Few)
		fewRates, fewFloors, asked = append(fewRates, rate), append(fewFloors, floor), requests
	}
	small("few-0")
	small("few-1")
	rate, floor, askedByMost := round("most", most)
	small("few-2")
	small("few-3")
	b.objects = most
	b.report("growth: time", mean(fewRates...)/rate, map[string]float64{
		"created/s of most": rate, "created/s of few": mean(fewRates...), "of a plain client": mean(fewFloors...) / floor,
		"before":                    mean(fewRates[:2]...) / rate,
		"before, of a plain client": mean(fewFloors[:2]...) / floor,
	})
	b.report("growth: requests", askedByMost/asked, nil)
}

// TestScale measures how fast the controller scales the Deployments of Foos that were
// changed in its absence. Before and after each round, a plain client scales as many
// Deployments of the same size, with as many requests at a time, which is the floor.
func TestScale(t *testing.T) {
	b := newBench(t)
	b.pauseOthers()
	observer := b.observe()
	const rounds = 6
	for round := range rounds + 1 {
		b.createOwned(fmt.Sprintf("floor-%d", round), b.objects, creators)
	}
	b.createFoos("foo", b.objects)
	asked := b.requests()
	controller := b.start()
	b.settle(asked, b.objects)
	controller.stop()

	floor := func(round int) float64 {
		return b.floor(observer, fmt.Sprintf("floor-%d", round), 1, b.patchDeployments)
	}
	details := map[string]float64{}
	floors := []float64{floor(0)}
	var rates []float64
	for round := range rounds {
		b.inParallel(b.objects, creators, func(ctx context.Context, i int) error { return b.scaleFoo(ctx, name("foo", i), 2+round) })
		asked = b.requests()
		controller = b.start()
		rates = append(rates, observer.rate("foo", 1+round, b.objects))
		details[fmt.Sprintf("statuses by then, %d", round)] = b.since(asked).sum("foos/status", anyVerb...)
		details[fmt.Sprintf("CPU s of the controller, %d", round)] = b.cpuOf(controller.pid())
		b.settle(asked, b.objects)
		controller.stop()
		floors = append(floors, floor(round+1))
	}
	addRates(details, "scaled/s", rates)
	addRates(details, "PATCH/s", floors)
	b.report("scale", mean(rates...)/mean(floors...), details)
}

// addRates adds to the details the rates of all rounds and their mean.
func addRates(details map[string]float64, what string, rates []float64) {
	details[what] = mean(rates...)
	for i, rate := range rates {
		details[fmt.Sprintf("%s, %d", what, i)] = rate
	}
}

// floor returns how many Deployments a second a plain client comes to that does this,
// and watches Deployments as well. change is as in times.
func (b *bench) floor(observer *observer, prefix string, change int, do func(prefix string, count, parallel int)) float64 {
	b.Helper()
	rate := 0.0
	b.withWatch(func() {
		do(prefix, b.objects, b.workers)
		rate = observer.rate(prefix, change, b.objects)
	})
	return rate
}
