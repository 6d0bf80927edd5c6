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
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/cert"
)

// rotation loses the certificate, and sends requests that need admission and conversion while the webhooks replace
// it every few seconds. One replica answers for admission and another one for conversion, and either may renew the
// certificate. No request may fail.
func (w *webhookEnv) rotation(t *testing.T) {
	const often = " --webhook-certificate-lifetime=12s"
	w.server.stop()
	sh(t, "kubectl delete secret sample-controller-webhook --namespace="+systemNamespace)
	w.start(w.address + often)
	second := startWithSecrets(t, w.secrets, webhookFlags+"127.0.0.1:0 -v=4"+often)
	w.install(t, w.address, second.awaitServing("webhooks"))
	w.awaitWebhooks(t)
	load := startWebhookLoad(t, w.namespace)
	old := w.trustedAuthorities(t)
	eventually(t, "the certificates have been replaced", func(context.Context) error {
		for authority := range w.trustedAuthorities(t) {
			if old[authority] {
				return errors.New("the API server trusts an old one")
			}
		}
		return nil
	})
	t.Logf("%d requests during a rotation, none failed", load.stop())
	mustContain(t, second.output(), `"Answered a webhook request" webhook="/convert-foo"`)
	w.install(t, w.address, w.address)
	w.awaitWebhooks(t)
	second.stop()
	w.awaitWebhooks(t)
}

// trustedAuthorities returns the authorities of the conversion webhook that the API server
// trusts, as PEM.
func (w *webhookEnv) trustedAuthorities(t *testing.T) map[string]bool {
	t.Helper()
	const end = "-----END CERTIFICATE-----\n"
	text := sh(t, "kubectl get crd foos.samplecontroller.k8s.io -o jsonpath='{.spec.conversion.webhook.clientConfig.caBundle}' | base64 -d")
	trusted := map[string]bool{}
	for authority := range strings.SplitSeq(strings.TrimSuffix(text, end), end) {
		trusted[authority] = true
	}
	return trusted
}

// down stops the webhooks. Requests in v1alpha1 succeed as without webhooks. Requests in
// v1beta1, which kubectl prefers, fail with a message that names the conversion webhook,
// until the webhooks are back. The controller needs none.
func (w *webhookEnv) down(t *testing.T) {
	sh(t, w.apply("v1beta1", "mixed", "spec: {deployment: {name: mixed}, replicas: 0}"))
	w.restartController()
	w.server.stop()
	before := ignoredWebhookFailures(t)
	w.reconciles(t)
	if ignoredWebhookFailures(t) == before {
		t.Error("SampleControllerWebhookUnanswered would not fire")
	}
	mustContain(t, shFails(t, w.apply("v1beta1", "later", "spec: {deployment: {name: later}, replicas: 0}")), "conversion webhook for samplecontroller.k8s.io/v1beta1", "connection refused")
	w.start(w.address)
	w.awaitWebhooks(t)
	sh(t, w.apply("v1beta1", "later", "spec: {deployment: {name: later}, replicas: 0}"))
}

// reconciles creates, changes and lists Foos as v1alpha1, and changes one whose field managers use v1beta1. The
// controller follows.
func (w *webhookEnv) reconciles(t *testing.T) {
	t.Helper()
	const foos = "foos.v1alpha1.samplecontroller.k8s.io"
	namespace := " --namespace=" + w.namespace
	// The API server may still be reading a CRD that has just changed.
	shUntil(t, w.apply("v1alpha1", "down", "spec: {deploymentName: down, replicas: 0}"), "created|unchanged")
	for _, foo := range []string{"down", "mixed"} {
		sh(t, fmt.Sprintf(`kubectl patch %s/%s --type=merge -p '{"spec":{"replicas":1}}'`, foos, foo)+namespace)
	}
	sh(t, "kubectl get "+foos+namespace)
	for _, foo := range []string{"down", "mixed"} {
		sh(t, "kubectl wait --for=jsonpath='{.status.availableReplicas}'=1 --timeout=3m "+foos+"/"+foo+namespace)
	}
}

