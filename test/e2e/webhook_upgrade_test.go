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
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

// webhookUpgrade upgrades from manifests that have the webhooks in the controller's Pods, with the
// commands of docs/webhooks.md, and then removes the webhooks. Requests that need them are sent all
// the time, and none may fail before the removal.
func webhookUpgrade(t *testing.T) {
	shared.deploy(t)
	const applyPolicy = "kubectl apply -k artifacts/deploy/policy"
	shOnCleanup(t, applyPolicy)
	// If a kind owns Secrets, today's policy keeps the former version, whose controller wrote the
	// certificate, from doing that. The upgrade itself is made under the policy.
	sh(t, "kubectl delete -k artifacts/deploy/policy")
	k := startKubelet(t)
	namespace := unique("upgrade")
	sh(t, "kubectl create namespace "+namespace)
	shOnCleanup(t, "kubectl delete --wait=false namespace "+namespace)
	shOnCleanup(t, removeWebhooks)

	k.run("kubectl kustomize test/e2e/testdata/single-deployment | " + k.kubectl + " apply -f - && " +
		"kubectl rollout status deployment/sample-controller --timeout=3m --namespace=" + systemNamespace)
	k.eventually("the webhooks answer", func(ctx context.Context) error { return requestWebhooks(ctx, namespace) })
	sh(t, applyPolicy)
	load := startWebhookLoad(t, namespace)
	k.serves = true
	k.run("make deploy WEBHOOK=yes IMG=" + testImage + " KUBECTL=" + k.kubectl)
	k.eventually("the Pods of the former version are gone", func(context.Context) error {
		if len(k.pods) != 4 {
			return fmt.Errorf("%d Pods", len(k.pods))
		}
		return nil
	})
	before := load.answered.Load()
	k.eventually("the new Pods answer 50 requests", func(context.Context) error {
		if n := load.answered.Load() - before; n < 50 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	t.Logf("%d requests during the upgrade, none failed", load.stop())
	k.serves = false
	requireController(t)
	sh(t, "! kubectl get networkpolicy "+webhookAccount+" --namespace="+systemNamespace)

	k.run("make deploy IMG=" + testImage)
	// kubectl must not go on to prefer v1beta1.
	sh(t, "kubectl get foo --namespace="+namespace)
	k.eventually("all Pods have ended", func(context.Context) error {
		if len(k.pods) != 0 {
			return fmt.Errorf("%d Pods", len(k.pods))
		}
		return nil
	})
	if left := sh(t, "kubectl get deployments,services,serviceaccounts,secrets,poddisruptionbudgets,networkpolicies,roles,rolebindings --namespace="+systemNamespace+" -o name | grep webhook || true"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// requireController fails the test if the controller's Pods or rights have anything of the webhooks.
func requireController(t *testing.T) {
	t.Helper()
	const spec = "kubectl get deployment sample-controller -o jsonpath='{.spec.template.spec.containers}' --namespace=" + systemNamespace
	if container := sh(t, spec); strings.Contains(container, "webhook") || strings.Contains(container, "lifecycle") || !strings.Contains(container, `"path":"/readyz"`) {
		t.Errorf("left of the webhooks: %s", container)
	}
	for role := range grantedRules(t, serviceAccount) {
		if strings.Contains(role, "webhook") {
			t.Errorf("the controller still has the role %s", role)
		}
	}
}

// requestWebhooks creates a Foo in both versions, without storing it, and returns an error if a
// webhook has not answered.
func requestWebhooks(ctx context.Context, namespace string) error {
	meta, options := metav1.ObjectMeta{Name: "x"}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	beta, err := shared.clientset.SamplecontrollerV1beta1().Foos(namespace).Create(ctx, &v1beta1.Foo{ObjectMeta: meta}, options)
	if err != nil {
		return err
	}
	alpha, err := shared.clientset.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, &v1alpha1.Foo{ObjectMeta: meta}, options)
	if err == nil && (alpha.Spec.DeploymentName != "x" || beta.Spec.Deployment.Name != "x") {
		// The API server ignores an admission webhook that does not answer.
		err = errors.New("no answer of the admission webhook")
	}
	return err
}

// startWebhookLoad sends requests that need the webhooks, one after the other.
func startWebhookLoad(t *testing.T, namespace string) *load {
	return startLoad(t, func(ctx context.Context, _ int64) error { return requestWebhooks(ctx, namespace) })
}

// customStatus is the annotation of Pods that the simulated nodes leave alone.
const customStatus = "kwok.x-k8s.io/status: custom"

// kubelet runs the Pods with that annotation, in the namespace of the manifests, as processes. It is
// the Service of the webhooks, too: a port on which each connection is forwarded to a Pod that is
// ready. All of its methods but forward belong to the goroutine of the test.
type kubelet struct {
	t *testing.T
	// program is a link to the controller. Requests with its name are none of those that
	// TestLeastPrivilege compares with the manifests of today.
	program string
	// kubectl is a program that applies manifests with the annotation, and with the URL of the port in
	// place of the Service.
	kubectl string
	pods    map[types.UID]*pod
	// serves says that the Service must always have an endpoint, which a NetworkPolicy lets clients reach. Requests
	// that find none would not fail while the API server keeps a connection to a Pod of before.
	serves bool

	mu sync.Mutex
	// endpoints are the addresses of the webhooks in Pods that are ready.
	endpoints []string
	forwarded int
}

// pod is a Pod that runs as a process.
type pod struct {
	*process
	name   string
	labels labels.Set
	// stop is when the process gets its SIGTERM, zero while the Pod is not being deleted.
	stop    time.Time
	stopped bool
}

func startKubelet(t *testing.T) *kubelet {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	dir := t.TempDir()
	k := &kubelet{t: t, pods: map[types.UID]*pod{}, program: filepath.Join(dir, upgrading), kubectl: filepath.Join(dir, "kubectl")}
	must(t, os.Symlink(filepath.Join(shared.work, "bin", "sample-controller"), k.program))
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go k.forward(connection)
		}
	}()
	script := fmt.Sprintf(`#!/bin/bash
[[ "$*" == *"-f -" ]] || exec kubectl "$@"
awk '
  client && /service:$/ { indentation = $0; sub(/service:/, "", indentation); inside = 1; next }
  inside && /path:/ { print indentation "url: https://%s" $2; inside = 0; next }
  inside { next }
  { client = /clientConfig:$/ }
  { print }
  /kubectl.kubernetes.io.default-container:/ { sub(/kubectl.*/, "%s"); print }
' | exec kubectl "$@"
`, listener.Addr(), customStatus)
	must(t, os.WriteFile(k.kubectl, []byte(script), 0o755))
	return k
}

// run runs the command line while the Pods run.
func (k *kubelet) run(command string) {
	k.t.Helper()
	var output string
	done := make(chan error, 1)
	go func() {
		var err error
		output, err = tryIn(k.t.Context(), 2*waitTimeout, command)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			k.t.Logf("$ %s\n%s", command, output)
			must(k.t, err)
			return
		case <-time.After(apiInterval):
			k.sync()
		}
	}
}

