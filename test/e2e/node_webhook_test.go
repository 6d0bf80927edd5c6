//go:build e2e && node

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
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestNodeWebhooks reaches the webhooks through their Service, while their certificate is replaced and
// their Pods are, and removes everything at last: it is the last test that runs.
func TestNodeWebhooks(t *testing.T) {
	e := newEnv(t)
	sh(t, "make deploy WEBHOOK=yes IMG="+testImage)
	// The first request must succeed, without a retry.
	e.must(requestWebhooks(t.Context(), e.namespace))

	load := startWebhookLoad(t, e.namespace)
	certificate := "kubectl get secret/" + webhookAccount + " --namespace=" + systemNamespace + ` --output=jsonpath='{.data.tls\.crt}'`
	former := sh(t, certificate)
	sh(t, "kubectl delete secret/"+webhookAccount+" --namespace="+systemNamespace)
	e.eventually("there is another certificate", func(context.Context) error {
		output, err := try(t, certificate)
		if err == nil && (output == "" || output == former) {
			err = fmt.Errorf("the certificate is %.20q", output)
		}
		return err
	})
	sh(t, "kubectl rollout restart deployment/"+webhookAccount+" --namespace="+systemNamespace)
	sh(t, "kubectl rollout status deployment/"+webhookAccount+" --timeout=3m --namespace="+systemNamespace)
	t.Logf("%d requests while the certificate and the Pods were replaced", load.stop())

	sh(t, betaFoo(e.namespace))
	e.awaitFoo("last")
	mustEndWell(t)
	// A second undeploy must succeed too.
	shWithin(t, teardownTimeout, "make undeploy")
}

func betaFoo(namespace string) string {
	return "kubectl apply --namespace=" + namespace + ` -f - <<'EOF'
{apiVersion: samplecontroller.k8s.io/v1beta1, kind: Foo, metadata: {name: last}, spec: {deployment: {name: last}, replicas: 1}}
EOF`
}

// mustEndWell removes everything, and fails if a process in a Pod of the manifests does not exit with 0.
func mustEndWell(t *testing.T) {
	t.Helper()
	client := shared.kube.CoreV1().Pods(systemNamespace)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	// Two of each Deployment, and those of the former ReplicaSet that are still terminating.
	if len(list.Items) < 4 {
		t.Fatalf("there are %d Pods", len(list.Items))
	}
	watcher, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must(t, err)
	ended := make(chan map[string]string)
	go func() { ended <- endsOfPods(watcher, len(list.Items)) }()
	mustUndeploy(t)
	timer := time.AfterFunc(waitTimeout, watcher.Stop)
	defer timer.Stop()
	pods := <-ended
	if len(pods) != len(list.Items) {
		t.Errorf("%d Pods have ended, want %d: %v", len(pods), len(list.Items), pods)
	}
	for name, how := range pods {
		if !strings.HasPrefix(how, "exit code 0:") {
			t.Errorf("%s: %s", name, how)
		}
	}
}

// endsOfPods waits until so many Pods are gone, or the watch is stopped, and returns how their containers
// have ended.
func endsOfPods(watcher watch.Interface, gone int) map[string]string {
	ended := map[string]string{}
	for event := range watcher.ResultChan() {
		pod, isPod := event.Object.(*corev1.Pod)
		if !isPod || pod.DeletionTimestamp == nil {
			continue
		}
		for _, status := range pod.Status.ContainerStatuses {
			if state := status.State.Terminated; state != nil {
				ended[pod.Name] = fmt.Sprintf("exit code %d: %s", state.ExitCode, state.Message)
			}
		}
		if event.Type == watch.Deleted {
			gone--
		}
		if gone == 0 {
			break
		}
	}
	return ended
}
