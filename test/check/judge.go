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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/test/check/trace"
)

// finding is what a judge holds against the controller.
type finding struct {
	Judge, Message string
	// Run is its name, and Command repeats it. Requests are those of the operation, beside those without the fault.
	Run, Command      string
	Without, Requests []string
}

// cause is what findings have in common that a run with a fault does not repeat: not the objects and the output.
func (f *finding) cause() string {
	lines := strings.Split(f.Message, "\n")
	if f.Judge != "end" {
		lines = lines[:1]
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "object: ") })
	return f.Judge + ": " + strings.Join(lines, "\n")
}

// withoutKnown returns the findings that the runs without a fault do not have.
func (r *reference) withoutKnown(findings []finding) []finding {
	return slices.DeleteFunc(findings, func(f finding) bool { return r.known[f.cause()] })
}

// cacheLag bounds how far a cache is behind on a busy machine.
const cacheLag = time.Second

// Error implements error.
func (f *finding) Error() string { return f.Judge + ": " + f.Message }

// outcome is what is known of a run at its end.
type outcome struct {
	namespace string
	// Of the versions the operation led to those from prepared to rested.
	versions         []trace.Version
	prepared, rested int
	// Of the requests those from touched on came after the touch of the owners.
	requests []trace.Request
	touched  int
	points   []recordedPoint
	reached  bool
	findings []finding
	extremes map[string]int
}

// reference is what the faultless runs of a scenario have in common.
type reference struct {
	tracked map[string]bool
	stable  map[string]bool
	// prepared and end are the states before and after the operation, and masked the lines that differ between the runs.
	prepared, end state
	masked        map[string]bool
	extremes      map[string]int
	// changed are the resources of which objects changed in the operation.
	changed map[string]bool
	// known are the causes of findings.
	known map[string]bool
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
	r.mayExit = s.Name == endOfNamespace
	var atPrepared, atEnd func([]trace.Version) []string
	if want != nil {
		r.proxy.aliases = newAliases(r.namespace, want.stable)
		atPrepared, atEnd = c.comparison(want, want.prepared, r.namespace), c.comparison(want, want.end, r.namespace)
	}
	if err = r.take(ctx, s.Prepare); err == nil && (len(s.Prepare) == 0 || s.Prepare[len(s.Prepare)-1].Until == "") {
		err = r.rest(ctx, atPrepared)
	}
	if err != nil {
		return nil, fmt.Errorf("before the operation: %w", err)
	}
	versions, _ := r.history.All()
	o.prepared = len(versions)
	if f != nil {
		r.longer = f.wait
	}
	if f != nil && f.replaces {
		// Others wrote what is there then.
		atEnd = nil
	}
	r.proxy.arm(f, at)
	if err = r.take(ctx, s.Steps); err == nil {
		err = r.rest(ctx, atEnd)
	}
	versions, _ = r.history.All()
	o.rested, o.reached, o.touched = len(versions), r.proxy.disarm(), len(r.proxy.recorded(0))
	var noops []trace.Request
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
		o.findings = append(o.findings, finding{Judge: "step", Message: err.Error()})
	}
	o.versions, _ = r.history.All()
	o.requests, o.points = r.proxy.recorded(0), r.proxy.points
	c.judge(r, o, f, noops)
	return o, nil
}

// comparison returns a function that compares the state after some versions with a state of the reference.
func (c *checker) comparison(want *reference, with state, namespace string) func([]trace.Version) []string {
	return func(versions []trace.Version) []string {
		now := c.stateOf(versions, want.tracked, newAliases(namespace, want.stable))
		return differences(with, now, func(key string) bool { return want.masked[key] || c.ignored(key) })
	}
}

// ignored reports whether the suite excludes the line of a state.
func (c *checker) ignored(key string) bool {
	words := strings.SplitN(key, " ", 3)
	words[1] = "*"
	anyName := strings.Join(words, " ")
	begins := func(p string) bool { return strings.HasPrefix(key, p) || strings.HasPrefix(anyName, p) }
	return slices.ContainsFunc(c.suite.Ignore, begins)
}

