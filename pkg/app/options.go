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
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/config"
	configoptions "k8s.io/component-base/config/options"
	configv1alpha1 "k8s.io/component-base/config/v1alpha1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	// Registers --logging-format=json.
	_ "k8s.io/component-base/logs/json/register"

	"example.com/sample-controller/pkg/client"
)

const (
	// minResync keeps a mistaken unit (1ms for 1m) from loading the API server.
	minResync = time.Second
	// watchNamespace is the variable that the manifests of operator-sdk set.
	watchNamespace = "WATCH_NAMESPACE"
)

// Options are the settings that the command line gives. Use NewOptions.
type Options struct {
	program *Program

	kubeconfig string
	master     string
	// namespaces are those to work in, none for all. namespacesFrom is the flag or the variable
	// that gave them.
	namespaces     []string
	namespacesFrom string
	qps            float64
	burst          int
	controllers    []string
	workers        int
	resyncPeriod   time.Duration
	gracePeriod    time.Duration
	version        bool
	logging        *logsapi.LoggingConfiguration
	process        processOptions
	webhook        webhookOptions // +drop:webhooks
	// klogFlags are klog's own flags that were given, such as -log_file. They
	// work only with klog's own backend.
	klogFlags []string
}

// NewOptions returns the defaults for the program.
func NewOptions(program *Program) *Options {
	// Leader election has the defaults of Kubernetes' own components.
	var recommended configv1alpha1.LeaderElectionConfiguration
	configv1alpha1.RecommendedDefaultLeaderElectionConfiguration(&recommended)
	return &Options{
		program: program, controllers: []string{"*"}, logging: logsapi.NewLoggingConfiguration(),
		process: processOptions{leaderElection: config.LeaderElectionConfiguration{
			LeaseDuration: recommended.LeaseDuration,
			RenewDeadline: recommended.RenewDeadline,
			RetryPeriod:   recommended.RetryPeriod,
			ResourceLock:  resourcelock.LeasesResourceLock,
			ResourceName:  name,
		}},
	}
}

// parseOptions returns the options that the arguments ask for, checked. It prints
// the usage to output and returns flag.ErrHelp if the arguments ask for help.
func parseOptions(program *Program, arguments []string, output io.Writer) (*Options, error) {
	o := NewOptions(program)
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	// The usage is printed for -help only: after a mistake it would bury the message.
	flags.SetOutput(io.Discard)
	klogFlags := o.AddFlags(flags)

	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(output)
			fmt.Fprintf(output, "%s %s\n\nFlags (-flag and --flag are the same):\n", name, program.Description)
			flags.PrintDefaults()
		}
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: only flags are accepted", flags.Arg(0))
	}
	flags.Visit(func(given *flag.Flag) {
		if klogFlags.Has(given.Name) {
			o.klogFlags = append(o.klogFlags, given.Name)
		}
	})
	o.namespacesFrom = "--namespace"
	if list := os.Getenv(watchNamespace); list != "" && o.namespaces == nil {
		o.namespaces, o.namespacesFrom = []string{list}, watchNamespace
	}
	for _, list := range []*[]string{
		&o.namespaces, &o.controllers,
		&o.webhook.hosts, // +drop:webhooks
	} {
		if *list != nil {
			*list = strings.Split(strings.Join(*list, ","), ",")
		}
	}
	if election := &o.process.leaderElection; election.ResourceNamespace == "" {
		// Outside a Pod there is no such file, and the namespace stays empty.
		namespace, _ := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		election.ResourceNamespace = strings.TrimSpace(string(namespace))
	}
	// +drop:webhooks
	if namespace := o.process.leaderElection.ResourceNamespace; o.webhook.hosts == nil && namespace != "" {
		o.webhook.hosts = []string{webhookName + "." + namespace + ".svc"}
	}
	// +drop:end
	for _, address := range []*string{
		&o.process.healthAddress, &o.process.metricsAddress,
		&o.webhook.address, // +drop:webhooks
	} {
		// Both stand for no port, "0" in controller-runtime.
		if *address == "0" {
			*address = ""
		}
	}
	return o, o.validate()
}

