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
	"strings"
	"syscall"
	"testing"
	"time"
)

const runWalkthrough1 = `./sample-controller -kubeconfig=$HOME/.kube/config`

// startLines are what a start logs, in this order.
var startLines = []string{
	"Setting up event handlers",
	"Starting Foo controller",
	"Waiting for informer caches to sync",
	"Starting workers",
	"Started workers",
}

// stopLines are what an orderly end logs.
var stopLines = []string{"Shutting down", "Stopping workers", "Stopped workers", "Shut down"}

// TestWalkthrough1 runs the controller out of cluster. It works in all
// namespaces and takes the CRD away, so that nothing may run at the same time.
func TestWalkthrough1(t *testing.T) {
	sh(t, `go build -o sample-controller .`)

	t.Run("without the CRD it says what to do, waits, and goes on by itself", missingCRD)
	shared.installCRD(t)

	t.Run("--kubeconfig is -kubeconfig, and Ctrl-C stops it in order", func(t *testing.T) {
		p := start(t, shared.home, `./sample-controller --kubeconfig=$HOME/.kube/config`)
		p.prints(startLines...)
		p.signal(syscall.SIGINT)
		if code := p.exited(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		p.prints(append(append([]string{}, startLines...), stopLines...)...)
	})
	t.Run("go run does as well", func(t *testing.T) {
		p := start(t, shared.home, `go run . -kubeconfig=$HOME/.kube/config`)
		p.prints(startLines...)
		p.signal(syscall.SIGINT)
		p.exited()
		p.prints(stopLines...)
	})
	t.Run("it logs JSON on request, and nothing else", jsonLog)
	t.Run("-master alone, as for kubectl proxy", masterAlone)
}

func missingCRD(t *testing.T) {
	shared.removeCRD(t)
	p := start(t, shared.home, runWalkthrough1)
	p.prints("Waiting for a CustomResourceDefinition that is not installed",
		`"foos.samplecontroller.k8s.io"`, `"kubectl apply -f artifacts/examples/crd.yaml"`)
	throughout(t, "it waits for the CRD", 2*time.Second, func() error {
		if strings.Contains(p.output(), startLines[1]) || !p.running() {
			return fmt.Errorf("it did not:\n%s", p.tail())
		}
		return nil
	})
	// As the log says.
	shared.installCRD(t)
	p.prints(startLines...)
	p.stop()
	p.prints(append(append([]string{}, startLines...), stopLines...)...)
	if reminders := strings.Count(p.output(), `that is not installed" crd="foos.`); reminders != 1 {
		t.Errorf("it said so %d times in a few seconds", reminders)
	}
}

func jsonLog(t *testing.T) {
	p := start(t, shared.home, runWalkthrough1+" --logging-format=json")
	p.prints(startLines...)
	p.stop()
	for line := range strings.Lines(p.output()) {
		entry := map[string]any{}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["msg"] == nil {
			t.Errorf("this is no log entry in JSON (%v): %s", err, line)
		}
	}
}

func masterAlone(t *testing.T) {
	proxy := start(t, shared.home, "kubectl proxy --port=0")
	proxy.prints("Starting to serve on ", "\n")
	_, address, _ := strings.Cut(strings.TrimSpace(proxy.output()), "Starting to serve on ")
	p := start(t, t.TempDir(), "./sample-controller -master=http://"+address)
	p.prints(append([]string{`server="http://` + address}, startLines...)...)
	sh(t, applyFoo("default", "through-proxy", "spec: {deploymentName: through-proxy}"))
	shUntil(t, "kubectl get foo through-proxy", `True`)
	sh(t, "kubectl delete foo through-proxy")
	p.stop()
}
