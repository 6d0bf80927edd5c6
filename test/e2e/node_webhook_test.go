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
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// TestNodeWebhooks upgrades to webhooks that have Pods of their own, and removes them. It reaches new ones through
// their Service while their certificate is replaced and their Pods are, and removes everything at last: it is the
// last test that runs.
func TestNodeWebhooks(t *testing.T) {
	e := newEnv(t)
	e.upgradeWebhooks()
	sh(t, "make deploy IMG="+testImage)
	// kubectl must not go on to prefer v1beta1.
	e.kubectl("get foo")
	if left := sh(t, "kubectl get deployments,services,serviceaccounts,secrets,poddisruptionbudgets,networkpolicies,roles,rolebindings --namespace="+systemNamespace+" -o name | grep webhook || true"); left != "" {
		t.Errorf("left behind: %s", left)
	}

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
	e.awaitReady("last")
	mustEndWell(t)
	// A second undeploy must succeed too.
	sh(t, "make undeploy")
}

// upgradeWebhooks upgrades from manifests that have the webhooks in the controller's Pods, with the commands of
// docs/webhooks.md. Requests that need them are sent all the time, and none may fail.
func (e *env) upgradeWebhooks() {
	e.Helper()
	// If a kind owns Secrets, today's policy keeps the former version, whose controller wrote the certificate, from
	// doing that. The upgrade itself is made under the policy.
	sh(e.T, "kubectl kustomize test/e2e/testdata/single-deployment | sed 's|image: sample-controller:latest|image: "+testImage+"|' | kubectl apply -f - && "+
		"kubectl delete -k artifacts/deploy/policy && "+rolloutStatus)
	e.eventually("the webhooks answer", func(ctx context.Context) error { return requestWebhooks(ctx, e.namespace) })
	sh(e.T, "kubectl apply -k artifacts/deploy/policy")
	load := startLoad(e.T, func(ctx context.Context, _ int64) error {
		return errors.Join(requestWebhooks(ctx, e.namespace), webhooksAreReachable(ctx))
	})
	sh(e.T, "make deploy WEBHOOK=yes IMG="+testImage)
	e.eventually("the Pods of the former version are gone", func(ctx context.Context) error {
		list, err := shared.kube.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 4 {
			err = fmt.Errorf("%d Pods", len(list.Items))
		}
		return err
	})
	before := load.answered.Load()
	e.eventually("the new Pods answer 50 requests", func(context.Context) error {
		if n := load.answered.Load() - before; n < 50 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	e.Logf("%d requests during the upgrade, none failed", load.stop())
	const spec = "kubectl get deployment sample-controller -o jsonpath='{.spec.template.spec.containers}' --namespace=" + systemNamespace
	if container := sh(e.T, spec); strings.Contains(container, "webhook") || strings.Contains(container, "lifecycle") || !strings.Contains(container, `"path":"/readyz"`) {
		e.Errorf("left of the webhooks: %s", container)
	}
	for role := range grantedRules(e.T, serviceAccount) {
		if strings.Contains(role, "webhook") {
			e.Errorf("the controller still has the role %s", role)
		}
	}
	sh(e.T, "! kubectl get networkpolicy "+webhookAccount+" --namespace="+systemNamespace)
}

// webhooksAreReachable returns an error if the Service has no endpoint, or one that no NetworkPolicy lets clients
// reach. Requests that find none would not fail while the API server keeps a connection to a Pod of before, and the
// network of the nodes enforces no policy.
func webhooksAreReachable(ctx context.Context) error {
	selector := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + webhookAccount}
	found, err := shared.kube.DiscoveryV1().EndpointSlices(systemNamespace).List(ctx, selector)
	if err != nil {
		return err
	}
	policies, err := shared.kube.NetworkingV1().NetworkPolicies(systemNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := false
	for _, slice := range found.Items {
		for _, endpoint := range slice.Endpoints {
			pod, err := shared.kube.CoreV1().Pods(systemNamespace).Get(ctx, endpoint.TargetRef.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(policies.Items, func(n networkingv1.NetworkPolicy) bool { return admitsWebhooks(&n, pod) }) {
				return errors.New("no NetworkPolicy lets the API server reach the endpoint " + pod.Name)
			}
			ready = ready || ptr.Deref(endpoint.Conditions.Ready, false)
		}
	}
	if !ready {
		return errors.New("the Service has no endpoint")
	}
	return nil
}

// admitsWebhooks reports whether the policy lets clients reach the webhooks of the Pod.
func admitsWebhooks(policy *networkingv1.NetworkPolicy, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	return err == nil && selector.Matches(labels.Set(pod.Labels)) && slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
		return slices.ContainsFunc(rule.Ports, func(port networkingv1.NetworkPolicyPort) bool { return port.Port.StrVal == "webhook" })
	})
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
	sh(t, "make undeploy")
	envIn(t, metav1.NamespaceDefault).script("nothing_is_left")
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
