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
	if c.cluster, err = newCluster(ctx, *kubeconfig, c.suite.CRDs); err != nil {
		return false, fmt.Errorf("connecting to the cluster: %w", err)
	}
	if c.owners, err = c.cluster.resource(c.suite.example.GetAPIVersion(), c.suite.example.GetKind()); err != nil {
		return false, err
	}
	if c.dir, err = os.MkdirTemp("", "check-"); err != nil {
		return false, err
	}
	defer os.RemoveAll(c.dir)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if c.recorder, err = startRecorder(ctx, c.cluster, cancel); err != nil {
		return false, err
	}
	c.slots = make(chan struct{}, *parallel)
	if err := c.all(ctx); err != nil {
		return false, errors.Join(err, context.Cause(ctx))
	}
	fmt.Print("\n" + c.report.text())
	return c.report.passed(), nil
}
