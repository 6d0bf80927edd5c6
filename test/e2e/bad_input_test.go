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
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestBadFlags gives each flag with a range a value outside of the range.
func TestBadFlags(t *testing.T) {
	t.Parallel()
	const leaderElect = "--leader-elect --leader-elect-resource-namespace=default "
	for _, bad := range []struct{ arguments, says string }{
		{"--workers=0", "--workers"},
		{"--workers=many", "-workers"},
		{"--kube-api-qps=0", "--kube-api-qps"},
		{"--kube-api-burst=0", "--kube-api-burst"},
		{"--resync-period=1ms", "--resync-period"},
		{"--resync-period=1", "-resync-period"},
		{"--shutdown-grace-period=-1s", "--shutdown-grace-period"},
		{"-master=nowhere", "--master"},
		{"--namespace=Not_A_Name", "--namespace"},
		{"--namespace=a,,b", "--namespace"},
		{"--namespace=a --namespace=a", "--namespace"},
		{"--logging-format=xml", "xml"},
		{"-v=high", "-v"},
		{"--log-flush-frequency=often", "-log-flush-frequency"},
		{"--leader-elect=perhaps", "-leader-elect"},
		{"--leader-elect", "--leader-elect-resource-namespace"},
		{leaderElect + "--leader-elect-lease-duration=1s", "--leader-elect-lease-duration"},
		{leaderElect + "--leader-elect-lease-duration=1000000h", "--leader-elect-lease-duration"},
		{leaderElect + "--leader-elect-renew-deadline=1s", "--leader-elect-renew-deadline"},
		{leaderElect + "--leader-elect-retry-period=0s", "--leader-elect-retry-period"},
		{leaderElect + "--leader-elect-resource-lock=endpoints", "--leader-elect-resource-lock"},
		{leaderElect + "--leader-elect-resource-name=Not_A_Name", "--leader-elect-resource-name"},
		{"--leader-elect --leader-elect-resource-namespace=Not_A_Name", "--leader-elect-resource-namespace"},
		{"--health-probe-bind-address=8081", "--health-probe-bind-address"},
		{"--metrics-bind-address=:65536", "--metrics-bind-address"},
		{"--tls-cert-file=only", "--tls-cert-file"},
		{"--tls-private-key-file=only", "--tls-private-key-file"},
		{"--profiling", "--profiling"},
		{"--workers=0 --kube-api-burst=0", "--kube-api-burst: must be at least 1, got 0; --workers: must be at least 1, got 0"},
		{"--no-such-flag", "no-such-flag"},
		{"kubeconfig", `unexpected argument "kubeconfig"`},
	} {
		t.Run(bad.arguments, func(t *testing.T) {
			output := exitsPromptly(t, 2, shared.home, "sample-controller "+bad.arguments)
			mustContain(t, output, bad.says)
			if strings.Count(output, "\n") != 1 {
				t.Errorf("want one line, got %q", output)
			}
		})
	}
}

// TestBadCredentials covers kubeconfigs that reach no API server, and credentials with too few rights.
func TestBadCredentials(t *testing.T) {
	t.Parallel()
	t.Run("the kubeconfig points to a closed port", func(t *testing.T) {
		t.Parallel()
		path := writeKubeconfig(t, func(config *clientcmdapi.Config) {
			for _, cluster := range config.Clusters {
				cluster.Server = "https://127.0.0.1:1"
			}
		})
		mustHaveOneError(t, exitsPromptly(t, 1, t.TempDir(), "sample-controller -kubeconfig="+path), "127.0.0.1:1", "connection refused")
	})
	t.Run("the kubeconfig is empty", func(t *testing.T) {
		t.Parallel()
		mustHaveOneError(t, exitsPromptly(t, 1, t.TempDir(), "sample-controller -kubeconfig=/dev/null"), "-kubeconfig /dev/null: it names no cluster")
	})
	for _, without := range []struct{ sentence, flags, cannot, remedy string }{
		{"without rights in the cluster", "", "at the cluster scope", "kubectl apply -k artifacts/deploy/base"},
		{"without rights in the namespace", "--namespace=", "in the namespace", "kubectl apply -k artifacts/deploy/namespaced"},
	} {
		t.Run("the service account is "+without.sentence, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.kubectl("create serviceaccount sample-controller")
			secrets := e.TempDir()
			e.must(shared.writeSecrets(t.Context(), cache.NewObjectName(e.namespace, serviceAccount), secrets))
			flags := without.flags
			if flags != "" {
				flags += e.namespace
			}
			p := start(t, t.TempDir(), shared.asInPod(t, secrets, "sample-controller "+flags))
			waitsForRights(t, p, "system:serviceaccount:"+e.namespace+":sample-controller", without.cannot, without.remedy)
			p.stop()
			e.kubectl("delete serviceaccount sample-controller")
		})
	}
	t.Run("the service account has no rights on the lease", withoutLease)
}

// waitsForRights waits until the API server refuses the process a cache. It fails the test
// unless each error in the log names the user, the resource and the remedy, and the
// process goes on.
func waitsForRights(t *testing.T, p *process, user, where, remedy string) {
	t.Helper()
	p.awaitOutput("Not allowed to fill a cache, waiting for the right", where, remedy)
	for _, line := range errorLines(p.output()) {
		for _, word := range []string{`User \"` + user + `\" cannot`, " resource ", remedy} {
			mustContain(t, line, word)
		}
	}
	if strings.Contains(p.output(), "Started workers") || !p.running() {
		t.Errorf("it does not wait:\n%s", p.tail())
	}
}

func withoutLease(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.kubectl("create serviceaccount sample-controller")
	e.kubectl("create role all-but-lease --verb=get,list,watch --resource=foos,deployments")
	e.kubectl("create rolebinding all-but-lease --role=all-but-lease --serviceaccount=" + e.namespace + ":sample-controller")
	secrets := e.TempDir()
	e.must(shared.writeSecrets(t.Context(), cache.NewObjectName(e.namespace, serviceAccount), secrets))
	output := exitsPromptly(t, 1, t.TempDir(), shared.asInPod(t, secrets, "sample-controller --leader-elect --namespace="+e.namespace))
	mustContain(t, output, "taking the lease: ", `cannot get resource \"leases\"`, "kubectl apply -k artifacts/deploy/namespaced")
	e.kubectl("delete serviceaccount sample-controller")
}
