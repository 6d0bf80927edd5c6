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
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/config"

	"example.com/sample-controller/test/fixture"
)

func parseTestOptions(arguments string) (*Options, error) {
	return parseOptions(newTestProgram(nil), strings.Fields(arguments), nil)
}

const leaderElect = "--leader-elect --leader-elect-resource-namespace=here "

func TestParseOptions(t *testing.T) {
	electionDefaults := config.LeaderElectionConfiguration{
		LeaderElect:       true,
		LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
		ResourceLock:      "leases",
		ResourceName:      "sample-controller",
		ResourceNamespace: "here",
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
	hosts := func(o *Options) any { return strings.Join(o.webhook.hosts, " ") }
	lifetime := func(o *Options) any { return o.webhook.lifetime }
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
		{"leader election has the defaults of Kubernetes' own components", leaderElect,
			func(o *Options) any { return o.process.leaderElection }, electionDefaults},
		{"without leader election its flags are not checked", "--leader-elect-retry-period=0",
			func(o *Options) any { return o.process.leaderElection.LeaderElect }, false},
		{"all controllers are enabled", "", controllers, []string{"*"}},
		{"a list replaces the default", "--controllers=foo,other", controllers, []string{"foo", "other"}},
		{"further lists are added", "--controllers=foo --controllers=*,-other", controllers, []string{"foo", "*", "-other"}},
		{"* enables a controller and does not name it", "--controllers=*", fooIs, []bool{true, false}},
		{"a controller may be named beside *", "--controllers=*,foo", fooIs, []bool{true, true}},
		{"the first entry of a controller decides", "--controllers=foo,-foo", fooIs, []bool{true, true}},
		{"the flag overrides the variable", "--namespace=b,a -namespace c", namespaces, []string{"b", "a", "c"}},
		{"without one the variable counts", "", namespaces, []string{"d", "e"}},
		{"klog's own flags are known", "-logtostderr=true -stderrthreshold=2",
			func(o *Options) any { return o.klogFlags }, []string{"logtostderr", "stderrthreshold"}},

		{"0 stands for no webhooks", "--webhook-bind-address=0", func(o *Options) any { return o.webhook.address }, ""},
		{"the webhooks have no name outside a Pod", "", hosts, ""},
		{"the webhooks have the name of their Service", "--leader-elect-resource-namespace=ns", hosts, "sample-controller-webhook.ns.svc"},
		{"the webhooks have the names that are given", webhookInNamespace + "--webhook-hosts=a.example.com,127.0.0.1,::1",
			hosts, "a.example.com 127.0.0.1 ::1"},
		{"a certificate from files needs no namespace", "--webhook-bind-address=:1 --webhook-tls-cert-file=a --webhook-tls-private-key-file=b",
			lifetime, 90 * 24 * time.Hour},
		{"the shortest lifetime of a certificate is 12 s", webhookInNamespace + "--webhook-certificate-lifetime=12s", lifetime, 12 * time.Second},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			t.Setenv("WATCH_NAMESPACE", "d,e")
			got, err := parseTestOptions(test.arguments)
			if err != nil {
				t.Fatal(err)
			}
			fixture.Differ(t, test.arguments, test.want, test.get(got))
		})
	}
}

const webhookInNamespace = "--webhook-bind-address=:1 --leader-elect-resource-namespace=ns "

func TestFlagsOfTheProgram(t *testing.T) {
	program, size := newTestProgram(nil), 0
	program.Controllers[0].AddFlags = func(flags *flag.FlagSet) { flags.IntVar(&size, "first-size", 1, "") }
	if _, err := parseOptions(program, []string{"--first-size=2"}, nil); err != nil || size != 2 {
		t.Errorf("the size of a controller is %d, error %v", size, err)
	}
	var output bytes.Buffer
	if _, err := parseOptions(program, []string{"-help"}, &output); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help is the mistake %v", err)
	}
	if usage := output.String(); !strings.Contains(usage, "-first-size") || strings.Contains(usage, "panic") {
		t.Errorf("the usage has no flag of a controller, or tells of a panic:\n%s", usage)
	}
	program.Webhooks = nil
	_, err := parseOptions(program, []string{"--webhook-bind-address=:1"}, nil)
	checkError(t, "a program without webhooks", err, "flag provided but not defined")
	if _, err := parseOptions(program, nil, nil); err != nil {
		t.Error(err)
	}
}

