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
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/conversion"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

// webhookAccount is the service account of the webhooks.
const webhookAccount = serviceAccount + "-webhook"

// webhookFlags let the API server reach the webhooks without a Service, and make the process renew
// their certificate every few seconds.
const webhookFlags = "-v=2 --webhooks-only --webhook-hosts=127.0.0.1 --webhook-certificate-lifetime=12s " +
	"--health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=127.0.0.1:0 --webhook-bind-address="

// TestWalkthrough5 covers admission and conversion. It changes the CRD, so no other test may
// run in parallel.
func TestWalkthrough5(t *testing.T) {
	t.Run("an upgrade", webhookUpgrade)
	w := newWebhookEnv(t)
	t.Run("the single file", func(t *testing.T) {
		// Pod Security warns about a Deployment whose Pods it would refuse.
		output := sh(t, "kubectl apply --dry-run=server -f artifacts/deploy/install-webhook.yaml")
		mustContain(t, output, "deployment.apps/sample-controller configured", "validatingwebhookconfiguration.admissionregistration.k8s.io/sample-controller-webhook configured")
		if strings.Contains(output, "Warning") {
			t.Errorf("%s", output)
		}
	})
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
	t.Run("admission", w.admission)
	t.Run("two versions", w.versions)
	t.Run("at the same time", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){"many Foos": w.compareVersions, "a rotation under load": w.rotation} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	t.Run("a missing right", w.missingRight)
	t.Run("a stolen token", w.stolenToken)
	t.Run("hostile clients", w.hostile)
	t.Run("repairs", w.repairs)
	t.Run("a migration", w.migration)
	t.Run("certificate files", w.files)
	t.Run("down", w.down)
	t.Run("slow", w.slow)
	t.Run("impostor", w.impostor)
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
// the API server call the webhooks, then the webhooks. The roles stay for TestLeastPrivilege.
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

// install applies the component of the manifests, with the addresses of the admission and the
// conversion webhooks in place of the Service.
func (w *webhookEnv) install(t *testing.T, admission, conversion string) {
	t.Helper()
	var kept []any
	for document := range strings.SplitSeq(sh(t, "kubectl kustomize artifacts/deploy/with-webhook | kubectl create --dry-run=client --validate=false -o json -f -"), "\n}\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(document+"\n}"), &object.Object); err != nil {
			t.Fatalf("%v: %s", err, document)
		}
		if !strings.Contains(object.GetName(), "-webhook") && object.GetName() != "foos.samplecontroller.k8s.io" {
			continue
		}
		callByURL(object.Object, admission, conversion)
		kept = append(kept, object.Object)
	}
	if len(kept) != 14 {
		t.Fatalf("the component has %d objects, want 14", len(kept))
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": kept})
	must(t, err)
	path := filepath.Join(t.TempDir(), "webhook.json")
	must(t, os.WriteFile(path, list, 0o600))
	sh(t, "kubectl apply -f "+path)
}

// callByURL replaces the service in each clientConfig by a URL.
func callByURL(value any, admission, conversion string) {
	switch value := value.(type) {
	case map[string]any:
		if config, ok := value["clientConfig"].(map[string]any); ok {
			path, _, _ := unstructured.NestedString(config, "service", "path")
			delete(config, "service")
			config["url"] = "https://" + conversion + path
			// Only admission webhooks have a timeout.
			if value["timeoutSeconds"] != nil {
				config["url"] = "https://" + admission + path
			}
		}
		for _, inside := range value {
			callByURL(inside, admission, conversion)
		}
	case []any:
		for _, inside := range value {
			callByURL(inside, admission, conversion)
		}
	}
}

