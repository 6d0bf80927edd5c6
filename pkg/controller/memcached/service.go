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

package memcached

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/client/trim"
	"example.com/sample-controller/pkg/controller"
)

// Clients find the nodes by the headless Service of the Memcached's name: its DNS name has the
// addresses of the Pods that are ready. This file decides about the Service, from values alone.
// Ready says how far the rollout is, whatever there is to say
// about the Service: the message tells of a problem with it, and one event does.

// Reasons of Warning events, beside those of conditions.
const (
	// eventServiceRejected says that the API server refuses the Service.
	eventServiceRejected = "ServiceRejected"
	// eventServiceContested says that another writer keeps changing the Service.
	eventServiceContested = "ServiceContested"
)

// aboutService begins what the message of Ready says about the Service.
const aboutService = "; its Service: "

// canHaveService reports whether a Service can have the name of the Memcached.
func canHaveService(memcached *v1alpha1.Memcached) bool {
	return len(validation.IsDNS1123Label(memcached.Name)) == 0
}

// selectorOf returns the selector of the Service: the labels that the Memcached's own Deployment selects
// its Pods by, if a Service can select by them. Another program may have made the Deployment.
func selectorOf(memcached *v1alpha1.Memcached, d *appsv1.Deployment) map[string]string {
	if hasDeployment(memcached, d) && d.Spec.Selector != nil && len(d.Spec.Selector.MatchExpressions) == 0 {
		if labels := d.Spec.Selector.MatchLabels; len(labels) < maxSelected {
			return labels
		}
	}
	return labelsOf(memcached)
}

// newService returns the Service to create for memcached.
func newService(memcached *v1alpha1.Memcached, selector map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: newMeta(memcached),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  selector,
			// The target is the port of the container by name: while a rollout changes the number, each Pod is found at its own.
			Ports: []corev1.ServicePort{{Name: portName, Port: desiredPort(memcached), TargetPort: intstr.FromString(portName), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// diffService compares the fields that this controller enforces, and no others, and returns the
// patch that repairs them. clusterIP is not among the fields: it cannot be changed. The owner reference is
// not: OwnerReferencesPermissionEnforcement requires the right to delete for that. TrimService must keep
// each of these fields.
func diffService(desired, current *corev1.Service) controller.Patch {
	patch := controller.NewPatch(current)
	patch.ReplaceMap(current.Spec.Selector, desired.Spec.Selector, "selector", "spec", "selector")
	if got, want := describeServicePorts(current.Spec.Ports...), desired.Spec.Ports[0]; got != describeServicePorts(want) {
		// The list is replaced as a whole: the port number is its merge key, so a merge cannot change it.
		patch.Set([]any{map[string]string{"$patch": "replace"}, want}, "ports", got, describeServicePorts(want), "spec", "ports")
	}
	patch.AddMissingLabel(current, controller.ManagedByLabel, controller.ManagedByValue)
	return patch
}

// describeServicePorts returns what is compared of the ports in words.
func describeServicePorts(ports ...corev1.ServicePort) string {
	var words []string
	for _, port := range ports {
		words = append(words, fmt.Sprintf("%s %d:%s/%s", port.Name, port.Port, port.TargetPort.String(), port.Protocol))
	}
	return cmp.Or(strings.Join(words, " "), "none")
}

// reportService adds to the message of Ready what there is to say about the Service. It returns
// the event that tells of a new problem, nil if there is none.
func reportService(memcached *v1alpha1.Memcached, status *v1alpha1.MemcachedStatus, f findings) *controller.Event {
	_, old, _ := strings.Cut(controller.GetReady(memcached.Status.Conditions).Message, aboutService)
	reason, text := describeService(memcached, f, old)
	if text == "" {
		return nil
	}
	meta.FindStatusCondition(status.Conditions, controller.Ready).Message += aboutService + text
	if reason == "" || !controller.IsNews(metav1.Condition{Message: old}, metav1.Condition{Message: text}) {
		return nil
	}
	return &controller.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: "Service: " + text}
}

// describeService returns what to say about the Service, and the reason of the event about it,
// "" if that is no problem. old is what the message says now. The first that applies decides.
func describeService(memcached *v1alpha1.Memcached, f findings, old string) (reason, text string) {
	switch {
	case validateSpec(memcached) != "" || !hasDeployment(memcached, f.deployment):
		return "", ""
	case !canHaveService(memcached):
		return eventServiceRejected, "there is none, because no Service can have a name with a dot or with more than 63 characters; create this Memcached under another name, or a Service of your own for its Pods"
	case controller.IsRefusal(f.serviceErr):
		return eventServiceRejected, controller.DescribeRefusal(memcachedKind, f.serviceErr)
	case f.serviceErr != nil:
		// The Worker retries. Until then the message stays as it is.
		return "", old
	case f.serviceWrites.Contested != "":
		return eventServiceContested, f.serviceWrites.Contested
	case f.service == nil:
		return "", ""
	case !owns(memcached, f.service):
		return controller.EventErrResourceExists, controller.DescribeNotOwned(f.service, "Service", memcached, memcachedGVK(), controller.NotOwnedHints{
			Freed: "is deleted", OtherName: "create this Memcached under another name",
		})
	case f.serviceWrites.Accepted != "":
		return "", "accepted from admission webhooks or policies: " + f.serviceWrites.Accepted
	}
	return "", ""
}

const (
	// maxSelected and maxServicePorts are one more than the labels and ports that the controller
	// asks for at most.
	maxSelected     = 10
	maxServicePorts = 2
)

// TrimService returns what is read of a Service that a Memcached controls, nil for any other
// Service.
func TrimService(service *corev1.Service) *corev1.Service {
	if controller.ControllerOf(service, memcachedGVK().GroupKind()) == nil {
		return nil
	}
	trimmed := &corev1.Service{Spec: corev1.ServiceSpec{Selector: trim.Map(service.Spec.Selector, maxSelected-1)}}
	controller.SetOwned(trimmed, service)
	for _, port := range service.Spec.Ports[:min(len(service.Spec.Ports), maxServicePorts)] {
		trimmed.Spec.Ports = append(trimmed.Spec.Ports, corev1.ServicePort{Name: port.Name, Port: port.Port, TargetPort: port.TargetPort, Protocol: port.Protocol})
	}
	return trimmed
}
