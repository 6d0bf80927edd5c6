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
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fooclient "example.com/sample-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
)

// env is a namespace of one test and the controller that works in that namespace only, so
// that tests can run in parallel.
type env struct {
	*testing.T

	namespace  string
	controller *process
	// home is the controller's home directory; with "" the controller runs as in a Pod.
	// arguments name its API server.
	home, arguments string
	// environment is a variable of the controller, such as NAME=value, or "".
	environment string
	// startMark is the length of the audit log when the env was made.
	startMark int
}

// startEnv makes an env in which a controller runs with these flags.
func startEnv(t *testing.T, flags string) *env {
	t.Helper()
	e := newEnv(t)
	e.startController(flags)
	return e
}

// newEnv makes an env in which no controller runs yet.
func newEnv(t *testing.T) *env {
	t.Helper()
	shared.deploy(t)
	namespace, err := shared.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, namespace: namespace.Name}
	// The API server admits no Pod before the namespace has its service account.
	e.eventually("the namespace is ready for Pods", func(ctx context.Context) error {
		_, err := shared.kube.CoreV1().ServiceAccounts(e.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	e.startMark = e.mark()
	t.Cleanup(e.describeIfFailed)
	return e
}

// newProxiedEnv makes an env whose controller reaches the API server through the proxy,
// with the suite's credentials.
func newProxiedEnv(t *testing.T) (*env, *httpProxy) {
	t.Helper()
	proxy, e := startHTTPProxy(t), newEnv(t)
	e.home, e.arguments = e.TempDir(), "-master="+proxy.server.URL
	return e, proxy
}

// startController starts the controller and waits until its workers run.
func (e *env) startController(flags string) {
	e.Helper()
	command := fmt.Sprintf("env %s sample-controller %s --namespace=%s -v=2 %s", e.environment, e.arguments, e.namespace, flags)
	if e.home == "" {
		e.controller = start(e.T, e.TempDir(), shared.asInPod(e.T, shared.secrets, command))
	} else {
		e.controller = start(e.T, e.home, command)
	}
	e.controller.awaitOutput("Started workers")
}

// describeIfFailed logs the objects in the namespace if the test has failed.
func (e *env) describeIfFailed() {
	if !e.Failed() {
		return
	}
	for _, what := range []string{"get replicasets,pods,", "describe "} {
		cmd := fmt.Sprintf("kubectl --namespace=%s %s%s", e.namespace, what, shared.resources())
		output, _ := tryIn(context.WithoutCancel(e.Context()), waitTimeout, cmd)
		e.Logf("$ %s\n%s", cmd, output)
	}
}

func (e *env) eventually(what string, check func(ctx context.Context) error) {
	e.Helper()
	eventually(e.T, what, check)
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// kubectl runs a kubectl command in the env's namespace.
func (e *env) kubectl(arguments string) string {
	e.Helper()
	return sh(e.T, "kubectl --namespace="+e.namespace+" "+arguments)
}

// --- Foos -------------------------------------------------------------------

func (e *env) foos() fooclient.FooInterface {
	return shared.clientset.SamplecontrollerV1alpha1().Foos(e.namespace)
}

// newFoo returns a Foo that asks for one replica of a Deployment with the Foo's name.
func newFoo(name string, changes ...func(*v1alpha1.FooSpec)) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FooSpec{DeploymentName: name}}
	for _, change := range changes {
		change(&foo.Spec)
	}
	return foo
}

func deploymentName(name string) func(*v1alpha1.FooSpec) {
	return func(spec *v1alpha1.FooSpec) { spec.DeploymentName = name }
}

func replicas(count int32) func(*v1alpha1.FooSpec) {
	return func(spec *v1alpha1.FooSpec) { spec.Replicas = &count }
}

func withImage(image string) func(*v1alpha1.FooSpec) {
	return func(spec *v1alpha1.FooSpec) { spec.Image = image }
}

func (e *env) create(name string, changes ...func(*v1alpha1.FooSpec)) *v1alpha1.Foo {
	e.Helper()
	return createObject(e, e.foos(), newFoo(name, changes...))
}

func (e *env) update(name string, changes ...func(*v1alpha1.FooSpec)) {
	e.Helper()
	updateObject(e, e.foos(), name, func(foo *v1alpha1.Foo) {
		for _, change := range changes {
			change(&foo.Spec)
		}
	})
}

func (e *env) foo(name string) *v1alpha1.Foo {
	e.Helper()
	return getObject(e, e.foos(), name)
}

// awaitReason waits until the Foo's Ready condition is about the Foo's current generation
// and has that reason, and returns both.
func (e *env) awaitReason(name, reason string) (*v1alpha1.Foo, metav1.Condition) {
	e.Helper()
	var ready metav1.Condition
	foo := awaitObject(e, e.foos(), name, reason, func(foo *v1alpha1.Foo) (err error) {
		ready, err = hasReason(reason, foo.Generation, foo.Status.ObservedGeneration, foo.Status.Conditions)
		return err
	})
	return foo, ready
}

// awaitReady waits until the Foo is ready in its current generation.
func (e *env) awaitReady(name string) *v1alpha1.Foo {
	e.Helper()
	foo, ready := e.awaitReason(name, v1alpha1.ReasonDeploymentAvailable)
	if ready.Status != metav1.ConditionTrue {
		e.Fatalf("Foo %s is %s for the reason %s", name, ready.Status, ready.Reason)
	}
	return foo
}

// awaitNotReady waits until the Foo is not ready for that reason, and returns the
// condition's message.
func (e *env) awaitNotReady(name, reason string) string {
	e.Helper()
	_, ready := e.awaitReason(name, reason)
	if ready.Status != metav1.ConditionFalse {
		e.Fatalf("Foo %s is %s for the reason %s", name, ready.Status, reason)
	}
	return ready.Message
}

// settle waits until the controller has processed all earlier events: until a Foo that is
// created now is ready.
func (e *env) settle() {
	e.Helper()
	e.awaitReady(e.create(unique("settle")).Name)
}

// --- Deployments ------------------------------------------------------------

func (e *env) deployments() appsclient.DeploymentInterface {
	return shared.kube.AppsV1().Deployments(e.namespace)
}

func (e *env) deployment(name string) *appsv1.Deployment {
	e.Helper()
	return getObject(e, e.deployments(), name)
}

// createDeployment creates a Deployment as a user, and waits until its rollout is complete.
func (e *env) createDeployment(name string, owners ...metav1.OwnerReference) *appsv1.Deployment {
	e.Helper()
	labels := map[string]string{"foreign": name}
	createObject(e, e.deployments(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:foreign"}}},
			},
		},
	})
	e.kubectl("rollout status deployment " + name)
	return e.awaitDeployment(name, "its status is complete", func(d *appsv1.Deployment) error {
		for _, condition := range d.Status.Conditions {
			if condition.Reason == "NewReplicaSetAvailable" {
				return nil
			}
		}
		return fmt.Errorf("status %+v", d.Status)
	})
}

