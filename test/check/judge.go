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
	"sync"
	"time"

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

// Error implements error.
func (f *finding) Error() string { return f.Judge + ": " + f.Message }

// cause is what findings have in common that a run with a fault does not repeat: not the objects and the output.
func (f *finding) cause() string {
	lines := strings.Split(f.Message, "\n")
	if f.Judge != "end" {
		lines = lines[:1]
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "object: ") })
	return f.Judge + ": " + strings.Join(lines, "\n")
}

// reference is what the faultless runs of a scenario have in common.
type reference struct {
	check *checker
	// tracked are the resources whose objects are compared: see stateOf.
	tracked map[string]bool
	// stable are the names that all runs have.
	stable map[string]bool
	// prepared and end are the states before and after the operation, and masked the lines that differ between the runs.
	prepared, end state
	masked        map[string]bool
	extremes      map[string]int
	// changed are the resources of which objects changed in the operation.
	changed map[string]bool
	// known are the causes of findings. Faults do not tell them again.
	known map[string]bool
	// points are those that each run reached.
	points   []recordedPoint
	requests []string
}

// stateAfter returns the state after some versions of a run.
func (r *reference) stateAfter(versions []trace.Version, namespace string) state {
	return stateOf(versions, r.tracked, r.check.aliases(namespace, r.stable))
}

// differences compares two states of one scenario.
func (r *reference) differences(want, got state) []string {
	return differences(want, got, func(key string) bool { return r.masked[key] || r.check.suite.ignores(key) })
}

// lasting compares two states of one scenario, without what may tell of the past.
func (r *reference) lasting(want, got state) []string {
	isStatus := func(line string) bool { return strings.Contains(keyOf(line), " /status") }
	return slices.DeleteFunc(r.differences(want, got), isStatus)
}

