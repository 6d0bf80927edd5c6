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

// Command tutorial runs docs/tutorial.md from top to bottom: it types the commands in a shell and compares
// their output, applies the patches and writes the files. hack/verify.sh tutorial runs it.
//
// The first word behind the fence of a block says what it is, and more words may follow:
//
//	console     commands behind "$ ", each with its output, in which … stands for anything; without output any will do
//	diff        a patch of files in the current directory, for git apply
//	any other   the content of the file that the word file=PATH names
//
//	full         only the full form runs the block, because it needs a cluster or takes long
//	fails        the last command fails
//	background   the command runs in a second terminal, and goes on after that output; "^C" ends it
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// patience bounds each command. The first build of the control plane is the longest.
const patience = 20 * time.Minute

func main() {
	full := flag.Bool("full", false, "also run the blocks that are marked full")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	page, err := os.ReadFile(filepath.Join(flag.Arg(0), "docs/tutorial.md"))
	if err == nil {
		err = (&runner{work: flag.Arg(1), full: *full, log: os.Stdout}).run(ctx, "docs/tutorial.md", string(page))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ERROR:", err)
		os.Exit(1)
	}
}

// runner runs the blocks of a page in the directory work.
type runner struct {
	work string
	full bool
	log  io.Writer
	// second is what runs in the second terminal, nil for nothing, and ended is closed when it has ended.
	second *exec.Cmd
	ended  chan struct{}
}

// block matches a block, with its words and its text.
var block = regexp.MustCompile("(?ms)^```(.*?)\n(.*?)^```$")

// run runs the blocks in their order. It ends what runs in the second terminal.
func (r *runner) run(ctx context.Context, place, page string) (err error) {
	defer func() {
		if r.second != nil {
			err = errors.Join(err, r.interrupt())
		}
	}()
	for _, at := range block.FindAllStringSubmatchIndex(page, -1) {
		line := 1 + strings.Count(page[:at[0]], "\n")
		words := strings.Fields(page[at[2]:at[3]])
		if slices.Contains(words, "full") && !r.full {
			continue
		}
		if err := r.block(ctx, fmt.Sprintf("%s:%d", place, line), words, page[at[4]:at[5]]); err != nil {
			return fmt.Errorf("%s:%d: %w", place, line, err)
		}
	}
	return nil
}

func (r *runner) block(ctx context.Context, place string, words []string, text string) error {
	fmt.Fprintln(r.log, place+":", strings.Join(words, " "))
	file := ""
	for _, word := range words {
		if path, ok := strings.CutPrefix(word, "file="); ok {
			file = path
		}
	}
	switch {
	case len(words) == 0 || file == "" && !slices.Contains([]string{"console", "diff"}, words[0]):
		return errors.New("the block does not say what it is: console, diff, or a language with file=PATH")
	case words[0] == "console":
		return r.console(ctx, words, text)
	case words[0] == "diff":
		return r.first(ctx, "git apply <<'END OF PATCH'\n"+text+"END OF PATCH", nil, false)
	}
	return r.first(ctx, fmt.Sprintf("mkdir -p %q && cat >%q <<'END OF FILE'\n%sEND OF FILE", filepath.Dir(file), file, text), nil, false)
}

