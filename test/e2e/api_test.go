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
	"fmt"
	"strings"
	"testing"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// applyFoo returns a command that applies a Foo. The spec may be "".
func applyFoo(namespace, name, spec string) string {
	return fmt.Sprintf(`cat << 'EOF' | kubectl apply --namespace=%s -f -
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata:
  name: %s
%s
EOF`, namespace, name, spec)
}

// TestBadFoos shows that the API server refuses invalid Foos, and names the field.
func TestBadFoos(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for i, bad := range []struct{ sentence, spec, field, says string }{
		{"deploymentName is missing", "{replicas: 1}", "spec.deploymentName", "Required value"},
		{"deploymentName is empty", `{deploymentName: ""}`, "spec.deploymentName", "at least 1 char"},
		{"deploymentName is too long", "{deploymentName: " + strings.Repeat("a", 254) + "}", "spec.deploymentName", "253"},
		{"deploymentName has illegal characters", "{deploymentName: a_b}", "spec.deploymentName", "must be a lowercase RFC 1123 subdomain"},
		{"deploymentName is a path", "{deploymentName: ../a}", "spec.deploymentName", "must be a lowercase RFC 1123 subdomain"},
		{"deploymentName has upper case", "{deploymentName: Abc}", "spec.deploymentName", "must be a lowercase RFC 1123 subdomain"},
		{"deploymentName begins with a hyphen", `{deploymentName: "-a"}`, "spec.deploymentName", "must be a lowercase RFC 1123 subdomain"},
		{"deploymentName is a number", "{deploymentName: 7}", "spec.deploymentName", "must be of type string"},
		{"replicas is negative", "{deploymentName: a, replicas: -1}", "spec.replicas", "greater than or equal to 0"},
		{"replicas is a string", `{deploymentName: a, replicas: "3"}`, "spec.replicas", "must be of type integer"},
		{"replicas is a fraction", "{deploymentName: a, replicas: 1.5}", "spec.replicas", "must be of type integer"},
		{"replicas exceeds an int32", "{deploymentName: a, replicas: 2147483648}", "spec.replicas", "2147483648"},
		{"image is empty", `{deploymentName: a, image: ""}`, "spec.image", "at least 1 char"},
		{"image is too long", "{deploymentName: a, image: " + strings.Repeat("a", 256) + "}", "spec.image", "255"},
		{"image is a list", "{deploymentName: a, image: [a]}", "spec.image", "must be of type string"},
		{"spec has an unknown field", "{deploymentName: a, replica: 1}", "spec.replica", "unknown field"},
		{"spec is a string", `a`, "spec", "must be of type object"},
	} {
		t.Run(bad.sentence, func(t *testing.T) {
			output := shFails(t, applyFoo(e.namespace, fmt.Sprintf("bad-%d", i), "spec: "+bad.spec))
			mustContain(t, output, bad.field)
			mustContain(t, output, bad.says)
		})
	}
	if output := e.kubectl("get foo"); !strings.Contains(output, "No resources found") {
		t.Errorf("the API server stored Foos:\n%s", output)
	}
}

// TestGoodFoos shows valid Foos and the CRD's defaults.
func TestGoodFoos(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for i, good := range []struct {
		sentence, spec string
		stored         v1alpha1.FooSpec
	}{
		{"a deploymentName of 253 characters", "{deploymentName: " + strings.Repeat("a", 253) + ", replicas: 2}", newFoo(strings.Repeat("a", 253), replicas(2)).Spec},
		{"a deploymentName with dots", "{deploymentName: a.b-c.d}", newFoo("a.b-c.d", replicas(1)).Spec},
		{"one replica by default", "{deploymentName: a}", newFoo("a", replicas(1)).Spec},
		{"null is the default", "{deploymentName: a, replicas: null}", newFoo("a", replicas(1)).Spec},
		{"no replicas", "{deploymentName: a, replicas: 0}", newFoo("a", replicas(0)).Spec},
		{"as many replicas as an int32 holds", "{deploymentName: a, replicas: 2147483647}", newFoo("a", replicas(2147483647)).Spec},
		{"an image of 255 characters", "{deploymentName: a, image: " + strings.Repeat("a", 255) + "}", newFoo("a", replicas(1), withImage(strings.Repeat("a", 255))).Spec},
	} {
		t.Run(good.sentence, func(t *testing.T) {
			name := fmt.Sprintf("good-%d", i)
			mustContain(t, sh(t, applyFoo(e.namespace, name, "spec: "+good.spec)), name+" created")
			got := e.foo(name).Spec
			if got.DeploymentName != good.stored.DeploymentName || *got.Replicas != *good.stored.Replicas || got.Image != good.stored.Image {
				t.Errorf("spec %+v, want %+v", got, good.stored)
			}
		})
	}
}

// TestFooWithoutSpec covers a Foo without a spec, which the stock sample's CRD accepts.
func TestFooWithoutSpec(t *testing.T) {
	t.Parallel()
	e := startEnv(t, "")
	sh(t, applyFoo(e.namespace, "specless", ""))
	message := e.awaitNotReady("specless", v1alpha1.ReasonInvalidSpec)
	mustContain(t, message, "spec.deploymentName is not set")
	e.awaitOneEvent(e.foo("specless"), v1alpha1.ReasonInvalidSpec)
	mustContain(t, e.kubectl("get foo specless -o wide"), "False", "InvalidSpec")

	t.Run("it becomes ready with a spec", func(t *testing.T) {
		sh(t, applyFoo(e.namespace, "specless", "spec: {deploymentName: specless}"))
		e.awaitReady("specless")
	})
	t.Run("it can be deleted", func(t *testing.T) {
		sh(t, applyFoo(e.namespace, "again", ""))
		e.awaitNotReady("again", v1alpha1.ReasonInvalidSpec)
		e.kubectl("delete foo again --cascade=foreground")
	})
}
