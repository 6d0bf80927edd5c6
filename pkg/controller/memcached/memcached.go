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
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	reasons "example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
)

const (
	memcachedKind = "Memcached"
	containerName = "memcached"
	portName      = "memcached"

	// The defaults of the CRD, for clusters whose installed CRD does not have them yet.
	defaultSize  = 1
	defaultImage = "memcached:1.6-alpine"
	defaultPort  = 11211
	// defaultMemory is that of memcached, in megabytes. The CRD has none: an upgrade must not
	// change stored objects.
	defaultMemory = 64

	// userID is the UID of the user memcache in the image. For runAsNonRoot the kubelet can verify
	// a numeric user, not a user name.
	userID = 11211

	// nameLabel is on all Pods and ReplicaSets of a Memcached, with its name.
	nameLabel = "memcached_cr"
)

func memcachedGVK() schema.GroupVersionKind {
	return schema.GroupVersion(v1alpha1.GroupVersion).WithKind(memcachedKind)
}

// owns reports whether this very Memcached, by UID, controls the Deployment or the Service.
func owns(memcached *v1alpha1.Memcached, object metav1.Object) bool {
	return controller.IsControlledBy(object, memcached, memcachedGVK().GroupKind())
}

// validateSpec returns what is wrong with the spec and how to correct it, "" if it is
// valid. The CRD's schema refuses such specs, but an object may be older than the schema.
func validateSpec(memcached *v1alpha1.Memcached) string {
	if size := desiredSize(memcached); size < 0 {
		return fmt.Sprintf("spec.size is %d; set it to 0 or more", size)
	}
	if port := desiredPort(memcached); port < 1 || port > 65535 {
		return fmt.Sprintf("spec.port is %d; set it to a number from 1 to 65535", port)
	}
	if memory := desiredMemory(memcached); memory < 1 {
		return fmt.Sprintf("spec.memoryMegabytes is %d; set it to 1 or more", memory)
	}
	if key := memcached.Spec.TopologyKey; key != "" {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Sprintf("spec.topologyKey %q is not a label of nodes: %s", key, strings.Join(problems, "; "))
		}
	}
	return ""
}

func desiredSize(memcached *v1alpha1.Memcached) int32 {
	return ptr.Deref(memcached.Spec.Size, defaultSize)
}

func desiredPort(memcached *v1alpha1.Memcached) int32 {
	return ptr.Deref(memcached.Spec.Port, defaultPort)
}

func desiredMemory(memcached *v1alpha1.Memcached) int32 {
	return ptr.Deref(memcached.Spec.MemoryMegabytes, defaultMemory)
}

func desiredImage(memcached *v1alpha1.Memcached) string {
	return cmp.Or(memcached.Spec.Image, defaultImage)
}

// labelsOf returns the labels of the Pods. They make up the selector, which cannot be
// changed later: nothing that a spec says may be among them.
func labelsOf(memcached *v1alpha1.Memcached) map[string]string {
	return map[string]string{"app": "memcached", nameLabel: deployment.LabelValue(memcached.Name)}
}

// newMeta returns the metadata of the Deployment and the Service to create.
func newMeta(memcached *v1alpha1.Memcached) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            memcached.Name,
		Namespace:       memcached.Namespace,
		Labels:          map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(memcached, memcachedGVK())},
	}
}

// newDeployment returns the Deployment to create for memcached.
func newDeployment(memcached *v1alpha1.Memcached) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: newMeta(memcached),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(desiredSize(memcached)),
			Selector: &metav1.LabelSelector{MatchLabels: labelsOf(memcached)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(memcached)},
				Spec: corev1.PodSpec{
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot:   ptr.To(true),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers:                []corev1.Container{*newContainer(memcached)},
					TopologySpreadConstraints: newSpread(memcached),
				},
			},
		},
	}
}

// newSpread returns the constraint that spreads the Pods over the values of spec.topologyKey,
// nil if that is not set. It holds no Pod back.
func newSpread(memcached *v1alpha1.Memcached) []corev1.TopologySpreadConstraint {
	if memcached.Spec.TopologyKey == "" {
		return nil
	}
	return []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: memcached.Spec.TopologyKey, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: labelsOf(memcached)},
	}}
}