// console runs the commands of a block. A first line "# Not tested: " says why they are not run.
func (r *runner) console(ctx context.Context, words []string, text string) error {
	if strings.HasPrefix(text, "# Not tested: ") {
		return nil
	}
	var commands [][]string
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		last := len(commands) - 1
		switch {
		case line == "^C" || strings.HasPrefix(line, "$ "):
			commands = append(commands, []string{strings.TrimPrefix(line, "$ ")})
		case last < 0:
			return fmt.Errorf("output without a command, which begins with %q: %s", "$ ", line)
		case len(commands[last]) == 1 && strings.HasSuffix(commands[last][0], `\`):
			commands[last][0] += "\n" + line
		default:
			commands[last] = append(commands[last], line)
		}
	}
	run := func(ctx context.Context, command string, output []string, _ bool) error {
		return r.inSecond(ctx, command, output)
	}
	if !slices.Contains(words, "background") {
		run = r.first
	}
	for i, command := range commands {
		fmt.Fprintln(r.log, "    $", command[0])
		if err := run(ctx, command[0], command[1:], slices.Contains(words, "fails") && i == len(commands)-1); err != nil {
			return fmt.Errorf("$ %s: %w", command[0], err)
		}
	}
	return nil
}

// shell runs a command as a terminal does: the current directory and the exported variables stay, in a file.
const shell = `touch .terminal; state="${PWD}/.terminal"; source "${state}"
trap '{ export -p; printf "cd %q\n" "${PWD}"; } >"${state}"' EXIT
eval "$1"`

// first runs the command in the first terminal, to its end.
func (r *runner) first(ctx context.Context, command string, want []string, fails bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", shell, "bash", command)
	// The signal reaches make and what it started.
	c.Dir, c.SysProcAttr, c.WaitDelay = r.work, &syscall.SysProcAttr{Setpgid: true}, time.Minute
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	output, err := c.CombinedOutput()
	switch {
	case (err != nil) != fails || ctx.Err() != nil:
		return fmt.Errorf("error %w, and it is said to fail: %t\n%s", errors.Join(err, ctx.Err()), fails, output)
	case len(want) > 0 && !matches(want, string(output), true):
		return fmt.Errorf("the page shows\n%s\nthe output is\n%s", strings.Join(want, "\n"), output)
	}
	return nil
}

// inSecond starts the command in the second terminal, and waits for its output, or ends the one that runs there.
func (r *runner) inSecond(ctx context.Context, command string, want []string) error {
	if command == "^C" {
		return r.interrupt()
	}
	if r.second != nil {
		return errors.New("the second terminal is in use; end the command there with ^C")
	}
	output, err := os.CreateTemp(r.work, ".second-")
	if err != nil {
		return err
	}
	defer output.Close()
	r.second = exec.Command("bash", "-c", `touch .terminal; source .terminal; eval "exec bash -c $(printf %q "$1")"`, "bash", command)
	r.second.Dir, r.second.Stdout, r.second.Stderr, r.second.SysProcAttr = r.work, output, output, &syscall.SysProcAttr{Setpgid: true}
	if err := r.second.Start(); err != nil {
		return err
	}
	r.ended = make(chan struct{})
	go func(second *exec.Cmd, ended chan struct{}) {
		_ = second.Wait()
		close(ended)
	}(r.second, r.ended)
	var said []byte
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		hasEnded := false
		select {
		case <-r.ended:
			hasEnded = true
		default:
		}
		said, err = os.ReadFile(output.Name())
		isShown := matches(want, string(said), false)
		if hasEnded && !isShown {
			r.second, err = nil, errors.New("the command has ended")
		}
		return isShown, err
	})
	if err != nil {
		return fmt.Errorf("%w; the page shows\n%s\nthe output is\n%s", err, strings.Join(want, "\n"), said)
	}
	return nil
}

// interrupt ends the second command as Ctrl-C does in a terminal, and waits for its end.
func (r *runner) interrupt() error {
	c := r.second
	if c == nil {
		return errors.New("nothing runs in the second terminal")
	}
	r.second = nil
	late := time.AfterFunc(90*time.Second, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	err := syscall.Kill(-c.Process.Pid, syscall.SIGINT)
	<-r.ended
	if c.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		err = errors.Join(err, errors.New("it did not end within 90 s after Ctrl-C"))
	}
	return err
}

// matches reports whether the output begins with the lines of the page, and ends there too if that is asked
// for. In a line … stands for any text, and alone in a line for any lines.
func matches(lines []string, output string, whole bool) bool {
	pattern := `\A`
	for _, line := range lines {
		if line == "…" {
			pattern += `(?:.*\n)*?`
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " \t")), "…", `.*`) + `[ \t]*\n`
	}
	if whole {
		pattern += `\z`
	}
	return regexp.MustCompile(pattern).MatchString(strings.TrimRight(output, "\n") + "\n")
}
