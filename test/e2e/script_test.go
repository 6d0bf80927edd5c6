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
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// A script has the commands that users type, and what they see. testscript documents the format, which is that of the
// scripts of cmd/go: a pattern is a regular expression, in which ^ and $ match at lines, and what is not in single
// quotes has its variables expanded. Commands run in the root of the repository, with a kubeconfig that names the
// namespace of the script, $NAMESPACE. $KINDS are the resources of all controllers, $GROUPS matches their API groups,
// $DEPENDENTS are the resources that they create, and $AUDIT is the audit log. A script also knows:
//
//	until PATTERN PROGRAM ARGS...  runs the program until it succeeds and its output matches, or with !, fails and matches
//	start NAME PROGRAM ARGS...     starts a program in the background
//	await NAME TEXTS...            waits until its output has these texts, in this order, and prints it
//	terminate NAME, interrupt NAME ends it by SIGTERM or SIGINT, after which it must succeed, and prints its output
//	set VARIABLE PATTERN           sets a variable to what the group in the pattern matches of what was printed last
//	cleanup PROGRAM ARGS...        runs the program, in the namespace default, when the test has ended

// scriptT runs a script within the test that calls it, which decides what runs in parallel.
type scriptT struct{ *testing.T }

func (scriptT) Parallel() {}

func (t scriptT) Run(_ string, script func(testscript.T)) { script(t) }

func (scriptT) Verbose() bool { return testing.Verbose() }

