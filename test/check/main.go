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

// check tests a controller in any language as a black box. It starts the controller behind a proxy to an API server,
// lets users act, injects faults into requests and watches, and judges what the controller does. docs/check.md tells
// how to use it.
package main

import (
	"context"
	"encoding/json"
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

	"golang.org/x/sync/errgroup"
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

// options are what all suites share.
type options struct {
	cluster   *cluster
	command   []string
	dir, only string
	// keep leaves the namespaces behind.
	part, keep bool
	// slots bounds the runs at the same time.
	slots chan struct{}
}

// check runs the suites that the flags name at the same time, and reports whether the controller passed.
func check(ctx context.Context) (bool, error) {
	o := &options{}
	var files []string
	flag.Func("suite", "a suite `file`; there may be several", func(file string) error {
		files = append(files, file)
		return nil
	})
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig `file` of the cluster, by default that of kubectl")
	flag.StringVar(&o.only, "only", "", "run only the scenarios or runs whose `name` begins so")
	flag.BoolVar(&o.part, "part", false, "inject each fault once into each class of request, and once into each watch")
	flag.BoolVar(&o.keep, "keep", false, "do not delete the namespaces of the runs, for a cluster that is deleted itself")
	parallel := flag.Int("parallel", 8*runtime.GOMAXPROCS(0), "how many `runs` at the same time")
	junit := flag.String("junit", "", "write a report for machines to this `file`, in the format of JUnit")
	asJSON := flag.String("json", "", "write a report to this `file`, as JSON")
	flag.Parse()
	o.command, o.slots = flag.Args(), make(chan struct{}, *parallel)
	if len(files) == 0 || len(o.command) == 0 {
		return false, errors.New("usage: check -suite FILE [FLAGS] -- COMMAND --kubeconfig={}")
	}
	var err error
	if o.cluster, err = newCluster(*kubeconfig); err != nil {
		return false, fmt.Errorf("connecting to the cluster: %w", err)
	}
	if o.dir, err = os.MkdirTemp("", "check-"); err != nil {
		return false, err
	}
	defer func() {
		// What is left is in the directory for temporary files.
		_ = os.RemoveAll(o.dir)
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := o.cluster.record(ctx, cancel); err != nil {
		return false, err
	}
	var checkers []*checker
	var reports []*report
	for _, file := range files {
		c, err := newChecker(ctx, o, file)
		if err != nil {
			return false, fmt.Errorf("%s: %w", file, err)
		}
		checkers, reports = append(checkers, c), append(reports, &c.report)
	}
	var group errgroup.Group
	for _, c := range checkers {
		group.Go(func() error { return c.all(ctx) })
	}
	if err := group.Wait(); err != nil {
		return false, errors.Join(err, context.Cause(ctx))
	}
	if reports, err = named(reports, o.only); err != nil {
		return false, err
	}
	// Those that failed come last.
	passed := slices.DeleteFunc(slices.Clone(reports), (*report).failed)
	failed := slices.DeleteFunc(slices.Clone(reports), func(r *report) bool { return !r.failed() })
	for _, r := range slices.Concat(passed, failed) {
		fmt.Printf("\n%s:\n%s", r.Suite, r.text())
	}
	err = errors.Join(writeReport(*asJSON, reports, json.Marshal), writeReport(*junit, reports, asJUnit))
	return len(failed) == 0, err
}

// checker runs one suite against one controller.
type checker struct {
	*options

	suite *suite
	// flags are those of the external service of a kind.
	flags      []string
	owners     schema.GroupVersionResource
	bystanders []*unstructured.Unstructured
	// change are the steps that change the spec of the example at rest, nil if the API server lets nobody.
	change []step
	// tracked are the resources whose objects are compared: see stateOf.
	tracked map[string]bool
	// watched are the resources of which the controller watches objects.
	watched []string
	// leases is set if the controller takes a lease.
	leases bool
	// noWatch is set if the controller was seen to watch no owners.
	noWatch atomic.Bool

	mu      sync.Mutex
	report  report
	planned map[string]bool
}

func newChecker(ctx context.Context, o *options, file string) (*checker, error) {
	c := &checker{options: o, tracked: map[string]bool{}, planned: map[string]bool{}, report: report{Suite: file}}
	var err error
	if c.suite, err = readSuite(file); err != nil {
		return nil, err
	}
	if c.suite.data != nil {
		c.flags = c.suite.data.Flags(c.suite.data.StartService(ctx))
	}
	gvk := c.suite.example.GroupVersionKind()
	mapping, err := c.cluster.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err == nil {
		c.owners = mapping.Resource
	}
	return c, err
}

// attempts is how often a run is tried that does not reach its point.
const attempts = 3

func (c *checker) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// note prints what a reader of the report has to know and no judge objects to.
func (c *checker) note(format string, arguments ...any) {
	c.locked(func() { c.report.Notes = append(c.report.Notes, fmt.Sprintf(format, arguments...)) })
}

// add adds a finding to the report, and says so at once.
func (c *checker) add(id string, f finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Run, f.Command = id, c.repeat(id)
	c.report.Findings, c.report.Names = append(c.report.Findings, f), append(c.report.Names, id)
	fmt.Fprintf(os.Stderr, "finding %d: %s: %s\n", len(c.report.Findings), f.Judge, id)
}

func (c *checker) find(id, judge, format string, arguments ...any) {
	c.add(id, finding{Judge: judge, Message: fmt.Sprintf(format, arguments...)})
}

// all runs everything. The plan follows the order of the scenarios, so that a part is always the same one.
func (c *checker) all(ctx context.Context) error {
	if err := c.cluster.awaitCollector(ctx, c.suite.example.GetAPIVersion(), c.suite.example.GetKind()); err != nil {
		return err
	}
	scenarios, err := c.generate(ctx)
	var nothing *finding
	if errors.As(err, &nothing) {
		c.add("the example", *nothing)
		return nil
	}
	if err != nil {
		return fmt.Errorf("running the controller on the example: %w", err)
	}
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
		if ref := references[i]; ref != nil && !s.similar {
			c.plan(s, ref, func(f *fault, at point) { group.Go(func() { c.withFault(ctx, s, ref, f, at) }) })
		}
	}
	group.Wait()
	return ctx.Err()
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
		group.Go(func() {
			var jitter *rand.Rand
			if i > 0 {
				jitter = rand.New(rand.NewPCG(uint64(i), 0))
			}
			runs[i] = c.once(ctx, s, nil, nil, point{}, jitter)
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	known, told, broken := map[string]bool{}, map[string]bool{}, false
	for _, o := range runs {
		for _, f := range o.findings {
			broken = broken || f.Judge == "run" || f.Judge == "step" || f.Judge == "settled" && strings.Contains(f.Message, "never stops")
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
		c.compareEnds(ctx, s, ref)
	}
	if len(ref.masked) > 0 {
		c.note("%s: differs without a fault, and is not compared: %s", s.Name, strings.Join(slices.Sorted(maps.Keys(ref.masked)), ", "))
	}
	return ref
}

// compareEnds compares the end with that of other steps from an empty namespace.
func (c *checker) compareEnds(ctx context.Context, s *scenario, ref *reference) {
	o := c.once(ctx, &scenario{Name: s.Name, Steps: s.EndsAs}, nil, nil, point{}, nil)
	if o.versions == nil {
		c.add(s.Name, o.findings[0])
		return
	}
	lines := ref.lasting(ref.stateAfter(o.versions, o.namespace), ref.end)
	if len(lines) > 0 && !slices.Contains(c.suite.Keeps, s.Name) {
		c.find(s.Name, "history", "the end is not that of one created so:\n%s", strings.Join(lines, "\n"))
	}
}

// plan calls run for each request and step of the operation with each fault that applies, and for each watch of a
// resource of which objects change.
func (c *checker) plan(s *scenario, ref *reference, run func(*fault, point)) {
	add := func(f *fault, at point, kind string) {
		if f.kills && s.Name == endOfNamespace || (c.part || f.rare) && c.planned[kind+f.name] || !strings.HasPrefix(runID(s, f, at), c.only) {
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
			if f.appliesTo(p.request) && (c.leases || !f.takesLease) && (!c.part || f.wait == 0) {
				add(f, p.point, p.request.Verb+p.request.Resource+p.request.Subresource)
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
	if f == nil {
		return s.Name
	}
	return s.Name + " | " + f.name + " | " + at.String()
}

func (c *checker) withFault(ctx context.Context, s *scenario, ref *reference, f *fault, at point) {
	id := runID(s, f, at)
	for range attempts {
		o := c.once(ctx, s, ref, f, at, nil)
		if ctx.Err() != nil {
			return
		}
		o.judgeExtremes(s, ref)
		o.findings = slices.DeleteFunc(o.findings, func(f finding) bool { return ref.known[f.cause()] })
		for _, f := range o.findings {
			f.Without, f.Requests = ref.requests, describe(repoint(o.points, c.aliases(o.namespace, ref.stable)))
			c.add(id, f)
		}
		if o.reached || len(o.findings) > 0 {
			c.locked(func() { c.report.Injected++ })
			return
		}
	}
	c.locked(func() { c.report.Unreached = append(c.report.Unreached, id) })
}

// once executes one run when there is a slot. A run that fails is a finding.
func (c *checker) once(ctx context.Context, s *scenario, want *reference, f *fault, at point, jitter *rand.Rand) *run {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	c.locked(func() {
		c.report.Names = append(c.report.Names, runID(s, f, at))
		if c.report.Runs++; c.report.Runs%25 == 0 {
			fmt.Fprintf(os.Stderr, "%d runs begun, of which %d with faults have ended\n", c.report.Runs, c.report.Injected)
		}
	})
	o, err := c.execute(ctx, s, want, f, at, jitter)
	if err != nil {
		o = &run{namespace: "-", findings: []finding{{Judge: "run", Message: err.Error()}}}
	}
	return o
}
