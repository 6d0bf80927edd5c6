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

// check tests a controller in any language as a black box. It starts the controller behind a proxy to an API
// server, lets users act, injects faults into requests and watches, and judges what the controller does.
// docs/check.md tells how to use it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	passed, err := check(ctx)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2)
	case !passed:
		os.Exit(1)
	}
}

// check runs the suite that the flags name, and reports whether the controller passed.
func check(ctx context.Context) (bool, error) {
	c := &checker{tracked: map[string]bool{}, planned: map[string]bool{}}
	flag.StringVar(&c.file, "suite", "", "the suite `file`")
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig `file` of the cluster, by default that of kubectl")
	flag.StringVar(&c.only, "only", "", "run only the scenarios or runs whose `name` begins so")
	flag.BoolVar(&c.part, "part", false, "inject each fault once into each class of request, and once into each watch")
	flag.BoolVar(&c.plain, "plain", false, "serve the controller without TLS and HTTP/2")
	parallel := flag.Int("parallel", 4*runtime.GOMAXPROCS(0), "how many `runs` at the same time")
	flag.Parse()
	c.command = flag.Args()
	if c.file == "" || len(c.command) == 0 {
		return false, errors.New("usage: check -suite FILE [FLAGS] -- COMMAND --kubeconfig={}")
	}
	var err error
	if c.suite, err = readSuite(c.file); err != nil {
		return false, fmt.Errorf("%s: %w", c.file, err)
	}
	if c.cluster, err = newCluster(*kubeconfig); err != nil {
		return false, fmt.Errorf("connecting to the cluster: %w", err)
	}
	gvk := c.suite.example.GroupVersionKind()
	mapping, err := c.cluster.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, err
	}
	c.owners = mapping.Resource
	if c.dir, err = os.MkdirTemp("", "check-"); err != nil {
		return false, err
	}
	defer func() {
		// What is left is in the directory for temporary files.
		_ = os.RemoveAll(c.dir)
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := c.cluster.record(ctx, cancel); err != nil {
		return false, err
	}
	c.slots = make(chan struct{}, *parallel)
	if err := c.all(ctx); err != nil {
		return false, errors.Join(err, context.Cause(ctx))
	}
	fmt.Print("\n" + c.report.text())
	return c.report.passed(), nil
}

// report is what check prints in the end.
type report struct {
	runs, reached int
	findings      []finding
	unreached     []string
	notes         []string
}

