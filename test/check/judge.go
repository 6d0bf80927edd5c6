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
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// finding is what a judge holds against the controller.
type finding struct {
	judge, message string
	// id is the run, and requests are those of the operation, beside those without the fault.
	id                string
	without, requests []string
}

// outcome is what is known of a run at its end.
type outcome struct {
	namespace string
	versions  []version
	// prepared is how many versions there were when the operation began, and rested the time after its end.
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
	r, err := c.newRun(ctx, s, jitter)
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
	err = r.take(ctx, s.Prepare)
	if err == nil {
		err = r.rest(ctx, atPrepared)
	}
	if err != nil {
		return nil, fmt.Errorf("before the operation: %w", err)
	}
	o.prepared = len(r.history.all())
	r.proxy.arm(f, at)
	if err = r.take(ctx, s.Steps); err == nil {
		err = r.rest(ctx, atEnd)
	}
	var noops []request
	if err == nil {
		noops, err = r.settle(ctx, atEnd)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var notAtRest *restError
	if errors.As(err, &notAtRest) {
		o.findings = append(o.findings, finding{judge: notAtRest.judge, message: strings.Join(notAtRest.lines, "\n")})
	} else if err != nil {
		o.findings = append(o.findings, finding{judge: "step", message: err.Error()})
	}
	o.versions, o.requests, o.points, o.reached = r.history.all(), r.proxy.recorded(0), r.proxy.points, r.proxy.wasInjected()
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
	o.findings = append(o.findings, r.proxy.findings...)
	if len(noops) > 0 && !c.suite.AllowNoops {
		o.findings = append(o.findings, finding{judge: "settled", message: fmt.Sprintf("after a touch of its owner, %s wrote what was there", noops[0].class(plain))})
	}
	byClass := map[string][]time.Time{}
	for i := range o.requests {
		request := &o.requests[i]
		class := request.class(plain)
		byClass[class] = append(byClass[class], request.at)
		if request.isWrite() && strings.HasPrefix(request.name, bystanderPrefix) {
			o.findings = append(o.findings, finding{judge: "bystander", message: class + ": not of an object that the controller made"})
		}
		if request.deletes != "" && request.shown != "" && request.deletes != request.shown {
			o.findings = append(o.findings, finding{judge: "replaced", message: class + ": deleted an object that the process had never seen, of the name of one that it had"})
		}
	}
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		if times := byClass[class]; hot(times) {
			o.findings = append(o.findings, finding{judge: "hot loop", message: fmt.Sprintf("%s: %d requests, %d or more in a second", class, len(times), hotCount)})
		}
	}
	if r.output.panicked() {
		o.findings = append(o.findings, finding{judge: "panic", message: r.output.String()})
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
	most, live := map[string]int{}, map[types.UID]version{}
	owners := map[types.UID]bool{}
	for _, v := range versions {
		if v.resource == c.owners.Resource {
			owners[v.object.GetUID()] = true
		}
	}
	versions = slices.Clone(versions)
	slices.SortStableFunc(versions, func(a, b version) int { return int(a.revision - b.revision) })
	for _, v := range versions {
		if v.deleted || v.object.GetDeletionTimestamp() != nil {
			delete(live, v.object.GetUID())
			continue
		}
		live[v.object.GetUID()] = v
		counts := map[string]int{}
		for _, other := range live {
			for _, o := range other.object.GetOwnerReferences() {
				if owners[o.UID] && other.resource == v.resource {
					counts[string(o.UID)]++
					most[v.resource] = max(most[v.resource], counts[string(o.UID)])
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
		names := newAliases(o.namespace, ref.stable)
		prepared := c.stateOf(o.versions[:o.prepared], ref.tracked, newAliases(o.namespace, ref.stable))
		end := c.stateOf(o.versions, ref.tracked, newAliases(o.namespace, ref.stable))
		points := repoint(o.points, names)
		for _, p := range points {
			reached[p.point]++
		}
		if i == 0 {
			ref.prepared, ref.end, ref.points, ref.requests = prepared, end, points, describe(points)
			continue
		}
		all := differences(ref.prepared, prepared, func(string) bool { return false })
		for _, line := range append(all, differences(ref.end, end, func(string) bool { return false })...) {
			key, _, _ := strings.Cut(line[2:], ": ")
			if !ref.masked[key] && !c.ignored(key) && strings.Contains(key, " .spec") && !strings.HasPrefix(key, c.owners.Resource+" ") {
				findings = append(findings, finding{judge: "differs", message: "two runs without a fault end differently: " + line})
			}
			ref.masked[key] = true
		}
	}
	ref.points = slices.DeleteFunc(ref.points, func(p recordedPoint) bool { return reached[p.point] < len(runs) })
	if s.Restores {
		lines := differences(ref.prepared, ref.end, func(key string) bool { return ref.masked[key] || c.ignored(key) || inStatus(key) })
		if len(lines) > 0 {
			findings = append(findings, finding{judge: "restores", message: "the end differs from the state before:\n" + strings.Join(lines, "\n")})
		}
	}
	return ref, findings
}

// inStatus reports whether a line is of a status or a generation, which may tell of the past.
func inStatus(key string) bool {
	return strings.Contains(key, " .status") || strings.HasSuffix(key, " .metadata.generation")
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
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n < len(runs) })
	stable := map[string]bool{}
	for name := range counts {
		stable[name] = true
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