// awaitWebhooks waits until the API server serves both versions and calls the admission
// webhook.
func (w *webhookEnv) awaitWebhooks(t *testing.T) {
	t.Helper()
	eventually(t, "v1beta1 is served", func(ctx context.Context) error {
		_, err := shared.clientset.SamplecontrollerV1beta1().Foos(w.namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	eventually(t, "the admission webhook answers", func(ctx context.Context) error {
		foo, err := shared.clientset.SamplecontrollerV1alpha1().Foos(w.namespace).Create(ctx, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && foo.Spec.DeploymentName != "x" {
			err = fmt.Errorf("spec %+v", foo.Spec)
		}
		return err
	})
}

// apply returns a command that applies a Foo of the version.
func (w *webhookEnv) apply(version, name, spec string) string {
	return strings.Replace(applyFoo(w.namespace, name, spec), "/v1alpha1", "/"+version, 1)
}

func (w *webhookEnv) admission(t *testing.T) {
	sh(t, w.apply("v1alpha1", "plain", ""))
	shUntil(t, "kubectl get foos.v1alpha1.samplecontroller.k8s.io plain -o jsonpath='{.spec}' --namespace="+w.namespace, `^{"deploymentName":"plain","replicas":1}$`)
	sh(t, "kubectl wait --for=condition=Ready --timeout=3m foo/plain --namespace="+w.namespace)
	sh(t, w.apply("v1beta1", "beta", "spec: {replicas: 0}"))
	shUntil(t, "kubectl get foos.v1beta1.samplecontroller.k8s.io beta -o jsonpath='{.spec}' --namespace="+w.namespace, `^{"deployment":{"name":"beta"},"replicas":0}$`)

	const held = `the name "plain" is held by Foo plain; choose another name`
	w.awaitRefused(t, "plain", held)
	mustContain(t, shFails(t, w.apply("v1alpha1", "second", "spec: {deploymentName: plain}")), "spec.deploymentName", held)
	mustContain(t, shFails(t, w.apply("v1beta1", "second", "spec: {deployment: {name: plain}}")), "spec.deployment.name", held)
	sh(t, "kubectl create deployment foreign --image=foreign --replicas=0 --namespace="+w.namespace)
	w.awaitRefused(t, "foreign", "a Deployment that has no controller")
	sh(t, w.apply("v1alpha1", "mover", "spec: {deploymentName: mover, replicas: 0}"))
	mustContain(t, sh(t, w.apply("v1alpha1", "mover", "spec: {deploymentName: plain, replicas: 0}")), "Warning: spec.deploymentName", `"plain" is held by Foo plain`, "foo.samplecontroller.k8s.io/mover configured")
	mustContain(t, sh(t, w.apply("v1alpha1", "none", "spec: {deploymentName: none, replicas: 0}")), "Warning: spec.replicas is 0")
	// A Foo that is replaced by one without a deploymentName keeps its own.
	sh(t, w.apply("v1alpha1", "kept", "spec: {deploymentName: other, replicas: 0}"))
	// A status that the controller writes meanwhile would be a conflict.
	sh(t, "kubectl wait --for=condition=Ready --timeout=3m foo/kept --namespace="+w.namespace)
	sh(t, strings.Replace(w.apply("v1alpha1", "kept", "spec: {replicas: 0}"), "kubectl apply", "kubectl replace", 1))
	mustContain(t, sh(t, "kubectl get foos.v1alpha1.samplecontroller.k8s.io kept -o jsonpath='{.spec.deploymentName}' --namespace="+w.namespace), "other")
}

// awaitRefused waits until the webhook has seen who holds the name of that Deployment, and refuses
// another Foo for the reason.
func (w *webhookEnv) awaitRefused(t *testing.T, deployment, reason string) {
	t.Helper()
	second := strings.Replace(w.apply("v1alpha1", "second", "spec: {deploymentName: "+deployment+"}"), "kubectl apply", "kubectl apply --dry-run=server", 1)
	eventually(t, "the webhook refuses the name "+deployment, func(context.Context) error {
		output, err := try(t, second)
		switch {
		case err == nil:
			return errors.New("it admits the name")
		case !strings.Contains(output, reason):
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
}

// versions reads, writes and watches a Foo through both versions.
func (w *webhookEnv) versions(t *testing.T) {
	alphas, betas := shared.clientset.SamplecontrollerV1alpha1().Foos(w.namespace), shared.clientset.SamplecontrollerV1beta1().Foos(w.namespace)
	before, err := betas.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	// The API server ends the watches of a resource whose CRD changes, as when a caBundle is written.
	events, err := watchtools.NewRetryWatcherWithContext(t.Context(), before.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = "metadata.name=both"
			return betas.Watch(ctx, options)
		},
	})
	must(t, err)
	defer events.Stop()
	_, err = betas.Create(t.Context(), &v1beta1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "both"}, Spec: v1beta1.FooSpec{
		Deployment: v1beta1.FooDeployment{Name: "both", Image: "nginx:1"}, Replicas: ptr.To[int32](0),
	}}, metav1.CreateOptions{})
	must(t, err)
	alpha, err := alphas.Get(t.Context(), "both", metav1.GetOptions{})
	must(t, err)
	if diff := cmp.Diff(v1alpha1.FooSpec{DeploymentName: "both", Image: "nginx:1", Replicas: ptr.To[int32](0)}, alpha.Spec); diff != "" {
		t.Errorf("as v1alpha1 (-want +got):\n%s", diff)
	}
	_, err = alphas.Patch(t.Context(), "both", types.MergePatchType, []byte(`{"spec":{"image":"nginx:2"},"metadata":{"annotations":{"kept":"yes"}}}`), metav1.PatchOptions{})
	must(t, err)
	_, err = betas.Patch(t.Context(), "both", types.MergePatchType, []byte(`{"spec":{"deployment":{"image":"nginx:3"}}}`), metav1.PatchOptions{})
	must(t, err)
	sh(t, strings.Replace(w.apply("v1beta1", "both", "spec: {deployment: {name: both}, replicas: 2}"), "kubectl apply", "kubectl apply --server-side --force-conflicts --field-manager=beta", 1))
	sh(t, strings.Replace(w.apply("v1alpha1", "both", "spec: {deploymentName: both, image: 'nginx:4'}"), "kubectl apply", "kubectl apply --server-side --force-conflicts --field-manager=alpha", 1))
	mustContain(t, sh(t, "kubectl scale foos.v1beta1.samplecontroller.k8s.io both --replicas=3 --namespace="+w.namespace), "scaled")
	sh(t, "kubectl wait --for=condition=Ready --timeout=3m foos.v1beta1.samplecontroller.k8s.io/both --namespace="+w.namespace)

	beta, err := betas.Get(t.Context(), "both", metav1.GetOptions{})
	must(t, err)
	if diff := cmp.Diff(v1beta1.FooSpec{Deployment: v1beta1.FooDeployment{Name: "both", Image: "nginx:4"}, Replicas: ptr.To[int32](3)}, beta.Spec); diff != "" {
		t.Errorf("as v1beta1 (-want +got):\n%s", diff)
	}
	if beta.Annotations["kept"] != "yes" || beta.Status.AvailableReplicas != 3 {
		t.Errorf("%+v", beta)
	}
	must(t, awaitWatched(t, events, beta.ResourceVersion))
	mustContain(t, sh(t, "kubectl get foos.v1beta1.samplecontroller.k8s.io both --namespace="+w.namespace), "both         3         3           True")
	mustContain(t, sh(t, "kubectl explain foos.spec.deployment --api-version=samplecontroller.k8s.io/v1beta1"), "image", "name")
	mustContain(t, shFails(t, w.apply("v1beta1", "bad", "spec: {deployment: {name: Bad_Name}}")), "spec.deployment.name")
	must(t, alphas.Delete(t.Context(), "both", metav1.DeleteOptions{}))
}

// awaitWatched returns nil once the watch has reported the resourceVersion.
func awaitWatched(t *testing.T, events watch.Interface, version string) error {
	for {
		select {
		case event := <-events.ResultChan():
			foo, ok := event.Object.(*v1beta1.Foo)
			if !ok {
				return fmt.Errorf("the watch ended: %+v", event)
			}
			if foo.ResourceVersion == version {
				return nil
			}
		case <-time.After(waitTimeout):
			return errors.New("the watch did not report version " + version)
		case <-t.Context().Done():
			return t.Context().Err()
		}
	}
}

// compareVersions compares 250 Foos, or WEBHOOK_FOOS, in both versions, and logs the time
// that it takes to list them.
func (w *webhookEnv) compareVersions(t *testing.T) {
	count := 250
	if text := os.Getenv("WEBHOOK_FOOS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	alphas, betas := shared.clientset.SamplecontrollerV1alpha1().Foos(w.namespace), shared.clientset.SamplecontrollerV1beta1().Foos(w.namespace)
	var writers sync.WaitGroup
	for worker := range 16 {
		writers.Go(func() {
			for i := worker; i < count; i += 16 {
				name := fmt.Sprintf("foo-%d", i)
				foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FooSpec{DeploymentName: name, Replicas: ptr.To[int32](0)}}
				if i%2 == 0 {
					foo.Spec.Image = "nginx:" + name
				}
				if _, err := alphas.Create(t.Context(), foo, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	// The controller updates the Foos at the same time. A Foo whose resourceVersions differ
	// between the two lists is compared in the next round.
	compared := map[string]bool{}
	eventually(t, "all Foos are equal in both versions", func(ctx context.Context) error {
		alpha, err := alphas.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		beta, err := betas.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(alpha.Items) < count || len(beta.Items) != len(alpha.Items) {
			t.Fatalf("%d and %d Foos", len(alpha.Items), len(beta.Items))
		}
		for i := range alpha.Items {
			a, b := &alpha.Items[i], &beta.Items[i]
			if a.Name != b.Name || a.ResourceVersion != b.ResourceVersion {
				continue
			}
			must(t, sameInBoth(a, b))
			compared[a.Name] = true
		}
		if len(compared) < len(alpha.Items) {
			return fmt.Errorf("compared %d of %d", len(compared), len(alpha.Items))
		}
		return nil
	})
	var tookAlpha, tookBeta []time.Duration
	for range 5 {
		began := time.Now()
		if _, err := alphas.List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		between := time.Now()
		if _, err := betas.List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		tookAlpha, tookBeta = append(tookAlpha, between.Sub(began)), append(tookBeta, time.Since(between))
	}
	slices.Sort(tookAlpha)
	slices.Sort(tookBeta)
	t.Logf("LIST of %d: %s as v1alpha1, %s as v1beta1, medians of %d", count, tookAlpha[2], tookBeta[2], len(tookBeta))
	// The API server ends a request or its connection after a minute, on a busy machine before it has
	// deleted all Foos. The next request deletes the rest.
	err := errors.New("not asked yet")
	for try := 0; try < 5 && err != nil; try++ {
		err = alphas.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	if err != nil {
		t.Error(err)
	}
}

// sameInBoth returns nil if the v1alpha1 Foo converts to the v1beta1 one. It ignores the
// managed fields, whose field names differ between the versions.
func sameInBoth(alpha *v1alpha1.Foo, beta *v1beta1.Foo) error {
	alpha.APIVersion, alpha.Kind, alpha.ManagedFields, beta.ManagedFields = "samplecontroller.k8s.io/v1alpha1", "Foo", nil, nil
	text, err := json.Marshal(alpha)
	if err != nil {
		return err
	}
	converted, err := conversion.Convert(text, "samplecontroller.k8s.io/v1beta1")
	if err != nil {
		return err
	}
	want := &v1beta1.Foo{}
	if err := json.Unmarshal(converted, want); err != nil {
		return err
	}
	want.TypeMeta = beta.TypeMeta
	if diff := cmp.Diff(want, beta); diff != "" {
		return fmt.Errorf("%s (-v1alpha1 +v1beta1):\n%s", cache.MetaObjectToName(alpha), diff)
	}
	return nil
}
