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

package webhook

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// newFoo returns a Foo that asks for the Deployment.
func newFoo(name, deployment string, but ...func(*v1alpha1.Foo)) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{
		TypeMeta:   metav1.TypeMeta{APIVersion: schema.GroupVersion(v1alpha1.GroupVersion).String(), Kind: "Foo"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1alpha1.FooSpec{DeploymentName: deployment, Replicas: ptr.To[int32](1)},
	}
	for _, change := range but {
		change(foo)
	}
	return foo
}

func deletedFoo(foo *v1alpha1.Foo)    { foo.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }
func withoutReplicas(f *v1alpha1.Foo) { f.Spec.Replicas = nil }
func ofUID(uid types.UID) func(*v1alpha1.Foo) {
	return func(foo *v1alpha1.Foo) { foo.UID = uid }
}
func noReplicas(foo *v1alpha1.Foo) { foo.Spec.Replicas = new(int32) }

// newDeployment returns the Deployment "d" with that controller, without one if kind is "".
func newDeployment(apiVersion, kind, name string, uid types.UID) *appsv1.Deployment {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d"}}
	if kind != "" {
		deployment.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}}
	}
	return deployment
}

func deploymentOf(foo *v1alpha1.Foo) *appsv1.Deployment {
	return newDeployment("samplecontroller.k8s.io/v1alpha1", "Foo", foo.Name, foo.UID)
}

func terminating(deployment *appsv1.Deployment) *appsv1.Deployment {
	deployment = deployment.DeepCopy()
	deployment.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	return deployment
}

// asking makes the Deployment ask to be adopted by the Foo of that name.
func asking(deployment *appsv1.Deployment, foo string) *appsv1.Deployment {
	deployment = deployment.DeepCopy()
	deployment.Annotations = map[string]string{v1alpha1.AdoptByAnnotation: foo}
	return deployment
}

