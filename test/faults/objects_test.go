//go:build faults

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

package faults

import (
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/sample-controller/test/kinds"
)

// What the suites ask of objects of any kind.

// newObject returns an object of the kind. The suite has created one like it before.
func (k *kindSuite) newObject(name string, spec []byte) *unstructured.Unstructured {
	object, err := k.New(name, spec)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", spec, err))
	}
	return object
}

// ownedName returns the name of the object that the owner's spec asks for.
func (k *kindSuite) ownedName(owner *unstructured.Unstructured) string {
	return kinds.Find(k.Owns.Name, owner.Object)
}

// isSettled reports whether the controllers of Kubernetes are done with the object.
func isSettled(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "Deployment":
		deployment := &appsv1.Deployment{}
		convert(object, deployment)
		return rolledOut(deployment)
	case "Job":
		job := &batchv1.Job{}
		convert(object, job)
		return finishedType(job) == batchv1.JobComplete
	}
	return true
}

// finishedType returns the condition type that says how the Job ended, "" while it runs.
func finishedType(job *batchv1.Job) batchv1.JobConditionType {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return condition.Type
		}
	}
	return ""
}

// ownerKind describes the kind to the checker.
func (k *kindSuite) ownerKind() ownerKind[*unstructured.Unstructured, *unstructured.Unstructured] {
	return ownerKind[*unstructured.Unstructured, *unstructured.Unstructured]{
		kind: k.Kind, group: k.GVR().Group, resource: k.Resource, ownedKind: k.Owns.Kind, ownedResource: k.ownedResource(),
		ownedName: k.ownedName, conforms: k.conforms, settled: isSettled, status: statusOf,
		progress: k.progress, hasFinalizer: k.External != "",
	}
}

// checkInvariants returns the violations of S1 to S3. Of further objects S1 and the first half of
// S2 hold: whether an owner is ready does not depend on them.
func (k *kindSuite) checkInvariants(h *history, records ...[]request) []string {
	of := k.ownerKind()
	for i := range k.Also {
		of.also = append(of.also, k.Also[i].GVR().Resource)
	}
	found := ownedViolations(h, k.ownerVersions(h), k.ownedVersions(h), of, records...)
	for i := range k.Also {
		also := k.ownerKind()
		also.ownedKind, also.ownedResource = k.Also[i].Kind, k.Also[i].GVR().Resource
		also.ownedName = func(owner *unstructured.Unstructured) string { return owner.GetName() }
		found = append(found, furtherViolations(h, k.ownerVersions(h), h.objects[also.ownedResource], also, records...)...)
	}
	return found
}

// checkConverged returns nil if each owner that is ready has what its spec asks for.
func (k *kindSuite) checkConverged(h *history) error {
	if k.namesVary {
		// No spec tells the name.
		return nil
	}
	of, owned := k.ownerKind(), existing(k.ownedVersions(h))
	for name, owner := range existing(k.ownerVersions(h)) {
		if !of.isReady(owner) {
			continue
		}
		dependent := owned[k.ownedName(owner)]
		if dependent == nil || !k.conforms(dependent, owner) || !isSettled(dependent) {
			return fmt.Errorf("%s %s is ready, and its %s is %s", k.Kind, name, k.Owns.Kind, mustEncode(dependent))
		}
	}
	return nil
}

// createMarker creates a marker and waits until it is ready. Its dependent is newer than all
// others.
func createMarker(r *run, name, what string) {
	r.t.Helper()
	k := r.scenario.suite
	_, err := r.client(k.Resource).Create(r.t.Context(), k.newObject(name, k.MarkerSpec), metav1.CreateOptions{})
	r.must(err)
	r.await(what, func() error {
		marker := existing(k.ownerVersions(r.history))[name]
		if marker == nil || !k.ownerKind().isReady(marker) {
			return errors.New("the marker is not ready")
		}
		if dependent := existing(k.ownedVersions(r.history))[k.ownedName(marker)]; dependent == nil || !isSettled(dependent) {
			return errors.New("the dependent of the marker is not settled")
		}
		return nil
	})
}

// checkItems fails the test if an object has no item in the external service, or an item no object.
func (r *run) checkItems() {
	r.t.Helper()
	var uids []string
	r.history.locked(func() {
		for _, owner := range existing(r.scenario.suite.ownerVersions(r.history)) {
			uids = append(uids, string(owner.GetUID()))
		}
	})
	slices.Sort(uids)
	if ids := r.service.IDs(); !slices.Equal(uids, ids) {
		r.t.Errorf("the objects have the UIDs %q, and the external service has %q", uids, ids)
	}
}
