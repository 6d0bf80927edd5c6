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
// their output, and applies the patches. hack/verify.sh tutorial runs it, with the variables TUTORIAL_DIR, in which
// they are typed, and FULL.
//
// The first word behind the fence of a block says what it is, and more words may follow:
//
//	console     commands behind "$ ", each with its output, in which … stands for anything; without output any will do
//	diff        a patch of files in the current directory, for git apply
//
//	full         only FULL=1 runs the block, because it needs a cluster or takes long
//	fails        the last command fails
//	background   the command runs in a second terminal, and goes on after that output; "^C" ends it
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/sample-controller/hack/tree"
)

// patience bounds each command. The first build of the control plane is the longest.
const patience = 20 * time.Minute

func main() {
	tree.Main(func(ctx context.Context, root string, get func(string) string, output io.Writer) error {
		page, err := os.ReadFile(filepath.Join(root, "docs/tutorial.md"))
		if err != nil {
			return err
		}
		r := &runner{work: get("TUTORIAL_DIR"), full: get("FULL") != "", log: output}
		return r.run(ctx, "docs/tutorial.md", string(page))
	})
}

// runner runs the blocks of a page in the directory work.
type runner struct {
	work string
	full bool
	log  io.Writer
	// interrupt ends what runs in the second terminal. It is nil if nothing does.
	interrupt func() error
}

// block matches a block, with its words and its text.
var block = regexp.MustCompile("(?ms)^```(.*?)\n(.*?)^```$")

// run runs the blocks in their order. It ends what runs in the second terminal.
func (r *runner) run(ctx context.Context, place, page string) (err error) {
	defer func() {
		if r.interrupt != nil {
			err = errors.Join(err, r.interrupt())
		}
	}()
	for _, at := range block.FindAllStringSubmatchIndex(page, -1) {
		line := 1 + strings.Count(page[:at[0]], "\n")
		words, text := strings.Fields(page[at[2]:at[3]]), page[at[4]:at[5]]
		if slices.Contains(words, "full") && !r.full {
			continue
		}
		fmt.Fprintf(r.log, "%s:%d: %s\n", place, line, strings.Join(words, " "))
		switch {
		case slices.Contains(words, "console"):
			err = r.console(ctx, words, text)
		case slices.Contains(words, "diff"):
			err = r.command(ctx, "git apply <<'END OF PATCH'\n"+text+"END OF PATCH", "", false, false)
		default:
			err = errors.New("the block does not say what it is: console or diff")
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", place, line, err)
		}
	}
	return nil
}

// typed matches a command, which goes on in the next line behind a backslash, or "^C", and the output below it.
var typed = regexp.MustCompile(`(?m)^(?:\$ ((?:.*\\\n)*.*)|\^C)\n((?:(?:[^$^\n].*)?\n)*)`)

// console runs the commands of a block. A first line "# Not tested: " says why they are not run.
func (r *runner) console(ctx context.Context, words []string, text string) error {
	if strings.HasPrefix(text, "# Not tested: ") {
		return nil
	}
	if rest := typed.ReplaceAllString(text, ""); rest != "" {
		return fmt.Errorf("output without a command, which begins with %q: %s", "$ ", rest)
	}
	commands := typed.FindAllStringSubmatch(text, -1)
	for i, match := range commands {
		command := cmp.Or(match[1], "^C")
		fmt.Fprintln(r.log, "    $", command)
		fails := slices.Contains(words, "fails") && i == len(commands)-1
		if err := r.command(ctx, command, match[2], slices.Contains(words, "background"), fails); err != nil {
			return fmt.Errorf("$ %s: %w", command, err)
		}
	}
	return nil
}

// shell runs a command as a terminal does: the current directory and the exported variables stay, in a file. The
// second terminal has those of the first but KUBECONFIG, and leaves them: with exec the trap is gone.
const shell = `touch .terminal; state="${PWD}/.terminal"; source "${state}"
trap '{ export -p; printf "cd %q\n" "${PWD}"; } >"${state}"' EXIT
$1 "$2"`

// command types a command into the first terminal and waits for its end, or into the second one until it has said what
// the page wants.
func (r *runner) command(ctx context.Context, command, want string, isSecond, fails bool) error {
	how := "eval"
	switch {
	case !isSecond:
	case command == "^C" && r.interrupt == nil:
		return errors.New("nothing runs in the second terminal")
	case command == "^C":
		return r.interrupt()
	case r.interrupt != nil:
		return errors.New("the second terminal is in use; end the command there with ^C")
	default:
		how = "exec env -u KUBECONFIG bash -c"
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(patience, func() { cancel(errors.New("it takes too long")) })
	defer late.Stop()
	c := exec.CommandContext(ctx, "bash", "-c", shell, "bash", how, command)
	// The signal is that of Ctrl-C: it reaches make and what it started.
	c.Dir, c.SysProcAttr, c.WaitDelay = r.work, &syscall.SysProcAttr{Setpgid: true}, 90*time.Second
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGINT) }
	reader, writer := io.Pipe()
	c.Stdout, c.Stderr = writer, writer
	err := c.Start()
	if err == nil {
		go func() { _ = writer.CloseWithError(c.Wait()) }()
	}
	output, lines := "", bufio.NewReader(reader)
	for err == nil {
		var line string
		line, err = lines.ReadString('\n')
		output += line
		if isSecond && matches(want, output, false) {
			r.goOn(c, lines, cancel)
			return nil
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	cause := context.Cause(ctx)
	cancel(nil)
	err = errors.Join(err, cause)
	shown := fmt.Sprintf("the page shows\n%sthe output is\n%s", want, output)
	switch {
	case isSecond:
		return fmt.Errorf("the command has ended, error %w; %s", err, shown)
	case (err != nil) != fails || cause != nil:
		return fmt.Errorf("error %w, and it is said to fail: %t; %s", err, fails, shown)
	case want != "" && !matches(want, output, true):
		return errors.New(shown)
	}
	return nil
}

// goOn leaves the command running in the second terminal until it is interrupted.
func (r *runner) goOn(c *exec.Cmd, output io.Reader, cancel context.CancelCauseFunc) {
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, output)
		ended <- err
	}()
	r.interrupt = func() error {
		r.interrupt = nil
		cancel(nil)
		err := <-ended
		if c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL && !errors.Is(err, exec.ErrWaitDelay) {
			return nil
		}
		return errors.Join(errors.New("it did not end 90 s after Ctrl-C"), syscall.Kill(-c.Process.Pid, syscall.SIGKILL))
	}
}

// matches reports whether the output begins with the lines of the page, and ends there too if that is asked
// for. In a line … stands for any text, and alone in a line for any lines.
func matches(want, output string, whole bool) bool {
	pattern := `\A`
	for line := range strings.Lines(want) {
		if line == "…\n" {
			pattern += `(?:.*\n)*?`
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " \t\n")), "…", `.*`) + `[ \t]*\n`
	}
	if whole {
		pattern += `\z`
	}
	return regexp.MustCompile(pattern).MatchString(strings.TrimRight(output, "\n") + "\n")
}
