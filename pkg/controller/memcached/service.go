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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
)

// Clients find the nodes by the headless Service of the Memcached's name: its DNS name has the
// addresses of the Pods that are ready. This file decides about the Service, from values alone;
// service_sync.go makes the calls. Ready says how far the rollout is, whatever there is to say
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

// serviceDecision is what to do about the Service of a Memcached's name: create it, patch it,
// or neither.
type serviceDecision struct {
	// create is the Service to create, nil if there is one.
	create *corev1.Service
	// patch repairs the fields that have drifted. It is empty if there are none.
	patch controller.Patch
	// impossible says why no Service can have the name and what to do, "" if one can.
	impossible string
}

// drifted returns the names of the fields that the decision repairs.
func (d serviceDecision) drifted() []string {
	if d.create != nil {
		return []string{controller.Existence}
	}
	return d.patch.Fields()
}

// serviceResult is what a sync found and did about the Service.
type serviceResult struct {
	// service is the one of the Memcached's name, nil if there is none.
	service *corev1.Service
	// cacheBehind says that the cache did not show the Service when it was read live.
	cacheBehind bool
	// impossible is that of the decision.
	impossible string
	// err is why a write had no effect, or a read failed. It is nil otherwise.
	err error
	// contention is what is known of another writer that undoes the repairs.
	contention controller.Contention
	// admitted are the values that admission put in place of those that were written.
	admitted []controller.FieldValue
}

// isContested reports whether to report contention: as deployment.Result.IsContested.
func (r *serviceResult) isContested() bool {
	return r.contention.Message != "" && (r.err == nil || errors.Is(r.err, controller.ErrOverridden))
}

// requeueAfter returns how long to wait before the next sync, 0 to wait for an event. delay is
// how long the sync of the Deployment asks to wait.
func (r *serviceResult) requeueAfter(delay time.Duration) time.Duration {
	pause := r.contention.Pause
	if pause == 0 && r.contention.Message != "" {
		// A repair has been made. One without an effect causes no event.
		pause = controller.MinContentionPause
	}
	if pause > 0 && (delay == 0 || pause < delay) {
		delay = pause
	}
	if r.cacheBehind && delay == 0 {
		// If the Service is deleted before the cache shows it, no event arrives.
		return controller.StaleCacheDelay
	}
	return delay
}

// decideService returns what to do about current, the Service of memcached's name, nil if there
// is none. A field whose value is listed in admitted is not drift.
func decideService(memcached *v1alpha1.Memcached, current *corev1.Service, admitted ...controller.FieldValue) serviceDecision {
	switch {
	case len(validation.IsDNS1123Label(memcached.Name)) > 0:
		return serviceDecision{impossible: "there is none, because no Service can have a name with a dot or with more than 63 characters; create this Memcached under another name, or a Service of your own for its Pods"}
	case current == nil:
		return serviceDecision{create: newService(memcached)}
	case !ownsService(memcached, current), current.DeletionTimestamp != nil:
		return serviceDecision{}
	}
	return serviceDecision{patch: diffService(memcached, current, admitted...)}
}

// ownsService reports whether this very Memcached, by UID, controls the Service.
func ownsService(memcached *v1alpha1.Memcached, service *corev1.Service) bool {
	return controller.IsControlledBy(service, memcached, memcachedGVK().GroupKind())
}

// newService returns the Service to create for memcached.
func newService(memcached *v1alpha1.Memcached) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:            memcached.Name,
			Namespace:       memcached.Namespace,
			Labels:          map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(memcached, memcachedGVK())},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  labelsOf(memcached),
			Ports:     []corev1.ServicePort{newServicePort(memcached)},
		},
	}
}

// newServicePort returns the only port of the Service. It refers to that of the container by
// name: while a rollout changes the number, each Pod is found at its own.
func newServicePort(memcached *v1alpha1.Memcached) corev1.ServicePort {
	return corev1.ServicePort{Name: portName, Port: desiredPort(memcached), TargetPort: intstr.FromString(portName), Protocol: corev1.ProtocolTCP}
}

