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
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const applyMyFoo = `cat << EOF | kubectl apply -f -
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata:
  name: my-foo
spec:
  deploymentName: my-foo
  replicas: 10
EOF`

// TestWalkthrough2 runs the commands of walkthrough 2, on two Foos in the namespace default.
func TestWalkthrough2(t *testing.T) {
	shared.installCRD(t)
	controller := start(t, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config")
	controller.awaitOutput(startLines...)

	t.Run("the CRD", crdIsServed)
	t.Run("example-foo", exampleFoo)
	t.Run("my-foo", myFoo)
	controller.stop()
	controller.requireNoErrors()
}

// TestWalkthrough2Deletion runs the end of walkthrough 2. The garbage collector takes up to
// half a minute to discover a new CRD, so this part runs in parallel with other tests, with
// a controller for the namespace default only.
func TestWalkthrough2Deletion(t *testing.T) {
	t.Parallel()
	shared.installCRD(t)
	controller := start(t, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config --namespace=default")
	controller.awaitOutput(startLines...)
	sh(t, "kubectl apply -f artifacts/examples/example-foo.yaml")
	sh(t, "kubectl wait --for=condition=Ready foo/example-foo")
	mustContain(t, sh(t, `kubectl delete foo example-foo`), `foo.samplecontroller.k8s.io "example-foo" deleted`)
	shUntil(t, `kubectl get deployment --ignore-not-found example-foo`, `^$`)
}

func crdIsServed(t *testing.T) {
	mustContain(t, sh(t, `kubectl get crd`), "foos.samplecontroller.k8s.io")
	shUntil(t, `kubectl api-resources | grep foo`, `(?m)^foos .*samplecontroller.k8s.io/v1alpha1 +true +Foo$`)
	mustContain(t, sh(t, "kubectl apply -f artifacts/examples/crd-status-subresource.yaml"),
		"customresourcedefinition.apiextensions.k8s.io/foos.samplecontroller.k8s.io unchanged")

	crd, err := os.ReadFile(filepath.Join(shared.root, "artifacts/examples/crd.yaml"))
	must(t, err)
	other, err := os.ReadFile(filepath.Join(shared.root, "artifacts/examples/crd-status-subresource.yaml"))
	if err != nil || !bytes.Equal(crd, other) {
		t.Errorf("crd-status-subresource.yaml is not crd.yaml (%v)", err)
	}
}

func exampleFoo(t *testing.T) {
	mustContain(t, sh(t, `kubectl apply -f artifacts/examples/example-foo.yaml`), "foo.samplecontroller.k8s.io/example-foo created")
	shUntil(t, `kubectl get foo`, `^NAME +DEPLOYMENT +DESIRED +AVAILABLE +READY +AGE\nexample-foo +example-foo +1 +1 +True +\d+s\n$`)
	shUntil(t, `kubectl get foo -o wide`, `^NAME +DEPLOYMENT +DESIRED +AVAILABLE +READY +AGE +REASON +IMAGE\nexample-foo +example-foo +1 +1 +True +\d+s +DeploymentAvailable *\n$`)

	foo := &v1alpha1.Foo{}
	must(t, yaml.Unmarshal([]byte(sh(t, `kubectl get foo example-foo -o yaml`)), foo))
	if foo.Spec.DeploymentName != "example-foo" || *foo.Spec.Replicas != 1 || foo.Status.AvailableReplicas != 1 {
		t.Errorf("example-foo is %+v", foo)
	}
	if foo.Generation != 1 {
		t.Errorf("rule 13: generation %d: a status write raised it", foo.Generation)
	}
	shUntil(t, `kubectl get deployment`, `(?m)^example-foo +1/1 +1 +1 `)
	mustContain(t, sh(t, "kubectl get all"), "deployment.apps/example-foo", "foo.samplecontroller.k8s.io/example-foo")

	sh(t, `kubectl delete deployment example-foo`)
	deleted := time.Now()
	shUntil(t, `kubectl get deployment`, `(?m)^example-foo +1/1 +1 +1 `)
	if took := time.Since(deleted); took > 5*time.Second {
		t.Errorf("rule 7: the controller took %s to create the Deployment again, want 5 s at most", took)
	}
}

func myFoo(t *testing.T) {
	mustContain(t, sh(t, applyMyFoo), "foo.samplecontroller.k8s.io/my-foo created")
	shUntil(t, `kubectl get deployment my-foo`, `(?m)^my-foo +10/10 `)
	sh(t, `kubectl scale deployment my-foo --replicas=0`)
	shUntil(t, "kubectl get events --field-selector=involvedObject.name=my-foo,reason=Updated", `replicas from 0 to 10`)
	shUntil(t, `kubectl get deployment my-foo`, `(?m)^my-foo +10/10 `)
	sh(t, `kubectl scale foo my-foo --replicas=3`)
	shUntil(t, `kubectl get deployment my-foo`, `(?m)^my-foo +3/3 `)
	mustContain(t, sh(t, `kubectl wait --for=condition=Ready foo/my-foo`), "foo.samplecontroller.k8s.io/my-foo condition met")
	shUntil(t, "kubectl get foo my-foo", `my-foo +my-foo +3 +3 +True `)

	mustContain(t, sh(t, `kubectl explain foo.spec`),
		"GROUP:      samplecontroller.k8s.io", "KIND:       Foo", "VERSION:    v1alpha1",
		"the state that the user asks for",
		"deploymentName\t<string> -required-", "the name of the Deployment to run",
		"image\t<string>", "the image of the container nginx",
		"replicas\t<integer>", "the number of Pods")
	described := sh(t, `kubectl describe foo my-foo`)
	mustContain(t, described,
		"Name:         my-foo", "Conditions:", "Reason:", "DeploymentAvailable", "Type:", "Ready",
		"Events:", "Created", "sample-controller", `Created Deployment "my-foo"`, "Updated", "replicas from 0 to 10")
	// kubectl sorts events by their last time, and the Foo became ready several times.
	mustContain(t, described, "Events:", "Synced", "Foo is ready")
}
