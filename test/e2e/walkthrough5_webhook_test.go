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
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

// webhookAccount is the service account of the webhooks.
const webhookAccount = serviceAccount + "-webhook"

// webhookFlags let the API server reach the webhooks without a Service.
const webhookFlags = "-v=2 --webhooks-only --webhook-hosts=127.0.0.1 " +
	"--health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=127.0.0.1:0 --webhook-bind-address="

// TestWalkthrough5 covers admission and conversion. It changes the CRD, so no other test may run in parallel. Each
// change ends the watches of Foos, and a reflector waits longer each time, so what waits for others comes first.
func TestWalkthrough5(t *testing.T) {
	w := newWebhookEnv(t)
	// Pod Security warns about a Deployment whose Pods it would refuse.
	if output := sh(t, "kubectl apply --dry-run=server -f artifacts/deploy/install-webhook.yaml"); strings.Contains(output, "Warning") {
		t.Error("the single file causes a warning")
	}
	t.Run("metrics", func(t *testing.T) {
		sh(t, fmt.Sprintf("kubectl create clusterrolebinding webhook-scraper --clusterrole=sample-controller-metrics-reader --serviceaccount=%s:default", w.namespace))
		defer sh(t, "kubectl delete clusterrolebinding webhook-scraper")
		code, body := fetch(t, "https://"+w.server.awaitServing("metrics")+"/metrics", requestToken(t, w.namespace, "default"))
		if code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		checkServed(t, body, "webhook-alerts.yaml")
		checkDocumented(t, body)
	})
	t.Run("admission and conversion", func(t *testing.T) { envIn(t, w.namespace).script("walkthrough5_webhook") })
	t.Run("a stolen token", w.stolenToken)
	t.Run("a migration", w.migration)
	t.Run("certificate files", w.files)
	t.Run("down", w.down)
	t.Run("a rotation under load", w.rotation)
	t.Run("removal", w.removal)
}

// webhookEnv is a controller, and a process with webhooks that the API server calls by a URL.
type webhookEnv struct {
	// t is the whole test's, because processes outlive the subtest that starts them.
	t          *testing.T
	controller *process
	// server serves the webhooks at the address, with the secrets of its service account.
	server    *process
	address   string
	secrets   string
	namespace string
}

func newWebhookEnv(t *testing.T) *webhookEnv {
	t.Helper()
	shared.deploy(t)
	w := &webhookEnv{t: t, namespace: unique("webhooks"), secrets: filepath.Join(shared.work, "tmp", webhookAccount)}
	sh(t, "kubectl create namespace "+w.namespace)
	// Other tests need the CRD without the webhooks, even if this test fails.
	shOnCleanup(t, removeWebhooks, "kubectl delete namespace "+w.namespace+" --wait=false")
	w.install(t, "127.0.0.1:1", "127.0.0.1:1")
	must(t, shared.writeSecrets(t.Context(), cache.NewObjectName(systemNamespace, webhookAccount), w.secrets))
	w.start("127.0.0.1:0")
	w.address = w.server.awaitServing("webhooks")
	w.install(t, w.address, w.address)
	w.awaitWebhooks(t)
	w.startController("sample-controller")
	return w
}

// removeWebhooks removes the component from the cluster: first the configuration that makes
// the API server call the webhooks, then the webhooks.
const removeWebhooks = "kubectl apply -f artifacts/examples/crd.yaml && " +
	"kubectl delete --ignore-not-found mutatingwebhookconfiguration,validatingwebhookconfiguration " + webhookAccount + " && " +
	"kubectl delete --ignore-not-found --namespace=" + systemNamespace + " service,deployment,poddisruptionbudget " + webhookAccount + " && " +
	"kubectl delete --ignore-not-found --namespace=" + systemNamespace + " networkpolicy " + webhookAccount + "-server"

// start starts the webhooks at the address, and waits until they are ready.
func (w *webhookEnv) start(address string) {
	w.t.Helper()
	w.server = startWithSecrets(w.t, w.secrets, webhookFlags+address)
	w.server.awaitReady()
}

// awaitReady waits until the process is ready.
func (p *process) awaitReady() {
	p.t.Helper()
	address := p.awaitServing("health")
	eventually(p.t, "the process is ready", func(context.Context) error {
		if code, body := fetch(p.t, "http://"+address+"/readyz?verbose", ""); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// startController starts the controller with that command.
func (w *webhookEnv) startController(command string) {
	w.t.Helper()
	w.controller = start(w.t, w.t.TempDir(), shared.asInPod(w.t, shared.secrets, command+" -v=2 --leader-elect"))
	w.controller.awaitOutput(`"Started workers" controller="foo"`)
}

// restartController restarts the controller, whose reflectors wait up to 30 s after a change of the CRD.
func (w *webhookEnv) restartController() {
	w.t.Helper()
	w.controller.stop()
	w.startController("sample-controller")
}

// install applies the component of the manifests, with the addresses of the admission and the
// conversion webhooks in place of the Service. Only admission webhooks have a timeout.
func (w *webhookEnv) install(t *testing.T, admission, conversion string) {
	t.Helper()
	const byURL = `set -o pipefail
kubectl kustomize artifacts/deploy/with-webhook | kubectl create --dry-run=client --validate=false -o json -f - | jq --slurp '
  {apiVersion: "v1", kind: "List", items: map(
    select(.metadata.name | test("-webhook") or . == "foos.samplecontroller.k8s.io") |
    walk(if type == "object" and .clientConfig.service then .clientConfig =
      {url: ("https://" + (if .timeoutSeconds then "%s" else "%s" end) + .clientConfig.service.path)} else . end))}' |
kubectl apply -f -`
	sh(t, fmt.Sprintf(byURL, admission, conversion))
}

// awaitWebhooks waits until the API server serves both versions and calls the admission
// webhook.
func (w *webhookEnv) awaitWebhooks(t *testing.T) {
	t.Helper()
	eventually(t, "the webhooks answer", func(ctx context.Context) error { return requestWebhooks(ctx, w.namespace) })
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

// awaitCollector waits until the garbage collector, which looks for new versions every 30 s, has begun to watch Foos
// since the mark, in the version that they convert to.
func awaitCollector(t *testing.T, mark int) {
	t.Helper()
	eventually(t, "the garbage collector watches v1beta1", func(context.Context) error {
		var others []string
		for _, r := range auditedRequests(t)[mark:] {
			if !strings.HasSuffix(r.UserAgent, "/metadata-informers") || r.ObjectRef.Resource != "foos" {
				continue
			}
			if r.Verb == "watch" && strings.HasPrefix(r.RequestURI, "/apis/samplecontroller.k8s.io/v1beta1/") {
				return nil
			}
			others = append(others, r.Verb+" "+r.RequestURI)
		}
		return fmt.Errorf("it has only sent %q", others)
	})
}

// kubectl runs a kubectl command in the namespace.
func (w *webhookEnv) kubectl(t *testing.T, arguments string) string {
	t.Helper()
	return sh(t, "kubectl --namespace="+w.namespace+" "+arguments)
}

// until runs a kubectl command in the namespace until its output matches the pattern.
func (w *webhookEnv) until(t *testing.T, arguments, pattern string) {
	t.Helper()
	shUntil(t, "kubectl --namespace="+w.namespace+" "+arguments, pattern)
}

// apply returns a command that applies a Foo of the version.
func (w *webhookEnv) apply(version, name, spec string) string {
	return strings.Replace(applyFoo(w.namespace, name, spec), "/v1alpha1", "/"+version, 1)
}