// eventually waits while the Pods run.
func (k *kubelet) eventually(what string, check func(ctx context.Context) error) {
	k.t.Helper()
	eventually(k.t, what, func(ctx context.Context) error {
		k.sync()
		return check(ctx)
	})
}

// sync starts and ends processes, reports which are ready, and reads the endpoints of the Service.
func (k *kubelet) sync() {
	k.t.Helper()
	pods, err := shared.kube.CoreV1().Pods(systemNamespace).List(k.t.Context(), metav1.ListOptions{})
	must(k.t, err)
	left := map[types.UID]*pod{}
	for i := range pods.Items {
		object := &pods.Items[i]
		if key, value, _ := strings.Cut(customStatus, ": "); object.Annotations[key] != value || object.Spec.NodeName == "" {
			continue
		}
		p := k.pods[object.UID]
		if p == nil {
			p = k.start(object)
		}
		left[object.UID] = p
		k.syncPod(p, object)
	}
	k.pods = left
	selector := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + webhookAccount}
	found, err := shared.kube.DiscoveryV1().EndpointSlices(systemNamespace).List(k.t.Context(), selector)
	must(k.t, err)
	policies, err := shared.kube.NetworkingV1().NetworkPolicies(systemNamespace).List(k.t.Context(), metav1.ListOptions{})
	must(k.t, err)
	var endpoints []string
	for _, slice := range found.Items {
		for _, endpoint := range slice.Endpoints {
			for _, p := range k.pods {
				if endpoint.TargetRef.Name != p.name {
					continue
				}
				if ptr.Deref(endpoint.Conditions.Ready, false) {
					endpoints = append(endpoints, p.awaitServing("webhooks"))
				}
				if k.serves && !slices.ContainsFunc(policies.Items, func(n networkingv1.NetworkPolicy) bool { return admitsWebhooks(&n, p.labels) }) {
					k.t.Errorf("no NetworkPolicy lets the API server reach the endpoint %s", p.name)
				}
			}
		}
	}
	if k.serves && len(endpoints) == 0 {
		k.t.Error("the Service has no endpoint")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endpoints = endpoints
}