// newContainer returns the container to create. Its probe is not compared later: users may
// change it, and in a Deployment of an earlier version a new one would restart all Pods.
func newContainer(memcached *v1alpha1.Memcached) *corev1.Container {
	return &corev1.Container{
		Name:  containerName,
		Image: desiredImage(memcached),
		Command: []string{"memcached", "-m", fmt.Sprint(desiredMemory(memcached)), "-o", "modern", "-v",
			"-p", fmt.Sprint(desiredPort(memcached))},
		Resources:      corev1.ResourceRequirements{Requests: newMemory(memcached), Limits: newMemory(memcached)},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(portName)}}},
		Ports:          []corev1.ContainerPort{{Name: portName, ContainerPort: desiredPort(memcached), Protocol: corev1.ProtocolTCP}},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot:             ptr.To(true),
			RunAsUser:                ptr.To[int64](userID),
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// newMemory returns how much memory a container may use. memcached uses some percent more than -m, and
// 64 MB at least (its wiki, ConfiguringServer); a quarter more has room for the connections as well.
func newMemory(memcached *v1alpha1.Memcached) corev1.ResourceList {
	megabytes := max(int64(desiredMemory(memcached)), defaultMemory) * 5 / 4
	return corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(megabytes<<20, resource.BinarySI)}
}

// diffDeployment compares the fields that this controller enforces, and no others, and
// returns the patch that repairs them. Both have the same owner. TrimDeployment must keep each of
// these fields.
func diffDeployment(desired, current *appsv1.Deployment) controller.Patch {
	patch, want := controller.NewPatch(current), desired.Spec.Template.Spec
	deployment.CompareReplicas(&patch, current, desired)
	compareLabels(&patch, desired.Spec.Template.Labels, current)
	comparePod(&patch, &current.Spec.Template.Spec)
	compareSpread(&patch, want.TopologySpreadConstraints, current.Spec.Template.Spec.TopologySpreadConstraints)
	if container := deployment.Container(current, containerName); container == nil {
		deployment.AddContainer(&patch, containerName, &want.Containers[0])
	} else {
		compareContainer(&patch, &want.Containers[0], container)
	}
	patch.AddMissingLabel(current, controller.ManagedByLabel, controller.ManagedByValue)
	patch.CompareController(current, desired)
	return patch
}

// hasDeployment reports whether the Deployment is the Memcached's own.
func hasDeployment(memcached *v1alpha1.Memcached, d *appsv1.Deployment) bool {
	return d != nil && owns(memcached, d)
}

// hadDeployment reports whether the status of this generation tells of a Deployment of the
// Memcached's own.
func hadDeployment(memcached *v1alpha1.Memcached) bool {
	return memcached.Status.ObservedGeneration == memcached.Generation && memcached.Status.Selector != ""
}

// compareLabels puts the labels of the Pods right. Those that the selector demands are
// as they are: it cannot be changed.
func compareLabels(patch *controller.Patch, want map[string]string, current *appsv1.Deployment) {
	selector := current.Spec.Selector
	if selector == nil {
		return // It is too long for the cache (deployment.TrimSelector), and may demand any label.
	}
	for _, label := range slices.Sorted(maps.Keys(want)) {
		_, fixed := selector.MatchLabels[label]
		if fixed || slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == label }) {
			continue
		}
		if got := current.Spec.Template.Labels[label]; got != want[label] {
			deployment.SetInTemplate(patch, want[label], strconv.Quote(got), strconv.Quote(want[label]), "metadata", "labels", label)
		}
	}
}

// comparePod repairs the Pod-level fields that the Pod Security level restricted requires.
func comparePod(patch *controller.Patch, pod *corev1.PodSpec) {
	got := ptr.Deref(pod.SecurityContext, corev1.PodSecurityContext{})
	if !ptr.Deref(got.RunAsNonRoot, false) {
		deployment.SetInTemplate(patch, true, describe(got.RunAsNonRoot), "true", "spec", "securityContext", "runAsNonRoot")
	}
	if got.SeccompProfile == nil || got.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		// localhostProfile is valid only with the type Localhost.
		profile := map[string]any{"type": corev1.SeccompProfileTypeRuntimeDefault, "localhostProfile": nil}
		deployment.SetInTemplate(patch, profile, describeProfile(got.SeccompProfile), "RuntimeDefault", "spec", "securityContext", "seccompProfile")
	}
}

