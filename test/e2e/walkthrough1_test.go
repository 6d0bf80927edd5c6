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
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const runWalkthrough1 = `./sample-controller -kubeconfig=$HOME/.kube/config`

// startLines are the messages of a start, in this order.
var startLines = []string{
	"Setting up event handlers",
	"Starting Foo controller",
	"Waiting for informer caches to sync",
	"Starting workers",
	"Started workers",
}

// stopLines are the messages of a graceful shutdown.
var stopLines = []string{"Shutting down", "Stopping workers", "Stopped workers", "Shut down"}

// TestWalkthrough1 runs the controller outside of the cluster. The controller works in all
// namespaces, and the test deletes the CRD, so no other test may run in parallel.
func TestWalkthrough1(t *testing.T) {
	sh(t, `go build -o sample-controller .`)

	t.Run("without the CRD it logs the remedy, waits, and starts when the CRD is installed", missingCRD)
	shared.installCRD(t)

	t.Run("--kubeconfig is -kubeconfig, and Ctrl-C stops it gracefully", func(t *testing.T) {
		p := start(t, shared.home, `./sample-controller --kubeconfig=$HOME/.kube/config`)
		p.awaitOutput(startLines...)
		p.signal(syscall.SIGINT)
		if code := p.awaitExit(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		p.awaitOutput(slices.Concat(startLines, stopLines)...)
	})
	t.Run("go run works too", func(t *testing.T) {
		p := start(t, shared.home, `go run . -kubeconfig=$HOME/.kube/config`)
		p.awaitOutput(startLines...)
		p.signal(syscall.SIGINT)
		p.awaitExit()
		p.awaitOutput(stopLines...)
	})
	t.Run("with --logging-format=json it logs JSON only", jsonLog)
	t.Run("-master alone, as for kubectl proxy", masterAlone)
}

func missingCRD(t *testing.T) {
	shared.removeCRD(t)
	sh(t, "kubectl delete crd memcacheds.cache.example.com --ignore-not-found") // +drop:memcached
	p := start(t, shared.home, runWalkthrough1)
	p.awaitOutput("Waiting for a CustomResourceDefinition that is not installed",
		`"foos.samplecontroller.k8s.io"`, `"kubectl apply -f artifacts/examples/crd.yaml"`)
	consistently(t, "it waits for the CRD", 2*time.Second, func() error {
		if strings.Contains(p.output(), startLines[1]) || !p.running() {
			return fmt.Errorf("it did not wait:\n%s", p.tail())
		}
		return nil
	})
	// The remedy in the log works.
	shared.installCRD(t)
	p.awaitOutput(startLines...)
	// +drop:memcached
	// The controller of another kind waits for its CRD, while this one works.
	p.awaitOutput(`that is not installed" crd="memcacheds.`)
	sh(t, "kubectl apply -f artifacts/examples/memcached-crd.yaml")
	p.awaitOutput("Starting Memcached controller", "Started workers")
	// +drop:end
	p.stop()
	p.awaitOutput(slices.Concat(startLines, stopLines)...)
	if reminders := strings.Count(p.output(), `that is not installed" crd="foos.`); reminders != 1 {
		t.Errorf("%d messages in a few seconds, want 1", reminders)
	}
}

func jsonLog(t *testing.T) {
	p := start(t, shared.home, runWalkthrough1+" --logging-format=json")
	p.awaitOutput(startLines...)
	p.stop()
	for line := range strings.Lines(p.output()) {
		entry := map[string]any{}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["msg"] == nil {
			t.Errorf("not a log entry in JSON (%v): %s", err, line)
		}
	}
}

func masterAlone(t *testing.T) {
	proxy := start(t, shared.home, "kubectl proxy --port=0")
	proxy.awaitOutput("Starting to serve on ", "\n")
	_, address, _ := strings.Cut(strings.TrimSpace(proxy.output()), "Starting to serve on ")
	p := start(t, t.TempDir(), "./sample-controller -master=http://"+address)
	p.awaitOutput(append([]string{`server="http://` + address}, startLines...)...)
	sh(t, applyFoo("default", "through-proxy", "spec: {deploymentName: through-proxy}"))
	shUntil(t, "kubectl get foo through-proxy", `True`)
	sh(t, "kubectl delete foo through-proxy")
	p.stop()
}
