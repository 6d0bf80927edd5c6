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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startLines are the messages of a start, in this order.
var startLines = []string{
	"Setting up event handlers",
	"Starting Foo controller",
	"Waiting for informer caches to sync",
	"Starting workers",
	"Started workers",
}

// TestWalkthrough1 runs the controller outside of the cluster. The controller works in all
// namespaces, and the test deletes the CRD, so no other test may run in parallel.
func TestWalkthrough1(t *testing.T) {
	envIn(t, metav1.NamespaceDefault).script("walkthrough1")
}

// TestWalkthrough2 runs the commands of walkthrough 2, on two Foos.
func TestWalkthrough2(t *testing.T) {
	e := envIn(t, metav1.NamespaceDefault)
	e.startOutside()
	e.script("walkthrough2_crd")
	e.script("walkthrough2")
	e.controller.stop()
	e.controller.requireNoErrors()
}

// startOutside starts a controller of all namespaces, as walkthrough 2 does.
func (e *env) startOutside() {
	e.Helper()
	shared.installCRD(e.T)
	e.controller = start(e.T, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config")
	e.controller.awaitOutput(startLines...)
}

// TestWalkthrough2Deletion runs the end of walkthrough 2. The garbage collector takes up to
// half a minute to discover a new CRD, so this part runs in parallel with other tests.
func TestWalkthrough2Deletion(t *testing.T) {
	t.Parallel()
	startEnv(t, "").script("walkthrough2_deletion")
}

// TestWalkthrough4 runs the commands of walkthrough 4.
func TestWalkthrough4(t *testing.T) {
	e := envIn(t, metav1.NamespaceDefault)
	e.startOutside()
	e.script("walkthrough4")
}
