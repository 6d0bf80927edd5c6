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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	cluster *cluster
	command []string
	// dir is for temporary files.
	kubeconfig, dir, only string
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
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig `file` of the cluster, by default that of kubectl")
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
	if o.cluster, err = newCluster(o.kubeconfig); err != nil {
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
	if !slices.ContainsFunc(reports, func(r *report) bool { return r.Runs > 0 || r.failed() }) {
		return false, fmt.Errorf("-only %q: no scenario begins so", o.only)
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
	flags  []string
	owners schema.GroupVersionResource
	// change are the steps that change the spec of the example at rest, nil if the API server refuses each.
	change []step
	// tracked are the resources whose objects are compared: see stateOf.
	tracked map[string]bool
	// watched are the resources of which the controller watches objects.
	watched []string
	// leases is set if the controller takes a lease.
	leases bool
	// noWatch is set if the controller was seen to watch no owners.
	noWatch atomic.Bool

	mutex
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
	_, c.owners, err = c.cluster.at("", c.suite.example.GetAPIVersion(), c.suite.example.GetKind())
	return c, err
}

// mutex guards fields.
type mutex struct{ sync.Mutex }

// locked reads or changes what the mutex guards.
func (m *mutex) locked(do func()) {
	m.Lock()
	defer m.Unlock()
	do()
}

// note prints what a reader of the report has to know and no judge objects to.
func (c *checker) note(format string, arguments ...any) {
	c.locked(func() { c.report.Notes = append(c.report.Notes, fmt.Sprintf(format, arguments...)) })
}

// add adds a finding to the report, and says so at once.
func (c *checker) add(id string, f finding) {
	f.Run, f.Command = id, c.repeat(id)
	c.locked(func() { c.report.Findings, c.report.Names = append(c.report.Findings, f), append(c.report.Names, id) })
	fmt.Fprintf(os.Stderr, "finding: %s: %s\n", f.Judge, id)
}

func (c *checker) find(id, judge, format string, arguments ...any) {
	c.add(id, finding{Judge: judge, Message: fmt.Sprintf(format, arguments...)})
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
			for _, t := range c.plan(s, ref) {
				group.Go(func() { c.withFault(ctx, t) })
			}
		}
	}
	group.Wait()
	return ctx.Err()
}

// learn notes what the controller does about the example. Before that it waits until the garbage collector knows the
// kind: it looks for new ones every 30 seconds.
func (c *checker) learn(ctx context.Context, r *run) error {
	absent := fmt.Sprintf(`"name":"probe","ownerReferences":[{"apiVersion":%q,"kind":%q,"name":"absent","uid":"absent"}]`,
		c.suite.example.GetAPIVersion(), c.suite.example.GetKind())
	collect := &scenario{Name: "collect", Steps: []step{configMap(absent), {Until: "objects.all(o, o.metadata.name != 'probe')"}}}
	if err := errors.Join(c.suite.completeScenarios([]*scenario{collect}), r.take(ctx, collect.Steps)); err != nil {
		return fmt.Errorf("the garbage collector leaves an object whose owner, a %s, does not exist: %w", c.owners.Resource, err)
	}
	err := r.take(ctx, c.suite.created)
	if err == nil {
		err = r.rest(ctx, nil)
	}
	var found []finding
	r.locked(func() { c.watched, found = slices.Sorted(maps.Keys(r.watched)), slices.Clone(r.findings) })
	for _, request := range r.recorded(0) {
		track(c.tracked, &request)
	}
	if len(c.tracked) == 0 && ctx.Err() == nil {
		message := fmt.Sprintf("it wrote nothing for the example: %v; its output:\n%s", found, r.lastOutput())
		return &finding{Judge: "idle", Message: message}
	}
	if err != nil {
		return err
	}
	leases, err := r.leases().List(ctx, metav1.ListOptions{})
	c.leases = err == nil && len(leases.Items) > 0
	c.tracked[c.owners.Resource], c.tracked[c.owners.Resource+"/status"] = true, true
	return nil
}

