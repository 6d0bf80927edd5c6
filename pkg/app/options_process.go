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
	"flag"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	configoptions "k8s.io/component-base/config/options"
	configv1alpha1 "k8s.io/component-base/config/v1alpha1"
)

// podNamespaceFile holds the namespace of the Pod that the program runs in.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

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

// newProcessOptions returns the defaults. Leader election has those of Kubernetes' own
// components.
func newProcessOptions() processOptions {
	var recommended configv1alpha1.LeaderElectionConfiguration
	configv1alpha1.RecommendedDefaultLeaderElectionConfiguration(&recommended)
	return processOptions{
		leaderElection: config.LeaderElectionConfiguration{
			LeaseDuration: recommended.LeaseDuration,
			RenewDeadline: recommended.RenewDeadline,
			RetryPeriod:   recommended.RetryPeriod,
			ResourceLock:  resourcelock.LeasesResourceLock,
			ResourceName:  name,
		},
		metricsSecure: true,
	}
}

// complete fills in the defaults that depend on where the program runs.
func (o *processOptions) complete() {
	if o.leaderElection.ResourceNamespace == "" {
		o.leaderElection.ResourceNamespace = podNamespace()
	}
	completeAddresses(&o.healthAddress, &o.metricsAddress)
}

// completeAddresses sets addresses of "0" to "": both stand for no port, the first one in
// controller-runtime.
func completeAddresses(addresses ...*string) {
	for _, address := range addresses {
		if *address == "0" {
			*address = ""
		}
	}
}

// podNamespace returns the namespace of the Pod that the program runs in, "" if it
// runs in none.
func podNamespace() string {
	data, err := os.ReadFile(podNamespaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// addFlags declares the flags. Their names are kube-controller-manager's, or kubebuilder's
// where kube-controller-manager has no such flag.
func (o *processOptions) addFlags(flags *flag.FlagSet) {
	election := pflag.NewFlagSet("leader election", pflag.ContinueOnError)
	configoptions.BindLeaderElectionFlags(&o.leaderElection, election)
	election.VisitAll(func(f *pflag.Flag) { flags.Var(f.Value, f.Name, f.Usage) })

	flags.StringVar(&o.healthAddress, "health-probe-bind-address", "", "Address on which /livez and /readyz are served, such as :8081. If it is empty or 0, nothing is served.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "", "Address on which /metrics is served, such as :8443. If it is empty or 0, nothing is served.")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", o.metricsSecure, "Serve metrics with TLS, and only to users whom the API server allows get on /metrics. With false: without TLS, to every client.")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "File with the certificate of the metrics, and intermediate ones after it; it may be replaced at any time. Without it the program makes one, which no client can verify.")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "File with the private key of --tls-cert-file.")
	flags.BoolVar(&o.profiling, "profiling", false, "Serve Go's profiles below /debug/pprof/ beside the metrics, which must have TLS then, or an address such as 127.0.0.1:8443.")
}

// validate refuses values that are wrong and flags that lack another one.
func (o *processOptions) validate(refuse refuseFunc) {
	if o.leaderElection.LeaderElect {
		o.validateLeaderElection(refuse)
	}
	refuse.address("--health-probe-bind-address", o.healthAddress)
	refuse.address("--metrics-bind-address", o.metricsAddress)
	refuse.pair("--tls-cert-file", o.certFile, "--tls-private-key-file", o.keyFile)
	refuse(o.certFile != "" && (o.metricsAddress == "" || !o.metricsSecure), "--tls-cert-file", "is for metrics with TLS; give --metrics-bind-address, and not --metrics-secure=false")
	refuse(o.profiling && o.metricsAddress == "", "--profiling", "is served beside the metrics; give --metrics-bind-address")
	refuse(o.profiling && !o.metricsSecure && o.metricsAddress != "" && !isLoopback(o.metricsAddress), "--profiling",
		"shows the memory of the process; do not give --metrics-secure=false, or bind --metrics-bind-address to this machine alone, such as 127.0.0.1:8443")
}

// isLoopback reports whether only processes of this machine, or Pod, can connect to the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// validateLeaderElection makes the checks of kube-controller-manager and of client-go's
// elector, and names the flags in its messages.
func (o *processOptions) validateLeaderElection(refuse refuseFunc) {
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
