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
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/client/trim"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
)

// This file decides, from values alone, and trims objects for the caches.

const (
	fooKind       = "Foo"
	containerName = "nginx"
	// controllerLabel is a label of the Pods of each Deployment that this controller creates.
	controllerLabel = "controller"
	defaultImage    = "nginx:latest"
)

func fooGVK() schema.GroupVersionKind {
	return schema.GroupVersion(v1alpha1.GroupVersion).WithKind(fooKind)
}

// indexByDeploymentName returns the key of the Deployment that a Foo asks for.
func indexByDeploymentName(foo *v1alpha1.Foo) ([]string, error) {
	return []string{foo.Namespace + "/" + foo.Spec.DeploymentName}, nil
}

// owns reports whether this very Foo, by UID, controls the Deployment.
func owns(foo *v1alpha1.Foo, d *appsv1.Deployment) bool {
	return controller.IsControlledBy(d, foo, fooGVK().GroupKind())
}

// asksToBeAdopted reports whether the Deployment has no controller, is not terminating, and
// asks by its annotation for this Foo, by name.
func asksToBeAdopted(foo *v1alpha1.Foo, d *appsv1.Deployment) bool {
	return d.DeletionTimestamp == nil && d.Annotations[v1alpha1.AdoptByAnnotation] == foo.Name && metav1.GetControllerOfNoCopy(d) == nil
}

// adoptCommand returns the command with which a user has the Deployment adopted.
func adoptCommand(foo *v1alpha1.Foo, d *appsv1.Deployment) string {
	command := fmt.Sprintf("kubectl annotate deployment %s %s=%s -n %s", d.Name, v1alpha1.AdoptByAnnotation, foo.Name, d.Namespace)
	if d.Annotations[v1alpha1.AdoptByAnnotation] != "" {
		command += " --overwrite"
	}
	return command
}

// validateSpec returns what is wrong with the spec and how to correct it, "" if it is
// valid. The CRD's schema refuses such specs, but an object may be older than the schema.
func validateSpec(foo *v1alpha1.Foo) string {
	name := foo.Spec.DeploymentName
	if name == "" {
		return "spec.deploymentName is not set; set it to the name of the Deployment to run"
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Sprintf("spec.deploymentName %q is not a valid Deployment name: %s", name, strings.Join(problems, "; "))
	}
	if replicas := specReplicas(foo); replicas < 0 {
		return fmt.Sprintf("spec.replicas is %d; set it to 0 or more", replicas)
	}
	return ""
}

// specReplicas returns spec.replicas, 1 if it is unset. The API server applies the CRD's
// default to stored objects too, so it is unset only while the installed CRD has no default.
func specReplicas(foo *v1alpha1.Foo) int32 {
	return ptr.Deref(foo.Spec.Replicas, 1)
}

// newDeployment returns the Deployment that foo asks for.
func newDeployment(foo *v1alpha1.Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", controllerLabel: deployment.LabelValue(foo.Name)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            foo.Spec.DeploymentName,
			Namespace:       foo.Namespace,
			Labels:          map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(foo, fooGVK())},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(specReplicas(foo)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: containerName, Image: cmp.Or(foo.Spec.Image, defaultImage)}}},
			},
		},
	}
}

// diffDeployment compares the fields that this controller enforces, and no others: replicas, the image if
// spec.image is set, whether there is a managed-by label, and the owner reference. It returns the
// patch that repairs them. foo owns current. trimDeployment must keep each of these fields.
func diffDeployment(foo *v1alpha1.Foo, desired, current *appsv1.Deployment) controller.Patch {
	patch := controller.NewPatch(current)
	deployment.CompareReplicas(&patch, current, desired)
	if container := deployment.Container(current, containerName); foo.Spec.Image != "" && container != nil && container.Image != foo.Spec.Image {
		deployment.SetInContainer(&patch, containerName, foo.Spec.Image, trim.Bounded(container.Image), foo.Spec.Image, "image")
	}
	patch.AddMissingLabel(current, controller.ManagedByLabel, controller.ManagedByValue)
	patch.CompareController(current, desired)
	return patch
}

// hadDeployment reports whether the status says that the Foo of this generation owned the
// Deployment that it asks for.
func hadDeployment(foo *v1alpha1.Foo) bool {
	return foo.Status.ObservedGeneration == foo.Generation && foo.Status.Selector != ""
}

// findings are what the status is computed from, beside the Foo.
type findings struct {
	// deployment is the one of the name that the Foo asks for, nil if there is none.
	deployment *appsv1.Deployment
	old        oldDeployments // +drop:rename
	// refused is why the API server refused a write, nil if it refused none.
	refused error
	// writes is what became of the writes to the Deployment.
	writes controller.Report
}

