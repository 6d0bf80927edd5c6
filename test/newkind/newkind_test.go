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

// Package newkind tests what the kind that `make new-kind` copies has beside its packages.
package newkind

import (
	"context"
	"os"
	"testing"
	"testing/synctest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/kinds"
	"example.com/sample-controller/test/newkind/pkg/app"
	"example.com/sample-controller/test/newkind/pkg/controller/tenant"
	clientfake "example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/test/newkind/pkg/generated/informers/externalversions"
)

// TestDescriptor compares the descriptor with the CRD and the data for the suites, and runs the controller on empty caches.
func TestDescriptor(t *testing.T) {
	data, err := kinds.Read(".")
	if err != nil || len(data) != 1 {
		t.Fatalf("data of %d kinds, error %v", len(data), err)
	}
	descriptor, crd := tenant.NewDescriptor(), apiextensionsv1.CustomResourceDefinition{}
	text, err := os.ReadFile(descriptor.CRDManifest)
	fixture.Must(err)
	fixture.Must(yaml.UnmarshalStrict(text, &crd))
	got := []string{descriptor.Resource.GroupResource().String(), descriptor.Kind, descriptor.Name}
	fixture.Differ(t, "names in the descriptor", []string{crd.Name, crd.Spec.Names.Kind, crd.Spec.Names.Singular}, got)
	fixture.Differ(t, "resource of the suites", descriptor.Resource, data[0].GVR())
	synctest.Test(t, func(t *testing.T) {
		ctx, own := context.Background(), clientfake.NewSimpleClientset()
		env := fixture.NewEnv(t, descriptor.Kind, own, scheme.Scheme)
		c := &app.ControllerContext{
			KubeClient: env.Kube, Client: own, KubeInformers: env.KubeInformers, Informers: externalversions.NewSharedInformerFactory(own, 0), Options: env.Shared,
		}
		fixture.Must(descriptor.New(ctx, c))
		fixture.Run(ctx, t, env.Shared.Worker, c.KubeInformers, c.Informers)()
	})
}
