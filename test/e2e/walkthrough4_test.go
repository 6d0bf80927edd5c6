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
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
