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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

func TestIsControlledBy(t *testing.T) {
	owner, kind := &metav1.ObjectMeta{Name: "foo", UID: "uid-foo"}, schema.GroupKind{Group: "samplecontroller.k8s.io", Kind: "Foo"}
	for sentence, test := range map[string]struct {
		change func(*metav1.OwnerReference)
		want   bool
	}{
		"rule 5: the controller reference with this UID":            {func(*metav1.OwnerReference) {}, true},
		"rule 17: another version of our API group is the same Foo": {func(ref *metav1.OwnerReference) { ref.APIVersion = "samplecontroller.k8s.io/v1beta1" }, true},
		"rule 5: our UID without controller: true":                  {func(ref *metav1.OwnerReference) { ref.Controller = nil }, false},
		"rule 6: an earlier Foo of the same name":                   {func(ref *metav1.OwnerReference) { ref.UID = "earlier" }, false},
		"rule 17: a Foo of another group":                           {func(ref *metav1.OwnerReference) { ref.APIVersion = "example.com/v1" }, false},
		"rule 17: a malformed group":                                {func(ref *metav1.OwnerReference) { ref.APIVersion = "a/b/c" }, false},
		"rule 17: another kind of our group":                        {func(ref *metav1.OwnerReference) { ref.Kind = "Bar" }, false},
	} {
		ref := metav1.OwnerReference{APIVersion: "samplecontroller.k8s.io/v1alpha1", Kind: "Foo", Name: "foo", UID: "uid-foo", Controller: ptr.To(true)}
		test.change(&ref)
		object := &metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "foo", UID: "uid-foo"}, ref}}
		if got := IsControlledBy(object, owner, kind); got != test.want {
			t.Errorf("%s: IsControlledBy = %v, want %v", sentence, got, test.want)
		}
	}
}

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, want := range map[string]string{
		"foo": "foo", long[1:]: long[1:], strings.Repeat("a", 41) + "-1763845200": strings.Repeat("a", 41) + "-1763845200",
		// The value is in the selector of running Deployments: it must never change.
		long: strings.Repeat("a", 52) + "-ffe054fe7a",
	} {
		if got := LabelValue(name); got != want {
			t.Errorf("rule 8: the label value of %q is %q, want %q", name, got, want)
		}
	}
}

// FuzzLabelValue checks the labels of any two Foos that the API server would keep.
func FuzzLabelValue(f *testing.F) {
	long := strings.Repeat("a", 64)
	f.Add("foo", "bar")
	f.Add(long, long+"b")
	f.Add(long, LabelValue(long))
	f.Add(strings.Repeat("a", 51)+".-."+long, strings.Repeat("a.", 100)+"z")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(validation.IsDNS1123Subdomain(a))+len(validation.IsDNS1123Subdomain(b)) > 0 {
			return
		}
		value := LabelValue(a)
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 || len(a) <= 52 && value != a {
			t.Errorf("LabelValue(%q) = %q: %v", a, value, problems)
		}
		if a != b && value == LabelValue(b) {
			t.Errorf("%q and %q share the label value %q", a, b, value)
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

// size is the encoded size of an object.
type size int

func (s size) Size() int { return int(s) }

func TestMarkLarge(t *testing.T) {
	ordinary := corev1.PodSpec{Containers: make([]corev1.Container, 10)}
	for i := range ordinary.Containers {
		ordinary.Containers[i] = corev1.Container{
			Image: strings.Repeat("i", 255), Env: make([]corev1.EnvVar, 20), Args: make([]string, 20), VolumeMounts: make([]corev1.VolumeMount, 5), LivenessProbe: &corev1.Probe{},
		}
	}
	for sentence, test := range map[string]struct {
		whole interface{ Size() int }
		want  bool
	}{
		"rule 24: an ordinary Pod":              {&ordinary, false},
		"rule 24: 450,000 empty tolerations":    {&corev1.PodSpec{Tolerations: make([]corev1.Toleration, 450000)}, true},
		"rule 24: as many bytes as are no more": {size(maxEncoded), false},
		"rule 24: one byte more":                {size(maxEncoded + 1), true},
	} {
		shared := map[string]string{"a": "b"}
		trimmed := &metav1.ObjectMeta{Annotations: shared}
		MarkLarge(trimmed, test.whole)
		if got := isLarge(trimmed); got != test.want || trimmed.Annotations["a"] != "b" || len(shared) != 1 {
			t.Errorf("%s: large %v, want %v; annotations %v", sentence, got, test.want, trimmed.Annotations)
		}
	}
}
