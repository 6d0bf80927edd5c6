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
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// migration migrates the stored Foos to v1beta1 and back, with the commands of
// docs/webhooks.md. In between, the controller's own informers need the conversion that the
// controller serves.
func (w *webhookEnv) migration(t *testing.T) {
	alphas := shared.clientset.SamplecontrollerV1alpha1().Foos(w.namespace)
	for i := range 20 {
		name := fmt.Sprintf("stored-%d", i)
		if _, err := alphas.Create(t.Context(), &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FooSpec{DeploymentName: name, Image: "nginx:" + name, Replicas: ptr.To[int32](0)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
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
	sh(t, "kubectl wait --for=condition=Ready --timeout=3m foo/converted --namespace="+w.namespace)
	w.store(t, "v1alpha1")
	if after := strings.Replace(w.specs(t), "converted converted  1\n", "", 1); after != before {
		t.Errorf("the Foos were\n%s\nand are\n%s", before, after)
	}
	sh(t, "kubectl delete foos.v1alpha1.samplecontroller.k8s.io --all --wait=false --namespace="+w.namespace)
}

// specs returns the specs of all Foos, one a line.
func (w *webhookEnv) specs(t *testing.T) string {
	t.Helper()
	return sh(t, `kubectl get foos.v1alpha1.samplecontroller.k8s.io -o jsonpath='{range .items[*]}{.metadata.name} {.spec.deploymentName} {.spec.image} {.spec.replicas}{"\n"}{end}' --namespace=`+w.namespace)
}

// store makes the version the storage version, and migrates all Foos to it.
func (w *webhookEnv) store(t *testing.T, version string) {
	t.Helper()
	storage := map[bool]string{true: "true", false: "false"}
	sh(t, fmt.Sprintf(`kubectl patch crd foos.samplecontroller.k8s.io --type=json -p '[{"op":"test","path":"/spec/versions/0/name","value":"v1alpha1"},`+
		`{"op":"replace","path":"/spec/versions/0/storage","value":%s},{"op":"replace","path":"/spec/versions/1/storage","value":%s}]'`,
		storage[version == "v1alpha1"], storage[version == "v1beta1"]))
	if output, err := try(t, "kubectl get --raw /apis/storagemigration.k8s.io/v1"); err == nil {
		name := strings.Fields(sh(t, "kubectl create -f artifacts/examples/webhook-storage-migration.yaml"))[0]
		sh(t, "kubectl wait --for=condition=Succeeded --timeout=2m "+name)
	} else {
		mustContain(t, output, "the server could not find the requested resource")
		const annotate = "kubectl annotate foos.v1alpha1.samplecontroller.k8s.io --all --all-namespaces migrated"
		sh(t, annotate+"=yes")
		sh(t, annotate+"-")
	}
	sh(t, `kubectl patch crd foos.samplecontroller.k8s.io --subresource=status --type=merge -p '{"status":{"storedVersions":["`+version+`"]}}'`)
	mustContain(t, sh(t, "kubectl get crd foos.samplecontroller.k8s.io -o jsonpath='{.status.storedVersions}'"), `["`+version+`"]`)
}