// plan returns a trial for each request and step of the operation with each fault that applies, and for each watch of a
// resource of which objects change.
func (c *checker) plan(s *scenario, ref *reference) (trials []trial) {
	add := func(f *fault, at point, kind string) {
		t := trial{scenario: s, want: ref, fault: f, at: at}
		isEnough := (c.part || f.rare) && c.planned[kind+f.name] || f.kills && s.Name == endOfNamespace
		if !isEnough && strings.HasPrefix(t.id(), c.only) {
			c.planned[kind+f.name], trials = true, append(trials, t)
		}
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
	return trials
}

// withFault tries three times to reach the point of the trial.
func (c *checker) withFault(ctx context.Context, t trial) {
	for range 3 {
		r := c.once(ctx, t)
		if ctx.Err() != nil {
			return
		}
		r.judgeExtremes()
		r.findings = slices.DeleteFunc(r.findings, func(f finding) bool { return t.want.known[f.cause()] })
		for _, f := range r.findings {
			f.Without, f.Requests = t.want.requests, describe(repoint(r.points, c.aliases(r.namespace, t.want.stable)))
			c.add(t.id(), f)
		}
		if r.reached || len(r.findings) > 0 {
			c.locked(func() { c.report.Injected++ })
			return
		}
	}
	c.locked(func() { c.report.Unreached = append(c.report.Unreached, t.id()) })
}

// once executes one run when there is a slot. A run that fails is a finding.
func (c *checker) once(ctx context.Context, t trial) *run {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	c.locked(func() {
		c.report.Names = append(c.report.Names, t.id())
		if c.report.Runs++; c.report.Runs%25 == 0 {
			fmt.Fprintf(os.Stderr, "%d runs begun, of which %d with faults have ended\n", c.report.Runs, c.report.Injected)
		}
	})
	r, err := c.execute(ctx, t)
	if err != nil {
		r = &run{trial: t, check: c, namespace: "none", findings: []finding{{Judge: "run", Message: err.Error()}}}
	}
	return r
}

// report is what check prints in the end.
type report struct {
	Suite          string
	Runs, Injected int
	Findings       []finding
	Unreached      []string
	Notes          []string
	// Names are those of the scenarios and of the runs with faults.
	Names []string
}

// text returns the finding with the requests of both runs side by side, and the command that repeats it.
func (f *finding) text() string {
	var out strings.Builder
	message := strings.ReplaceAll(strings.TrimSpace(f.Message), "\n", "\n    ")
	fmt.Fprintf(&out, "\nFINDING %s: %s\n    %s\n", f.Judge, f.Run, message)
	if len(f.Requests) > 0 {
		fmt.Fprintf(&out, "    %-70s | %s\n", "without the fault", "this run")
		n := max(len(f.Without), len(f.Requests))
		without, requests := slices.Concat(f.Without, make([]string, n)), slices.Concat(f.Requests, make([]string, n))
		for i := range n {
			fmt.Fprintf(&out, "    %-70s | %s\n", without[i], requests[i])
		}
	}
	fmt.Fprintf(&out, "    repeat: %s\n", f.Command)
	return out.String()
}

// repeat returns the command that repeats one run.
func (c *checker) repeat(id string) string {
	command := []string{"go", "run", "./test/check", "-suite", c.report.Suite, "-only", id}
	if c.kubeconfig != "" {
		command = append(command, "-kubeconfig", c.kubeconfig)
	}
	command = slices.Concat(command, []string{"--"}, c.command)
	for i, word := range command {
		if strings.ContainsAny(word, " \t\n;&|<>()$`\\\"'*?[]#~{}") {
			command[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(command, " ")
}

// tooManyUnreached is the share of faults, in percent, that may have found no occasion.
const tooManyUnreached = 5

// text returns the summary.
func (r *report) text() string {
	var out strings.Builder
	for _, note := range r.Notes {
		fmt.Fprintln(&out, "note: "+note)
	}
	for _, id := range r.Unreached {
		fmt.Fprintln(&out, "not reached: "+id)
	}
	judges := map[string]int{}
	for i := range r.Findings {
		out.WriteString(r.Findings[i].text())
		judges[r.Findings[i].Judge]++
	}
	fmt.Fprintf(&out, "%d runs, %d faults injected, %d not reached, ", r.Runs, r.Injected, len(r.Unreached))
	fmt.Fprintf(&out, "%d findings %v\n", len(r.Findings), judges)
	if r.tooFew() {
		fmt.Fprintf(&out, "FAILED: more than %d %% of the faults were not reached\n", tooManyUnreached)
	}
	return out.String()
}

// tooFew reports whether more faults than that were not reached.
func (r *report) tooFew() bool {
	return 100*len(r.Unreached) > tooManyUnreached*(r.Injected+len(r.Unreached))
}

// failed reports whether the controller does not pass.
func (r *report) failed() bool { return len(r.Findings) > 0 || r.tooFew() }

// writeReport writes the reports to the file, if it has a name.
func writeReport(file string, reports []*report, encode func(any) ([]byte, error)) error {
	if file == "" {
		return nil
	}
	data, err := encode(reports)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// asJUnit encodes reports, with a test case for each scenario and each run with a fault.
func asJUnit(of any) ([]byte, error) {
	var out bytes.Buffer
	reports, _ := of.([]*report)
	fmt.Fprintln(&out, "<testsuites>")
	for _, r := range reports {
		fmt.Fprintf(&out, "<testsuite name=\"%s\">\n", html.EscapeString(r.Suite))
		slices.Sort(r.Names)
		for _, name := range slices.Compact(r.Names) {
			fmt.Fprintf(&out, "<testcase name=\"%s\">", html.EscapeString(name))
			for i := range r.Findings {
				if f := &r.Findings[i]; f.Run == name {
					fmt.Fprintf(&out, "<failure type=\"%s\">%s</failure>", f.Judge, html.EscapeString(f.text()))
				}
			}
			if slices.Contains(r.Unreached, name) {
				fmt.Fprint(&out, "<skipped/>")
			}
			fmt.Fprintln(&out, "</testcase>")
		}
		fmt.Fprintln(&out, "</testsuite>")
	}
	fmt.Fprintln(&out, "</testsuites>")
	return out.Bytes(), nil
}
