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
	"sync/atomic"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/fixture"
)

// TestRunExitCodes runs the program with arguments that need no API server.
func TestRunExitCodes(t *testing.T) {
	for arguments, want := range map[string]int{"-help": 0, "-version": 0, "--workers=0": 2, "stray": 2} {
		if got := Run(newTestProgram(nil), []string{arguments}); got != want {
			t.Errorf("%s: exit code %d, want %d", arguments, got, want)
		}
	}
	if got := versionString(); !strings.HasPrefix(got, "sample-controller ") || strings.Contains(got, "$Format") {
		t.Errorf("version %q", got)
	}
}

// works answers as the API server does that has one Foo and no Lease yet. It refuses all writes
// but those of the Lease with a conflict, which no client retries. client-go reports it as
// AlreadyExists after a POST.
func works(w http.ResponseWriter, r *http.Request) {
	path, group, query := r.URL.Path, "/apis/"+fooResource.GroupVersion().String(), r.URL.Query()
	switch {
	case strings.Contains(path, "/leases/") && r.Method != http.MethodGet && r.Method != http.MethodDelete, strings.HasSuffix(path, "/leases"):
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	case r.Method != http.MethodGet:
		answer(w, http.StatusConflict, apierrors.NewConflict(schema.GroupResource{}, path, errors.New("refused")).Status())
	case path == group:
		answer(w, http.StatusOK, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "foos"}}})
	case query.Get("sendInitialEvents") != "":
		answer(w, http.StatusUnprocessableEntity, apierrors.NewInvalid(schema.GroupKind{}, "", nil).Status())
	case query.Get("watch") != "":
		<-r.Context().Done()
	case path == group+"/foos":
		answer(w, http.StatusOK, v1alpha1.FooList{
			TypeMeta: metav1.TypeMeta{APIVersion: fooResource.GroupVersion().String(), Kind: "FooList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []v1alpha1.Foo{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "foo"}}},
		})
	case query.Has("limit"):
		list := metav1.TypeMeta{APIVersion: "v1", Kind: "List"}
		answer(w, http.StatusOK, metav1.List{TypeMeta: list, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []runtime.RawExtension{}})
	default:
		answer(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{}, path).Status())
	}
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// TestRun runs the whole process against a server that answers as the API server does.
func TestRun(t *testing.T) {
	unauthorized := func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusUnauthorized, apierrors.NewUnauthorized("unknown").Status())
	}
	noLease := func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/leases") {
			answer(w, http.StatusForbidden, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("no right")).Status())
			return
		}
		works(w, r)
	}
	for sentence, test := range map[string]struct {
		serve http.HandlerFunc
		// without says that client-go's feature gate AtomicFIFO is off.
		without        bool
		arguments, err string
	}{
		"a controller whose resource is served works until the stop":    {works, false, "", ""},
		"without AtomicFIFO it works, and the log tells of it":          {works, true, "", ""},
		"credentials that the API server does not accept end the start": {unauthorized, false, "", "Unauthorized"},
		"an API server that does not listen ends the start":             {nil, false, "", "contacting the API server at 127.0.0.1:"},
		"without rights on the lease the error has the remedy": {noLease, false, leaderElection,
			"; grant the rights with kubectl apply -k artifacts/deploy/base"},
	} {
		t.Run(sentence, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.AtomicFIFO, !test.without)
			server := httptest.NewServer(test.serve)
			defer server.CloseClientConnections()
			if test.serve == nil {
				server.Close()
			}
			e := &testEnv{foo: testController{keys: make(chan string, 1)}}
			options, err := parseOptions(newTestProgram(e), append(strings.Fields(test.arguments), "--master="+server.URL), io.Discard)
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
			logged := log.logged(ktesting.LogInfo, "KUBE_FEATURE_AtomicFIFO")
			if (len(logged) == 1) != test.without || test.without && !strings.Contains(logged[0], "remove the environment variable, or set it to true") {
				t.Errorf("without the feature gate AtomicFIFO %t the log has %q", test.without, logged)
			}
		})
	}
}

// leaderElection are flags that make the process renew its lease often.
const leaderElection = "--leader-elect --leader-elect-resource-namespace=system --leader-elect-retry-period=100ms"

// TestRunLosesLease: another process takes the lease, while all other requests hang. It runs
// the test binary again as the program: a process that has lost its
// lease cleans nothing up.
func TestRunLosesLease(t *testing.T) {
	const address = "TEST_LOSES_LEASE"
	if url := os.Getenv(address); url != "" {
		e := &testEnv{foo: testController{keys: make(chan string, 1)}}
		os.Exit(Run(newTestProgram(e), append(strings.Fields(leaderElection), "--master="+url)))
	}
	var lost atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isLease := strings.Contains(r.URL.Path, "/leases")
		switch {
		case !lost.Load():
			works(w, r)
			lost.Store(isLease && r.Method == http.MethodPost)
		case isLease && r.Method == http.MethodGet:
			answer(w, http.StatusOK, coordinationv1.Lease{
				TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
				Spec:     coordinationv1.LeaseSpec{HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](15)},
			})
		case isLease:
			answer(w, http.StatusConflict, apierrors.NewConflict(schema.GroupResource{}, "lease", errors.New("changed")).Status())
		default:
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunLosesLease$")
	cmd.Env = append(os.Environ(), address+"="+server.URL)
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(output), `the lease is lost, another process may be the leader: its holder is \"another\"`) {
		t.Errorf("rule 20: %v, want exit code 1 and the reason; output:\n%s", err, output)
	}
}

// TestMemoryLimit sets the limit of the test's own process, and sets it back.
func TestMemoryLimit(t *testing.T) {
	manifest, err := os.ReadFile("../../artifacts/deploy/controller/deployment.yaml")
	if err != nil || !regexp.MustCompile(memoryLimitVariable+`\n\s+valueFrom:\n\s+resourceFieldRef:\n(?:\s+containerName: .*\n)?\s+resource: limits.memory`).Match(manifest) {
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

// TestImportsNoController keeps the process apart from the controllers: main hands them
// in.
func TestImportsNoController(t *testing.T) {
	const module = "example.com/sample-controller"
	output, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for imported := range strings.FieldsSeq(string(output)) {
		if imported == module || strings.HasPrefix(imported, module+"/pkg/controller/") {
			t.Errorf("pkg/app imports %s", imported)
		}
	}
}