// judge applies the judges that need no other run.
func (c *checker) judge(r *run, o *outcome, f *fault, noops []trace.Request) {
	plain := newAliases(r.namespace, nil).of
	found := func(judge, format string, arguments ...any) {
		o.findings = append(o.findings, finding{Judge: judge, Message: fmt.Sprintf(format, arguments...)})
	}
	o.findings = append(o.findings, r.proxy.found()...)
	if len(noops) > 0 && !c.suite.AllowNoops {
		found("settled", "after a touch of its owner, %s wrote what was there", noops[0].Class(plain))
	}
	byClass := map[string][]time.Time{}
	for i := range o.requests {
		request := &o.requests[i]
		class := request.Class(plain)
		byClass[class] = append(byClass[class], request.At)
		if request.IsWrite() && strings.HasPrefix(request.Name, trace.BystanderPrefix) {
			found("bystander", "%s: the controller did not make this object", class)
		}
		if request.Deletes != "" && request.Shown != "" && request.Deletes != request.Shown {
			found("replaced", "%s: deleted an object that the process had not seen, of the name of one that it had", class)
		}
	}
	for class, times := range byClass {
		if hot(times) {
			found("hot loop", "%s: %d requests, %d or more in a second", class, len(times), hotCount)
		}
	}
	// What the runtime of Go prints when a program dies.
	if log := r.lastOutput(); strings.Contains(log, "panic: ") && strings.Contains(log, "\ngoroutine ") {
		found("panic", "%s", log)
	}
	broken := map[string]bool{}
	var since func(*trace.Request) time.Time
	if f != nil && f.replaces {
		// The cache of the controller may not show yet that another client has just replaced the object.
		since = func(r *trace.Request) time.Time { return r.At.Add(-cacheLag) }
	}
	c.suite.Judge(o.versions, o.requests, c.owners.Resource, since, func(rule, message string, r *trace.Request) {
		if !broken[rule] {
			found("rule", "%s: %s %s", rule, r.Class(plain), message)
		}
		broken[rule] = true
	})
	o.extremes = map[string]int{}
	for resource, n := range c.peak(o.versions) {
		o.extremes["peak "+resource] = n
	}
	for resource, n := range c.fewest(o.versions, o.prepared) {
		o.extremes["fewest "+resource] = -n
	}
}

// peak returns how many objects of each resource one owner had at most at the same time. What is being deleted does not
// count.
func (c *checker) peak(versions []trace.Version) map[string]int {
	most, live, last := map[string]int{}, map[types.UID]trace.Version{}, trace.Latest(versions)
	for _, v := range slices.SortedStableFunc(slices.Values(versions), trace.ByRevision) {
		delete(live, v.Object.GetUID())
		if !v.IsLive() {
			continue
		}
		live[v.Object.GetUID()] = v
		counts := map[types.UID]int{}
		for _, other := range live {
			for _, o := range other.Object.GetOwnerReferences() {
				if owner, ok := last[o.UID]; ok && owner.Resource == c.owners.Resource && other.Resource == v.Resource {
					counts[o.UID]++
					most[v.Resource] = max(most[v.Resource], counts[o.UID])
				}
			}
		}
	}
	return most
}

// fewest returns how many replicas of each resource were available at least, of those of one owner that existed before
// the operation and still does.
func (c *checker) fewest(versions []trace.Version, prepared int) map[string]int {
	live, least := trace.Latest(versions[:prepared]), map[string]int{}
	available := func() map[[2]string]int {
		sums := map[[2]string]int{}
		for _, v := range live {
			if by := metav1.GetControllerOf(v.Object); by != nil && v.IsLive() {
				n, _, _ := unstructured.NestedInt64(v.Object.Object, "status", "availableReplicas")
				sums[[2]string{string(by.UID), v.Resource}] += int(n)
			}
		}
		return sums
	}
	before := available()
	maps.DeleteFunc(before, func(of [2]string, _ int) bool { return live[types.UID(of[0])].Resource != c.owners.Resource })
	for of, n := range before {
		least[of[1]] = max(least[of[1]], n)
	}
	for _, v := range slices.SortedStableFunc(slices.Values(versions[prepared:]), trace.ByRevision) {
		live[v.Object.GetUID()] = v
		now := available()
		for of, n := range before {
			if owner := live[types.UID(of[0])]; owner.IsLive() && n > 0 {
				least[of[1]] = min(least[of[1]], now[of])
			}
		}
	}
	return least
}

// judgeExtremes adds findings if an owner had more dependents than without the fault, or fewer replicas available. A
// user who deletes Pods takes replicas away, and when others report that is chance.
func (c *checker) judgeExtremes(s *scenario, o *outcome, ref *reference) {
	deletesPods := slices.ContainsFunc(s.Steps, func(one step) bool { return one.Delete != "" && one.On.Kind == "Pod" })
	for what, n := range o.extremes {
		if n > ref.extremes[what] && !c.ignored(what+" ") && (n > 0 || !deletesPods) {
			message := fmt.Sprintf("%s of an owner at the same time: %d, and %d without the fault", what, max(n, -n), max(ref.extremes[what], -ref.extremes[what]))
			o.findings = append(o.findings, finding{Judge: "peak", Message: message})
		}
	}
}