// compareSpread puts right the constraint that the spec asks for. It is the only one: what an
// earlier key asked for must go.
func compareSpread(patch *controller.Patch, want, got []corev1.TopologySpreadConstraint) {
	if is, words := describeSpread(got), describeSpread(want); len(want) > 0 && is != words {
		deployment.SetInTemplate(patch, []any{map[string]string{"$patch": "replace"}, want[0]}, is, words, "spec", "topologySpreadConstraints")
	}
}

// describeSpread returns what is compared of the constraints in words. The cache keeps the
// first two.
func describeSpread(constraints []corev1.TopologySpreadConstraint) string {
	var words []string
	for _, constraint := range constraints[:min(len(constraints), maxSpread)] {
		words = append(words, fmt.Sprintf("%s %s by %d of %s", constraint.TopologyKey, constraint.WhenUnsatisfiable, constraint.MaxSkew, deployment.FormatSelector(constraint.LabelSelector)))
	}
	return cmp.Or(strings.Join(words, " and "), "none")
}

// compareContainer puts right what of the container is ours.
func compareContainer(patch *controller.Patch, want, got *corev1.Container) {
	compare := func(value any, is, words string, path ...any) {
		if is != words {
			deployment.SetInContainer(patch, containerName, value, is, words, path...)
		}
	}
	compare(want.Image, got.Image, want.Image, "image")
	compare(want.Command, describeList(got.Command), describeList(want.Command), "command")
	if len(got.Command) < 3 || got.Command[2] != want.Command[2] {
		// Resources are not compared: users may change them, and an upgrade must not restart Pods.
		deployment.SetInContainer(patch, containerName, want.Resources.Requests[corev1.ResourceMemory], "", "", "resources", "requests", "memory")
		deployment.SetInContainer(patch, containerName, want.Resources.Limits[corev1.ResourceMemory], "", "", "resources", "limits", "memory")
	}
	compare(nil, describeList(got.Args), "none", "args")
	comparePorts(patch, want.Ports[0], got.Ports)

	secure, is := want.SecurityContext, ptr.Deref(got.SecurityContext, corev1.SecurityContext{})
	drop := ptr.Deref(is.Capabilities, corev1.Capabilities{}).Drop
	compare(true, describe(is.RunAsNonRoot), "true", "securityContext", "runAsNonRoot")
	compare(userID, describe(is.RunAsUser), strconv.Itoa(userID), "securityContext", "runAsUser")
	compare(false, describe(is.AllowPrivilegeEscalation), "false", "securityContext", "allowPrivilegeEscalation")
	compare(secure.Capabilities.Drop, describeList(drop), describeList(secure.Capabilities.Drop), "securityContext", "capabilities", "drop")
}

// comparePorts repairs our port. It replaces each port that has our name, or our number and
// protocol under another name, and leaves the others alone.
func comparePorts(patch *controller.Patch, want corev1.ContainerPort, got []corev1.ContainerPort) {
	ours := func(port corev1.ContainerPort) bool {
		return port.Name == want.Name || port.ContainerPort == want.ContainerPort && port.Protocol == want.Protocol
	}
	if slices.ContainsFunc(got, func(port corev1.ContainerPort) bool { return describePort(port) == describePort(want) }) {
		return
	}
	var was []string
	// The list is replaced as a whole: the port number is its merge key, so a merge cannot change it.
	ports := []any{map[string]string{"$patch": "replace"}}
	for _, port := range got {
		if ours(port) {
			was = append(was, describePort(port))
		} else {
			ports = append(ports, port)
		}
	}
	deployment.SetInContainer(patch, containerName, append(ports, want), cmp.Or(strings.Join(was, " and "), "none"), describePort(want), "ports")
}

// describe returns the value of an optional field in words.
func describe[T any](value *T) string {
	if value == nil {
		return "none"
	}
	return fmt.Sprint(*value)
}

