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
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/config"

	fixtures "example.com/sample-controller/test/fixture"
)

func parseTestOptions(arguments []string) (*Options, error) {
	return parseOptions(newTestProgram(nil), arguments, nil)
}

func TestParseOptions(t *testing.T) {
	t.Run("the defaults are valid", func(t *testing.T) {
		got, err := parseTestOptions(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.qps != -1 || got.workers != 8 || got.resyncPeriod != 0 || len(got.namespaces) > 0 || got.gracePeriod != 20*time.Second {
			t.Errorf("defaults %+v", got)
		}
	})
	t.Run("one dash and two are the same", func(t *testing.T) {
		got, err := parseTestOptions([]string{"-kubeconfig=a", "--master=https://b:1", "-namespace", "c", "--kube-api-qps", "5.5", "-kube-api-burst=7", "--workers=3", "-resync-period=30s", "-v=4", "--version"})
		if err != nil {
			t.Fatal(err)
		}
		if got.kubeconfig != "a" || got.master != "https://b:1" || !slices.Equal(got.namespaces, []string{"c"}) || got.qps != 5.5 || got.burst != 7 ||
			got.workers != 3 || got.resyncPeriod != 30*time.Second || got.logging.Verbosity != 4 || !got.version {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("leader election has the defaults of Kubernetes' own components", func(t *testing.T) {
		got, err := parseTestOptions(strings.Fields(leaderElect))
		if err != nil {
			t.Fatal(err)
		}
		want := config.LeaderElectionConfiguration{
			LeaderElect:       true,
			LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
			RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
			RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
			ResourceLock:      "leases",
			ResourceName:      "sample-controller",
			ResourceNamespace: "here",
		}
		fixtures.Differ(t, "leader election", want, got.process.leaderElection)
	})
	t.Run("a controller has flags of its own", func(t *testing.T) {
		program, size := newTestProgram(nil), 0
		program.Controllers[0].AddFlags = func(flags *flag.FlagSet) { flags.IntVar(&size, "first-size", 1, "") }
		if _, err := parseOptions(program, []string{"--first-size=2"}, nil); err != nil || size != 2 {
			t.Errorf("the size is %d, error %v", size, err)
		}
		if _, err := parseOptions(newTestProgram(nil), []string{"--first-size=2"}, nil); err == nil {
			t.Error("another program accepts the flag")
		}
	})
}

func TestParseLists(t *testing.T) {
	t.Run("--controllers is read as kube-controller-manager reads it", func(t *testing.T) {
		for list, want := range map[string][2]bool{ // whether foo is on, and named
			"*": {true, false}, "foo": {true, true}, "*,foo": {true, true}, "foo,-foo": {true, true},
		} {
			got, err := parseTestOptions([]string{"--controllers=" + list})
			if err != nil {
				t.Fatal(err)
			}
			if on, named := got.enabled("foo"); on != want[0] || named != want[1] {
				t.Errorf("--controllers=%s: on %v, named %v", list, on, named)
			}
		}
	})
	t.Run("a list that is given replaces the default, further ones are appended", func(t *testing.T) {
		for arguments, want := range map[string][]string{
			"": {"*"}, "--controllers=foo,other": {"foo", "other"}, "--controllers=foo --controllers=*,-other": {"foo", "*", "-other"},
		} {
			got, err := parseTestOptions(strings.Fields(arguments))
			if err != nil {
				t.Fatal(err)
			}
			fixtures.Differ(t, "controllers", want, got.controllers)
		}
	})
	t.Run("several namespaces", func(t *testing.T) {
		got, err := parseTestOptions(strings.Fields("--namespace=b,a -namespace c"))
		if err != nil {
			t.Fatal(err)
		}
		fixtures.Differ(t, "namespaces", []string{"b", "a", "c"}, got.namespaces)
	})
	for arguments, want := range map[string][]string{"": {"d", "e"}, "--namespace=a": {"a"}} {
		t.Run("WATCH_NAMESPACE without --namespace, here "+arguments, func(t *testing.T) {
			t.Setenv("WATCH_NAMESPACE", "d,e")
			got, err := parseTestOptions(strings.Fields(arguments))
			if err != nil {
				t.Fatal(err)
			}
			fixtures.Differ(t, "namespaces", want, got.namespaces)
		})
	}
}

func TestParseOtherFlags(t *testing.T) {
	for arguments, wrong := range map[string]func(*Options) bool{
		"--leader-elect-retry-period=0": func(o *Options) bool { return o.process.leaderElection.LeaderElect },
		"--metrics-bind-address=127.0.0.1:0 --profiling --tls-cert-file=a --tls-private-key-file=b": func(o *Options) bool {
			return !o.process.metricsSecure || !o.process.profiling || o.process.certFile != "a" || o.process.keyFile != "b"
		},
		"--health-probe-bind-address=0 --metrics-bind-address=0": func(o *Options) bool { return o.process.healthAddress+o.process.metricsAddress != "" },
		"-logtostderr=true -stderrthreshold=2":                   func(o *Options) bool { return !slices.Equal(o.klogFlags, []string{"logtostderr", "stderrthreshold"}) },
	} {
		if got, err := parseTestOptions(strings.Fields(arguments)); err != nil || wrong(got) {
			t.Errorf("%s: error %v, options %+v", arguments, err, got)
		}
	}
	t.Run("-help prints every flag and is no mistake", func(t *testing.T) {
		var output bytes.Buffer
		if _, err := parseOptions(newTestProgram(nil), []string{"-help"}, &output); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("error %v", err)
		}
		for _, name := range []string{"-kubeconfig", "-master", "-namespace", "-kube-api-qps", "-kube-api-burst", "-controllers", "-workers", "-resync-period", "-shutdown-grace-period", "-version", "-v ", "-logging-format"} {
			if !strings.Contains(output.String(), "\n  "+name) {
				t.Errorf("no %s in the usage", name)
			}
		}
		if strings.Contains(output.String(), "panic") {
			t.Errorf("the usage tells of a panic:\n%s", output.String())
		}
	})
}

// leaderElect turns leader election on, in a namespace.
const leaderElect = "--leader-elect --leader-elect-resource-namespace=here "

const webhookInNamespace = "--webhook-bind-address=:1 --leader-elect-resource-namespace=ns"

// mistakes are arguments, each with a part of the error.
var mistakes = map[string]string{
	"--controllers=bar":           `--controllers: "bar" is not in the list of known controllers`,
	"--controllers=":              `--controllers: "" is not in the list of known controllers`,
	"--controllers=-foo":          `--controllers: "-foo" enables no controller; give '*' for all`,
	"--workers=0":                 "--workers: must be at least 1, got 0",
	"--kube-api-qps=0":            "--kube-api-qps: must be positive, or -1 for no limit, got 0",
	"--kube-api-qps=NaN":          "--kube-api-qps: must be positive",
	"--kube-api-burst=0":          "--kube-api-burst: must be at least 1, got 0",
	"--resync-period=1ms":         "--resync-period: must be 0 for never, or at least 1s, got 1ms",
	"--shutdown-grace-period=-1s": "--shutdown-grace-period: must not be negative",
	"--namespace=No_Good":         `--namespace: "No_Good" is not the name of a namespace`,
	"--namespace=":                `--namespace: "" is not the name of a namespace`,
	"--namespace=a,b,a":           `--namespace: "a" is given twice; give each namespace once`,
	"--master=localhost":          `--master: "localhost" is not a URL`,
	"--logging-format=xml":        "logging flags (--logging-format, --v, --vmodule): format: Invalid value: \"xml\"",
	"--leader-elect":              "--leader-elect-resource-namespace: \"\" is not the name of a namespace; it must be given where the program does not run in a Pod",
	leaderElect + "--leader-elect-lease-duration=10s":                                              "--leader-elect-lease-duration: must be more than --leader-elect-renew-deadline (10s), got 10s",
	leaderElect + "--leader-elect-lease-duration=15.5s":                                            "--leader-elect-lease-duration: must be in whole seconds, got 15.5s",
	leaderElect + "--leader-elect-renew-deadline=2.4s":                                             "--leader-elect-renew-deadline: must be more than 1.2 times --leader-elect-retry-period (2s), got 2.4s",
	leaderElect + "--leader-elect-retry-period=0":                                                  "--leader-elect-retry-period: must be positive, got 0s",
	leaderElect + "--leader-elect-resource-lock=endpoints":                                         `--leader-elect-resource-lock: must be "leases", got "endpoints"`,
	leaderElect + "--leader-elect-resource-name=No_Good":                                           `--leader-elect-resource-name: "No_Good" is not the name of a Lease`,
	leaderElect + "--leader-elect-resource-namespace=No_Good":                                      `--leader-elect-resource-namespace: "No_Good" is not the name of a namespace`,
	"--metrics-bind-address=8080":                                                                  `--metrics-bind-address: "8080" is not an address`,
	"--webhook-bind-address=:1":                                                                    "--webhook-bind-address: needs a namespace for the Secret where the program does not run in a Pod; give --leader-elect-resource-namespace, or --webhook-tls-cert-file",
	"--webhook-bind-address=:1 --webhook-tls-cert-file=a":                                          "--webhook-tls-cert-file: goes together with --webhook-tls-private-key-file; give both or neither",
	"--webhook-tls-cert-file=a --webhook-tls-private-key-file=b":                                   "--webhook-tls-cert-file: is for the webhooks; give --webhook-bind-address",
	"--webhook-client-ca-file=a":                                                                   "--webhook-client-ca-file: is for the webhooks; give --webhook-bind-address",
	"--webhooks-only":                                                                              "--webhooks-only: is for the webhooks; give --webhook-bind-address",
	webhookInNamespace + " --webhooks-only --leader-elect":                                         "--webhooks-only: takes no lease; do not give --leader-elect",
	webhookInNamespace + " --webhooks-only --controllers=foo":                                      "--webhooks-only: runs no controller; do not give --controllers",
	webhookInNamespace + " --webhook-secret=A":                                                     `--webhook-secret: "A" is not a name`,
	webhookInNamespace + " --webhook-configuration=":                                               `--webhook-configuration: "" is not a name`,
	webhookInNamespace + " --webhook-hosts=a_b":                                                    `--webhook-hosts: "a_b" is neither an IP address nor a DNS name`,
	webhookInNamespace + " --webhook-certificate-lifetime=11s":                                     "--webhook-certificate-lifetime: must be at least 12s, got 11s",
	"--tls-cert-file=a --metrics-bind-address=:80":                                                 "--tls-cert-file: goes together with --tls-private-key-file",
	"--tls-cert-file=a --tls-private-key-file=b":                                                   "--tls-cert-file: is for metrics with TLS",
	"--tls-cert-file=a --tls-private-key-file=b --metrics-bind-address=:80 --metrics-secure=false": "--tls-cert-file: is for metrics with TLS",
	"--profiling": "--profiling: is served beside the metrics",
	"--profiling --metrics-bind-address=:80 --metrics-secure=false": "--profiling: shows the memory of the process; do not give --metrics-secure=false",
	"stray":                            `unexpected argument "stray"`,
	"--logging-format=json -log_dir=x": "--log_dir: works only with --logging-format=text",
}

func TestParseOptionsNamesTheMistake(t *testing.T) {
	for arguments, want := range mistakes {
		t.Run(arguments, func(t *testing.T) {
			if _, err := parseTestOptions(strings.Fields(arguments)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q in it", err, want)
			}
		})
	}
	t.Run("WATCH_NAMESPACE", func(t *testing.T) {
		t.Setenv("WATCH_NAMESPACE", "a, b")
		if _, err := parseTestOptions(nil); err == nil || !strings.Contains(err.Error(), `WATCH_NAMESPACE: " b" is not the name of a namespace`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("one error names all mistakes", func(t *testing.T) {
		_, err := parseTestOptions([]string{"--workers=0", "--kube-api-burst=0"})
		if err == nil || !strings.Contains(err.Error(), "--workers") || !strings.Contains(err.Error(), "--kube-api-burst") {
			t.Errorf("error %v", err)
		}
	})
}

func TestVersionString(t *testing.T) {
	got := versionString()
	if !strings.HasPrefix(got, "sample-controller ") || strings.Contains(got, "$Format") {
		t.Errorf("version %q", got)
	}
}