// newStatus returns the status that follows from the findings. now becomes lastTransitionTime if
// the status of Ready changes. Fields that are not this controller's, above all conditions of
// other types, are kept.
func newStatus(foo *v1alpha1.Foo, f findings, now metav1.Time) v1alpha1.FooStatus {
	status := *foo.Status.DeepCopy()
	status.ObservedGeneration = foo.Generation
	status.AvailableReplicas, status.Replicas, status.Selector = 0, 0, ""
	if d := f.deployment; d != nil && owns(foo, d) {
		status.AvailableReplicas = d.Status.AvailableReplicas
		status.Replicas = d.Status.Replicas
		status.Selector = deployment.FormatSelector(d.Spec.Selector)
	}
	controller.SetReady(&status.Conditions, readyCondition(foo, f, now.Time), foo.Generation, now)
	return status
}

// isProgress reports whether a status update may wait, since it reports only progress. That
// a Foo is no longer Ready, although its spec did not change, is reported at once.
func isProgress(foo *v1alpha1.Foo, old, ready metav1.Condition) bool {
	return ready.Reason == v1alpha1.ReasonDeploymentProgressing && !controller.LostReady(old, ready, foo.Generation)
}

// readyCondition returns status, reason and message of the Ready condition. The first that applies
// decides: the spec, a refusal of the API server, the owner of the Deployment, its container, another
// writer, a missing Deployment, its rollout at that time.
func readyCondition(foo *v1alpha1.Foo, f findings, now time.Time) metav1.Condition {
	var ready metav1.Condition
	d := f.deployment
	switch invalid := validateSpec(foo); {
	case invalid != "":
		ready = controller.NotReady(v1alpha1.ReasonInvalidSpec, invalid)
	case f.refused != nil:
		ready = controller.NotReady(v1alpha1.ReasonDeploymentRejected, controller.DescribeRefusal(fooKind, f.refused))
	case d != nil && !owns(foo, d):
		hints := controller.NotOwnedHints{Freed: "is deleted", OtherName: "create this Foo anew with another spec.deploymentName", Adopt: adoptCommand(foo, d)}
		// +drop:rename
		hints.Freed += ", or is renamed and its new Deployment is rolled out"
		hints.OtherName = "ask for another name in spec.deploymentName"
		// +drop:end
		ready = controller.NotReady(v1alpha1.ReasonDeploymentNotOwned, controller.DescribeNotOwned(d, "Deployment", foo, fooGVK(), hints))
	case d != nil && foo.Spec.Image != "" && d.DeletionTimestamp == nil && deployment.Container(d, containerName) == nil:
		ready = controller.NotReady(v1alpha1.ReasonInvalidSpec,
			fmt.Sprintf("spec.image is set, but Deployment %q has no container %q to set it on; unset spec.image, or add that container to the Deployment", d.Name, containerName))
	case f.writes.Contested != "":
		ready = controller.NotReady(v1alpha1.ReasonDeploymentContested, f.writes.Contested)
	case d == nil:
		ready = controller.NotReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q does not exist yet", foo.Spec.DeploymentName))
	default:
		ready = deployment.ReadyCondition(d, f.writes, now)
	}
	ready = addOldDeployments(ready, foo, f, now) // +drop:rename
	return ready
}

// nextTerminationStall returns when the next Deployment will have been terminating for too long, the zero time
// if none will: no event announces that.
func (f *findings) nextTerminationStall(now time.Time) (next time.Time) {
	deployments := []*appsv1.Deployment{f.deployment}
	deployments = append(deployments, f.old.waitsFor...) // +drop:rename
	for _, d := range deployments {
		if left := deployment.UntilTerminationStalls(d, now); left > 0 && (next.IsZero() || now.Add(left).Before(next)) {
			next = now.Add(left)
		}
	}
	return next
}

// trimmer drops from cached objects what the Foo controller does not read.
type trimmer struct {
	interner *deployment.Interner
}

func newTrimmer() trimmer {
	return trimmer{interner: deployment.NewInterner()}
}

// trimFoo trims a Foo. The CRD bounds spec and status.
func (t trimmer) trimFoo(foo *v1alpha1.Foo) *v1alpha1.Foo {
	trim.Metadata(foo)
	trim.Conditions(foo.Status.Conditions)
	foo.Spec.Image = trim.Intern(foo.Spec.Image)
	return foo
}

// trimDeployment returns what is read of a Deployment that a Foo controls or is asked to
// adopt. It returns nil for any other Deployment, of which the cache then keeps the identity.
func (t trimmer) trimDeployment(d *appsv1.Deployment) *appsv1.Deployment {
	if adoptBy := d.Annotations[v1alpha1.AdoptByAnnotation]; adoptBy != "" && metav1.GetControllerOfNoCopy(d) == nil {
		asking := &appsv1.Deployment{}
		trim.SetIdentity(asking, d)
		asking.Annotations = map[string]string{v1alpha1.AdoptByAnnotation: trim.Bounded(adoptBy)}
		controller.MarkLarge(asking, &d.Spec)
		return asking
	}
	if controller.ControllerOf(d, fooGVK().GroupKind()) == nil {
		return nil
	}
	var template corev1.PodTemplateSpec
	if container := deployment.Container(d, containerName); container != nil {
		template.Spec.Containers = t.interner.Containers(container.Name, trim.Bounded(container.Image))
	}
	return t.interner.Trim(d, template)
}