// TestNameThatIsTaken refuses to create a Foo whose Deployment name is taken, and warns of an update to one.
func TestNameThatIsTaken(t *testing.T) {
	owner, leaving, before := newFoo("owner", "d"), newFoo("leaving", "elsewhere"), newFoo("x", "before")
	orphan, bar := newDeployment("", "", "", ""), newDeployment("example.com/v1", "Bar", "b", "1")
	const (
		ofOwner = "Foo owner"
		// A user who wants the Deployment learns how to get it.
		ofNobody = "a Deployment that has no controller and does not ask by the annotation samplecontroller.k8s.io/adopt-by=x to be adopted"
		ofBar    = "a Deployment of Bar b"
	)
	type foos []*v1alpha1.Foo
	for sentence, c := range map[string]struct {
		foos       foos
		deployment *appsv1.Deployment
		foo, old   *v1alpha1.Foo
		// holder has the name, "" if nobody has.
		holder string
	}{
		"the name is free":        {},
		"a Foo has it":            {foos: foos{owner}, deployment: deploymentOf(owner), holder: ofOwner},
		"a Foo will get it":       {foos: foos{owner}, holder: ofOwner},
		"a Foo will get it again": {foos: foos{owner}, deployment: terminating(deploymentOf(owner)), holder: ofOwner},
		"another Foo waits until the Deployment is deleted": {
			foos: foos{owner}, deployment: terminating(deploymentOf(leaving)), holder: ofOwner,
		},
		"the Foo that has it is being deleted": {foos: foos{newFoo("owner", "d", deletedFoo)}, deployment: deploymentOf(owner)},
		"the Foo that has it asks for another name, and a second Foo waits": {
			foos: foos{owner, leaving}, deployment: deploymentOf(leaving),
		},
		"an earlier Foo of the owner's name has it": {
			foos: foos{newFoo("owner", "d", ofUID("uid-later"))}, deployment: deploymentOf(owner),
		},
		"the Foo that had it is gone":                                   {deployment: deploymentOf(owner)},
		"an earlier Foo of this name has it":                            {deployment: deploymentOf(newFoo("x", "d", ofUID("uid-earlier")))},
		"the cache has this Foo already":                                {foos: foos{newFoo("x", "d", ofUID("uid-earlier"))}},
		"a Foo asks for another name":                                   {foos: foos{leaving}},
		"a Deployment without controller has":                           {deployment: orphan, holder: ofNobody},
		"rule 10: a Deployment without a controller asks to be adopted": {deployment: asking(orphan, "x")},
		"rule 10: a Deployment asks to be adopted by another Foo":       {deployment: asking(orphan, "y"), holder: ofNobody},
		"rule 10: a Deployment with a controller asks in vain":          {deployment: asking(bar, "x"), holder: ofBar},
		"a Deployment of another kind has it":                           {deployment: bar, holder: ofBar},
		"a Foo of another group has it": {
			deployment: newDeployment("example.com/v1", "Foo", "b", "1"), holder: "a Deployment of Foo b",
		},
		"a Deployment without a controller is terminating":                {deployment: terminating(orphan)},
		"a Deployment without a controller has it, and another Foo waits": {foos: foos{owner}, deployment: orphan, holder: ofNobody},
		"an update that keeps the name":                                   {old: newFoo("x", "d"), deployment: orphan},
		"an update to a free name":                                        {old: before},
		"an update to a taken name":                                       {old: before, foos: foos{owner}, holder: ofOwner},
		"an update of a Foo that is being deleted":                        {foo: newFoo("x", "d", deletedFoo), old: before, foos: foos{owner}},
	} {
		t.Run(sentence, func(t *testing.T) {
			lookups, operation, asked, mayGet := cached(c.foos, c.deployment), admissionv1.Create, "", true
			if c.deployment == nil {
				lookups = cached(c.foos)
			}
			lookups.MayGet = func(_ context.Context, _ authenticationv1.UserInfo, object authorizationv1.ResourceAttributes) bool {
				asked = strings.Join([]string{object.Verb, object.Resource, object.Group, object.Namespace, object.Name}, " ")
				return mayGet
			}
			if c.foo == nil {
				c.foo = newFoo("x", "d")
			}
			if c.old != nil {
				operation = admissionv1.Update
			}
			f := newFixture(lookups)
			want, right := c.holder, ""
			switch {
			case want == ofOwner:
				right = "get foos samplecontroller.k8s.io ns owner"
			case want != "":
				right = "get deployments apps ns d"
			}
			for range 2 {
				refusal, warning := "", ""
				if want != "" {
					refusal = `spec.deploymentName (v1beta1: spec.deployment.name): the name "d" is held by ` + want + "; choose another name"
				}
				if want != "" && c.old != nil {
					held, _ := strings.CutSuffix(refusal, "choose another name")
					refusal, warning = "", held+`until it is free the controller keeps the Deployment "before" and does not create another`
				}
				got := f.admit(t, ValidatePath, admissionOf(t, operation, c.foo, c.old))
				if got.Allowed != (refusal == "") || refusal != "" && got.Result.Message != refusal || strings.Join(got.Warnings, "; ") != warning {
					t.Errorf("%+v, want the refusal %q and the warning %q", got, refusal, warning)
				}
				if asked != right {
					t.Errorf("the right to %q was asked for, want %q", asked, right)
				}
				if mayGet = false; want != "" {
					want = "an object that you may not get"
				}
			}
		})
	}
}

// cached returns lookups in caches that have those objects.
func cached(foos []*v1alpha1.Foo, deployments ...*appsv1.Deployment) Lookups {
	return Lookups{
		HasSynced: func() bool { return true },
		MayGet:    func(context.Context, authenticationv1.UserInfo, authorizationv1.ResourceAttributes) bool { return true },
		Claimants: func(_, deploymentName string) []*v1alpha1.Foo {
			return slices.DeleteFunc(slices.Clone(foos), func(foo *v1alpha1.Foo) bool { return foo.Spec.DeploymentName != deploymentName })
		},
		Deployment: func(_, name string) *appsv1.Deployment {
			i := slices.IndexFunc(deployments, func(deployment *appsv1.Deployment) bool { return deployment.Name == name })
			if i < 0 {
				return nil
			}
			return deployments[i]
		},
	}
}