// diffService compares the fields that this controller enforces, and no others, and returns the
// patch that repairs them. memcached owns current. clusterIP is not among them: it cannot be
// changed. A field whose value is listed in admitted is not patched.
func diffService(memcached *v1alpha1.Memcached, current *corev1.Service, admitted ...controller.FieldValue) controller.Patch {
	patch := controller.NewPatch(current, admitted...)
	if want := labelsOf(memcached); !maps.Equal(current.Spec.Selector, want) {
		selector := map[string]any{"$patch": "replace"}
		for label, value := range want {
			selector[label] = value
		}
		patch.Set(selector, "selector", cmp.Or(labels.Set(current.Spec.Selector).String(), "none"), labels.Set(want).String(), "spec", "selector")
	}
	if got, want := describeServicePorts(current.Spec.Ports...), newServicePort(memcached); got != describeServicePorts(want) {
		// The list is replaced as a whole: the port number is its merge key, so a merge cannot change it.
		patch.Set([]any{map[string]string{"$patch": "replace"}, want}, "ports", got, describeServicePorts(want), "spec", "ports")
	}
	patch.EnsureLabel(current, controller.ManagedByLabel, controller.ManagedByValue)
	patch.CompareController(current, memcached, memcachedGVK())
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

// checkAdmittedService returns the values that written, the API server's answer to a write, has
// in place of those that were sent. It returns controller.ErrOverridden if the owner reference
// is another one. It compares what the cache keeps: later syncs compare that.
func checkAdmittedService(memcached *v1alpha1.Memcached, written *corev1.Service) ([]controller.FieldValue, error) {
	if !ownsService(memcached, written) {
		return nil, fmt.Errorf("owner reference: %w", controller.ErrOverridden)
	}
	return controller.CheckAdmitted(diffService(memcached, TrimService(written)))
}

// reportService adds to the message of Ready what there is to say about the Service. It returns
// the event that tells of a new problem, nil if there is none.
func reportService(memcached *v1alpha1.Memcached, status *v1alpha1.MemcachedStatus, r serviceResult) *controller.Event {
	_, old := cutService(controller.GetReady(memcached.Status.Conditions))
	reason, text := describeService(memcached, r, old)
	if text == "" {
		return nil
	}
	meta.FindStatusCondition(status.Conditions, controller.Ready).Message += aboutService + text
	if reason == "" || !isNewText(old, text) {
		return nil
	}
	return &controller.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: "Service: " + text}
}

// isNewText reports whether more than digits differ.
func isNewText(old, text string) bool {
	return controller.IsNewRefusal(metav1.Condition{Message: old}, metav1.Condition{Message: text})
}

// cutService returns the condition without what its message says about the Service, and that.
func cutService(ready metav1.Condition) (metav1.Condition, string) {
	var text string
	ready.Message, text, _ = strings.Cut(ready.Message, aboutService)
	return ready, text
}

// describeService returns what to say about the Service, and the reason of the event about it,
// "" if that is no problem. old is what the message says now. The first that applies decides.
func describeService(memcached *v1alpha1.Memcached, r serviceResult, old string) (reason, text string) {
	switch {
	case r.impossible != "":
		return eventServiceRejected, r.impossible
	case r.isContested():
		return eventServiceContested, r.contention.Message
	case controller.IsRejection(r.err):
		if text = describeRejection(r.err); !isNewText(old, text) {
			// The message of a quota quotes its current usage: each change of that would be a
			// status write.
			text = old
		}
		return eventServiceRejected, text
	case r.err != nil:
		// The Worker retries with backoff. Until then the message stays as it is.
		return "", old
	case r.service == nil:
		return "", ""
	case !ownsService(memcached, r.service):
		return deployment.EventErrResourceExists, controller.DescribeNotOwned(r.service, "Service", memcached, memcachedGVK(), controller.NotOwnedHints{
			Freed: "is deleted", OtherName: "create this Memcached under another name",
		})
	}
	return "", strings.TrimPrefix(controller.DescribeAdmitted(diffService(memcached, r.service, r.admitted...)), "; ")
}

// describeServiceDeletions says that another client keeps deleting the Service, and what to do.
func describeServiceDeletions(memcached *v1alpha1.Memcached) string {
	return fmt.Sprintf("Service %q is deleted by another client again and again; stop that client, or delete the Memcached instead", memcached.Name)
}

// describeServiceContention says which fields of the patch another writer keeps changing, which
// writer that is, and what to do. live is the Service with its managed fields.
func describeServiceContention(live *corev1.Service, patch controller.Patch, undone []string) string {
	return fmt.Sprintf("another writer keeps changing what this Memcached enforces on Service %q: %s; stop that writer, or create a Service of another name for it", live.Name, patch.DescribeWriters(live, undone))
}

const (
	// maxSelected and maxServicePorts are one more than the labels and ports that the controller
	// asks for.
	maxSelected     = 3
	maxServicePorts = 2
)

// TrimService returns what is read of a Service that a Memcached controls, nil for any other
// Service.
func TrimService(service *corev1.Service) *corev1.Service {
	if controller.ControllerOf(service, memcachedGVK().GroupKind()) == nil {
		return nil
	}
	trimmed := &corev1.Service{}
	controller.SetIdentity(trimmed, service)
	if value, ok := service.Labels[controller.ManagedByLabel]; ok {
		metav1.SetMetaDataLabel(&trimmed.ObjectMeta, controller.ManagedByLabel, controller.Intern(value))
	}
	keys := slices.Sorted(maps.Keys(service.Spec.Selector))
	for _, key := range keys[:min(len(keys), maxSelected)] {
		if trimmed.Spec.Selector == nil {
			trimmed.Spec.Selector = map[string]string{}
		}
		trimmed.Spec.Selector[controller.Intern(key)] = service.Spec.Selector[key]
	}
	for _, port := range service.Spec.Ports[:min(len(service.Spec.Ports), maxServicePorts)] {
		trimmed.Spec.Ports = append(trimmed.Spec.Ports, corev1.ServicePort{Name: port.Name, Port: port.Port, TargetPort: port.TargetPort, Protocol: port.Protocol})
	}
	return trimmed
}
