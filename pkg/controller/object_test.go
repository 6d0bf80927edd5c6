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

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

func TestIsControlledBy(t *testing.T) {
	owner := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "foo", UID: "uid-foo"}}
	controlledBy := func(change func(*metav1.OwnerReference)) []metav1.OwnerReference {
		ref := metav1.OwnerReference{APIVersion: "samplecontroller.k8s.io/v1alpha1", Kind: "Foo", Name: "foo", UID: "uid-foo", Controller: ptr.To(true)}
		change(&ref)
		return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "foo", UID: "uid-foo"}, ref}
	}
	tests := map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"the controller reference with this UID": {controlledBy(func(*metav1.OwnerReference) {}), true},
		"rule 17: another version of our API group is the same Foo": {
			controlledBy(func(ref *metav1.OwnerReference) { ref.APIVersion = "samplecontroller.k8s.io/v1beta1" }), true},
		"rule 5: no owner": {nil, false},
		"rule 5: our UID without controller: true": {
			controlledBy(func(ref *metav1.OwnerReference) { ref.Controller = nil }), false},
		"rule 6: an earlier Foo of the same name": {
			controlledBy(func(ref *metav1.OwnerReference) { ref.UID = "earlier" }), false},
		"rule 17: a Foo of another group": {
			controlledBy(func(ref *metav1.OwnerReference) { ref.APIVersion = "example.com/v1" }), false},
		"rule 17: a malformed group": {
			controlledBy(func(ref *metav1.OwnerReference) { ref.APIVersion = "a/b/c" }), false},
		"rule 17: another kind of our group": {
			controlledBy(func(ref *metav1.OwnerReference) { ref.Kind = "Bar" }), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.owners}}
			if got := IsControlledBy(object, owner, schema.GroupKind{Group: "samplecontroller.k8s.io", Kind: "Foo"}); got != test.want {
				t.Errorf("IsControlledBy = %v, want %v", got, test.want)
			}
		})
	}
}

func TestEarliest(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for sentence, test := range map[string]struct {
		times []time.Time
		want  time.Duration
	}{
		"nothing waits":                 {[]time.Time{{}, {}}, 0},
		"the earliest comes first":      {[]time.Time{now.Add(2), {}, now.Add(3)}, 2},
		"a time that has passed is now": {[]time.Time{now.Add(2), now.Add(-2)}, 1},
	} {
		if got := Earliest(now, test.times...); got != test.want {
			t.Errorf("%s: %v, want %v", sentence, got, test.want)
		}
	}
}

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, name := range []string{"foo", strings.Repeat("a", 63)} {
		if got := LabelValue(name); got != name {
			t.Errorf("LabelValue(%q) = %q, want it unchanged", name, got)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{long, long + "b", long + "c", strings.Repeat("a", 51) + ".-." + long, strings.Repeat("a.", 100) + "z"} {
		got := LabelValue(name)
		if problems := validation.IsValidLabelValue(got); len(problems) > 0 {
			t.Errorf("LabelValue(%q) = %q, no legal label value: %v", name, got, problems)
		}
		if again := LabelValue(name); again != got {
			t.Errorf("LabelValue(%q) is %q once and %q another time", name, got, again)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%q and %q share the label value %q", name, other, got)
		}
		seen[got] = name
	}
	for _, other := range []string{LabelValue(long), LabelValue(strings.Repeat("a", 51) + ".-." + long)} {
		if name, taken := seen[LabelValue(other)]; taken || LabelValue(other) == other {
			t.Errorf("%q and %q share the label value %q", other, name, LabelValue(other))
		}
	}
	for _, name := range []string{"nightly-1763845200", strings.Repeat("a", 41) + "-1763845200"} {
		if got := LabelValue(name); got != name {
			t.Errorf("LabelValue(%q) = %q, want it unchanged", name, got)
		}
	}
	// The value is in the selector of running Deployments: it must never change.
	if got, want := LabelValue(long), strings.Repeat("a", 52)+"-ffe054fe7a"; got != want {
		t.Errorf("labelValue of 64 times a = %q, want %q", got, want)
	}
}

// FuzzLabelValue checks the labels of any two Foos that the API server would keep.
func FuzzLabelValue(f *testing.F) {
	f.Add("foo", "bar")
	f.Add(strings.Repeat("a", 64), strings.Repeat("a", 65))
	f.Add(strings.Repeat("a", 51)+".-."+strings.Repeat("a", 64), strings.Repeat("a.", 100)+"z")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, name := range []string{a, b} {
			if len(validation.IsDNS1123Subdomain(name)) > 0 {
				return
			}
			value := LabelValue(name)
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("LabelValue(%q) = %q: %v", name, value, problems)
			}
			if value != LabelValue(name) || len(name) <= 52 && value != name {
				t.Errorf("LabelValue(%q) = %q, and %q another time", name, value, LabelValue(name))
			}
		}
		if a != b && LabelValue(a) == LabelValue(b) {
			t.Errorf("%q and %q share the label value %q", a, b, LabelValue(a))
		}
	})
}

