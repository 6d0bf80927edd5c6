//go:build e2e

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

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// commandEnvironment returns the environment of commands: the caller's without the
// variables that could name another cluster, and with the suite's kubectl, curl and jq
// first in PATH.
func commandEnvironment(work, root string) ([]string, error) {
	environment, err := goEnvironment()
	if err != nil {
		return nil, err
	}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "KUBE") && !strings.HasPrefix(variable, "HOME=") {
			environment = append(environment, variable)
		}
	}
	path := []string{filepath.Join(work, "bin"), filepath.Join(root, "bin"), os.Getenv("PATH")}
	return append(environment, "PATH="+strings.Join(path, string(os.PathListSeparator)), "KUBERC=off"), nil
}

// sh runs a command line in the root of the repository, as a reader of the walkthroughs
// would type it, and returns its output. The test fails if the command fails.
func sh(t *testing.T, command string) string {
	t.Helper()
	return shWithin(t, waitTimeout, command)
}

// shWithin is sh for a command that may take so long.
func shWithin(t *testing.T, timeout time.Duration, command string) string {
	t.Helper()
	output, err := tryIn(t.Context(), timeout, command)
	t.Logf("$ %s\n%s", command, output)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return output
}

// shFails runs a command line that must fail, and returns its output.
func shFails(t *testing.T, command string) string {
	t.Helper()
	output, err := try(t, command)
	t.Logf("$ %s\n%s", command, output)
	if err == nil {
		t.Fatalf("%s: succeeded, but must fail", command)
	}
	return output
}

// shOnCleanup runs the command lines when the test has ended. The test fails if one fails.
func shOnCleanup(t *testing.T, commands ...string) {
	t.Helper()
	t.Cleanup(func() {
		for _, command := range commands {
			if output, err := tryIn(context.WithoutCancel(t.Context()), waitTimeout, command); err != nil {
				t.Errorf("%s: %v: %s", command, err, output)
			}
		}
	})
}

// shUntil runs the command line until its output matches the pattern.
func shUntil(t *testing.T, command, pattern string) {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	var output string
	began := time.Now()
	poll(t, command, commandInterval, func(context.Context) error {
		var err error
		output, err = try(t, command)
		if err == nil && !wanted.MatchString(output) {
			err = fmt.Errorf("no match for %q", pattern)
		}
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, output)
		}
		return nil
	})
	t.Logf("$ %s   (as expected after %s)\n%s", command, time.Since(began).Round(time.Millisecond), output)
}

// try runs a command line and returns its stdout and stderr.
func try(t *testing.T, command string) (string, error) {
	return tryIn(t.Context(), waitTimeout, command)
}

func tryIn(ctx context.Context, timeout time.Duration, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir = shared.root
	cmd.Env = append([]string{"HOME=" + shared.home}, shared.environment...)
	cmd.WaitDelay = 5 * time.Second
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// mustContain fails the test unless the text contains all of the words, in this order.
func mustContain(t *testing.T, text string, words ...string) {
	t.Helper()
	if missing := firstMissing(text, words); missing != "" {
		t.Fatalf("%q is missing, or out of order, in\n%s", missing, text)
	}
}

// firstMissing returns the first of the words that the text lacks after the previous
// word, or "" if the text has all of them in this order.
func firstMissing(text string, words []string) string {
	for _, word := range words {
		_, rest, found := strings.Cut(text, word)
		if !found {
			return word
		}
		text = rest
	}
	return ""
}
