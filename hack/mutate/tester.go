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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tester runs unit tests with a mutant of some files.
type tester struct {
	// root is the module's directory, work is for files of our own.
	root, work string
	// with are packages, by directory, whose tests are run beside those of the file's
	// own package.
	with     []string
	timeout  time.Duration
	parallel int
}

// directories returns the packages whose tests are needed.
func (t *tester) directories(p *target) []string {
	all := slices.Clone(t.with)
	for _, f := range p.files {
		all = append(all, f.directory())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// flat is a name for a path that has no directories.
func flat(path string) string {
	return strings.ReplaceAll(path, string(filepath.Separator), "_")
}

func (t *tester) binary(directory string) string {
	return filepath.Join(t.work, flat(directory)+"-mutants.test")
}

// build compiles the tests with all mutants in them. The files of the module stay as
// they are: the compiler is told to read others in their place.
func (t *tester) build(ctx context.Context, p *target) error {
	for directory, name := range p.packages {
		p.sources[filepath.Join(directory, "mutant_selector.go")] = selector(name)
	}
	replace := map[string]string{}
	for name, text := range p.sources {
		file := filepath.Join(t.work, flat(name))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		replace[filepath.Join(t.root, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlayFile := filepath.Join(t.work, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return err
	}
	for _, directory := range t.directories(p) {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlayFile, "-o", t.binary(directory), ".")
		cmd.Dir, cmd.Stderr = filepath.Join(t.root, directory), os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building the tests of %s with all mutants: %w", directory, err)
		}
	}
	return nil
}

// test reports whether the tests of that package pass with the mutant of that number,
// 0 for none. Those that are not skipped when time is short come first: they kill nearly
// all, and with them it takes least to tell that a mutant runs forever.
func (t *tester) test(ctx context.Context, directory string, id int) (passed bool, output []byte, err error) {
	if passed, output, err = t.run(ctx, directory, id, t.timeout, "-test.short"); !passed || err != nil {
		return passed, output, err
	}
	return t.run(ctx, directory, id, 6*t.timeout)
}

// run runs the tests of that package with those arguments.
func (t *tester) run(ctx context.Context, directory string, id int, timeout time.Duration, args ...string) (passed bool, output []byte, err error) {
	// The tables are what is tested here. Random sequences take seconds, and what is
	// weighed and counted weighs more with detectors.
	args = append(args, "-test.failfast", "-test.skip=^Test(Random|Bytes|Allocations)", "-test.timeout="+timeout.String())
	cmd := exec.CommandContext(ctx, t.binary(directory), args...)
	cmd.Dir = filepath.Join(t.root, directory)
	cmd.Env = append(os.Environ(), environment+"="+strconv.Itoa(id))
	output, err = cmd.CombinedOutput()
	if ctx.Err() != nil {
		return false, nil, ctx.Err()
	}
	var failure *exec.ExitError
	if errors.As(err, &failure) {
		return false, output, nil
	}
	return err == nil, output, err
}

// lives reports whether a mutant in that package passes all tests. Those of its own
// package come first.
func (t *tester) lives(ctx context.Context, directory string, id int) (bool, error) {
	for _, tests := range slices.Compact(append([]string{directory}, t.with...)) {
		if passed, _, err := t.test(ctx, tests, id); !passed || err != nil {
			return false, err
		}
	}
	return true, nil
}

// survivors returns those of the file's mutants with which the tests pass.
func (t *tester) survivors(ctx context.Context, file *file) ([]mutant, error) {
	mutants := file.mutants
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	passed := make([]bool, len(mutants))
	next := make(chan int)
	var workers sync.WaitGroup
	for range t.parallel {
		workers.Go(func() {
			for i := range next {
				var err error
				if passed[i], err = t.lives(ctx, file.directory(), mutants[i].id); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range mutants {
		next <- i
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var alive []mutant
	for i, m := range mutants {
		if passed[i] {
			alive = append(alive, m)
		}
	}
	return alive, nil
}