// AddFlags declares all flags and returns the names of those that are klog's own.
func (o *Options) AddFlags(flags *flag.FlagSet) (klogFlags sets.Set[string]) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig. Without it: KUBECONFIG, else the Pod's service account, else $HOME/.kube/config.")
	flags.StringVar(&o.master, "master", "", "Address of the API server, as a URL. Overrides the kubeconfig's.")
	flags.Var(cliflag.NewStringSlice(&o.namespaces), "namespace", "A namespace to work in, or a list of several; it may be given more than once. Without it: those of the variable "+watchNamespace+", else all.")
	flags.Float64Var(&o.qps, "kube-api-qps", client.Unlimited, "Maximum QPS (requests per second) to the API server, for built-in and for custom resources each; -1 disables client-side rate limiting.")
	flags.IntVar(&o.burst, "kube-api-burst", 100, "Burst of requests above --kube-api-qps.")
	flags.Var(cliflag.NewStringSlice(&o.controllers), "controllers", fmt.Sprintf("A list of controllers to enable. '*', the default, enables all controllers whose CustomResourceDefinition is installed, "+
		"now or later, 'foo' enables the controller named 'foo', '-foo' disables the controller named 'foo'.\nAll controllers: %s", strings.Join(o.program.names(), ", ")))
	flags.IntVar(&o.workers, "workers", 8, "Number of objects that each controller syncs at the same time.")
	flags.DurationVar(&o.resyncPeriod, "resync-period", 0, "How often every object is looked at again although nothing changed; 0 for never.")
	flags.DurationVar(&o.gracePeriod, "shutdown-grace-period", 20*time.Second, "How long syncs in progress may still take after SIGINT or SIGTERM.")
	flags.BoolVar(&o.version, "version", false, "Print the version and exit.")
	o.process.addFlags(flags)
	o.webhook.addFlags(flags) // +drop:webhooks
	for _, descriptor := range o.program.Controllers {
		if descriptor.AddFlags != nil {
			descriptor.AddFlags(flags)
		}
	}
	logsapi.AddGoFlags(o.logging, flags)

	klogFlags = sets.New[string]()
	all := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(all)
	all.VisitAll(func(f *flag.Flag) {
		if flags.Lookup(f.Name) == nil {
			flags.Var(f.Value, f.Name, f.Usage)
			klogFlags.Insert(f.Name)
		}
	})
	return klogFlags
}

// refuseFunc reports the flag, with its dashes, and the remedy if the value is wrong.
type refuseFunc func(wrong bool, flag, format string, args ...any)

// name refuses the value of a flag in which a function of the package validation finds faults.
func (refuse refuseFunc) name(flag, value, is string, faults []string) {
	refuse(len(faults) > 0, flag, "%q %s: %s", value, is, strings.Join(faults, "; "))
}

// address refuses what is not an address to listen on. It accepts "", which stands for no port.
func (refuse refuseFunc) address(flag, address string) {
	_, port, err := net.SplitHostPort(address)
	_, portErr := strconv.ParseUint(port, 10, 16)
	refuse(address != "" && (err != nil || portErr != nil), flag, "%q is not an address; give HOST:PORT or :PORT, or 0 for none", address)
}

// pair refuses one file of a certificate and its key without the other one.
func (refuse refuseFunc) pair(certFlag, certFile, keyFlag, keyFile string) {
	refuse((certFile == "") != (keyFile == ""), certFlag, "goes together with %s; give both or neither", keyFlag)
}