// script runs the script of that name in testdata/scripts.
func (e *env) script(name string) {
	e.Helper()
	var environment []string
	processes := map[string]*process{"controller": e.controller}
	testscript.RunT(scriptT{e.T}, testscript.Params{
		Files: []string{filepath.Join("testdata", "scripts", name+".txtar")},
		Setup: func(script *testscript.Env) error {
			home := filepath.Join(script.WorkDir, "home")
			script.Cd = shared.root
			script.Vars = append(script.Vars, shared.environment...)
			script.Vars = append(script.Vars, "HOME="+home, "KUBECACHEDIR="+filepath.Join(shared.home, ".kube", "cache"), "NAMESPACE="+e.namespace,
				"KINDS="+strings.Join(shared.crds(), ","), "GROUPS="+shared.groups(), "DEPENDENTS="+strings.Join(shared.dependents(), ","), "AUDIT="+auditFile())
			environment = script.Vars
			return e.writeKubeconfig(filepath.Join(home, ".kube", "config"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"until": func(ts *testscript.TestScript, fails bool, args []string) { e.poll(ts, fails, environment, args) },
			"start": command(func(ts *testscript.TestScript, args []string) {
				processes[args[0]] = start(e.T, ts.Getenv("HOME"), "exec "+quote(args[1:]))
			}),
			"await": command(func(ts *testscript.TestScript, args []string) {
				processes[args[0]].awaitOutput(args[1:]...)
				fmt.Fprint(ts.Stdout(), processes[args[0]].output())
			}),
			"terminate": command(func(ts *testscript.TestScript, args []string) { end(ts, processes[args[0]], syscall.SIGTERM) }),
			"interrupt": command(func(ts *testscript.TestScript, args []string) { end(ts, processes[args[0]], syscall.SIGINT) }),
			"set": command(func(ts *testscript.TestScript, args []string) {
				found := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
				if len(found) != 2 {
					ts.Fatalf("no match for %q", args[1])
				}
				ts.Setenv(args[0], found[1])
			}),
			"cleanup": command(func(_ *testscript.TestScript, args []string) { shOnCleanup(e.T, quote(args)) }),
		},
	})
}

// command returns a command of scripts that cannot be negated.
func command(do func(ts *testscript.TestScript, args []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, isNegated bool, args []string) {
		if isNegated || len(args) == 0 {
			ts.Fatalf("this command takes arguments, and no !")
		}
		do(ts, args)
	}
}

// quote returns the words as a shell reads them.
func quote(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// end ends the process by the signal, and prints its output.
func end(ts *testscript.TestScript, p *process, signal syscall.Signal) {
	p.end(signal)
	fmt.Fprint(ts.Stdout(), p.output())
}

// writeKubeconfig writes a kubeconfig with the env's namespace.
func (e *env) writeKubeconfig(file string) error {
	config, err := clientcmd.LoadFromFile(shared.kubeconfig())
	if err != nil {
		return err
	}
	for _, of := range config.Contexts {
		of.Namespace = e.namespace
	}
	return clientcmd.WriteToFile(*config, file)
}

// poll runs a program until its output matches the pattern, the first of args, and it succeeds, or fails.
func (e *env) poll(ts *testscript.TestScript, fails bool, environment, args []string) {
	e.Helper()
	wanted := regexp.MustCompile("(?m)" + args[0])
	var output []byte
	poll(e.T, strings.Join(args[1:], " "), commandInterval, func(ctx context.Context) (err error) {
		// env finds the program in the PATH of the environment.
		cmd := exec.CommandContext(ctx, "env", args[1:]...)
		cmd.Dir, cmd.Env = shared.root, environment
		if output, err = cmd.CombinedOutput(); (err != nil) != fails || !wanted.Match(output) {
			return fmt.Errorf("it ended with %v, and %q is wanted in\n%s", cmd.ProcessState, args[0], output)
		}
		return nil
	})
	fmt.Fprint(ts.Stdout(), string(output))
}

// startLines are the messages of a start, in this order.
var startLines = []string{
	"Setting up event handlers",
	"Starting Foo controller",
	"Waiting for informer caches to sync",
	"Starting workers",
	"Started workers",
}

// TestWalkthrough1 runs the controller outside of the cluster. The controller works in all
// namespaces, and the test deletes the CRD, so no other test may run in parallel.
func TestWalkthrough1(t *testing.T) {
	envIn(t, metav1.NamespaceDefault).script("walkthrough1")
}

// TestWalkthrough2 runs the commands of walkthrough 2, on two Foos.
func TestWalkthrough2(t *testing.T) {
	e := envIn(t, metav1.NamespaceDefault)
	e.startOutside()
	e.script("walkthrough2_crd")
	e.script("walkthrough2")
	e.controller.stop()
	e.controller.requireNoErrors()
}

// startOutside starts a controller of all namespaces, as walkthrough 2 does.
func (e *env) startOutside() {
	e.Helper()
	shared.installCRD(e.T)
	e.controller = start(e.T, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config")
	e.controller.awaitOutput(startLines...)
}

// TestWalkthrough2Deletion runs the end of walkthrough 2. The garbage collector takes up to
// half a minute to discover a new CRD, so this part runs in parallel with other tests.
func TestWalkthrough2Deletion(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("walkthrough2_deletion")
}

// TestWalkthrough4 runs the commands of walkthrough 4.
func TestWalkthrough4(t *testing.T) {
	e := envIn(t, metav1.NamespaceDefault)
	e.startOutside()
	e.script("walkthrough4")
}

// TestValidation shows which Foos the API server refuses, and the CRD's defaults.
func TestValidation(t *testing.T) {
	t.Parallel()
	newEnv(t).script("validation")
}

// TestPolicy shows what the examples of ValidatingAdmissionPolicies and quotas allow in a namespace with limits, and
// that others have none. The quota controller counts a resource for good in the version that it meets first, even one
// that the API server has ceased to serve, so this test must end before another serves further versions.
func TestPolicy(t *testing.T) {
	newEnv(t).script("policy")
}

// TestUsersPolicy applies the policies for those who write our kinds.
func TestUsersPolicy(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("policy_users")
}

// The scripts have what a simulated cluster would not show of the Foo contract.

func TestContract(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("contract")
}

func TestContractAdoption(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("contract_adoption")
}

// +drop:rename

func TestContractRename(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("contract_rename")
}

// +drop:end
