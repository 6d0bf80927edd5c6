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

package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestEnvtest runs one Reconcile against the control plane of KUBEBUILDER_ASSETS: the programs in bin/ serve
// any test that is written with controller-runtime's envtest.
func TestEnvtest(t *testing.T) {
	known, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	environment := &envtest.Environment{
		Scheme: known, CRDDirectoryPaths: []string{"../../../artifacts/examples/crd.yaml"}, ErrorIfCRDPathMissing: true,
	}
	config, err := environment.Start()
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
	})
	if err != nil {
		t.Fatalf("%v; set KUBEBUILDER_ASSETS to bin/ of this repository", err)
	}
	c, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	foo := &Foo{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "foo"}, Spec: FooSpec{DeploymentName: "web"}}
	if err := c.Create(t.Context(), foo); err != nil {
		t.Fatal(err)
	}
	if _, err := (&reconciler{client: c}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(foo)}); err != nil {
		t.Fatal(err)
	}
	deployment := &appsv1.Deployment{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: foo.Namespace, Name: "web"}, deployment); err != nil {
		t.Error(err)
	}
}