// text returns the finding with the requests of both runs side by side, and the command that repeats it.
func (f *finding) text(c *checker) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\nFINDING %s: %s\n%s\n", f.judge, f.id, indent(f.message))
	if len(f.requests) > 0 {
		fmt.Fprintf(&out, "    %-70s | %s\n", "without the fault", "this run")
		n := max(len(f.without), len(f.requests))
		without, requests := slices.Concat(f.without, make([]string, n)), slices.Concat(f.requests, make([]string, n))
		for i := range n {
			fmt.Fprintf(&out, "    %-70s | %s\n", without[i], requests[i])
		}
	}
	command := slices.Concat([]string{"go", "run", "./test/check", "-suite", c.file, "-only", f.id, "--"}, c.command)
	for i, word := range command {
		if strings.ContainsAny(word, " \t\n;&|<>()$`\\\"'*?[]#~") {
			command[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	fmt.Fprintf(&out, "    repeat: %s\n", strings.Join(command, " "))
	return out.String()
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// tooManyUnreached is the share of faults, in percent, that may have found no occasion.
const tooManyUnreached = 5

// text returns the summary.
func (r *report) text() string {
	var out strings.Builder
	for _, note := range r.notes {
		fmt.Fprintln(&out, "note: "+note)
	}
	for _, id := range r.unreached {
		fmt.Fprintln(&out, "not reached: "+id)
	}
	judges := map[string]int{}
	for i := range r.findings {
		judges[r.findings[i].judge]++
	}
	fmt.Fprintf(&out, "%d runs, %d faults injected, %d not reached, %d findings %v\n", r.runs, r.reached, len(r.unreached), len(r.findings), judges)
	if r.tooFew() {
		fmt.Fprintf(&out, "FAILED: more than %d %% of the faults were not reached\n", tooManyUnreached)
	}
	return out.String()
}

func (r *report) tooFew() bool {
	return 100*len(r.unreached) > tooManyUnreached*(r.reached+len(r.unreached))
}

// passed reports whether the controller passes.
func (r *report) passed() bool { return len(r.findings) == 0 && !r.tooFew() && r.runs > 0 }

// checker runs one suite against one controller.
type checker struct {
	cluster    *cluster
	suite      *suite
	command    []string
	dir        string
	plain      bool
	file, only string
	part       bool
	owners     schema.GroupVersionResource
	bystanders []*unstructured.Unstructured
	// tracked are the resources whose objects are compared: see stateOf.
	tracked map[string]bool
	// watched are the resources of which the controller watches objects.
	watched []string
	// noWatch is set if the controller was seen to watch no owners.
	noWatch atomic.Bool
	// slots bounds the runs at the same time.
	slots chan struct{}

	mu      sync.Mutex
	report  report
	planned map[string]bool
}

// attempts is how often a run is tried that does not reach its point.
const attempts = 3

// note prints what a reader of the report has to know and no judge objects to.
func (c *checker) note(format string, arguments ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.notes = append(c.report.notes, fmt.Sprintf(format, arguments...))
}

// add adds a finding to the report and prints it.
func (c *checker) add(id string, f finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.id = id
	c.report.findings = append(c.report.findings, f)
	fmt.Print(f.text(c))
}

// all runs everything. The plan follows the order of the scenarios, so that a part is always the same one.
func (c *checker) all(ctx context.Context) error {
	scenarios, err := c.generate(ctx)
	var nothing *finding
	if errors.As(err, &nothing) {
		c.add("the example", *nothing)
		return nil
	}
	if err != nil {
		return fmt.Errorf("running the controller on the example: %w", err)
	}
	scenarios = append(scenarios, c.suite.Scenarios...)
	scenarios = slices.DeleteFunc(scenarios, func(s *scenario) bool {
		return !strings.HasPrefix(s.Name, c.only) && !strings.HasPrefix(c.only, s.Name+" | ")
	})
	references := make([]*reference, len(scenarios))
	var group sync.WaitGroup
	for i, s := range scenarios {
		group.Go(func() { references[i] = c.withoutFaults(ctx, s) })
	}
	group.Wait()
	for i, s := range scenarios {
		if ref := references[i]; ref != nil {
			c.plan(s, ref, func(f *fault, at point) { group.Go(func() { c.withFault(ctx, s, ref, f, at) }) })
		}
	}
	group.Wait()
	return ctx.Err()
}

// withoutFaults runs a scenario three times, two of them with delays. It returns nil if faults make no sense.
func (c *checker) withoutFaults(ctx context.Context, s *scenario) *reference {
	runs := make([]*outcome, 3)
	broken := false
	var group sync.WaitGroup
	for i := range runs {
		group.Go(func() {
			var jitter *rand.Rand
			if i > 0 {
				jitter = rand.New(rand.NewPCG(uint64(i), 0))
			}
			o, err := c.once(ctx, s, nil, nil, point{}, jitter)
			if err != nil {
				o = &outcome{findings: []finding{{judge: "run", message: err.Error()}}}
			}
			runs[i] = o
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	seen := map[string]bool{}
	for _, o := range runs {
		for _, f := range o.findings {
			broken = broken || f.judge == "run" || f.judge == "step" || f.judge == "settled" && strings.Contains(f.message, "never stops")
			if !seen[f.judge] {
				c.add(s.Name, f)
			}
			seen[f.judge] = true
		}
	}
	if broken {
		c.note("%s: no faults were injected, because it fails without them", s.Name)
		return nil
	}
	ref, findings := c.learnReference(s, runs)
	for _, o := range runs {
		for _, f := range o.findings {
			ref.known[f.Error()] = true
		}
	}
	if len(s.EndsAs) > 0 {
		findings = append(findings, c.compareEnds(ctx, s, ref)...)
	}
	for _, f := range findings {
		c.add(s.Name, f)
	}
	if len(ref.masked) > 0 {
		c.note("%s: differs between runs without a fault, and is not compared: %s", s.Name, strings.Join(slices.Sorted(maps.Keys(ref.masked)), ", "))
	}
	return ref
}

// compareEnds compares the end with that of other steps from an empty namespace.
func (c *checker) compareEnds(ctx context.Context, s *scenario, ref *reference) []finding {
	o, err := c.once(ctx, &scenario{Name: s.Name, Steps: s.EndsAs}, nil, nil, point{}, nil)
	if err != nil {
		return []finding{{judge: "run", message: err.Error()}}
	}
	direct := c.stateOf(o.versions, ref.tracked, newAliases(o.namespace, ref.stable))
	lines := c.compare(ref, direct, ref.end)
	if len(lines) == 0 || slices.Contains(c.suite.Keeps, s.Name) {
		return nil
	}
	return []finding{{judge: "history", message: "the end is not that of an object that was created so:\n" + strings.Join(lines, "\n")}}
}

// plan calls run for each request and step of the operation with each fault that applies, and for each watch of
// a resource of which objects change.
func (c *checker) plan(s *scenario, ref *reference, run func(*fault, point)) {
	add := func(f *fault, at point, kind string) {
		if c.part && c.planned[kind+f.name] || !strings.HasPrefix(runID(s, f, at), c.only) {
			return
		}
		c.planned[kind+f.name] = true
		run(f, at)
	}
	for _, p := range ref.points {
		if p.request == nil {
			add(&fault{name: "down", kills: true}, p.point, "user")
			continue
		}
		for _, f := range requestFaults() {
			if f.appliesTo(p.request) {
				add(f, p.point, p.request.verb+p.request.Resource+p.request.subresource)
			}
		}
	}
	for _, resource := range c.watched {
		for _, f := range watchFaults() {
			// One scenario is enough for a hold that takes so long.
			if ref.changed[resource] && (f.wait < longHold || s.Name == "created") {
				add(f, point{watchClass(resource), 1}, resource)
			}
		}
	}
}

func runID(s *scenario, f *fault, at point) string {
	return s.Name + " | " + f.name + " | " + at.String()
}

func (c *checker) withFault(ctx context.Context, s *scenario, ref *reference, f *fault, at point) {
	id := runID(s, f, at)
	for range attempts {
		o, err := c.once(ctx, s, ref, f, at, nil)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.add(id, finding{judge: "run", message: err.Error()})
			return
		}
		for resource, n := range o.peak {
			if n > ref.peak[resource] {
				message := fmt.Sprintf("an owner had %d %s at the same time, and %d without the fault", n, resource, ref.peak[resource])
				o.findings = append(o.findings, finding{judge: "peak", message: message})
			}
		}
		o.findings = slices.DeleteFunc(o.findings, func(f finding) bool { return ref.known[f.Error()] })
		for _, f := range o.findings {
			f.without, f.requests = ref.requests, describe(repoint(o.points, newAliases(o.namespace, ref.stable)))
			c.add(id, f)
		}
		if o.reached || len(o.findings) > 0 {
			c.mu.Lock()
			c.report.reached++
			c.mu.Unlock()
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.unreached = append(c.report.unreached, id)
}

// once executes one run when there is a slot.
func (c *checker) once(ctx context.Context, s *scenario, want *reference, f *fault, at point, jitter *rand.Rand) (*outcome, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.slots }()
	c.mu.Lock()
	if c.report.runs++; c.report.runs%25 == 0 {
		fmt.Fprintf(os.Stderr, "%d runs begun, of which %d with faults have ended\n", c.report.runs, c.report.reached)
	}
	c.mu.Unlock()
	return c.execute(ctx, s, want, f, at, jitter)
}
