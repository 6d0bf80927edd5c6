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
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// runner runs the blocks of a page.
type runner struct {
	// readme is the text that has the figures of the page too.
	readme string
	full   bool
	log    io.Writer
	clock  clock.Clock

	terminal *terminal
	// second is what runs in the second terminal, nil for nothing.
	second *process
}

func newRunner(work, readme string, full bool, log io.Writer, clock clock.Clock) (*runner, error) {
	t, err := newTerminal(work)
	return &runner{readme: readme, full: full, log: log, clock: clock, terminal: t}, err
}

// run runs the blocks in their order. It ends what runs in the second terminal.
func (r *runner) run(ctx context.Context, blocks []*block) (err error) {
	defer func() {
		if r.second != nil {
			err = errors.Join(err, r.second.interrupt())
		}
	}()
	begun, left := r.clock.Now(), 0
	for _, b := range blocks {
		if b.full && !r.full {
			left++
			continue
		}
		if err := r.block(ctx, b); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.log, "%d blocks in %s; %d blocks marked full were left out\n", len(blocks)-left, r.clock.Since(begun).Round(time.Second), left)
	return nil
}

func (r *runner) block(ctx context.Context, b *block) error {
	text := strings.Join(b.lines, "\n") + "\n"
	switch b.language {
	case "console":
		return r.console(ctx, b)
	case "diff":
		return r.patch(ctx, b, text)
	case "mermaid":
		if !strings.Contains(r.readme, fence+b.language+"\n"+text+fence+"\n") {
			return b.errorf(0, "%s has another figure; make them equal", readme)
		}
		return nil
	}
	return r.file(ctx, b, text)
}

func (r *runner) console(ctx context.Context, b *block) error {
	commands, err := b.commands()
	if err != nil {
		return err
	}
	for i, c := range commands {
		begun := r.clock.Now()
		fmt.Fprintf(r.log, "%s:%d: $ %s\n", b.place, b.line+c.line, c.text)
		if b.background {
			err = r.inSecond(ctx, c)
		} else {
			err = r.inFirst(ctx, c, b.fails && i == len(commands)-1)
		}
		if err != nil {
			return b.errorf(c.line, "$ %s: %w", c.text, err)
		}
		fmt.Fprintf(r.log, "    done (%s)\n", r.clock.Since(begun).Round(time.Second/10))
	}
	return nil
}

// inFirst runs the command in the first terminal, to its end.
func (r *runner) inFirst(ctx context.Context, c *command, fails bool) error {
	output, err := r.terminal.run(ctx, c.text)
	switch {
	case err != nil && (!fails || ctx.Err() != nil):
		return fmt.Errorf("%w\n%s", err, output)
	case err == nil && fails:
		return fmt.Errorf("it succeeded, but is said to fail\n%s", output)
	case len(c.output) > 0 && !matches(c.output, output, true):
		return fmt.Errorf("the page shows\n%s\nthe output is\n%s", strings.Join(c.output, "\n"), output)
	}
	return nil
}

// inSecond starts the command in the second terminal, or ends the one that runs there.
func (r *runner) inSecond(ctx context.Context, c *command) error {
	switch {
	case c.text == interrupt && r.second == nil:
		return errors.New("nothing runs in the second terminal")
	case c.text == interrupt:
		ended := r.second
		r.second = nil
		return ended.interrupt()
	case r.second != nil:
		return fmt.Errorf("the second terminal is in use; end the command there with %s", interrupt)
	}
	dir, err := r.terminal.directory(ctx)
	if err != nil {
		return err
	}
	if r.second, err = startProcess(dir, c.text, r.clock); err != nil {
		return err
	}
	if err := r.second.await(ctx, c.output); err != nil {
		return fmt.Errorf("%w; the page shows\n%s\nthe output is\n%s", err, strings.Join(c.output, "\n"), r.second.output.String())
	}
	return nil
}

// patch applies the patch in the current directory.
func (r *runner) patch(ctx context.Context, b *block, text string) error {
	dir, err := r.terminal.directory(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.log, "%s:%d: git apply\n", b.place, b.line)
	c := exec.CommandContext(ctx, "git", "apply")
	c.Dir, c.Stdin = dir, strings.NewReader(text)
	if output, err := c.CombinedOutput(); err != nil {
		return b.errorf(0, "git apply: %w\n%s", err, output)
	}
	return nil
}

// file writes the file, in the current directory.
func (r *runner) file(ctx context.Context, b *block, text string) error {
	if filepath.Ext(b.file) == ".json" && !json.Valid([]byte(text)) {
		return b.errorf(0, "%s is no valid JSON", b.file)
	}
	dir, err := r.terminal.directory(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.log, "%s:%d: write %s\n", b.place, b.line, b.file)
	name := filepath.Join(dir, b.file)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
