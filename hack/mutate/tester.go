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
	"strconv"
	"sync"
	"syscall"
	"time"
)

// tester runs the unit tests of a package with a mutant of some of its files.
type tester struct {
	// directory is the package's, work is for files of our own.
	directory, work string
	timeout         time.Duration
	parallel        int
}

func (t *tester) binary() string {
	return filepath.Join(t.work, "mutants.test")
}

// build compiles the package with all mutants in it. The files in the directory
// stay as they are: the compiler is told to read others in their place.
func (t *tester) build(ctx context.Context, p *target) error {
	p.sources["mutant_selector.go"] = selector(p.name)
	replace := map[string]string{}
	for name, text := range p.sources {
		file := filepath.Join(t.work, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		replace[filepath.Join(t.directory, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlayFile := filepath.Join(t.work, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlayFile, "-o", t.binary(), ".")
	cmd.Dir, cmd.Stderr = t.directory, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the tests with all mutants: %w", err)
	}
	return nil
}

// test reports whether the tests pass with the mutant of that number, 0 for none.
func (t *tester) test(ctx context.Context, id int) (passed bool, output []byte, err error) {
	// The tables are what is tested here, and random sequences take seconds.
	cmd := exec.CommandContext(ctx, t.binary(), "-test.failfast", "-test.skip=^TestRandom", "-test.timeout="+t.timeout.String())
	cmd.Dir = t.directory
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

// survivors returns those of the mutants with which the tests pass.
func (t *tester) survivors(ctx context.Context, mutants []mutant) ([]mutant, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	passed := make([]bool, len(mutants))
	next := make(chan int)
	var workers sync.WaitGroup
	for range t.parallel {
		workers.Go(func() {
			for i := range next {
				var err error
				if passed[i], _, err = t.test(ctx, mutants[i].id); err != nil {
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