func (e *env) updateDeployment(name string, change func(*appsv1.Deployment)) {
	e.Helper()
	updateObject(e, e.deployments(), name, change)
}

// blockDeletion keeps Deployment x terminating, once it is deleted, until unblock is called.
func (e *env) blockDeletion() (unblock func()) {
	e.Helper()
	e.updateDeployment("x", func(d *appsv1.Deployment) { d.Finalizers = append(d.Finalizers, "example.com/hold") })
	return func() {
		e.Helper()
		e.updateDeployment("x", func(d *appsv1.Deployment) { d.Finalizers = nil })
	}
}

// awaitDeployment waits until the Deployment exists and passes the check.
func (e *env) awaitDeployment(name, what string, check func(*appsv1.Deployment) error) *appsv1.Deployment {
	e.Helper()
	return awaitObject(e, e.deployments(), name, what, check)
}

// awaitGone waits until the Deployment is deleted.
func (e *env) awaitGone(name string) {
	e.Helper()
	awaitNotFound(e, e.deployments(), name)
}

// deploymentsOf returns the names of the Deployments that the Foo controls.
func (e *env) deploymentsOf(foo *v1alpha1.Foo) []string {
	e.Helper()
	all, err := e.deployments().List(e.Context(), metav1.ListOptions{})
	e.must(err)
	var names []string
	for i := range all.Items {
		if metav1.IsControlledBy(&all.Items[i], foo) {
			names = append(names, all.Items[i].Name)
		}
	}
	return names
}
