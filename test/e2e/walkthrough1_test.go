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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
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
	t.Run("with --logging-format=json it logs JSON only", jsonLog)
	t.Run("-master alone, as for kubectl proxy", masterAlone)
}

func missingCRD(t *testing.T) {
	shared.removeCRD(t)
	sh(t, "kubectl delete crd memcacheds.cache.example.com --ignore-not-found") // +drop:memcached
	p := start(t, shared.home, runWalkthrough1)
	p.awaitOutput("Waiting for a CustomResourceDefinition that is not installed",
		`"foos.samplecontroller.k8s.io"`, `"kubectl apply -f artifacts/examples/crd.yaml"`)
	// The remedy in the log works.
	shared.installCRD(t)
	p.awaitOutput(slices.Concat([]string{`"foos.samplecontroller.k8s.io"`}, startLines[1:])...)
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

const applyMyFoo = `cat << EOF | kubectl apply -f -
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata:
  name: my-foo
spec:
  deploymentName: my-foo
  replicas: 10
EOF`

// TestWalkthrough2 runs the commands of walkthrough 2, on two Foos in the namespace default.
func TestWalkthrough2(t *testing.T) {
	shared.installCRD(t)
	controller := start(t, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config")
	controller.awaitOutput(startLines...)

	t.Run("the CRD", crdIsServed)
	t.Run("example-foo", exampleFoo)
	t.Run("my-foo", myFoo)
	controller.stop()
	controller.requireNoErrors()
}

// TestWalkthrough2Deletion runs the end of walkthrough 2. The garbage collector takes up to
// half a minute to discover a new CRD, so this part runs in parallel with other tests, with
// a controller for the namespace default only.
func TestWalkthrough2Deletion(t *testing.T) {
	t.Parallel()
	shared.installCRD(t)
	controller := start(t, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config --namespace=default --controllers=foo")
	controller.awaitOutput(startLines...)
	sh(t, "kubectl apply -f artifacts/examples/example-foo.yaml")
	sh(t, "kubectl wait --for=condition=Ready foo/example-foo")
	mustContain(t, sh(t, `kubectl delete foo example-foo`), `foo.samplecontroller.k8s.io "example-foo" deleted`)
	shUntil(t, `kubectl get deployment --ignore-not-found example-foo`, `^$`)
}

func crdIsServed(t *testing.T) {
	mustContain(t, sh(t, `kubectl get crd`), "foos.samplecontroller.k8s.io")
	shUntil(t, `kubectl api-resources | grep foo`, `(?m)^foos .*samplecontroller.k8s.io/v1alpha1 +true +Foo$`)
	// +drop:fork
	mustContain(t, sh(t, "kubectl apply -f artifacts/examples/crd-status-subresource.yaml"),
		"customresourcedefinition.apiextensions.k8s.io/foos.samplecontroller.k8s.io unchanged")

	crd, err := os.ReadFile(filepath.Join(shared.root, "artifacts/examples/crd.yaml"))
	must(t, err)
	other, err := os.ReadFile(filepath.Join(shared.root, "artifacts/examples/crd-status-subresource.yaml"))
	if err != nil || !bytes.Equal(crd, other) {
		t.Errorf("crd-status-subresource.yaml is not crd.yaml (%v)", err)
	}
	// +drop:end
}

func exampleFoo(t *testing.T) {
	mustContain(t, sh(t, `kubectl apply -f artifacts/examples/example-foo.yaml`), "foo.samplecontroller.k8s.io/example-foo created")
	shUntil(t, `kubectl get foo`, `^NAME +DEPLOYMENT +DESIRED +AVAILABLE +READY +AGE\nexample-foo +example-foo +1 +1 +True +\d+s\n$`)
	shUntil(t, `kubectl get foo -o wide`, `^NAME +DEPLOYMENT +DESIRED +AVAILABLE +READY +AGE +REASON +IMAGE\nexample-foo +example-foo +1 +1 +True +\d+s +DeploymentAvailable *\n$`)

	foo := &v1alpha1.Foo{}
	must(t, yaml.Unmarshal([]byte(sh(t, `kubectl get foo example-foo -o yaml`)), foo))
	if foo.Spec.DeploymentName != "example-foo" || *foo.Spec.Replicas != 1 || foo.Status.AvailableReplicas != 1 {
		t.Errorf("example-foo is %+v", foo)
	}
	if foo.Generation != 1 {
		t.Errorf("rule 13: generation %d: a status write raised it", foo.Generation)
	}
	shUntil(t, `kubectl get deployment`, `(?m)^example-foo +1/1 +1 +1 `)
	mustContain(t, sh(t, "kubectl get all"), "deployment.apps/example-foo", "foo.samplecontroller.k8s.io/example-foo")

	sh(t, `kubectl delete deployment example-foo`)
	deleted := time.Now()
	shUntil(t, `kubectl get deployment`, `(?m)^example-foo +1/1 +1 +1 `)
	if took := time.Since(deleted); took > 5*time.Second {
		t.Errorf("rule 7: the controller took %s to create the Deployment again, want 5 s at most", took)
	}
}

func myFoo(t *testing.T) {
	mustContain(t, sh(t, applyMyFoo), "foo.samplecontroller.k8s.io/my-foo created")
	shUntil(t, `kubectl get deployment my-foo`, `(?m)^my-foo +10/10 `)
	sh(t, `kubectl scale deployment my-foo --replicas=0`)
	shUntil(t, "kubectl get events --field-selector=involvedObject.name=my-foo,reason=Updated", `replicas from 0 to 10`)
	shUntil(t, `kubectl get deployment my-foo`, `(?m)^my-foo +10/10 `)
	sh(t, `kubectl scale foo my-foo --replicas=3`)
	shUntil(t, `kubectl get deployment my-foo`, `(?m)^my-foo +3/3 `)
	mustContain(t, sh(t, `kubectl wait --for=condition=Ready foo/my-foo`), "foo.samplecontroller.k8s.io/my-foo condition met")
	shUntil(t, "kubectl get foo my-foo", `my-foo +my-foo +3 +3 +True `)

	mustContain(t, sh(t, `kubectl explain foo.spec`),
		"GROUP:      samplecontroller.k8s.io", "KIND:       Foo", "VERSION:    v1alpha1",
		"the state that the user asks for",
		"deploymentName\t<string> -required-", "the name of the Deployment to run",
		"image\t<string>", "the image of the container nginx",
		"replicas\t<integer>", "the number of Pods")
	described := sh(t, `kubectl describe foo my-foo`)
	mustContain(t, described,
		"Name:         my-foo", "Conditions:", "Reason:", "DeploymentAvailable", "Type:", "Ready",
		"Events:", "Created", "sample-controller", `Created Deployment "my-foo"`, "Updated", "replicas from 0 to 10")
	// kubectl sorts events by their last time, and the Foo became ready several times.
	mustContain(t, described, "Events:", "Synced", "Foo is ready")
}

// proxyPort is kubectl proxy's default.
const proxyPort = "8001"

// TestWalkthrough4 runs the commands of walkthrough 4, with another port if port 8001 is taken.
func TestWalkthrough4(t *testing.T) {
	shared.installCRD(t)
	controller := start(t, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config")
	controller.awaitOutput(startLines...)
	sh(t, "kubectl apply -f artifacts/examples/example-foo.yaml")
	sh(t, "kubectl wait --for=condition=Ready foo/example-foo")

	t.Run("watching", watching)
	t.Run("the scale subresource", scaleSubresource)
	t.Run("what the controller's service account may do", func(t *testing.T) {
		mustContain(t, sh(t, `kubectl auth can-i --list --as=system:serviceaccount:sample-controller-system:sample-controller`), "Resources", "Verbs")
	})
	controller.stop()
}

func watching(t *testing.T) {
	port := proxyPort
	atPort := func(command string) string { return strings.ReplaceAll(command, proxyPort, port) }
	if probe, err := net.Listen("tcp", "127.0.0.1:"+proxyPort); err == nil {
		_ = probe.Close()
		start(t, shared.home, "kubectl proxy &\nwait").awaitOutput("Starting to serve on 127.0.0.1:" + proxyPort)
	} else {
		proxy := start(t, shared.home, "kubectl proxy --port=0 &\nwait")
		proxy.awaitOutput("Starting to serve on 127.0.0.1:", "\n")
		_, port, _ = strings.Cut(strings.TrimSpace(proxy.output()), "127.0.0.1:")
		t.Logf("port %s is taken on this machine (%v): the commands below use %s", proxyPort, err, port)
	}

	version := strings.TrimSpace(sh(t, atPort(`curl -sSfL http://127.0.0.1:8001/apis/samplecontroller.k8s.io/v1alpha1/foos | jq -r .metadata.resourceVersion`)))
	watch := strings.Replace(atPort(`curl "http://127.0.0.1:8001/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos?watch&resourceVersion=N"`), "N\"", version+"\"", 1)
	stream := start(t, shared.home, watch)
	sh(t, "kubectl scale foo example-foo --replicas=2")
	sh(t, strings.ReplaceAll(applyMyFoo, "my-foo", "watched"))
	sh(t, "kubectl delete foo watched")
	eventually(t, "the watch reports the changes", func(context.Context) error {
		got, err := watchEvents(stream.output())
		if err != nil {
			return err
		}
		for _, wanted := range []string{"MODIFIED example-foo 2", "ADDED watched 10", "DELETED watched 10"} {
			if !slices.Contains(got, wanted) {
				return fmt.Errorf("no %q among %q", wanted, got)
			}
		}
		return nil
	})
	// The watch began after the Foo was added, so it must not report that event.
	if got, err := watchEvents(stream.output()); err != nil || slices.Contains(got, "ADDED example-foo 1") {
		t.Errorf("the watch has earlier events: %q %v", got, err)
	}
}

// watchEvents returns the type, name and replicas of each event in a watch's output, which
// has one JSON object a line.
func watchEvents(output string) ([]string, error) {
	var events []string
	for line := range strings.Lines(output) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		event := struct {
			Type   string       `json:"type"`
			Object v1alpha1.Foo `json:"object"`
		}{}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		events = append(events, fmt.Sprintf("%s %s %d", event.Type, event.Object.Name, *event.Object.Spec.Replicas))
	}
	return events, nil
}

func scaleSubresource(t *testing.T) {
	sh(t, "kubectl wait --for=condition=Ready foo/example-foo")
	scale := &autoscalingv1.Scale{}
	output := sh(t, `kubectl get --raw /apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos/example-foo/scale`)
	must(t, json.Unmarshal([]byte(output), scale))
	if scale.Kind != "Scale" || scale.Spec.Replicas != 2 || scale.Status.Replicas != 2 || scale.Status.Selector != "app=nginx,controller=example-foo" {
		t.Errorf("scale is %+v", scale)
	}
	if got := sh(t, "kubectl get pods -o name -l "+scale.Status.Selector); strings.Count(got, "pod/example-foo-") != 2 {
		t.Errorf("the selector of the scale subresource selects %q", got)
	}
}