func describeList[T ~string](list []T) string {
	if len(list) == 0 {
		return "none"
	}
	return fmt.Sprintf("%q", list)
}

func describeProfile(profile *corev1.SeccompProfile) string {
	if profile == nil {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprint(profile.Type, " ", ptr.Deref(profile.LocalhostProfile, "")))
}

func describePort(port corev1.ContainerPort) string {
	return fmt.Sprintf("%s %d/%s", port.Name, port.ContainerPort, port.Protocol)
}

// findings are what the status is computed from, beside the Memcached.
type findings struct {
	// deployment and service are those of the Memcached's name, nil if there is none.
	deployment *appsv1.Deployment
	service    *corev1.Service
	// refused is why the API server refused to write the Deployment, serviceErr why the Service was
	// not written. They are nil otherwise.
	refused, serviceErr error
	// writes and serviceWrites are what became of the writes to them.
	writes, serviceWrites controller.Report
	// nodes are the names of the live Pods.
	nodes []string
}

// newStatus returns the status that follows from the findings. now becomes lastTransitionTime if
// the status of Ready changes. Fields that are not this controller's, above all conditions of
// other types, are kept.
func newStatus(memcached *v1alpha1.Memcached, f findings, now metav1.Time) v1alpha1.MemcachedStatus {
	status := *memcached.Status.DeepCopy()
	status.ObservedGeneration = memcached.Generation
	status.Nodes, status.ReadyReplicas, status.Replicas, status.Selector = []string{}, 0, 0, ""
	if hasDeployment(memcached, f.deployment) {
		status.Nodes = append(status.Nodes, f.nodes...)
		status.ReadyReplicas = f.deployment.Status.ReadyReplicas
		status.Replicas = f.deployment.Status.Replicas
		status.Selector = deployment.FormatSelector(f.deployment.Spec.Selector)
	}
	controller.SetReady(&status.Conditions, readyCondition(memcached, f, now.Time), memcached.Generation, now)
	return status
}

// isProgress reports whether a status update may wait: it reports a rollout under way, or
// nothing new about Ready, or Ready although the cache does not show the right number of
// Pods yet. The events of those Pods enqueue the Memcached again. That a Memcached is no
// longer Ready, although its spec did not change, is reported at once.
func isProgress(memcached *v1alpha1.Memcached, status *v1alpha1.MemcachedStatus) bool {
	old, ready := controller.GetReady(memcached.Status.Conditions), controller.GetReady(status.Conditions)
	if controller.LostReady(old, ready, memcached.Generation) {
		return false
	}
	settled := status.Replicas == desiredSize(memcached) && len(status.Nodes) == min(int(status.Replicas), maxNodes)
	return ready.Reason == reasons.ReasonDeploymentProgressing || equality.Semantic.DeepEqual(old, ready) || ready.Status == metav1.ConditionTrue && !settled
}

// readyCondition returns status, reason and message of the Ready condition. The first that applies
// decides: the spec, a refusal of the API server, the owner, another writer, the rollout.
func readyCondition(memcached *v1alpha1.Memcached, f findings, now time.Time) metav1.Condition {
	switch invalid := validateSpec(memcached); {
	case invalid != "":
		return controller.NotReady(reasons.ReasonInvalidSpec, invalid)
	case f.refused != nil:
		return controller.NotReady(reasons.ReasonDeploymentRejected, controller.DescribeRefusal(memcachedKind, f.refused))
	case f.deployment != nil && !owns(memcached, f.deployment):
		return controller.NotReady(reasons.ReasonDeploymentNotOwned, controller.DescribeNotOwned(f.deployment, "Deployment", memcached, memcachedGVK(), controller.NotOwnedHints{
			Freed: "is deleted", OtherName: "create this Memcached under another name",
		}))
	case f.writes.Contested != "":
		return controller.NotReady(reasons.ReasonDeploymentContested, f.writes.Contested)
	case f.deployment == nil:
		return controller.NotReady(reasons.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q does not exist yet", memcached.Name))
	}
	return deployment.ReadyCondition(f.deployment, f.writes, now)
}