// learnReference compares the faultless runs of a scenario. What differs between them is masked; a differing spec of a
// dependent is a finding.
func (c *checker) learnReference(s *scenario, runs []*outcome) (*reference, []finding) {
	ref := &reference{
		tracked: maps.Clone(c.tracked), stable: commonNames(runs), masked: map[string]bool{},
		extremes: map[string]int{}, changed: map[string]bool{}, known: map[string]bool{},
	}
	for _, v := range runs[0].versions[runs[0].prepared:runs[0].rested] {
		ref.changed[v.Resource] = true
	}
	for _, o := range runs {
		for i := range o.requests {
			track(ref.tracked, &o.requests[i])
			resource := o.requests[i].Resource
			ref.stable[resource+"/*"] = !c.ignored(resource + " * /metadata/name")
		}
		for what, n := range o.extremes {
			if most, known := ref.extremes[what]; !known || n > most {
				ref.extremes[what] = n
			}
		}
	}
	for resource := range ref.tracked {
		ref.stable[resource+"/*"] = !c.ignored(resource + " * /metadata/name")
	}
	var findings []finding
	var unlike, touched []string
	reached := map[point]int{}
	for i, o := range runs {
		prepared := c.stateOf(o.versions[:o.prepared], ref.tracked, newAliases(o.namespace, ref.stable))
		before := c.stateOf(o.versions[:o.rested], ref.tracked, newAliases(o.namespace, ref.stable))
		// After the touch other controllers have come to their end, too.
		end := c.stateOf(o.versions, ref.tracked, newAliases(o.namespace, ref.stable))
		touched = append(touched, differences(before, end, func(key string) bool { return ref.masked[key] || c.ignored(key) || !o.wroteAfterTouch(key) })...)
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
			if !ref.masked[key] && strings.Contains(key, " /spec") && !strings.HasPrefix(key, c.owners.Resource+" ") {
				unlike = append(unlike, line)
			}
			ref.masked[key] = true
		}
	}
	if len(unlike) > 0 {
		findings = append(findings, finding{Judge: "differs", Message: "runs without a fault end differently:\n" + strings.Join(unlike, "\n")})
	}
	findings = append(findings, ref.judgeTouch(runs, touched)...)
	ref.points = slices.DeleteFunc(ref.points, func(p recordedPoint) bool { return reached[p.point] < len(runs) })
	if s.Restores && !slices.Contains(c.suite.Keeps, s.Name) {
		if lines := c.compare(ref, ref.prepared, ref.end); len(lines) > 0 {
			findings = append(findings, finding{Judge: "restores", Message: "the end differs from the state before:\n" + strings.Join(lines, "\n")})
		}
	}
	return ref, findings
}

// compare compares two states of one scenario, without what may tell of the past.
func (c *checker) compare(ref *reference, want, got state) []string {
	return differences(want, got, func(key string) bool {
		return ref.masked[key] || c.ignored(key) || strings.Contains(key, " /status")
	})
}

// rest waits until nothing changes, and the state differs in nothing that matters; differs may be nil. A finding is
// what it waited for in vain.
func (r *run) rest(ctx context.Context, differs func([]trace.Version) []string) error {
	quiet, begun := r.check.suite.Quiet.Duration, trace.Now()
	if differs == nil {
		quiet = quiet * 3 / 2
	}
	var last error = &finding{Judge: "settled", Message: "the controller never stops writing"}
	err := trace.Poll(ctx, restTimeout+r.longer, func(context.Context) error {
		versions, changed := r.history.All()
		if changed.Before(begun) {
			// The event of what a user did may not have come yet.
			changed = begun
		}
		since := trace.Now().Sub(r.proxy.wroteAfter(changed))
		if since < quiet || !r.watches() || r.proxy.holding.Load() > 0 {
			return errors.New("not at rest")
		}
		lines := append(r.check.atEnd(versions), unobserved(versions)...)
		if differs != nil {
			lines = append(lines, differs(versions)...)
		}
		last = nil
		if len(lines) > 0 {
			last = &finding{Judge: "end", Message: strings.Join(lines, "\n")}
		}
		if since > patience {
			return nil
		}
		return last
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	return last
}

// atEnd returns what is not true although it must be at rest.
func (c *checker) atEnd(versions []trace.Version) (lines []string) {
	with := trace.Variables(versions)
	with["object"] = c.exampleIn(versions)
	for _, rule := range c.suite.Ends {
		if err := c.suite.Holds(rule, with); err != nil {
			lines = append(lines, fmt.Sprintf("%s: %v\nobject: %s", rule.Name, err, trace.Brief(with["object"])))
		}
	}
	return lines
}

// unobserved returns the workloads that their controllers have not acted upon yet. On a busy cluster that takes long.
func unobserved(versions []trace.Version) (lines []string) {
	for _, v := range trace.Latest(versions) {
		switch v.Resource {
		case "deployments", "replicasets", "statefulsets", "daemonsets":
			observed, _, _ := unstructured.NestedInt64(v.Object.Object, "status", "observedGeneration")
			if v.IsLive() && observed < v.Object.GetGeneration() {
				lines = append(lines, v.Resource+" "+v.Object.GetName()+": its controller has not acted upon it")
			}
		}
	}
	return lines
}
