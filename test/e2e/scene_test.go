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
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/util/retry"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fooclient "example.com/sample-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
)

// scene is a namespace of a test's own, and the controller that works in it and
// nowhere else. So tests can run side by side.
type scene struct {
	*testing.T

	namespace  string
	controller *process
	// home is that of the controller, arguments say where its API server is; with
	// "" for a home it runs as in a Pod.
	home, arguments string
	// began is where the audit log stood at the beginning.
	began int
}

// newScene makes a scene in which a controller runs with these flags.
func newScene(t *testing.T, flags string) *scene {
	t.Helper()
	s := newStage(t)
	s.startController(flags)
	return s
}

// newStage makes a scene in which no controller runs yet.
func newStage(t *testing.T) *scene {
	t.Helper()
	shared.deploy(t)
	namespace, err := shared.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{T: t, namespace: namespace.Name}
	// Without its service account a namespace admits no Pod.
	s.eventually("the namespace is ready for Pods", func(ctx context.Context) error {
		_, err := shared.kube.CoreV1().ServiceAccounts(s.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	s.began = s.mark()
	t.Cleanup(s.describeIfFailed)
	return s
}

// behind makes the scene's controller call the API server at another address,
// without credentials.
func (s *scene) behind(address string) *scene {
	s.home, s.arguments = s.TempDir(), "-master="+address
	return s
}

// startController starts the controller and waits until it works.
func (s *scene) startController(flags string) {
	s.Helper()
	command := fmt.Sprintf("sample-controller %s --namespace=%s -v=2 %s", s.arguments, s.namespace, flags)
	if s.home == "" {
		s.controller = start(s.T, s.TempDir(), shared.asInPod(s.T, shared.secrets, command))
	} else {
		s.controller = start(s.T, s.home, command)
	}
	s.controller.prints("Started workers")
}

// describeIfFailed shows what there was in the namespace when the test failed.
func (s *scene) describeIfFailed() {
	if !s.Failed() {
		return
	}
	for _, what := range []string{"get foo,memcached,deployment,replicaset,pod", "describe foo,memcached,deployment"} {
		cmd := fmt.Sprintf("kubectl --namespace=%s %s", s.namespace, what)
		output, _ := tryIn(context.WithoutCancel(s.Context()), cmd)
		s.Logf("$ %s\n%s", cmd, output)
	}
}

func (s *scene) eventually(what string, check func(ctx context.Context) error) {
	s.Helper()
	eventually(s.T, what, check)
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// kubectl runs a kubectl command in the scene's namespace.
func (s *scene) kubectl(arguments string) string {
	s.Helper()
	return sh(s.T, "kubectl --namespace="+s.namespace+" "+arguments)
}

// --- Foos -------------------------------------------------------------------

func (s *scene) foos() fooclient.FooInterface {
	return shared.foos.SamplecontrollerV1alpha1().Foos(s.namespace)
}

// newFoo returns a Foo that asks for one replica of a Deployment of its name.
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

func image(image string) func(*v1alpha1.FooSpec) {
	return func(spec *v1alpha1.FooSpec) { spec.Image = image }
}

func (s *scene) create(name string, changes ...func(*v1alpha1.FooSpec)) *v1alpha1.Foo {
	s.Helper()
	foo, err := s.foos().Create(s.Context(), newFoo(name, changes...), metav1.CreateOptions{})
	s.must(err)
	return foo
}

func (s *scene) update(name string, changes ...func(*v1alpha1.FooSpec)) {
	s.Helper()
	s.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		foo, err := s.foos().Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, change := range changes {
			change(&foo.Spec)
		}
		_, err = s.foos().Update(s.Context(), foo, metav1.UpdateOptions{})
		return err
	}))
}

func (s *scene) foo(name string) *v1alpha1.Foo {
	s.Helper()
	foo, err := s.foos().Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	return foo
}

// condition waits until the Foo's Ready condition tells of its present
// generation and has that reason, and returns the Foo.
func (s *scene) condition(name, reason string) (*v1alpha1.Foo, metav1.Condition) {
	s.Helper()
	var foo *v1alpha1.Foo
	var ready metav1.Condition
	s.eventually(fmt.Sprintf("Foo %s has the reason %s", name, reason), func(ctx context.Context) (err error) {
		if foo, err = s.foos().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		ready, err = hasReason(reason, foo.Generation, foo.Status.ObservedGeneration, foo.Status.Conditions)
		return err
	})
	return foo, ready
}

// hasReason returns the Ready condition if it tells of the present generation and has
// that reason, and else an error.
func hasReason(reason string, generation, observed int64, conditions []metav1.Condition) (metav1.Condition, error) {
	ready := meta.FindStatusCondition(conditions, v1alpha1.FooReady)
	if ready == nil || ready.Reason != reason || ready.ObservedGeneration != generation || observed != generation {
		return metav1.Condition{}, fmt.Errorf("generation %d, observed %d, conditions %+v", generation, observed, conditions)
	}
	return *ready, nil
}

// ready waits until the Foo is ready as its spec stands now.
func (s *scene) ready(name string) *v1alpha1.Foo {
	s.Helper()
	foo, ready := s.condition(name, v1alpha1.ReasonDeploymentAvailable)
	if ready.Status != metav1.ConditionTrue {
		s.Fatalf("Foo %s is %s for the reason %s", name, ready.Status, ready.Reason)
	}
	return foo
}

// notReady waits until the Foo is not ready for that reason, and returns the
// message.
func (s *scene) notReady(name, reason string) string {
	s.Helper()
	_, ready := s.condition(name, reason)
	if ready.Status != metav1.ConditionFalse {
		s.Fatalf("Foo %s is %s for the reason %s", name, ready.Status, reason)
	}
	return ready.Message
}

// settle waits until the controller has dealt with all that happened before: a
// Foo that is made now is ready.
func (s *scene) settle() {
	s.Helper()
	s.ready(s.create(unique("settle")).Name)
}

// --- Deployments ------------------------------------------------------------

func (s *scene) deployments() appsclient.DeploymentInterface {
	return shared.kube.AppsV1().Deployments(s.namespace)
}

func (s *scene) deployment(name string) *appsv1.Deployment {
	s.Helper()
	deployment, err := s.deployments().Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	return deployment
}

// createDeployment makes a Deployment that no Foo made, and waits until it is
// at rest.
func (s *scene) createDeployment(name string, owners ...metav1.OwnerReference) *appsv1.Deployment {
	s.Helper()
	labels := map[string]string{"foreign": name}
	_, err := s.deployments().Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:foreign"}}},
			},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.kubectl("rollout status deployment " + name)
	return s.awaitDeployment(name, "its status is complete", func(d *appsv1.Deployment) error {
		for _, condition := range d.Status.Conditions {
			if condition.Reason == "NewReplicaSetAvailable" {
				return nil
			}
		}
		return fmt.Errorf("status %+v", d.Status)
	})
}