// TestMistakes: the error names the flag, what is wrong, and what to do.
func TestMistakes(t *testing.T) {
	for _, test := range [][2]string{
		{"--controllers=bar", `--controllers: "bar" is not in the list of known controllers`},
		{"--controllers=", `--controllers: "" is not in the list of known controllers`},
		{"--controllers=-foo", `--controllers: "-foo" enables no controller; give '*' for all`},
		{"--workers=0", "--workers: must be at least 1, got 0"},
		{"--kube-api-qps=0", "--kube-api-qps: must be positive, or -1 for no limit, got 0"},
		{"--kube-api-qps=NaN", "--kube-api-qps: must be positive"},
		{"--kube-api-burst=0", "--kube-api-burst: must be at least 1, got 0"},
		{"--workers=0 --kube-api-burst=0", "--kube-api-burst: must be at least 1, got 0\n--workers: "},
		{"--resync-period=1ms", "--resync-period: must be 0 for never, or at least 1s, got 1ms"},
		{"--shutdown-grace-period=-1s", "--shutdown-grace-period: must not be negative"},
		{"--namespace=No_Good", `--namespace: "No_Good" is not the name of a namespace`},
		{"--namespace=", `--namespace: "" is not the name of a namespace`},
		{"--namespace=a,b,a", `--namespace: "a" is given twice; give each namespace once`},
		{"", `WATCH_NAMESPACE: " b" is not the name of a namespace`},
		{"--master=localhost", `--master: "localhost" is not a URL`},
		{"--logging-format=xml", `logging flags (--logging-format, --v, --vmodule): format: Invalid value: "xml"`},
		{"--logging-format=json -log_dir=x", "--log_dir: works only with --logging-format=text"},
		{"stray", `unexpected argument "stray"`},

		{"--leader-elect", `--leader-elect-resource-namespace: "" is not the name of a namespace; ` +
			"it must be given where the program does not run in a Pod"},
		{leaderElect + "--leader-elect-lease-duration=10s",
			"--leader-elect-lease-duration: must be more than --leader-elect-renew-deadline (10s), got 10s"},
		{leaderElect + "--leader-elect-lease-duration=15.5s", "--leader-elect-lease-duration: must be in whole seconds"},
		{leaderElect + "--leader-elect-lease-duration=2147483648s", "--leader-elect-lease-duration: must be at most 596523h"},
		{leaderElect + "--leader-elect-renew-deadline=2.4s",
			"--leader-elect-renew-deadline: must be more than 1.2 times --leader-elect-retry-period (2s), got 2.4s"},
		{leaderElect + "--leader-elect-retry-period=0", "--leader-elect-retry-period: must be positive, got 0s"},
		{leaderElect + "--leader-elect-resource-lock=endpoints", `--leader-elect-resource-lock: must be "leases"`},
		{leaderElect + "--leader-elect-resource-name=No_Good", `--leader-elect-resource-name: "No_Good" is not the name`},
		{"--leader-elect --leader-elect-resource-namespace=No_Good",
			`--leader-elect-resource-namespace: "No_Good" is not the name of a namespace`},

		{"--health-probe-bind-address=8081", `--health-probe-bind-address: "8081" is not an address; give HOST:PORT or :PORT`},
		{"--metrics-bind-address=8080", `--metrics-bind-address: "8080" is not an address`},
		{"--tls-cert-file=a --metrics-bind-address=:80", "--tls-cert-file: goes together with --tls-private-key-file"},
		{"--tls-cert-file=a --tls-private-key-file=b", "--tls-cert-file: is for metrics with TLS"},
		{"--tls-cert-file=a --tls-private-key-file=b --metrics-bind-address=:80 --metrics-secure=false",
			"--tls-cert-file: is for metrics with TLS"},
		{"--profiling", "--profiling: is served beside the metrics; give --metrics-bind-address"},
		{"--profiling --metrics-bind-address=:80 --metrics-secure=false",
			"--profiling: shows the memory of the process; do not give --metrics-secure=false"},

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
	} {
		t.Run(test[0], func(t *testing.T) {
			t.Setenv("WATCH_NAMESPACE", "a, b")
			_, err := parseTestOptions(test[0])
			checkError(t, "the arguments", err, test[1])
		})
	}
}
