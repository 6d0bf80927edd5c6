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

	"example.com/sample-controller/test/bench/result"
)

// TestThroughput measures the Deployments per second that the program creates for Foos that
// exist before it starts, then those that it scales while users patch all Foos. No Deployment
// has a status, so every Foo is in progress all the time.
func TestThroughput(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	observer := e.observe()
	rate, details, program := e.converge(observer, "foo", e.objects)
	e.record("converge", rate, details)
	before := e.requests()
	e.scaleFoos("foo", 2)
	rate = observer.rate("foo", 1, e.objects)
	e.record("scale", rate, e.cost(program, before, e.objects))
}

// converge creates Foos, then starts the program. It returns how many Deployments per second
// the program creates, the details, and the program.
func (e *env) converge(observer *observer, prefix string, count int) (float64, map[string]float64, *process) {
	e.Helper()
	e.createFoos(prefix, count)
	before := e.requests()
	program := e.start()
	rate := observer.rate(prefix, 0, count)
	return rate, e.cost(program, before, count), program
}

// cost returns what the program has cost, and the requests for each of the Foos since before
// was taken.
func (e *env) cost(program *process, before requests, foos int) map[string]float64 {
	e.Helper()
	sent := e.since(before)
	return map[string]float64{
		"statuses/Foo":         sent.statusWrites() / float64(foos),
		"requests/Foo":         (sent.sum("deployments", allVerbs...) + sent.sum("foos/status", allVerbs...) + sent.sum("foos", allVerbs...)) / float64(foos),
		"CPU s of the program": e.cpuOf(program.pid()),
		"peak MB":              program.memory("VmHWM") / 1e6,
	}
}

// TestGrowth measures how many times as long each of many Foos takes as each of few. The few
// are converged twice before and twice after the many.
func TestGrowth(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	observer := e.observe()
	var few []float64
	converge := func(prefix string, count int) (float64, map[string]float64) {
		rate, details, program := e.converge(observer, prefix, count)
		program.stop()
		if count == result.Few {
			few = append(few, rate)
		}
		return rate, details
	}
	_, fewDetails := converge("few-0", result.Few)
	converge("few-1", result.Few)
	rate, details := converge("most", e.objects)
	for i := range 2 {
		converge(fmt.Sprintf("few-%d", 2+i), result.Few)
	}
	details["created/s of most"], details["created/s of few"] = rate, mean(few...)
	e.record("growth: time", mean(few...)/rate, details)
	e.record("growth: requests", details["requests/Foo"]/fewDetails["requests/Foo"], nil)
}