func (s *scene) updateDeployment(name string, change func(*appsv1.Deployment)) {
	s.Helper()
	s.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		deployment, err := s.deployments().Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(deployment)
		_, err = s.deployments().Update(s.Context(), deployment, metav1.UpdateOptions{})
		return err
	}))
}

// awaitDeployment waits until the Deployment exists and passes the check.
func (s *scene) awaitDeployment(name, what string, check func(*appsv1.Deployment) error) *appsv1.Deployment {
	s.Helper()
	var deployment *appsv1.Deployment
	s.eventually("Deployment "+name+": "+what, func(ctx context.Context) error {
		var err error
		if deployment, err = s.deployments().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(deployment)
	})
	return deployment
}

// awaitGone waits until there is no Deployment of that name.
func (s *scene) awaitGone(name string) {
	s.Helper()
	s.eventually("Deployment "+name+" is gone", func(ctx context.Context) error {
		_, err := s.deployments().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return errors.New("it is there")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// deploymentsOf returns the names of the Deployments that the Foo controls.
func (s *scene) deploymentsOf(foo *v1alpha1.Foo) []string {
	s.Helper()
	all, err := s.deployments().List(s.Context(), metav1.ListOptions{})
	s.must(err)
	var names []string
	for i := range all.Items {
		if metav1.IsControlledBy(&all.Items[i], foo) {
			names = append(names, all.Items[i].Name)
		}
	}
	return names
}

// --- Events -----------------------------------------------------------------

// events returns the events about the Foo or Memcached with that reason.
func (s *scene) events(about metav1.Object, reason string) []corev1.Event {
	s.Helper()
	selector := fields.Set{"involvedObject.uid": string(about.GetUID()), "reason": reason}
	list, err := shared.kube.CoreV1().Events(s.namespace).List(s.Context(), metav1.ListOptions{FieldSelector: selector.String()})
	s.must(err)
	return list.Items
}

// oneEvent waits for an event with that reason, fails the test if there is more
// than one, or one that was repeated, and returns its message.
func (s *scene) oneEvent(about metav1.Object, reason string) string {
	s.Helper()
	s.eventually("an event "+reason, func(context.Context) error {
		if len(s.events(about, reason)) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	events := s.events(about, reason)
	if len(events) != 1 || events[0].Count != 1 {
		s.Fatalf("one event %s is wanted, not %+v", reason, events)
	}
	return events[0].Message
}
