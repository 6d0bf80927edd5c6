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
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/util/retry"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fooclient "example.com/sample-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
)

// env is a namespace of one test and the controller that works in that namespace only, so
// that tests can run in parallel.
type env struct {
	*testing.T

	namespace  string
	controller *process
	// environment is a variable of the controller, such as NAME=value, or "".
	environment string
}

// startEnv makes an env in which a controller runs with these flags.
func startEnv(t *testing.T, flags string) *env {
	t.Helper()
	e := newEnv(t)
	e.startController(flags)
	return e
}

// envIn returns an env of that namespace, which others use too.
func envIn(t *testing.T, namespace string) *env {
	return &env{T: t, namespace: namespace}
}

// newEnv makes an env in which no controller runs yet.
func newEnv(t *testing.T) *env {
	t.Helper()
	shared.deploy(t)
	e := &env{T: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	e.namespace = createObject(e, shared.kube.CoreV1().Namespaces(), namespace).Name
	// The API server admits no Pod before the namespace has its service account.
	awaitObject(e, shared.kube.CoreV1().ServiceAccounts(e.namespace), "default", "exists", func(*corev1.ServiceAccount) error { return nil })
	t.Cleanup(e.describeIfFailed)
	return e
}

// +drop:node

// in returns the env for a subtest.
func (e *env) in(t *testing.T) *env {
	f := *e
	f.T = t
	return &f
}

// +drop:end

// startController starts the controller and waits until its workers run.
func (e *env) startController(flags string) {
	e.Helper()
	command := fmt.Sprintf("env %s sample-controller --namespace=%s -v=2 %s", e.environment, e.namespace, flags)
	e.controller = start(e.T, e.TempDir(), shared.asInPod(e.T, shared.secrets, command))
	e.controller.awaitOutput("Started workers")
}

// describeIfFailed logs the objects in the namespace if the test has failed.
func (e *env) describeIfFailed() {
	if !e.Failed() {
		return
	}
	for _, what := range []string{"get replicasets,pods,", "describe "} {
		cmd := fmt.Sprintf("kubectl --namespace=%s %s%s", e.namespace, what, shared.resources())
		output, _ := tryIn(context.WithoutCancel(e.Context()), cmd)
		e.Logf("$ %s\n%s", cmd, output)
	}
}

func (e *env) eventually(what string, check func(ctx context.Context) error) {
	e.Helper()
	eventually(e.T, what, check)
}

func (e *env) must(err error) {
	e.Helper()
	must(e.T, err)
}

// kubectl runs a kubectl command in the env's namespace.
func (e *env) kubectl(arguments string) {
	e.Helper()
	sh(e.T, "kubectl --namespace="+e.namespace+" "+arguments)
}

// +drop:memcached,crontab,node

// apply applies a manifest in the env's namespace.
func (e *env) apply(manifest string) {
	e.Helper()
	e.kubectl("apply -f - <<'EOF'\n" + manifest + "\nEOF")
}

// +drop:end

// +drop:node,webhooks

// load is a request that is repeated until it is stopped.
type load struct {
	answered atomic.Int64
	// stop returns how many requests were answered.
	stop func() int64
}

// startLoad calls ask, with how often it succeeded before, until the load is stopped. The test fails if it fails.
func startLoad(t *testing.T, ask func(ctx context.Context, n int64) error) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l, done := &load{}, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := ask(ctx, l.answered.Load()); err == nil {
				l.answered.Add(1)
			} else if ctx.Err() == nil {
				t.Errorf("after %d requests: %v", l.answered.Load(), err)
			}
		}
	}()
	l.stop = func() int64 {
		cancel()
		<-done
		return l.answered.Load()
	}
	t.Cleanup(func() { l.stop() })
	return l
}

// +drop:end

// --- Objects of every kind --------------------------------------------------

// client is the part of a typed client that these helpers use.
type client[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
}

func getObject[T any](e *env, client client[T], name string) T {
	e.Helper()
	object, err := client.Get(e.Context(), name, metav1.GetOptions{})
	e.must(err)
	return object
}

func createObject[T any](e *env, client client[T], object T) T {
	e.Helper()
	created, err := client.Create(e.Context(), object, metav1.CreateOptions{})
	e.must(err)
	return created
}

