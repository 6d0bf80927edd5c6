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
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// finding is what a judge holds against the controller.
type finding struct {
	judge, message string
	// id is the run. requests are those of the operation, beside those without the fault.
	id                string
	without, requests []string
}

// Error implements error.
func (f *finding) Error() string { return f.judge + ": " + f.message }

// outcome is what is known of a run at its end.
type outcome struct {
	namespace string
	// prepared is how many of the versions there were when the operation began.
	versions []version
	prepared int
	requests []request
	points   []recordedPoint
	reached  bool
	findings []finding
	peak     map[string]int
}

// reference is what the faultless runs of a scenario have in common.
type reference struct {
	tracked map[string]bool
	stable  map[string]bool
	// prepared and end are the states before and after the operation, and masked the lines that differ between
	// the runs.
	prepared, end state
	masked        map[string]bool
	peak          map[string]int
	// changed are the resources of which objects changed in the operation.
	changed map[string]bool
	// points are those that each run reached.
	points   []recordedPoint
	requests []string
}

// execute runs the scenario, with a fault if f is not nil. want is nil in a faultless run.
func (c *checker) execute(ctx context.Context, s *scenario, want *reference, f *fault, at point, jitter *rand.Rand) (*outcome, error) {
	r, err := c.newRun(ctx, jitter)
	if r != nil {
		defer r.close(ctx)
	}
	if err != nil {
		return nil, err
	}
	o := &outcome{namespace: r.namespace}
	var atPrepared, atEnd func([]version) []string
	if want != nil {
		r.proxy.aliases = newAliases(r.namespace, want.stable)
		atPrepared, atEnd = c.comparison(want, want.prepared, r.namespace), c.comparison(want, want.end, r.namespace)
	}
	if err = r.take(ctx, s.Prepare); err == nil {
		err = r.rest(ctx, atPrepared)
	}
	if err != nil {
		return nil, fmt.Errorf("before the operation: %w", err)
	}
	versions, _ := r.history.all()
	o.prepared = len(versions)
	r.proxy.arm(f, at)
	if err = r.take(ctx, s.Steps); err == nil {
		err = r.rest(ctx, atEnd)
	}
	o.reached = r.proxy.disarm()
	var noops []request
	if err == nil {
		noops, err = r.settle(ctx, atEnd)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var found *finding
	if errors.As(err, &found) {
		o.findings = append(o.findings, *found)
	} else if err != nil {
		o.findings = append(o.findings, finding{judge: "step", message: err.Error()})
	}
	o.versions, _ = r.history.all()
	o.requests, o.points = r.proxy.recorded(0), r.proxy.points
	c.judge(r, o, noops)
	return o, nil
}

// comparison returns a function that compares the state after some versions with a state of the reference.
func (c *checker) comparison(want *reference, with state, namespace string) func([]version) []string {
	return func(versions []version) []string {
		now := c.stateOf(versions, want.tracked, newAliases(namespace, want.stable))
		return differences(with, now, func(key string) bool { return want.masked[key] || c.ignored(key) })
	}
}

// ignored reports whether the suite excludes the line of a state.
func (c *checker) ignored(key string) bool {
	return slices.ContainsFunc(c.suite.Ignore, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// judge applies the judges that need no other run.
func (c *checker) judge(r *run, o *outcome, noops []request) {
	plain := newAliases(r.namespace, nil).of
	found := func(judge, format string, arguments ...any) {
		o.findings = append(o.findings, finding{judge: judge, message: fmt.Sprintf(format, arguments...)})
	}
	o.findings = append(o.findings, r.proxy.findings...)
	if len(noops) > 0 && !c.suite.AllowNoops {
		found("settled", "after a touch of its owner, %s wrote what was there", noops[0].class(plain))
	}
	byClass := map[string][]time.Time{}
	for i := range o.requests {
		request := &o.requests[i]
		class := request.class(plain)
		byClass[class] = append(byClass[class], request.at)
		if request.isWrite() && strings.HasPrefix(request.name, bystanderPrefix) {
			found("bystander", "%s: the controller did not make this object", class)
		}
		if request.deletes != "" && request.shown != "" && request.deletes != request.shown {
			found("replaced", "%s: deleted an object that the process had not seen, of the name of one that it had", class)
		}
	}
	for class, times := range byClass {
		if hot(times) {
			found("hot loop", "%s: %d requests, %d or more in a second", class, len(times), hotCount)
		}
	}
	// What the runtime of Go prints when a program dies.
	if log, err := os.ReadFile(r.output.Name()); err == nil && strings.Contains(string(log), "panic: ") && strings.Contains(string(log), "\ngoroutine ") {
		found("panic", "%s", log)
	}
	o.peak = c.peak(o.versions)
}

// hotCount is more than a backoff from 5 ms on sends in a second.
const hotCount = 25

func hot(times []time.Time) bool {
	for i := hotCount - 1; i < len(times); i++ {
		if times[i].Sub(times[i-hotCount+1]) < time.Second {
			return true
		}
	}
	return false
}

// peak returns how many objects of each resource one owner had at most at the same time. What is being deleted
// does not count.
func (c *checker) peak(versions []version) map[string]int {
	most, live, last := map[string]int{}, map[types.UID]version{}, latest(versions)
	versions = slices.Clone(versions)
	slices.SortStableFunc(versions, func(a, b version) int { return cmp.Compare(a.revision, b.revision) })
	for _, v := range versions {
		delete(live, v.object.GetUID())
		if !v.isLive() {
			continue
		}
		live[v.object.GetUID()] = v
		counts := map[types.UID]int{}
		for _, other := range live {
			for _, o := range other.object.GetOwnerReferences() {
				if owner, ok := last[o.UID]; ok && owner.resource == c.owners.Resource && other.resource == v.resource {
					counts[o.UID]++
					most[v.resource] = max(most[v.resource], counts[o.UID])
				}
			}
		}
	}
	return most
}

// learnReference compares the faultless runs of a scenario. What differs between them is masked; a differing
// spec of a dependent is a finding.
func (c *checker) learnReference(s *scenario, runs []*outcome) (*reference, []finding) {
	ref := &reference{tracked: maps.Clone(c.tracked), masked: map[string]bool{}, changed: map[string]bool{}, peak: map[string]int{}, stable: commonNames(runs)}
	for _, v := range runs[0].versions[runs[0].prepared:] {
		ref.changed[v.resource] = true
	}
	for _, o := range runs {
		for i := range o.requests {
			track(ref.tracked, &o.requests[i])
		}
		for resource, n := range o.peak {
			ref.peak[resource] = max(ref.peak[resource], n)
		}
	}
	var findings []finding
	reached := map[point]int{}
	for i, o := range runs {
		prepared := c.stateOf(o.versions[:o.prepared], ref.tracked, newAliases(o.namespace, ref.stable))
		end := c.stateOf(o.versions, ref.tracked, newAliases(o.namespace, ref.stable))
		points := repoint(o.points, newAliases(o.namespace, ref.stable))
		for _, p := range points {
			reached[p.point]++
		}
		if i == 0 {
			ref.prepared, ref.end, ref.points, ref.requests = prepared, end, points, describe(points)
			continue
		}
		for _, line := range slices.Concat(differences(ref.prepared, prepared, c.ignored), differences(ref.end, end, c.ignored)) {
			key, _, _ := strings.Cut(line[2:], ": ")
			if !ref.masked[key] && strings.Contains(key, " .spec") && !strings.HasPrefix(key, c.owners.Resource+" ") {
				findings = append(findings, finding{judge: "differs", message: "two runs without a fault end differently: " + line})
			}
			ref.masked[key] = true
		}
	}
	ref.points = slices.DeleteFunc(ref.points, func(p recordedPoint) bool { return reached[p.point] < len(runs) })
	if s.Restores && !slices.Contains(c.suite.Keeps, s.Name) {
		if lines := c.compare(ref, ref.prepared, ref.end); len(lines) > 0 {
			findings = append(findings, finding{judge: "restores", message: "the end differs from the state before:\n" + strings.Join(lines, "\n")})
		}
	}
	return ref, findings
}

// compare compares two states of one scenario, without what may tell of the past.
func (c *checker) compare(ref *reference, want, got state) []string {
	return differences(want, got, func(key string) bool {
		return ref.masked[key] || c.ignored(key) || strings.Contains(key, " .status") || strings.HasSuffix(key, " .metadata.generation")
	})
}

// repoint counts points again, with names that all runs have.
func repoint(points []recordedPoint, names *aliases) []recordedPoint {
	counts := map[string]int{}
	out := slices.Clone(points)
	for i := range out {
		if out[i].request != nil {
			out[i].class = out[i].request.class(names.of)
		}
		counts[out[i].class]++
		out[i].nth = counts[out[i].class]
	}
	return out
}

// commonNames returns the names that objects of all runs have.
func commonNames(runs []*outcome) map[string]bool {
	counts := map[string]int{}
	for _, o := range runs {
		names := map[string]bool{}
		for _, v := range o.versions {
			names[strings.ReplaceAll(v.object.GetName(), o.namespace, "NAMESPACE")] = true
		}
		for i := range o.requests {
			names[strings.ReplaceAll(o.requests[i].name, o.namespace, "NAMESPACE")] = true
		}
		for name := range names {
			counts[name]++
		}
	}
	stable := map[string]bool{}
	for name, n := range counts {
		stable[name] = n == len(runs)
	}
	return stable
}

// track adds the resource of a write.
func track(tracked map[string]bool, r *request) {
	if r.applied() {
		tracked[r.Resource] = true
		if r.subresource == "status" {
			tracked[r.Resource+"/status"] = true
		}
	}
}

// describe returns one line for each point.
func describe(points []recordedPoint) []string {
	lines := make([]string, len(points))
	for i, p := range points {
		lines[i] = p.class
		if p.request != nil {
			lines[i] += fmt.Sprintf(" -> %d %s", p.request.code, p.request.fault)
		}
	}
	return lines
}
