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

package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/fixture"
)

// TestRunExitCodes runs the test binary again as the program: Run configures the whole process.
func TestRunExitCodes(t *testing.T) {
	const variable = "TEST_ARGUMENTS"
	if arguments := os.Getenv(variable); arguments != "" {
		os.Exit(Run(newTestProgram(&testEnv{}), []string{arguments}))
	}
	for arguments, want := range map[string]int{"-help": 0, "-version": 0, "--workers=0": 2, "--master=http://127.0.0.1:1": 1} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunExitCodes$")
		cmd.Env = append(os.Environ(), variable+"="+arguments)
		output, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want || strings.Contains(string(output), "$Format") {
			t.Errorf("%s: exit code %d, want %d: %v\n%s", arguments, got, want, err, output)
		}
	}
}

// works answers as the API server does that has one Foo. It refuses all writes with a conflict, which
// no client retries.
func works(w http.ResponseWriter, r *http.Request) {
	path, group, query := r.URL.Path, "/apis/"+fooResource.GroupVersion().String(), r.URL.Query()
	list := metav1.ListMeta{ResourceVersion: "1"}
	switch {
	case r.Method != http.MethodGet:
		w.WriteHeader(http.StatusConflict)
	case path == group:
		answer(w, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "foos"}}})
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
	case query.Get("watch") != "":
		<-r.Context().Done()
	case path == group+"/foos":
		answer(w, v1alpha1.FooList{
			TypeMeta: metav1.TypeMeta{APIVersion: fooResource.GroupVersion().String(), Kind: "FooList"}, ListMeta: list,
			Items: []v1alpha1.Foo{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "foo"}}},
		})
	case query.Has("limit"):
		answer(w, metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, ListMeta: list})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

// TestRun runs the whole process against a server that answers as the API server does.
func TestRun(t *testing.T) {
	noLease := func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/leases") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		works(w, r)
	}
	for sentence, test := range map[string]struct {
		serve http.HandlerFunc
		// without says that client-go's feature gate AtomicFIFO is off, broken that a controller cannot be built.
		without        bool
		broken         error
		arguments, err string
	}{
		"a controller whose resource is served works until the stop": {works, false, nil, "", ""},
		"without AtomicFIFO it works, and the log tells of it":       {works, true, nil, "", ""},
		"a controller that cannot be built ends the start":           {works, false, errors.New("broken"), "", "building the controller foo: broken"},
		"an API server that does not listen ends the start":          {nil, false, nil, "", "contacting the API server at 127."},
		"an API server, or a proxy, that refuses without a reason ends the start with its code": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, false, nil, "", ": 403 Forbidden: "},
		"without rights on the lease the error has the remedy": {noLease, false, nil, leaderElection,
			"; grant the rights with kubectl apply -k artifacts/deploy/base"},
	} {
		t.Run(sentence, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.AtomicFIFO, !test.without)
			server := httptest.NewServer(test.serve)
			defer server.CloseClientConnections()
			if test.serve == nil {
				server.Close()
			}
			e := &testEnv{foo: testController{keys: make(chan string, 1), broken: test.broken}}
			arguments := append(strings.Fields(test.arguments), "--master="+server.URL)
			options, err := parseOptions(newTestProgram(e), arguments, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			ctx, log := newTestLog(t)
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, options, metrics.NewKubeRegistry()) }()
			if test.err == "" {
				fixture.Differ(t, "synced", "a/foo", <-e.foo.keys)
				cancel()
			}
			checkError(t, "run", <-ended, test.err)
			cancel()
			told := log.logged(ktesting.LogInfo, "remove the environment variable, or set it to true")
			if (len(told) == 1) != test.without {
				t.Errorf("without the feature gate AtomicFIFO %t the log has %q", test.without, told)
			}
		})
	}
}

const leaderElection = "--leader-elect --leader-elect-resource-namespace=system"

// TestMemoryLimit sets the limit of the test's own process, and sets it back.
func TestMemoryLimit(t *testing.T) {
	manifest, err := os.ReadFile("../../artifacts/deploy/controller/deployment.yaml")
	limit := memoryLimitVariable + `\s+valueFrom:\s+resourceFieldRef:(?:\s+containerName: .*\n)?\s+resource: limits.memory`
	if err != nil || !regexp.MustCompile(limit).Match(manifest) {
		t.Errorf("the manifest does not pass the limit of the container, error %v", err)
	}
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for _, test := range []struct {
		sentence, goMemLimit, container string
		want                            int64
		err                             string
	}{
		{"outside a container Go keeps its default", "", "", before, ""},
		{"in a container Go may use 90 % of its memory", "", "100000000000", 90_000_000_000, ""},
		{"GOMEMLIMIT takes precedence", "100MiB", "many", before, ""},
		{"what is no number is refused", "", "256Mi", before, `the environment variable MEMORY_LIMIT is "256Mi"; give`},
		{"0 is refused", "", "0", before, `is "0"`},
		{"the memory of the largest machines is no problem", "", "9223372036854775800", 8301034833169298220, ""},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			debug.SetMemoryLimit(before)
			t.Setenv("GOMEMLIMIT", test.goMemLimit)
			t.Setenv(memoryLimitVariable, test.container)
			checkError(t, "the limit", applyMemoryLimit(), test.err)
			fixture.Differ(t, "the limit", test.want, debug.SetMemoryLimit(-1))
		})
	}
}

// TestSignals sends the process real signals: the first ends the context, the second
// exits.
func TestSignals(t *testing.T) {
	exited := make(chan int)
	ctx := signalContext(t.Context(), func(code int) { exited <- code })
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !strings.Contains(cause.Error(), "terminated") {
		t.Errorf("rule 20: the context ended because of %v", cause)
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got, want := <-exited, 128+int(syscall.SIGINT); got != want {
		t.Errorf("rule 20: the second signal exits with %d, want %d", got, want)
	}
}

// TestImportsNoController keeps the process apart from the controllers: main hands them in.
func TestImportsNoController(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil || strings.Contains(string(output), "example.com/sample-controller/pkg/controller/") {
		t.Errorf("pkg/app imports a controller, or error %v:\n%s", err, output)
	}
}
