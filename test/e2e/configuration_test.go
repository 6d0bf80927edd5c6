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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestConfiguration covers the other ways to reach an API server, and to fail
// to.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	t.Run("without flags: $HOME/.kube/config", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.home = shared.home
		s.startController("")
		s.create("configured")
		s.ready("configured")
	})
	t.Run("KUBECONFIG counts before $HOME/.kube/config", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		home := t.TempDir()
		s.must(os.Mkdir(filepath.Join(home, ".kube"), 0o700))
		s.must(os.WriteFile(filepath.Join(home, ".kube", "config"), []byte("no kubeconfig"), 0o600))
		p := start(t, home, fmt.Sprintf("KUBECONFIG=%s exec sample-controller --namespace=%s", shared.kubeconfig(), s.namespace))
		p.prints(startLines...)
	})
	t.Run("no kubeconfig anywhere", func(t *testing.T) {
		t.Parallel()
		output := exitsWith(t, 1, t.TempDir(), "sample-controller")
		mustContain(t, output, "no configuration found", "-kubeconfig or KUBECONFIG")
	})
	t.Run("a kubeconfig that is not there", func(t *testing.T) {
		t.Parallel()
		output := exitsWith(t, 1, shared.home, "sample-controller -kubeconfig=/nonexistent/config")
		mustContain(t, output, "-kubeconfig", "/nonexistent/config", "no such file")
	})
	t.Run("nobody listens at the address", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		_ = listener.Close()
		output := exitsWith(t, 1, t.TempDir(), "sample-controller -master=http://"+address)
		oneErrorLine(t, output, address, "connection refused")
	})
	t.Run("the address never answers", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		address := listener.Addr().String()
		// It waits 4 seconds, and what comes before depends on the machine.
		output := ends(t, 1, t.TempDir(), "sample-controller -master=http://"+address)
		oneErrorLine(t, output, address)
	})
	t.Run("the API server does not know the credentials", func(t *testing.T) {
		t.Parallel()
		output := exitsWith(t, 1, t.TempDir(), "sample-controller -kubeconfig="+kubeconfigOf(t, &clientcmdapi.AuthInfo{Token: "bad"}))
		oneErrorLine(t, output, strings.TrimPrefix(shared.config.Host, "https://"), "Unauthorized", "does not accept these credentials")
	})
	t.Run("the kubeconfig is malformed", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte("clusters: {"), 0o600); err != nil {
			t.Fatal(err)
		}
		output := exitsWith(t, 1, shared.home, "sample-controller -kubeconfig="+path)
		oneErrorLine(t, output, "-kubeconfig "+path)
	})
	t.Run("a port is in use", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		for _, flag := range []string{"--metrics-bind-address", "--health-probe-bind-address"} {
			output := exitsWith(t, 1, shared.home, fmt.Sprintf("sample-controller -kubeconfig=%s %s=%s", shared.kubeconfig(), flag, listener.Addr()))
			oneErrorLine(t, output, flag+": ", "address already in use")
		}
	})
	t.Run("the certificate is not there", func(t *testing.T) {
		t.Parallel()
		output := exitsWith(t, 1, shared.home, "sample-controller -kubeconfig="+shared.kubeconfig()+" --metrics-bind-address=127.0.0.1:0 --tls-cert-file=/nonexistent --tls-private-key-file=/nonexistent")
		oneErrorLine(t, output, "--tls-cert-file: ", "/nonexistent: no such file")
	})
}

// kubeconfigOf writes a kubeconfig with the right server and that user.
func kubeconfigOf(t *testing.T, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(shared.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = user
	}
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// promptly is how long the program may take to refuse what it was given. It waits for
// nothing but one answer of an API server that is there: a tenth of a second.
const promptly = 5 * time.Second

// exitsWith runs a command that must end by itself promptly, with that exit code and
// without a stack trace.
func exitsWith(t *testing.T, code int, home, command string) string {
	t.Helper()
	began := time.Now()
	output := ends(t, code, home, command)
	if took := time.Since(began); took > promptly {
		t.Errorf("%s: took %s to give up", command, took)
	}
	if strings.Contains(output, "goroutine ") {
		t.Errorf("%s: a stack trace", command)
	}
	return output
}

// ends runs a command that must end by itself, with that exit code.
func ends(t *testing.T, code int, home, command string) string {
	t.Helper()
	p := start(t, home, command)
	if got := p.exited(); got != code {
		t.Errorf("%s: exit code %d, want %d:\n%s", command, got, code, p.tail())
	}
	t.Logf("exit code %d\n%s", code, p.output())
	return p.output()
}

// oneErrorLine fails the test unless exactly one line of the log is an error,
// and has the words in it.
func oneErrorLine(t *testing.T, log string, words ...string) {
	t.Helper()
	lines := errorLines(log)
	if len(lines) != 1 {
		t.Fatalf("one error is wanted, not %d:\n%s", len(lines), log)
	}
	for _, word := range words {
		mustContain(t, lines[0], word)
	}
}

// errorLines returns the lines that klog has written as errors.
func errorLines(log string) []string {
	return regexp.MustCompile(`(?m)^[EF]\d{4} .*$`).FindAllString(log, -1)
}

// TestCommandLine covers what needs no API server.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	t.Run("--version", func(t *testing.T) {
		output := sh(t, "sample-controller --version")
		if !regexp.MustCompile(`^sample-controller \S+ .*go1\..*\n$`).MatchString(output) {
			t.Errorf("this names no version: %q", output)
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

// TestNamespace shows that --namespace confines the controller.
func TestNamespace(t *testing.T) {
	t.Parallel()
	other := newStage(t)
	unseen := other.create("unseen")
	s := newScene(t, "")
	s.create("seen")
	s.ready("seen")
	s.settle()
	if foo := other.foo("unseen"); foo.ResourceVersion != unseen.ResourceVersion {
		t.Errorf("the Foo in another namespace was written to: %+v", foo.Status)
	}
	deployments, err := other.deployments().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(deployments.Items) > 0 {
		t.Errorf("Deployments in another namespace: %v %v", deployments, err)
	}
}
