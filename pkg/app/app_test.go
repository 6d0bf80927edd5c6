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
	"time"

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
	for arguments, want := range map[string]struct {
		code int
		says string
	}{
		"-help": {0, "-first-size"}, "-version": {0, name + " "}, "--workers=0": {2, "see 'sample-controller -help'"},
		"--master=http://127.0.0.1:1": {1, "The controller stopped"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunExitCodes$")
		cmd.Env = append(os.Environ(), variable+"="+arguments)
		output, err := cmd.CombinedOutput()
		got, says := cmd.ProcessState.ExitCode(), string(output)
		if got != want.code || !strings.Contains(says, want.says) || strings.Contains(says, "$Format") || strings.Contains(says, "panic") {
			t.Errorf("%s: exit code %d, want %d: %v\n%s", arguments, got, want.code, err, says)
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
		"one that never answers ends it after a while": {
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false, nil, "", "contacting the API server at 127."},
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
			options := must(parseOptions(newTestProgram(e), arguments, io.Discard))
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

func parseTestOptions(arguments string) (*Options, error) {
	return parseOptions(newTestProgram(nil), strings.Fields(arguments), nil)
}

func TestParseOptions(t *testing.T) {
	election := func(o *Options) any {
		e := o.process.leaderElection
		return []any{e.LeaderElect, e.LeaseDuration.Duration, e.RenewDeadline.Duration, e.RetryPeriod.Duration, e.ResourceLock, e.ResourceName, e.ResourceNamespace}
	}
	numbers := func(o *Options) any {
		return []any{o.qps, o.burst, o.workers, o.resyncPeriod, o.gracePeriod, o.version, int(o.logging.Verbosity)}
	}
	addresses := func(o *Options) any {
		return []string{o.kubeconfig, o.master, o.process.healthAddress, o.process.metricsAddress}
	}
	metricsFlags := func(o *Options) any {
		return []any{o.process.metricsSecure, o.process.profiling, o.process.certFile, o.process.keyFile}
	}
	controllers := func(o *Options) any { return o.controllers }
	namespaces := func(o *Options) any { return o.namespaces }
	fooIs := func(o *Options) any { on, named := o.enabled("foo"); return []bool{on, named} }
	// +drop:webhooks
	hosts := func(o *Options) any { return strings.Join(o.webhook.hosts, " ") }
	lifetime := func(o *Options) any { return o.webhook.lifetime }
	// +drop:end
	for _, test := range []struct {
		sentence, arguments string
		// get returns of the options what is wanted.
		get  func(*Options) any
		want any
	}{
		{"the numbers have defaults", "", numbers, []any{-1., 100, 8, time.Duration(0), 20 * time.Second, false, 0}},
		{"one dash and two are the same", "--kube-api-qps 5.5 -kube-api-burst=7 --workers=3 -resync-period=30s -shutdown-grace-period=1s -version -v=4",
			numbers, []any{5.5, 7, 3, 30 * time.Second, time.Second, true, 4}},
		{"addresses are given", "-kubeconfig=a --master=https://b:1 --health-probe-bind-address=:1 --metrics-bind-address=:2",
			addresses, []string{"a", "https://b:1", ":1", ":2"}},
		{"0 stands for no port, as in controller-runtime", "--health-probe-bind-address=0 --metrics-bind-address=0",
			addresses, []string{"", "", "", ""}},
		{"metrics have TLS", "", metricsFlags, []any{true, false, "", ""}},
		{"profiles may be served without TLS to this machine", "--metrics-bind-address=[::1]:0 --profiling --metrics-secure=false",
			metricsFlags, []any{false, true, "", ""}},
		{"metrics may have a certificate", "--metrics-bind-address=:0 --tls-cert-file=a --tls-private-key-file=b",
			metricsFlags, []any{true, false, "a", "b"}},
		{"leader election has the defaults of Kubernetes' own components", leaderElection,
			election, []any{true, 15 * time.Second, 10 * time.Second, 2 * time.Second, "leases", "sample-controller", "system"}},
		{"without leader election its flags are not checked", "--leader-elect-retry-period=0",
			func(o *Options) any { return o.process.leaderElection.LeaderElect }, false},
		{"all controllers are enabled", "", controllers, []string{"*"}},
		{"a list replaces the default", "--controllers=foo,other", controllers, []string{"foo", "other"}},
		{"further lists are added", "--controllers=foo --controllers=*,-other", controllers, []string{"foo", "*", "-other"}},
		{"* enables a controller and does not name it", "--controllers=*", fooIs, []bool{true, false}},
		{"the first entry of a controller decides", "--controllers=foo,-foo", fooIs, []bool{true, true}},
		{"the flag overrides the variable", "--namespace=b,a -namespace c", namespaces, []string{"b", "a", "c"}},
		{"without one the variable counts", "", namespaces, []string{"d", "e"}},
		{"klog's own flags are known", "-logtostderr=true -stderrthreshold=2",
			func(o *Options) any { return o.klogFlags }, []string{"logtostderr", "stderrthreshold"}},
		// +drop:webhooks
		{"0 stands for no webhooks", "--webhook-bind-address=0", func(o *Options) any { return o.webhook.address }, ""},
		{"the webhooks have no name outside a Pod", "", hosts, ""},
		{"the webhooks have the name of their Service", "--leader-elect-resource-namespace=ns", hosts, "sample-controller-webhook.ns.svc"},
		{"the webhooks have the names that are given", webhookInNamespace + "--webhook-hosts=a.example.com,127.0.0.1,::1",
			hosts, "a.example.com 127.0.0.1 ::1"},
		{"a certificate from files needs no namespace", "--webhook-bind-address=:1 --webhook-tls-cert-file=a --webhook-tls-private-key-file=b",
			lifetime, 90 * 24 * time.Hour},
		{"the shortest lifetime of a certificate is 12 s", webhookInNamespace + "--webhook-certificate-lifetime=12s", lifetime, 12 * time.Second},
		// +drop:end
	} {
		t.Run(test.sentence, func(t *testing.T) {
			t.Setenv("WATCH_NAMESPACE", "d,e")
			fixture.Differ(t, test.arguments, test.want, test.get(must(parseTestOptions(test.arguments))))
		})
	}
}

const webhookInNamespace = "--webhook-bind-address=:1 --leader-elect-resource-namespace=ns " // +drop:webhooks

// TestMistakes: the error names the flag, what is wrong, and what to do.
func TestMistakes(t *testing.T) {
	for _, test := range [][2]string{
		{"--controllers=bar", `--controllers: "bar" is not in the list of known controllers`},
		{"--controllers=-foo", `--controllers: "-foo" enables no controller; give '*' for all`},
		{"--kube-api-qps=0", "--kube-api-qps: must be positive, or -1 for no limit, got 0"},
		{"--kube-api-qps=NaN", "--kube-api-qps: must be positive"},
		{"--kube-api-burst=0", "--kube-api-burst: must be at least 1, got 0"},
		{"--workers=0 --kube-api-burst=0", "--kube-api-burst: must be at least 1, got 0\n--workers: "},
		{"--resync-period=1ms", "--resync-period: must be 0 for never, or at least 1s, got 1ms"},
		{"--shutdown-grace-period=-1s", "--shutdown-grace-period: must not be negative"},
		{"--namespace=No_Good", `--namespace: "No_Good" is not the name of a namespace`},
		{"--namespace=a,b,a", `--namespace: "a" is given twice; give each namespace once`},
		{"", `WATCH_NAMESPACE: " b" is not the name of a namespace`},
		{"--master=localhost", `--master: "localhost" is not a URL`},
		{"--logging-format=xml", `logging flags (--logging-format, --v, --vmodule): format: Invalid value: "xml"`},
		{"--logging-format=json -log_dir=x", "--log_dir: works only with --logging-format=text"},
		{"stray", `unexpected argument "stray"`},

		{"--leader-elect", `--leader-elect-resource-namespace: "" is not the name of a namespace; ` +
			"it must be given where the program does not run in a Pod"},
		{leaderElection + " --leader-elect-lease-duration=10s",
			"--leader-elect-lease-duration: must be more than --leader-elect-renew-deadline (10s), got 10s"},
		{leaderElection + " --leader-elect-lease-duration=15.5s", "--leader-elect-lease-duration: must be in whole seconds"},
		{leaderElection + " --leader-elect-lease-duration=2147483648s", "--leader-elect-lease-duration: must be at most 596523h"},
		{leaderElection + " --leader-elect-renew-deadline=2.4s",
			"--leader-elect-renew-deadline: must be more than 1.2 times --leader-elect-retry-period (2s), got 2.4s"},
		{leaderElection + " --leader-elect-retry-period=0", "--leader-elect-retry-period: must be positive, got 0s"},
		{leaderElection + " --leader-elect-resource-lock=endpoints", `--leader-elect-resource-lock: must be "leases"`},
		{leaderElection + " --leader-elect-resource-name=No_Good", `--leader-elect-resource-name: "No_Good" is not the name`},

		{"--health-probe-bind-address=8081", `--health-probe-bind-address: "8081" is not an address; give HOST:PORT or :PORT`},
		{"--metrics-bind-address=8080", `--metrics-bind-address: "8080" is not an address`},
		{"--tls-cert-file=a --metrics-bind-address=:80", "--tls-cert-file: goes together with --tls-private-key-file"},
		{"--tls-cert-file=a --tls-private-key-file=b", "--tls-cert-file: is for metrics with TLS"},
		{"--tls-cert-file=a --tls-private-key-file=b --metrics-bind-address=:80 --metrics-secure=false",
			"--tls-cert-file: is for metrics with TLS"},
		{"--profiling", "--profiling: is served beside the metrics; give --metrics-bind-address"},
		{"--profiling --metrics-bind-address=:80 --metrics-secure=false",
			"--profiling: shows the memory of the process; do not give --metrics-secure=false"},

		// +drop:webhooks
		{"--webhook-bind-address=9443", `--webhook-bind-address: "9443" is not an address`},
		{"--webhook-bind-address=:1", "--webhook-bind-address: needs a namespace for the Secret where the program does not run in a Pod; " +
			"give --leader-elect-resource-namespace, or --webhook-tls-cert-file"},
		{"--webhook-bind-address=:1 --webhook-tls-cert-file=a",
			"--webhook-tls-cert-file: goes together with --webhook-tls-private-key-file; give both or neither"},
		{"--webhook-tls-cert-file=a --webhook-tls-private-key-file=b",
			"--webhook-tls-cert-file: is for the webhooks; give --webhook-bind-address"},
		{"--webhook-client-ca-file=a", "--webhook-client-ca-file: is for the webhooks; give --webhook-bind-address"},
		{"--webhooks-only", "--webhooks-only: is for the webhooks; give --webhook-bind-address"},
		{webhookInNamespace + "--webhooks-only --leader-elect", "--webhooks-only: takes no lease; do not give --leader-elect"},
		{webhookInNamespace + "--webhooks-only --controllers=foo", "--webhooks-only: runs no controller; do not give --controllers"},
		{webhookInNamespace + "--webhook-secret=A", `--webhook-secret: "A" is not a name`},
		{webhookInNamespace + "--webhook-configuration=", `--webhook-configuration: "" is not a name`},
		{webhookInNamespace + "--webhook-hosts=a_b", `--webhook-hosts: "a_b" is neither an IP address nor a DNS name`},
		{webhookInNamespace + "--webhook-certificate-lifetime=11s", "--webhook-certificate-lifetime: must be at least 12s, got 11s"},
		// +drop:end
	} {
		t.Run(test[0], func(t *testing.T) {
			t.Setenv("WATCH_NAMESPACE", "a, b")
			_, err := parseTestOptions(test[0])
			checkError(t, "the arguments", err, test[1])
		})
	}
}