// validate returns all mistakes, each with the flag's name and the remedy.
func (o *Options) validate() error {
	var problems []error
	refuse := refuseFunc(func(wrong bool, flag, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf("%s: %s", flag, fmt.Sprintf(format, args...)))
		}
	})
	address, err := url.Parse(o.master)
	refuse(o.master != "" && (err != nil || address.Host == ""), "--master", "%q is not a URL; give one such as https://127.0.0.1:6443", o.master)
	for i, namespace := range o.namespaces {
		refuse.name(o.namespacesFrom, namespace, "is not the name of a namespace", validation.IsDNS1123Label(namespace))
		refuse(slices.Contains(o.namespaces[:i], namespace), o.namespacesFrom, "%q is given twice; give each namespace once", namespace)
	}
	refuse(o.qps != client.Unlimited && !(o.qps > 0), "--kube-api-qps", "must be positive, or -1 for no limit, got %v", o.qps)
	refuse(o.burst < 1, "--kube-api-burst", "must be at least 1, got %d", o.burst)
	names := o.program.names()
	for _, entry := range o.controllers {
		name := strings.TrimPrefix(entry, "-")
		refuse(entry != "*" && !slices.Contains(names, name), "--controllers", "%q is not in the list of known controllers (%s)", name, strings.Join(names, ", "))
	}
	enablesOne := slices.ContainsFunc(names, func(name string) bool { on, _ := o.enabled(name); return on })
	refuse(!enablesOne, "--controllers", "%q enables no controller; give '*' for all", strings.Join(o.controllers, ","))
	// +drop:webhooks
	refuse(o.webhook.only && o.process.leaderElection.LeaderElect, "--webhooks-only", "takes no lease; do not give --leader-elect")
	refuse(o.webhook.only && !slices.Equal(o.controllers, []string{"*"}), "--webhooks-only", "runs no controller; do not give --controllers")
	// +drop:end
	refuse(o.workers < 1, "--workers", "must be at least 1, got %d", o.workers)
	refuse(o.resyncPeriod != 0 && o.resyncPeriod < minResync, "--resync-period", "must be 0 for never, or at least %v, got %v", minResync, o.resyncPeriod)
	refuse(o.gracePeriod < 0, "--shutdown-grace-period", "must not be negative, got %v", o.gracePeriod)
	o.process.validate(refuse)
	o.webhook.validate(refuse, o.process.leaderElection.ResourceNamespace) // +drop:webhooks
	if o.logging.Format != logsapi.DefaultLogFormat {
		for _, flag := range o.klogFlags {
			refuse(true, "--"+flag, "works only with --logging-format=%s", logsapi.DefaultLogFormat)
		}
	}
	for _, problem := range logsapi.Validate(o.logging, nil, nil) {
		problems = append(problems, fmt.Errorf("logging flags (--logging-format, --v, --vmodule): %w", problem))
	}
	return errors.Join(problems...)
}

// enabled reports whether the controller of that name is on, and whether the user named it. As in
// kube-controller-manager, the first entry about the controller decides, and '*' only where there is none.
func (o *Options) enabled(name string) (on, named bool) {
	// +drop:webhooks
	if o.webhook.only {
		// Its caches, not its workers.
		return name == o.program.Webhooks.Controller, false
	}
	// +drop:end
	for _, entry := range o.controllers {
		switch entry {
		case name:
			return true, true
		case "-" + name:
			return false, true
		}
	}
	return slices.Contains(o.controllers, "*"), false
}

// versionString returns version, commit and Go version of the program, from the
// linker flags of `make build` or else from what `go build` recorded.
func versionString() string {
	info := version.Get()
	if build, ok := debug.ReadBuildInfo(); ok && strings.Contains(info.GitVersion, "$Format") {
		info.GitVersion, info.GitCommit = build.Main.Version, "unknown"
		for _, setting := range build.Settings {
			if setting.Key == "vcs.revision" {
				info.GitCommit = setting.Value
			}
		}
	}
	return fmt.Sprintf("%s %s (commit %s, %s, %s)", name, info.GitVersion, info.GitCommit, info.GoVersion, info.Platform)
}

// processOptions concern leader election and the ports for health and metrics.
type processOptions struct {
	leaderElection config.LeaderElectionConfiguration

	healthAddress  string
	metricsAddress string
	metricsSecure  bool
	certFile       string
	keyFile        string
	profiling      bool
}

