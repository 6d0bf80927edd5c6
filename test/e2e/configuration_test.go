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
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestConfiguration covers the other ways to name an API server, and their failures.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	t.Run("without flags: $HOME/.kube/config", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		e.home = shared.home
		e.startController("")
		e.create("configured")
		e.awaitReady("configured")
	})
	t.Run("KUBECONFIG takes precedence over $HOME/.kube/config", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		home := t.TempDir()
		e.must(os.Mkdir(filepath.Join(home, ".kube"), 0o700))
		e.must(os.WriteFile(filepath.Join(home, ".kube", "config"), []byte("no kubeconfig"), 0o600))
		p := start(t, home, fmt.Sprintf("KUBECONFIG=%s exec sample-controller --namespace=%s", shared.kubeconfig(), e.namespace))
		p.awaitOutput(startLines...)
	})
	t.Run("no kubeconfig anywhere", func(t *testing.T) {
		t.Parallel()
		output := exitsPromptly(t, 1, t.TempDir(), "sample-controller")
		mustContain(t, output, "no configuration found", "-kubeconfig or KUBECONFIG")
	})
	t.Run("the kubeconfig does not exist", func(t *testing.T) {
		t.Parallel()
		output := exitsPromptly(t, 1, shared.home, "sample-controller -kubeconfig=/nonexistent/config")
		mustContain(t, output, "-kubeconfig", "/nonexistent/config", "no such file")
	})
	t.Run("the port is closed", func(t *testing.T) {
		t.Parallel()
		listener := listen(t)
		address := listener.Addr().String()
		_ = listener.Close()
		output := exitsPromptly(t, 1, t.TempDir(), "sample-controller -master=http://"+address)
		mustHaveOneError(t, output, address, "connection refused")
	})
	t.Run("the address never answers", func(t *testing.T) {
		t.Parallel()
		address := listen(t).Addr().String()
		// The controller waits 4 seconds for an answer, which leaves exitsPromptly too little.
		output := exits(t, 1, t.TempDir(), "sample-controller -master=http://"+address)
		mustHaveOneError(t, output, address)
	})
	t.Run("the API server does not know the credentials", func(t *testing.T) {
		t.Parallel()
		output := exitsPromptly(t, 1, t.TempDir(), "sample-controller -kubeconfig="+kubeconfigOf(t, &clientcmdapi.AuthInfo{Token: "bad"}))
		mustHaveOneError(t, output, strings.TrimPrefix(shared.config.Host, "https://"), "Unauthorized")
	})
	t.Run("the kubeconfig is malformed", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte("clusters: {"), 0o600); err != nil {
			t.Fatal(err)
		}
		output := exitsPromptly(t, 1, shared.home, "sample-controller -kubeconfig="+path)
		mustHaveOneError(t, output, "-kubeconfig "+path)
	})
	t.Run("a port is in use", func(t *testing.T) {
		t.Parallel()
		listener := listen(t)
		for _, flag := range []string{"--metrics-bind-address", "--health-probe-bind-address"} {
			output := exitsPromptly(t, 1, shared.home, fmt.Sprintf("sample-controller -kubeconfig=%s %s=%s", shared.kubeconfig(), flag, listener.Addr()))
			mustHaveOneError(t, output, flag+": ", "address already in use")
		}
	})
	t.Run("the certificate does not exist", func(t *testing.T) {
		t.Parallel()
		output := exitsPromptly(t, 1, shared.home, "sample-controller -kubeconfig="+shared.kubeconfig()+" --metrics-bind-address=127.0.0.1:0 --tls-cert-file=/nonexistent --tls-private-key-file=/nonexistent")
		mustHaveOneError(t, output, "--tls-cert-file: ", "/nonexistent: no such file")
	})
}

// listen returns a listener on a free port of the loopback address. It accepts no
// connections, and is closed when the test ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// refusalTimeout is the longest time that the controller may take to refuse its
// configuration. It takes one response of a running API server, or a tenth of a second.
const refusalTimeout = 5 * time.Second

// exitsPromptly is exits for a command that must exit within refusalTimeout.
func exitsPromptly(t *testing.T, code int, home, command string) string {
	t.Helper()
	began := time.Now()
	output := exits(t, code, home, command)
	if took := time.Since(began); took > refusalTimeout {
		t.Errorf("%s: took %s to exit", command, took)
	}
	return output
}

// exits runs a command that must exit with that exit code and without a stack trace, and returns its
// output.
func exits(t *testing.T, code int, home, command string) string {
	t.Helper()
	p := start(t, home, command)
	if got := p.awaitExit(); got != code {
		t.Errorf("%s: exit code %d, want %d:\n%s", command, got, code, p.tail())
	}
	output := p.output()
	if strings.Contains(output, "goroutine ") {
		t.Errorf("%s: a stack trace", command)
	}
	t.Logf("exit code %d\n%s", code, output)
	return output
}

// mustHaveOneError fails the test unless exactly one line of the log is an error, and that
// line contains all of the words.
func mustHaveOneError(t *testing.T, log string, words ...string) {
	t.Helper()
	lines := errorLines(log)
	if len(lines) != 1 {
		t.Fatalf("want one error, got %d:\n%s", len(lines), log)
	}
	for _, word := range words {
		mustContain(t, lines[0], word)
	}
}

// errorLines returns the errors and fatal errors in a log of klog.
func errorLines(log string) []string {
	return regexp.MustCompile(`(?m)^[EF]\d{4} .*$`).FindAllString(log, -1)
}

// TestCommandLine covers flags that need no API server.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	t.Run("--version", func(t *testing.T) {
		output := sh(t, "sample-controller --version")
		if !regexp.MustCompile(`^sample-controller \S+ .*go1\..*\n$`).MatchString(output) {
			t.Errorf("no version in %q", output)
		}
		if short := sh(t, "sample-controller -version"); short != output {
			t.Errorf("-version is %q", short)
		}
	})
	t.Run("-help names the flags", func(t *testing.T) {
		output := sh(t, "sample-controller -help")
		for _, flag := range []string{"-kubeconfig", "-master", "-namespace", "-workers", "-kube-api-qps", "-kube-api-burst", "-resync-period", "-version", "-logging-format", "-v"} {
			mustContain(t, output, "  "+flag)
		}
	})
}

// TestNamespace shows that the controller ignores other namespaces than --namespace.
func TestNamespace(t *testing.T) {
	t.Parallel()
	for from, command := range map[string]string{
		"--namespace":     "sample-controller -v=2 --namespace=%s",
		"WATCH_NAMESPACE": "env WATCH_NAMESPACE=%s sample-controller -v=2",
	} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			checkNamespace(t, command)
		})
	}
}

// checkNamespace checks that a controller started with this command, which has a verb for the
// namespace, works in that namespace and in no other one.
func checkNamespace(t *testing.T, command string) {
	t.Helper()
	other := newEnv(t)
	unseen := other.create("unseen")
	e := newEnv(t)
	e.controller = start(t, t.TempDir(), shared.asInPod(t, shared.secrets, fmt.Sprintf(command, e.namespace)))
	e.controller.awaitOutput("Started workers")
	e.create("seen")
	e.awaitReady("seen")
	e.settle()
	if foo := other.foo("unseen"); foo.ResourceVersion != unseen.ResourceVersion {
		t.Errorf("the Foo in another namespace was written to: %+v", foo.Status)
	}
	deployments, err := other.deployments().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(deployments.Items) > 0 {
		t.Errorf("Deployments in another namespace: %v %v", deployments, err)
	}
}