// removal removes the component after the webhooks have stopped, and ends the controller.
func (w *webhookEnv) removal(t *testing.T) {
	sh(t, w.apply("v1beta1", "stays", "spec: {deployment: {name: stays}, replicas: 0}"))
	w.server.stop()
	sh(t, removeWebhooks)
	mustContain(t, w.kubectl(t, "get foos.v1alpha1.samplecontroller.k8s.io stays -o jsonpath='{.apiVersion} {.spec}'"), `samplecontroller.k8s.io/v1alpha1 {"deploymentName":"stays","replicas":0}`)
	eventually(t, "v1beta1 is gone", func(context.Context) error {
		output, err := try(t, "kubectl get --raw /apis/samplecontroller.k8s.io/v1beta1")
		switch {
		case err == nil:
			return errors.New("the API server serves it")
		case !strings.Contains(output, "could not find"):
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	// kubectl may have asked which versions there are before that one was gone, and would use it for hours.
	shUntil(t, "kubectl api-resources --api-group=samplecontroller.k8s.io", "samplecontroller.k8s.io/v1alpha1")
	w.kubectl(t, "delete foos.v1alpha1.samplecontroller.k8s.io stays")
	w.controller.stop()
}

// ignoredWebhookFailures returns how many failures of our webhooks the API server has ignored.
func ignoredWebhookFailures(t *testing.T) int {
	t.Helper()
	text := sh(t, `kubectl get --raw /metrics | awk '/^apiserver_admission_webhook_fail_open_count.*samplecontroller/ { n += $NF } END { print n + 0 }'`)
	count, err := strconv.Atoi(strings.TrimSpace(text))
	must(t, err)
	return count
}

// TestWebhookClientCA builds overlays that mount the authorities of the API server's certificate.
func TestWebhookClientCA(t *testing.T) {
	t.Parallel()
	for _, components := range [][]string{{"webhook", "webhook-client-ca"}, {"webhook", "webhook-cert-manager", "webhook-client-ca"}} {
		mustContain(t, buildOverlay(t, components...), "--webhook-client-ca-file=/client-ca/ca.crt", "mountPath: /client-ca\n", "name: client-ca\n",
			"- configMap:\n          name: sample-controller-webhook-client-ca\n        name: client-ca\n")
	}
}

// files starts the webhooks with certificate files, as cert-manager writes them. pkg/server tests how they are
// replaced.
func (w *webhookEnv) files(t *testing.T) {
	manifests := sh(t, "kubectl kustomize artifacts/deploy/with-webhook-cert-manager")
	mustContain(t, manifests, "cert-manager.io/inject-ca-from", "--webhook-tls-cert-file=/certificate/tls.crt", "kind: Certificate")
	if role := regexp.MustCompile(`kind: (Cluster)?Role(Binding)?\nmetadata:\n(  .*\n)*?  name: sample-controller-webhook\n`).FindString(manifests); role != "" {
		t.Errorf("the manifests grant rights that the program does not use with certificate files: %s", role)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	must(t, err)
	w.server.stop()
	w.trust(t, certificate)
	directory := t.TempDir()
	certFile, keyFile := filepath.Join(directory, corev1.TLSCertKey), filepath.Join(directory, corev1.TLSPrivateKeyKey)
	must(t, os.WriteFile(certFile, certificate, 0o600))
	must(t, os.WriteFile(keyFile, key, 0o600))
	w.server = start(w.t, w.t.TempDir(), shared.asInPod(w.t, w.secrets, fmt.Sprintf("sample-controller -v=2 --webhooks-only "+
		"--health-probe-bind-address=127.0.0.1:0 --webhook-bind-address=%s --webhook-tls-cert-file=%s --webhook-tls-private-key-file=%s",
		w.address, certFile, keyFile)))
	w.server.awaitReady()
	w.awaitWebhooks(t)
	sh(t, w.apply("v1beta1", "by-files", "spec: {replicas: 0}"))
	w.server.stop()
	if strings.Contains(w.server.output(), "Published the certificate authorities") {
		t.Error("the controller has published the authorities, which cert-manager does")
	}
	w.start(w.address)
	w.awaitWebhooks(t)
}

// trust publishes the authorities, as cert-manager does.
func (w *webhookEnv) trust(t *testing.T, bundle []byte) {
	t.Helper()
	text := base64.StdEncoding.EncodeToString(bundle)
	sh(t, fmt.Sprintf(`kubectl patch crd foos.samplecontroller.k8s.io --type=json -p '[{"op":"add","path":"/spec/conversion/webhook/clientConfig/caBundle","value":%q}]'`, text))
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
		sh(t, fmt.Sprintf(`kubectl patch %s sample-controller-webhook --type=json -p '[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":%q}]'`, kind, text))
	}
}

// migration migrates the stored Foos to v1beta1 and back, with the commands of
// docs/webhooks.md. In between, the controller's own informers need the conversion that the
// controller serves.
func (w *webhookEnv) migration(t *testing.T) {
	for i := range 5 {
		name := fmt.Sprintf("stored-%d", i)
		sh(t, w.apply("v1alpha1", name, fmt.Sprintf("spec: {deploymentName: %s, image: 'nginx:%[1]s', replicas: 0}", name)))
	}
	before := w.specs(t)
	w.store(t, "v1beta1")
	w.controller.stop()
	w.server.stop()
	// Without a conversion webhook the API server can read the stored version only.
	eventually(t, "Foos are stored as v1beta1", func(context.Context) error {
		if output, err := try(t, "kubectl get --raw /apis/samplecontroller.k8s.io/v1beta1/namespaces/"+w.namespace+"/foos/stored-1"); err != nil {
			return fmt.Errorf("as v1beta1: %w: %s", err, output)
		}
		if output, err := try(t, "kubectl get --raw /apis/samplecontroller.k8s.io/v1alpha1/namespaces/"+w.namespace+"/foos/stored-1"); err == nil {
			return errors.New("v1alpha1 was read: " + output)
		}
		return nil
	})
	// Without streaming lists the processes use their rights to list.
	const command = "env KUBE_FEATURE_WatchListClient=false sample-controller "
	w.server = start(w.t, w.t.TempDir(), shared.asInPod(w.t, w.secrets, command+webhookFlags+w.address))
	w.server.awaitReady()
	w.awaitWebhooks(t)
	w.startController(command)
	if after := w.specs(t); after != before {
		t.Errorf("the Foos were\n%s\nand are\n%s", before, after)
	}
	sh(t, w.apply("v1alpha1", "converted", "spec: {deploymentName: converted, replicas: 1}"))
	w.kubectl(t, "wait --for=condition=Ready --timeout=3m foo/converted")
	w.store(t, "v1alpha1")
	if after := strings.Replace(w.specs(t), "converted converted  1\n", "", 1); after != before {
		t.Errorf("the Foos were\n%s\nand are\n%s", before, after)
	}
	w.kubectl(t, "delete foos.v1alpha1.samplecontroller.k8s.io --all --wait=false")
}

// specs returns the specs of all Foos, one a line.
func (w *webhookEnv) specs(t *testing.T) string {
	t.Helper()
	return w.kubectl(t, `get foos.v1alpha1.samplecontroller.k8s.io -o jsonpath='{range .items[*]}{.metadata.name} {.spec.deploymentName} {.spec.image} {.spec.replicas}{"\n"}{end}'`)
}

// store makes the version the storage version, and migrates all Foos to it.
func (w *webhookEnv) store(t *testing.T, version string) {
	t.Helper()
	storage, mark := map[bool]string{true: "true", false: "false"}, len(auditedRequests(t))
	sh(t, fmt.Sprintf(`kubectl patch crd foos.samplecontroller.k8s.io --type=json -p '[{"op":"test","path":"/spec/versions/0/name","value":"v1alpha1"},`+
		`{"op":"replace","path":"/spec/versions/0/storage","value":%s},{"op":"replace","path":"/spec/versions/1/storage","value":%s}]'`,
		storage[version == "v1alpha1"], storage[version == "v1beta1"]))
	if output, err := try(t, "kubectl get --raw /apis/storagemigration.k8s.io/v1"); err == nil {
		awaitCollector(t, mark)
		name := strings.Fields(sh(t, "kubectl create -f artifacts/examples/webhook-storage-migration.yaml"))[0]
		// The migration waits, longer each time, until the garbage collector has seen a newer version of a Foo.
		w.until(t, "annotate foos.v1alpha1.samplecontroller.k8s.io stored-0 --overwrite at=$RANDOM && kubectl get "+name+" -o jsonpath='{.status.conditions[*].type}'", "Succeeded")
		sh(t, "kubectl wait --for=condition=Succeeded --timeout=5m "+name)
	} else {
		mustContain(t, output, "the server could not find the requested resource")
		const annotate = "kubectl annotate foos.v1alpha1.samplecontroller.k8s.io --all --all-namespaces migrated"
		sh(t, annotate+"=yes")
		sh(t, annotate+"-")
	}
	sh(t, `kubectl patch crd foos.samplecontroller.k8s.io --subresource=status --type=merge -p '{"status":{"storedVersions":["`+version+`"]}}'`)
	mustContain(t, sh(t, "kubectl get crd foos.samplecontroller.k8s.io -o jsonpath='{.status.storedVersions}'"), `["`+version+`"]`)
}

// TestWebhookVariants: the controller has no rights for the webhooks, and with cert-manager these may
// write nothing.
func TestWebhookVariants(t *testing.T) {
	t.Parallel()
	base := variantRights(t, "base")[serviceAccount]
	for _, name := range []string{"with-webhook", "with-webhook-cert-manager"} {
		if rights := variantRights(t, name)[serviceAccount]; !rights.Equal(base) {
			t.Errorf("%s: the controller's rights are %q, want those of base", name, sets.List(rights))
		}
	}
	want := []string{
		rightOf("create", "authentication.k8s.io", "tokenreviews"), rightOf("create", "authorization.k8s.io", "subjectaccessreviews"),
		rightOf("list", "apps", "deployments"), rightOf("list", "samplecontroller.k8s.io", "foos"),
		rightOf("watch", "apps", "deployments"), rightOf("watch", "samplecontroller.k8s.io", "foos"),
	}
	if rights := sets.List(variantRights(t, "with-webhook-cert-manager")[webhookAccount]); !slices.Equal(rights, want) {
		t.Errorf("with cert-manager the webhooks' rights are %q, want %q", rights, want)
	}
}

// TestWebhooksForAllSets renders the overlay of docs/scale.md, which has the webhooks and no
// controller.
func TestWebhooksForAllSets(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(shared.root, "docs/scale.md"))
	must(t, err)
	_, after, _ := strings.Cut(string(text), "\n## Webhooks for all sets\n")
	_, after, _ = strings.Cut(after, "\n\n    ")
	commands, _, ok := strings.Cut(after, "\n    kubectl apply ")
	if !ok {
		t.Fatal("docs/scale.md has no overlay")
	}
	directory := t.TempDir()
	output := sh(t, fmt.Sprintf("cp -r %s/artifacts %s && cd %s\n%s\nkubectl kustomize webhooks",
		shared.root, directory, directory, strings.ReplaceAll(commands, "\n    ", "\n")))
	mustContain(t, output, "strategy: Webhook", "name: "+webhookAccount, "--webhooks-only", "image: registry.example.com/sample-controller:v1")
	if n := strings.Count(output, "\nkind: Deployment\n"); n != 1 {
		t.Errorf("the overlay has %d Deployments, want that of the webhooks", n)
	}
}

// stolenToken tries what an attacker with the token of the webhooks' service account can do, where the
// program keeps the certificate and where cert-manager does. The table of docs/security.md is its
// result.
func (w *webhookEnv) stolenToken(t *testing.T) {
	e := newEnv(t)
	// The controller of walkthrough 5 syncs all namespaces.
	e.create("x")
	e.awaitReady("x")
	free, bound := steal(e, systemNamespace, webhookAccount, "webhook")
	// With cert-manager the manifests bind one role.
	binding := e.namespace + "-lookups"
	shOnCleanup(t, "kubectl delete clusterrolebinding "+binding)
	sh(t, fmt.Sprintf("kubectl create clusterrolebinding %s --clusterrole=%s-lookups --serviceaccount=%s:%[2]s", binding, webhookAccount, e.namespace))
	certManager := newAttacker(e, systemNamespace, e.namespace, webhookAccount)
	for _, a := range readAttempts(t, "webhook", "others") {
		mustDocument(t, a.What, free.succeeds(a), bound.succeeds(a), certManager.succeeds(a))
	}
}
