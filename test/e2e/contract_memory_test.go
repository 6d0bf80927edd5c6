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
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Rule 24: what the caches drop of an object, a status update does not delete.

// addMetadata gives the object labels, annotations, a finalizer and an owner, all of a field
// manager of its own. The returned function removes the finalizer again.
func (e *env) addMetadata(resource, name string) (removeFinalizer func()) {
	e.Helper()
	e.kubectl("create configmap owner-of-" + name)
	uid := e.kubectl("get configmap owner-of-" + name + " -o jsonpath={.metadata.uid}")
	patch := fmt.Sprintf(`{"metadata":{"labels":{"team":"red"},"annotations":{"example.com/text":"%s"},"finalizers":["example.com/hold"],`+
		`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner-of-%s","uid":"%s"}]}}`, strings.Repeat("x", 1000), name, strings.TrimSpace(uid))
	e.kubectl(fmt.Sprintf("patch %s %s --field-manager=theirs --type=merge -p '%s'", resource, name, patch))
	return func() {
		e.kubectl(fmt.Sprintf(`patch %s %s --type=merge -p '{"metadata":{"finalizers":null}}'`, resource, name))
	}
}

// sameMetadata checks that two versions of an object differ in nothing that a status update
// must not change.
func (e *env) sameMetadata(before, after metav1.Object) {
	e.Helper()
	kept := func(object metav1.Object) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{
			Labels: object.GetLabels(), Annotations: object.GetAnnotations(), Finalizers: object.GetFinalizers(), OwnerReferences: object.GetOwnerReferences(),
			UID: object.GetUID(), CreationTimestamp: object.GetCreationTimestamp(),
			// The controller's own entry has a new time.
			ManagedFields: slices.DeleteFunc(slices.Clone(object.GetManagedFields()), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager != "theirs" }),
		}
	}
	a, b := kept(before), kept(after)
	if len(a.ManagedFields) != 1 || len(a.Finalizers) != 1 || !equality.Semantic.DeepEqual(a, b) {
		e.Errorf("metadata went from %+v to %+v", a, b)
	}
}

func statusAlone(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	e.awaitReady("x")
	defer e.addMetadata("foo", "x")()
	before := e.foo("x")
	mark := e.mark()
	e.update("x", replicas(2))
	after := e.awaitReady("x")
	if len(e.accepted(mark, "patch foos/status x")) == 0 {
		t.Fatal("no status was written")
	}
	e.sameMetadata(before, after)
	if after.Spec.DeploymentName != "x" || *after.Spec.Replicas != 2 {
		t.Errorf("spec %+v", after.Spec)
	}

	// +drop:crontab
	e.createCronTab("nightly", "0 3 1 1 *")
	e.awaitCronTab("nightly", alphav1.ReasonScheduled, nil)
	defer e.addMetadata("crontab", "nightly")()
	cronTab := getObject(e, e.cronTabs(), "nightly")
	e.updateCronTab("nightly", suspend(true))
	suspended, _ := e.awaitCronTab("nightly", alphav1.ReasonSuspended, nil)
	e.sameMetadata(cronTab, suspended)
	if !equality.Semantic.DeepEqual(cronTab.Spec.JobTemplate, suspended.Spec.JobTemplate) {
		t.Errorf("the Pod spec went from %+v to %+v", cronTab.Spec.JobTemplate, suspended.Spec.JobTemplate)
	}
	// +drop:end
}

func boundedConditions(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	e.awaitReady("x")
	// fill returns the error of a status with that many conditions of other types.
	fill := func(count, length int) error {
		foo := e.foo("x")
		for i := range count {
			meta.SetStatusCondition(&foo.Status.Conditions, metav1.Condition{
				Type: fmt.Sprintf("example.com/Theirs%d", i), Status: metav1.ConditionTrue, Reason: "Kept", Message: strings.Repeat("x", length),
			})
		}
		_, err := e.foos().UpdateStatus(t.Context(), foo, metav1.UpdateOptions{})
		return err
	}
	for _, refused := range []struct {
		count, length int
		says          string
	}{
		{16, 1, "Too many: 17: must have at most 16 items"},
		{2, 20000, "the messages of all conditions must have no more than 32768 characters together"},
	} {
		if err := fill(refused.count, refused.length); err == nil || !strings.Contains(err.Error(), refused.says) {
			t.Errorf("%d conditions with messages of %d characters: error %v, want %q in it", refused.count, refused.length, err, refused.says)
		}
	}
	e.must(fill(15, 2000))
	e.update("x", replicas(2))
	if foo := e.awaitReady("x"); len(foo.Status.Conditions) != 16 || !meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.FooReady) {
		t.Errorf("%d conditions", len(foo.Status.Conditions))
	}
}