// admitsWebhooks reports whether the policy lets clients reach the webhooks of Pods with these labels.
func admitsWebhooks(policy *networkingv1.NetworkPolicy, pod labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	return err == nil && selector.Matches(pod) && slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
		return slices.ContainsFunc(rule.Ports, func(port networkingv1.NetworkPolicyPort) bool { return port.Port.StrVal == "webhook" })
	})
}

// start starts the process of a Pod, with the flags and the service account of its manifest.
func (k *kubelet) start(object *corev1.Pod) *pod {
	k.t.Helper()
	secrets := filepath.Join(shared.work, "tmp", object.Name)
	must(k.t, shared.writeSecrets(k.t.Context(), cache.NewObjectName(systemNamespace, object.Spec.ServiceAccountName), secrets))
	flags := strings.Join(object.Spec.Containers[0].Args, " ") + " --health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=127.0.0.1:0"
	if strings.Contains(flags, "--webhook-bind-address") {
		flags += " --webhook-bind-address=127.0.0.1:0 --webhook-hosts=127.0.0.1"
	}
	return &pod{process: start(k.t, k.t.TempDir(), shared.asInPod(k.t, secrets, k.program+" "+flags)), name: object.Name, labels: object.Labels}
}

func (k *kubelet) syncPod(p *pod, object *corev1.Pod) {
	k.t.Helper()
	switch {
	case object.DeletionTimestamp == nil:
		k.reportReady(p, object)
	case p.stop.IsZero():
		p.stop = time.Now()
		if hooks := object.Spec.Containers[0].Lifecycle; hooks != nil {
			p.stop = p.stop.Add(time.Duration(hooks.PreStop.Sleep.Seconds) * time.Second)
		}
	case !p.stopped && time.Now().After(p.stop):
		p.signal(syscall.SIGTERM)
		p.stopped = true
	case p.stopped && !p.running():
		must(k.t, shared.kube.CoreV1().Pods(systemNamespace).Delete(k.t.Context(), p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
}

// reportReady reports the Pod ready if its readiness probe succeeds.
func (k *kubelet) reportReady(p *pod, object *corev1.Pod) {
	k.t.Helper()
	address := p.serving("health")
	if address == "" || slices.ContainsFunc(object.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
		return
	}
	if code, _ := fetch(k.t, "http://"+address+object.Spec.Containers[0].ReadinessProbe.HTTPGet.Path, ""); code != http.StatusOK {
		return
	}
	const ready = `{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%[1]q}],"conditions":[{"type":"Ready","status":"True"},{"type":"ContainersReady","status":"True"}]}}`
	patch := fmt.Appendf(nil, ready, fmt.Sprintf("10.255.0.%d", len(k.pods)+1))
	_, err := shared.kube.CoreV1().Pods(systemNamespace).Patch(k.t.Context(), object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	must(k.t, err)
}

// forward forwards a connection to one of the endpoints, in turn.
func (k *kubelet) forward(connection net.Conn) {
	defer func() { _ = connection.Close() }()
	k.mu.Lock()
	endpoints := k.endpoints
	k.forwarded++
	turn := k.forwarded
	k.mu.Unlock()
	if len(endpoints) == 0 {
		return
	}
	to, err := net.Dial("tcp", endpoints[turn%len(endpoints)])
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() {
		_, _ = io.Copy(to, connection)
		_ = to.Close()
	}()
	_, _ = io.Copy(connection, to)
}
