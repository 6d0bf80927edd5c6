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
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
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
	defer os.RemoveAll(c.dir)
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
		for i := range max(len(f.without), len(f.requests)) {
			fmt.Fprintf(&out, "    %-70s | %s\n", at(f.without, i), at(f.requests, i))
		}
	}
	fmt.Fprintf(&out, "    repeat: go run ./test/check -suite %s -only '%s' -- %s\n", c.file, f.id, strings.Join(c.command, " "))
	return out.String()
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
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