// awaitObject waits until the object exists and passes the check, and returns it.
func awaitObject[T any](e *env, client client[T], name, what string, check func(T) error) T {
	e.Helper()
	var object T
	e.eventually(fmt.Sprintf("%T %s: %s", object, name, what), func(ctx context.Context) (err error) {
		if object, err = client.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(object)
	})
	return object
}

// --- Foos and their Deployments ---------------------------------------------

func (e *env) foos() fooclient.FooInterface {
	return shared.clientset.SamplecontrollerV1alpha1().Foos(e.namespace)
}

// newFoo returns a Foo that asks for one replica of a Deployment with the Foo's name.
func newFoo(name string) *v1alpha1.Foo {
	return &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FooSpec{DeploymentName: name}}
}

// +drop:node

// createWith creates a Foo with these changes.
func (e *env) createWith(name string, changes ...func(*v1alpha1.FooSpec)) {
	e.Helper()
	foo := newFoo(name)
	for _, change := range changes {
		change(&foo.Spec)
	}
	createObject(e, e.foos(), foo)
}

func deploymentName(name string) func(*v1alpha1.FooSpec) {
	return func(spec *v1alpha1.FooSpec) { spec.DeploymentName = name }
}

// +drop:end

func replicas(count int32) func(*v1alpha1.FooSpec) {
	return func(spec *v1alpha1.FooSpec) { spec.Replicas = &count }
}

func (e *env) create(name string) *v1alpha1.Foo {
	e.Helper()
	return createObject(e, e.foos(), newFoo(name))
}

// update changes Foo x, and tries again after a conflict, for a few seconds: during a rollout other writers may be
// faster more often than retry.DefaultBackoff tries.
func (e *env) update(changes ...func(*v1alpha1.FooSpec)) {
	e.Helper()
	e.must(retry.RetryOnConflict(wait.Backoff{Duration: apiInterval, Jitter: 1, Steps: 100}, func() error {
		foo := e.foo("x")
		for _, change := range changes {
			change(&foo.Spec)
		}
		_, err := e.foos().Update(e.Context(), foo, metav1.UpdateOptions{})
		return err
	}))
}

func (e *env) foo(name string) *v1alpha1.Foo {
	e.Helper()
	return getObject(e, e.foos(), name)
}

// awaitReady waits until the Foo is ready in its current generation.
func (e *env) awaitReady(name string) {
	e.Helper()
	e.awaitReason(name, v1alpha1.ReasonDeploymentAvailable)
}

// awaitReason waits until the Foo's condition Ready is about its current generation and has that reason, and
// these words in the message.
func (e *env) awaitReason(name, reason string, words ...string) {
	e.Helper()
	awaitObject(e, e.foos(), name, reason, func(foo *v1alpha1.Foo) error {
		ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
		isReady := reason == v1alpha1.ReasonDeploymentAvailable
		if ready == nil || ready.Reason != reason || (ready.Status == metav1.ConditionTrue) != isReady ||
			ready.ObservedGeneration != foo.Generation || foo.Status.ObservedGeneration != foo.Generation {
			return fmt.Errorf("generation %d, status %+v", foo.Generation, foo.Status)
		}
		if missing := firstMissing(ready.Message, words); missing != "" {
			return fmt.Errorf("no %q in %q", missing, ready.Message)
		}
		return nil
	})
}

// settle waits until the controller has processed all earlier events: until a Foo that is
// created now is ready.
func (e *env) settle() {
	e.Helper()
	e.awaitReady(e.create(unique("settle")).Name)
}

func (e *env) deployments() appsclient.DeploymentInterface {
	return shared.kube.AppsV1().Deployments(e.namespace)
}

func (e *env) deployment(name string) *appsv1.Deployment {
	e.Helper()
	return getObject(e, e.deployments(), name)
}

// stockDeployment returns the Deployment that the stock sample creates for the Foo.
func stockDeployment(foo *v1alpha1.Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": foo.Name}
	owner := *metav1.NewControllerRef(foo, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"))
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: foo.Spec.DeploymentName, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: appsv1.DeploymentSpec{
			Replicas: foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:by-hand"}}},
			},
		},
	}
}