func TestTrimOwners(t *testing.T) {
	ours := metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "ours", UID: "uid-ours", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
	listed := func(count int) (owners []metav1.OwnerReference) {
		for i := range count {
			owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "x", UID: types.UID(strings.Repeat("u", i+1))})
		}
		return owners
	}
	long := metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: strings.Repeat("é", 1025), UID: types.UID(strings.Repeat("u", 1025))}
	cut := metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: strings.Repeat("é", 1024) + "…", UID: types.UID(strings.Repeat("u", 1024) + "…")}
	longest := metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: strings.Repeat("é", 1024), UID: types.UID(strings.Repeat("u", 1024))}
	for sentence, test := range map[string]struct{ owners, want []metav1.OwnerReference }{
		"rule 24: no owner": {nil, nil},
		"rule 24: 1024 characters are kept, however many bytes":       {[]metav1.OwnerReference{longest}, []metav1.OwnerReference{longest}},
		"rule 24: of many owners the controller is kept":              {append(listed(20), ours), []metav1.OwnerReference{ours}},
		"rule 24: of many owners without a controller a few are":      {listed(20), listed(8)},
		"rule 24: names and UIDs that no object can have are cut off": {[]metav1.OwnerReference{long}, []metav1.OwnerReference{cut}},
	} {
		t.Run(sentence, func(t *testing.T) {
			kept, again := &metav1.ObjectMeta{}, &metav1.ObjectMeta{}
			SetIdentity(kept, &metav1.ObjectMeta{OwnerReferences: test.owners})
			SetIdentity(again, kept)
			if diff := cmp.Diff(test.want, kept.OwnerReferences); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, again.OwnerReferences); diff != "" {
				t.Errorf("trimmed twice (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMarkLarge(t *testing.T) {
	ordinary := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "nginx"}}}
	for range 10 {
		ordinary.Spec.Containers = append(ordinary.Spec.Containers, corev1.Container{
			Image: strings.Repeat("i", 255), Env: make([]corev1.EnvVar, 20), Args: make([]string, 20), VolumeMounts: make([]corev1.VolumeMount, 5), LivenessProbe: &corev1.Probe{},
		})
	}
	labels := map[string]string{}
	for i := range 5000 {
		labels[fmt.Sprint(i)] = ""
	}
	for sentence, test := range map[string]struct {
		whole any
		want  bool
	}{
		"rule 24: an ordinary Deployment":       {&appsv1.DeploymentSpec{Template: ordinary}, false},
		"rule 24: 450,000 empty tolerations":    {&corev1.PodSpec{Tolerations: make([]corev1.Toleration, 450000)}, true},
		"rule 24: very many labels":             {&metav1.LabelSelector{MatchLabels: labels}, true},
		"rule 24: lists in lists":               {[][]int64{make([]int64, 5000), make([]int64, 5000)}, true},
		"rule 24: as many bytes as are no more": {make([]byte, maxElements), false},
		"rule 24: one byte more":                {make([]byte, maxElements+1), true},
		"rule 24: nothing":                      {(*corev1.PodSpec)(nil), false},
	} {
		shared := map[string]string{"a": "b"}
		trimmed := &metav1.ObjectMeta{Annotations: shared}
		MarkLarge(trimmed, test.whole)
		if got := isLarge(trimmed); got != test.want || trimmed.Annotations["a"] != "b" || len(shared) != 1 {
			t.Errorf("%s: large %v, want %v; annotations %v", sentence, got, test.want, trimmed.Annotations)
		}
	}
}

func TestLookUpWithoutIndex(t *testing.T) {
	deployments := kubeinformers.NewSharedInformerFactory(fake.NewClientset(), 0).Apps().V1().Deployments().TypedInformer()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, `index "none" was not added`) {
			t.Errorf("LookUp panicked with %q", got)
		}
	}()
	LookUp(deployments.GetTypedIndexer(), "none", "ns/web")
}

// FuzzControllerOf checks rule 17: the controller is identified by kind, API group and UID of
// a reference with controller: true, in any version and with any name.
func FuzzControllerOf(f *testing.F) {
	f.Add("samplecontroller.k8s.io/v1alpha1", "Foo", "foo", "uid-foo", true)
	f.Add("samplecontroller.k8s.io/v1beta1", "Foo", "other", "uid-foo", true)
	f.Add("samplecontroller.k8s.io", "Foo", "foo", "uid-foo", true)
	f.Add("a/b/c", "Foo", "foo", "uid-foo", true)
	f.Add("", "", "", "", false)
	fooKind := schema.GroupKind{Group: "samplecontroller.k8s.io", Kind: "Foo"}
	f.Fuzz(func(t *testing.T, version, kind, name, uid string, controls bool) {
		ref := metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: &controls}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", OwnerReferences: []metav1.OwnerReference{ref}}}
		group, rest, found := strings.Cut(version, "/")
		want := controls && kind == "Foo" && found && group == fooKind.Group && !strings.Contains(rest, "/")
		if got := ControllerOf(deployment, fooKind); (got != nil) != want || want && got.UID != ref.UID {
			t.Errorf("rule 17: ControllerOf with %+v = %+v, want one: %t", ref, got, want)
		}
		if keys, err := IndexByOwner[*appsv1.Deployment](fooKind)(deployment); err != nil || (len(keys) == 1) != want || want && keys[0] != OwnerKey("ns", ref.UID) {
			t.Errorf("rule 17: IndexByOwner with %+v = %q, %v", ref, keys, err)
		}
	})
}