// addFlags declares the flags. Their names are kube-controller-manager's, or kubebuilder's
// where kube-controller-manager has no such flag.
func (o *processOptions) addFlags(flags *flag.FlagSet) {
	election := pflag.NewFlagSet("leader election", pflag.ContinueOnError)
	configoptions.BindLeaderElectionFlags(&o.leaderElection, election)
	election.VisitAll(func(f *pflag.Flag) { flags.Var(f.Value, f.Name, f.Usage) })

	flags.StringVar(&o.healthAddress, "health-probe-bind-address", "", "Address on which /livez and /readyz are served, such as :8081. If it is empty or 0, nothing is served.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "", "Address on which /metrics is served, such as :8443. If it is empty or 0, nothing is served.")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", true, "Serve metrics with TLS, and only to users whom the API server allows get on /metrics. With false: without TLS, to every client.")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "File with the certificate of the metrics, and intermediate ones after it; it may be replaced at any time. Without it the program makes one, which no client can verify.")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "File with the private key of --tls-cert-file.")
	flags.BoolVar(&o.profiling, "profiling", false, "Serve Go's profiles below /debug/pprof/ beside the metrics, which must have TLS then, or an address such as 127.0.0.1:8443.")
}

// validate refuses values that are wrong and flags that lack another one.
func (o *processOptions) validate(refuse refuseFunc) {
	refuse.address("--health-probe-bind-address", o.healthAddress)
	refuse.address("--metrics-bind-address", o.metricsAddress)
	refuse.pair("--tls-cert-file", o.certFile, "--tls-private-key-file", o.keyFile)
	refuse(o.certFile != "" && (o.metricsAddress == "" || !o.metricsSecure), "--tls-cert-file", "is for metrics with TLS; give --metrics-bind-address, and not --metrics-secure=false")
	refuse(o.profiling && o.metricsAddress == "", "--profiling", "is served beside the metrics; give --metrics-bind-address")
	refuse(o.profiling && !o.metricsSecure && o.metricsAddress != "" && !isLoopback(o.metricsAddress), "--profiling",
		"shows the memory of the process; do not give --metrics-secure=false, or bind --metrics-bind-address to this machine alone, such as 127.0.0.1:8443")
	if !o.leaderElection.LeaderElect {
		return
	}
	// The checks of kube-controller-manager and of client-go's elector, with the flags in the messages.
	settings := &o.leaderElection
	lease, renew, retry := settings.LeaseDuration.Duration, settings.RenewDeadline.Duration, settings.RetryPeriod.Duration
	refuse(retry <= 0, "--leader-elect-retry-period", "must be positive, got %v", retry)
	// The elector adds jitter to the period.
	refuse(renew <= time.Duration(leaderelection.JitterFactor*float64(retry)), "--leader-elect-renew-deadline",
		"must be more than %v times --leader-elect-retry-period (%v), got %v", leaderelection.JitterFactor, retry, renew)
	refuse(lease <= renew, "--leader-elect-lease-duration", "must be more than --leader-elect-renew-deadline (%v), got %v", renew, lease)
	// The Lease holds whole seconds, in 32 bits.
	refuse(lease%time.Second != 0, "--leader-elect-lease-duration", "must be in whole seconds, got %v", lease)
	refuse(lease > math.MaxInt32*time.Second, "--leader-elect-lease-duration", "must be at most %v, got %v", math.MaxInt32*time.Second, lease)
	refuse(settings.ResourceLock != resourcelock.LeasesResourceLock, "--leader-elect-resource-lock", "must be %q, got %q", resourcelock.LeasesResourceLock, settings.ResourceLock)
	refuse.name("--leader-elect-resource-name", settings.ResourceName, "is not the name of a Lease",
		validation.IsDNS1123Subdomain(settings.ResourceName))
	refuse.name("--leader-elect-resource-namespace", settings.ResourceNamespace,
		"is not the name of a namespace; it must be given where the program does not run in a Pod",
		validation.IsDNS1123Label(settings.ResourceNamespace))
}

// isLoopback reports whether only processes of this machine, or Pod, can connect to the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}