// execute runs the trial.
func (c *checker) execute(ctx context.Context, t trial) (*run, error) {
	r, err := c.newRun(ctx, t)
	if r != nil {
		defer r.close(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err = r.take(ctx, t.Prepare); err == nil && (len(t.Prepare) == 0 || t.Prepare[len(t.Prepare)-1].Until == "") {
		err = r.rest(ctx, t.want.prepared)
	}
	if err != nil {
		return nil, fmt.Errorf("before the operation: %w", err)
	}
	versions, _ := r.see()
	r.prepared = len(versions)
	end := t.want.end
	if t.fault.replaces {
		// Others wrote what is there then.
		end = nil
	}
	r.locked(func() { r.armed = true })
	if err = r.take(ctx, t.Steps); err == nil {
		err = r.rest(ctx, end)
	}
	versions, _ = r.see()
	r.rested, r.touched = len(versions), len(r.recorded(0))
	r.locked(func() { r.armed, r.reached = false, r.injected && r.next == "" })
	if err == nil {
		err = r.settle(ctx, end)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var found *finding
	if errors.As(err, &found) {
		r.find(found.Judge, "%s", found.Message)
	} else if err != nil {
		r.find("step", "%v", err)
	}
	r.versions, _ = r.see()
	r.sent = r.recorded(0)
	r.judge()
	return r, nil
}

// ignores reports whether the suite excludes the line of a state.
func (s *suite) ignores(key string) bool {
	words := strings.SplitN(key, " ", 3)
	words[1] = "*"
	anyName := strings.Join(words, " ")
	begins := func(p string) bool { return strings.HasPrefix(key, p) || strings.HasPrefix(anyName, p) }
	return slices.ContainsFunc(s.Ignore, begins)
}

// plain returns the class of a request with its name.
func (r *run) plain(request *trace.Request) string {
	return request.Class(r.check.aliases(r.namespace, nil).of)
}

// judge applies the judges that need no other run.
func (r *run) judge() {
	byClass := map[string][]time.Time{}
	for i := range r.sent {
		request := &r.sent[i]
		class := r.plain(request)
		byClass[class] = append(byClass[class], request.At)
		if request.IsWrite() && strings.HasPrefix(request.Name, trace.BystanderPrefix) {
			r.find("bystander", "%s: the controller did not make this object", class)
		}
		if request.Deletes != "" && request.Shown != "" && request.Deletes != request.Shown {
			r.find("replaced", "%s: deleted an object that the process had not seen, of the name of one that it had", class)
		}
	}
	for class, times := range byClass {
		if hot(times) {
			r.find("hot loop", "%s: %d requests, %d or more in a second", class, len(times), hotCount)
		}
	}
	// What the runtime of Go prints when a program dies.
	if log := r.lastOutput(); strings.Contains(log, "panic: ") && strings.Contains(log, "\ngoroutine ") {
		r.find("panic", "%s", log)
	}
	broken := map[string]bool{}
	var since func(*trace.Request) time.Time
	if r.fault.replaces {
		// The cache of the controller may not show yet that another client has just replaced the object: on a busy machine
		// it is behind by up to a second.
		since = func(request *trace.Request) time.Time { return request.At.Add(-time.Second) }
	}
	owners := r.check.owners.Resource
	r.check.suite.Judge(r.versions, r.sent, owners, since, func(rule, message string, request *trace.Request) {
		if !broken[rule] {
			r.find("rule", "%s: %s %s", rule, r.plain(request), message)
		}
		broken[rule] = true
	})
	r.extremes = extremes(r.versions, r.prepared, owners)
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

// extremes returns by "peak RESOURCE" how many objects of it one owner had at most at the same time, what is being
// deleted apart, and by "fewest RESOURCE", negative, how many replicas were available at least: of those of one owner
// that existed before the operation and still did.
func extremes(versions []trace.Version, prepared int, owners string) map[string]int {
	type dependents struct {
		owner    types.UID
		resource string
	}
	worst, live, before := map[string]int{}, map[types.UID]trace.Version{}, map[dependents]int{}
	last := trace.Latest(versions)
	inOrder := slices.Clone(versions)
	slices.SortStableFunc(inOrder[:prepared], trace.ByRevision)
	slices.SortStableFunc(inOrder[prepared:], trace.ByRevision)
	for i, v := range inOrder {
		live[v.Object.GetUID()] = v
		count, available := map[dependents]int{}, map[dependents]int{}
		for _, other := range live {
			n, _, _ := unstructured.NestedInt64(other.Object.Object, "status", "availableReplicas")
			for _, o := range other.Object.GetOwnerReferences() {
				if of := (dependents{o.UID, other.Resource}); other.IsLive() && last[o.UID].Resource == owners {
					count[of]++
					available[of] += int(n)
				}
			}
		}
		for of, n := range count {
			worst["peak "+of.resource] = max(worst["peak "+of.resource], n)
		}
		if i < prepared {
			before = available
			continue
		}
		for of, n := range before {
			owner, exists := live[of.owner]
			most, known := worst["fewest "+of.resource]
			if n > 0 && exists && owner.IsLive() && (!known || -available[of] > most) {
				worst["fewest "+of.resource] = -available[of]
			}
		}
	}
	return worst
}

// judgeExtremes adds findings if an owner had more dependents than without the fault, or fewer replicas available. A
// user who deletes Pods takes replicas away, and when others report that is chance. So is how many are available while a
// Deployment follows what a user has written into it: then only none at all is a finding.
func (r *run) judgeExtremes() {
	deletesPods := slices.ContainsFunc(r.Steps, func(one step) bool { return one.Delete != "" && one.On.Kind == "Pod" })
	writes := slices.ContainsFunc(r.Steps, func(one step) bool { return one.Delete == "" && one.On.Kind != "" })
	for what, n := range r.extremes {
		usual, isChance := r.want.extremes[what], n <= 0 && deletesPods || n < 0 && writes
		if n > usual && !isChance && !r.check.suite.ignores(what+" ") {
			r.find("peak", "%s of an owner at the same time: %d, and %d without the fault", what, max(n, -n), max(usual, -usual))
		}
	}
}

// learnReference compares the faultless runs of a scenario. What differs between them is masked; a differing spec of a
// dependent is a finding, and so is what only a touch of its owner made the controller do in each run.
func (c *checker) learnReference(s *scenario, runs []*run) *reference {
	ref := &reference{
		check: c, tracked: maps.Clone(c.tracked), stable: commonNames(runs), masked: map[string]bool{},
		extremes: map[string]int{}, changed: map[string]bool{}, known: map[string]bool{},
	}
	for _, v := range runs[0].versions[runs[0].prepared:runs[0].rested] {
		ref.changed[v.Resource] = true
	}
	for _, o := range runs {
		for i := range o.sent {
			track(ref.tracked, &o.sent[i])
		}
		for what, n := range o.extremes {
			if most, known := ref.extremes[what]; !known || n > most {
				ref.extremes[what] = n
			}
		}
	}
	var unlike, left []string
	touched, reached := map[string]int{}, map[point]int{}
	for i, o := range runs {
		prepared := ref.stateAfter(o.versions[:o.prepared], o.namespace)
		before := ref.stateAfter(o.versions[:o.rested], o.namespace)
		// After the touch other controllers have come to their end, too.
		end := ref.stateAfter(o.versions, o.namespace)
		for _, line := range ref.differences(before, end) {
			if o.wroteAfterTouch(keyOf(line)) {
				touched[line]++
			}
		}
		points := repoint(o.points, c.aliases(o.namespace, ref.stable))
		for _, p := range points {
			reached[p.point]++
		}
		if i == 0 {
			ref.prepared, ref.end, ref.points, ref.requests = prepared, end, points, describe(points)
		}
		for _, line := range slices.Concat(ref.differences(ref.prepared, prepared), ref.differences(ref.end, end)) {
			key := keyOf(line)
			if strings.Contains(key, " /spec") && !strings.HasPrefix(key, c.owners.Resource+" ") {
				unlike = append(unlike, line)
			}
			ref.masked[key] = true
		}
	}
	if len(unlike) > 0 {
		c.find(s.Name, "differs", "runs without a fault end differently:\n%s", strings.Join(unlike, "\n"))
	}
	for _, line := range slices.Sorted(maps.Keys(touched)) {
		if key := keyOf(line); touched[line] == len(runs) && !ref.masked[key] {
			left, ref.masked[key] = append(left, line), true
		}
	}
	if len(left) > 0 {
		c.find(s.Name, "settled", "it had work left, which a touch of its owner made it do:\n%s", strings.Join(left, "\n"))
	}
	ref.points = slices.DeleteFunc(ref.points, func(p recordedPoint) bool { return reached[p.point] < len(runs) })
	lines := ref.lasting(ref.prepared, ref.end)
	if s.Restores && len(lines) > 0 && !slices.Contains(c.suite.Keeps, s.Name) {
		c.find(s.Name, "restores", "the end differs from the state before:\n%s", strings.Join(lines, "\n"))
	}
	return ref
}

// wroteAfterTouch reports whether the controller wrote to the resource of the line of a state after the touch. Other
// controllers, such as the garbage collector, may be late.
func (r *run) wroteAfterTouch(key string) bool {
	return slices.ContainsFunc(r.sent[r.touched:], func(write trace.Request) bool {
		return write.Applied() && strings.HasPrefix(key, write.Resource+" ")
	})
}

const neverRests = "the controller never stops writing"

// rest waits until nothing changes, and the state differs in nothing that matters from the end, if that is known. A
// finding is what it waited for in vain.
func (r *run) rest(ctx context.Context, end state) error {
	needed, begun := r.check.suite.Quiet.Duration, trace.Now()
	if end == nil {
		needed = needed * 3 / 2
	}
	var last error = &finding{Judge: "settled", Message: neverRests}
	err := trace.Poll(ctx, restTimeout, func(context.Context) error {
		versions, quiet := r.see()
		// The event of what a user did may not have come yet.
		quiet = min(quiet, trace.Now().Sub(begun))
		if quiet < needed || !r.watches() {
			return errors.New("not at rest")
		}
		lines, with := []string(nil), r.variables()
		for _, rule := range r.check.suite.Ends {
			if err := r.check.suite.Holds(rule, with); err != nil {
				lines = append(lines, fmt.Sprintf("%s: %v\nobject: %s", rule.Name, err, trace.Brief(with["object"])))
			}
		}
		if end != nil {
			lines = append(lines, r.want.differences(end, r.want.stateAfter(versions, r.namespace))...)
		}
		last = nil
		if len(lines) > 0 {
			last = &finding{Judge: "end", Message: strings.Join(lines, "\n")}
		}
		if quiet > patience {
			return nil
		}
		return last
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	return last
}

// withoutFaults runs a scenario some times, all but the first with delays. It takes two runs to tell which names are
// random. It returns nil if faults make no sense.
func (c *checker) withoutFaults(ctx context.Context, s *scenario) *reference {
	n := 3
	if s.similar && s.EndsAs == nil {
		n = 1
	} else if s.similar || c.part {
		n = 2
	}
	runs := make([]*run, n)
	var group sync.WaitGroup
	for i := range runs {
		t := c.withoutFault(s)
		if i > 0 {
			t.jitter = rand.New(rand.NewPCG(uint64(i), 0))
		}
		group.Go(func() { runs[i] = c.once(ctx, t) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	known, told, broken := map[string]bool{}, map[string]bool{}, false
	for _, o := range runs {
		for _, f := range o.findings {
			broken = broken || f.Judge == "run" || f.Judge == "step" || strings.Contains(f.Message, neverRests)
			if !told[f.Judge] {
				c.add(s.Name, f)
			}
			known[f.cause()], told[f.Judge] = true, true
		}
	}
	if broken {
		c.note("%s: no faults were injected, because it fails without them", s.Name)
		return nil
	}
	ref := c.learnReference(s, runs)
	ref.known = known
	if len(s.EndsAs) > 0 {
		// From an empty namespace.
		o := c.once(ctx, c.withoutFault(&scenario{Name: s.Name, Steps: s.EndsAs}))
		lines := ref.lasting(ref.stateAfter(o.versions, o.namespace), ref.end)
		if o.versions == nil {
			c.add(s.Name, o.findings[0])
		} else if len(lines) > 0 && !slices.Contains(c.suite.Keeps, s.Name) {
			c.find(s.Name, "history", "the end is not that of one created so:\n%s", strings.Join(lines, "\n"))
		}
	}
	if len(ref.masked) > 0 {
		c.note("%s: differs without a fault, and is not compared: %q", s.Name, slices.Sorted(maps.Keys(ref.masked)))
	}
	return ref
}
