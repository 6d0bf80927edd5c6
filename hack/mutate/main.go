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

// Command mutate tests the tests: it breaks the code in one place after the other
// and tells which of these mutants no unit test notices. Each must be killed by a
// test or explained in a list; an explanation that no survivor needs is an error
// as well.
//
// All mutants are compiled into the test binaries, and a number in their environment
// chooses one: to build takes forty times as long as to test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := mutate(ctx, clock.RealClock{}, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "mutate: %v\n", err)
		}
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	explained string
	match     *regexp.Regexp
	list      bool
	tester    tester
	files     []string
}

func parseOptions(args []string) (*options, error) {
	o := &options{match: regexp.MustCompile("")}
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.StringVar(&o.explained, "explained", "", "file that says why survivors live")
	flags.Func("match", "try only mutants whose file, function or code matches this regular expression", func(value string) (err error) {
		o.match, err = regexp.Compile(value)
		return err
	})
	flags.StringVar(&o.tester.root, "root", ".", "directory of the module, to which all paths are relative")
	flags.Func("with", "directory of a package whose tests may kill mutants of other packages too", func(value string) error {
		o.tester.with = append(o.tester.with, filepath.Clean(value))
		return nil
	})
	flags.BoolVar(&o.list, "list", false, "list the mutants and test nothing")
	flags.IntVar(&o.tester.parallel, "parallel", runtime.NumCPU(), "number of mutants that are tested at the same time")
	flags.DurationVar(&o.tester.timeout, "timeout", 10*time.Second, "how long the short tests may take before the mutant counts as killed; all may take six times as long")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	for _, path := range flags.Args() {
		o.files = append(o.files, filepath.Clean(path))
	}
	if len(o.files) == 0 {
		return nil, errors.New("name the files to mutate")
	}
	if o.tester.parallel < 1 {
		return nil, errors.New("-parallel: must be at least 1")
	}
	root, err := filepath.Abs(o.tester.root)
	o.tester.root = root
	return o, err
}

// mutate does what the arguments say. Its error tells what is to be mended.
func mutate(ctx context.Context, clock clock.PassiveClock, args []string, out io.Writer) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	explanations, err := readExplanations(o)
	if err != nil {
		return err
	}
	p, err := readFiles(o)
	if err != nil {
		return err
	}
	if o.list {
		p.list(out)
		return nil
	}
	if err := try(ctx, clock, &o.tester, p, explanations, out); err != nil {
		return err
	}
	return report(out, p.files, explanations)
}

// try tests all mutants.
func try(ctx context.Context, clock clock.PassiveClock, tester *tester, p *target, explanations []*explanation, out io.Writer) (err error) {
	if tester.work, err = os.MkdirTemp("", "mutate"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tester.work)) }()

	begun := clock.Now()
	if err := tester.build(ctx, p); err != nil {
		return err
	}
	for _, directory := range tester.directories(p) {
		passed, output, err := tester.test(ctx, directory, 0)
		if err != nil {
			return fmt.Errorf("running the tests of %s without a mutant: %w", directory, err)
		}
		if !passed {
			return fmt.Errorf("the tests fail without a mutant:\n%s", output)
		}
	}
	fmt.Fprintf(out, "Built all mutants in %.0f s.\n", clock.Since(begun).Seconds())
	for _, file := range p.files {
		begun := clock.Now()
		survivors, err := tester.survivors(ctx, file)
		if err != nil {
			return fmt.Errorf("testing the mutants of %s: %w", file.name, err)
		}
		file.seconds = clock.Since(begun).Seconds()
		file.judge(out, survivors, explanations)
	}
	return nil
}
