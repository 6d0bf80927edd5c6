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

	"github.com/google/go-cmp/cmp"
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
	deployment.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	return deployment
}

// asking makes the Deployment ask to be adopted by the Foo of that name.
func asking(deployment *appsv1.Deployment, foo string) *appsv1.Deployment {
	deployment.Annotations = map[string]string{v1alpha1.AdoptByAnnotation: foo}
	return deployment
}

func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		foo, old *v1alpha1.Foo
		want     v1alpha1.FooSpec
	}{
		"a complete Foo gets no defaults":              {foo: newFoo("x", "d")},
		"a new Foo gets its own name and 1 replica":    {foo: newFoo("x", "", withoutReplicas), want: v1alpha1.FooSpec{DeploymentName: "x", Replicas: ptr.To[int32](1)}},
		"missing replicas":                             {foo: newFoo("x", "d", withoutReplicas), want: v1alpha1.FooSpec{Replicas: ptr.To[int32](1)}},
		"replicas 0 are not missing":                   {foo: newFoo("x", "", noReplicas), want: v1alpha1.FooSpec{DeploymentName: "x"}},
		"the API server has yet to generate a name":    {foo: newFoo("", "")},
		"an update that leaves the name out keeps it":  {foo: newFoo("x", ""), old: newFoo("x", "d"), want: v1alpha1.FooSpec{DeploymentName: "d"}},
		"a Foo stored without a spec gets no defaults": {foo: newFoo("x", "", withoutReplicas), old: newFoo("x", "", withoutReplicas)},
		"an update gets replicas, too":                 {foo: newFoo("x", "d", withoutReplicas), old: newFoo("x", ""), want: v1alpha1.FooSpec{Replicas: ptr.To[int32](1)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, defaults(c.foo, c.old)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateFoo(t *testing.T) {
	owner := newFoo("owner", "d")
	leaving := newFoo("leaving", "elsewhere")
	const (
		refused = `spec.deploymentName (v1beta1: spec.deployment.name): the name "d" is held by `
		other   = "; choose another name"
		// A user who wants the Deployment learns how to get it.
		noController = "a Deployment that has no controller and does not ask by the annotation samplecontroller.k8s.io/adopt-by=x to be adopted"
		waits        = `; until it is free the controller keeps the Deployment "before" and does not create another`
		noPods       = "spec.replicas is 0: the Deployment will have no Pods"
	)
	for name, c := range map[string]struct {
		foo, old *v1alpha1.Foo
		use      nameUse
		refusal  string
		warnings []string
	}{
		"the name is free":        {},
		"a Foo has it":            {use: nameUse{deployment: deploymentOf(owner), claimants: []*v1alpha1.Foo{owner}}, refusal: refused + "Foo owner" + other},
		"a Foo will get it":       {use: nameUse{claimants: []*v1alpha1.Foo{owner}}, refusal: refused + "Foo owner" + other},
		"a Foo will get it again": {use: nameUse{deployment: terminating(deploymentOf(owner)), claimants: []*v1alpha1.Foo{owner}}, refusal: refused + "Foo owner" + other},
		"another Foo waits until the Deployment is deleted":                 {use: nameUse{deployment: terminating(deploymentOf(leaving)), claimants: []*v1alpha1.Foo{owner}}, refusal: refused + "Foo owner" + other},
		"the Foo that has it is being deleted":                              {use: nameUse{deployment: deploymentOf(owner), claimants: []*v1alpha1.Foo{newFoo("owner", "d", deletedFoo)}}},
		"the Foo that has it asks for another name, and a second Foo waits": {use: nameUse{deployment: deploymentOf(leaving), claimants: []*v1alpha1.Foo{owner}}},
		"the Foo that had it is gone":                                       {use: nameUse{deployment: deploymentOf(owner)}},
		"an earlier Foo of this name has it":                                {use: nameUse{deployment: newDeployment("samplecontroller.k8s.io/v1alpha1", "Foo", "x", "uid-earlier")}},
		"the cache has this Foo already":                                    {use: nameUse{claimants: []*v1alpha1.Foo{newFoo("x", "d", ofUID("uid-earlier"))}}},
		"a Deployment without a controller has it":                          {use: nameUse{deployment: newDeployment("", "", "", "")}, refusal: refused + noController + other},
		"rule 10: a Deployment without a controller asks to be adopted":     {use: nameUse{deployment: asking(newDeployment("", "", "", ""), "x")}},
		"rule 10: a Deployment asks to be adopted by another Foo":           {use: nameUse{deployment: asking(newDeployment("", "", "", ""), "y")}, refusal: refused + noController + other},
		"rule 10: a Deployment with a controller asks in vain":              {use: nameUse{deployment: asking(newDeployment("example.com/v1", "Bar", "b", "1"), "x")}, refusal: refused + "a Deployment of Bar b" + other},
		"a Deployment of another kind has it":                               {use: nameUse{deployment: newDeployment("example.com/v1", "Bar", "b", "1")}, refusal: refused + "a Deployment of Bar b" + other},
		"a Foo of another group has it":                                     {use: nameUse{deployment: newDeployment("example.com/v1", "Foo", "b", "1")}, refusal: refused + "a Deployment of Foo b" + other},
		"a Deployment without a controller is terminating":                  {use: nameUse{deployment: terminating(newDeployment("", "", "", ""))}},
		"a Deployment without a controller has it, and another Foo waits":   {use: nameUse{deployment: newDeployment("", "", "", ""), claimants: []*v1alpha1.Foo{owner}}, refusal: refused + noController + other},
		"replicas 0":                                 {foo: newFoo("x", "d", noReplicas), warnings: []string{noPods}},
		"replicas are unset":                         {foo: newFoo("x", "d", withoutReplicas)},
		"replicas become 0":                          {foo: newFoo("x", "d", noReplicas), old: newFoo("x", "d"), warnings: []string{noPods}},
		"replicas were 0":                            {foo: newFoo("x", "d", noReplicas), old: newFoo("x", "d", noReplicas)},
		"an update that keeps the name":              {old: newFoo("x", "d"), use: nameUse{deployment: newDeployment("", "", "", "")}},
		"an update to a free name":                   {old: newFoo("x", "before")},
		"an update to a taken name":                  {old: newFoo("x", "before"), use: nameUse{claimants: []*v1alpha1.Foo{owner}}, warnings: []string{refused + "Foo owner" + waits}},
		"an update of a Foo that is being deleted":   {foo: newFoo("x", "d", deletedFoo), old: newFoo("x", "before"), use: nameUse{claimants: []*v1alpha1.Foo{owner}}},
		"an update to a taken name and 0 replicas":   {foo: newFoo("x", "d", noReplicas), old: newFoo("x", "before"), use: nameUse{claimants: []*v1alpha1.Foo{owner}}, warnings: []string{noPods, refused + "Foo owner" + waits}},
		"a new Foo with a taken name and 0 replicas": {foo: newFoo("x", "d", noReplicas), use: nameUse{claimants: []*v1alpha1.Foo{owner}}, refusal: refused + "Foo owner" + other, warnings: []string{noPods}},
	} {
		t.Run(name, func(t *testing.T) {
			operation := admissionv1.Create
			if c.old != nil {
				operation = admissionv1.Update
			}
			foo := c.foo
			if foo == nil {
				foo = newFoo("x", "d")
			}
			asked := ""
			got := validate(operation, foo, c.old, c.use, func(resource schema.GroupResource, name string) bool {
				asked = resource.String() + " " + name
				return true
			})
			if got.refusal != c.refusal || !slices.Equal(got.warnings, c.warnings) {
				t.Errorf("refusal %q, want %q; warnings %q, want %q", got.refusal, c.refusal, got.warnings, c.warnings)
			}
			if asked == "" {
				return
			}
			want := "deployments.apps d"
			if strings.Contains(got.refusal+strings.Join(got.warnings, ""), "Foo owner") {
				want = "foos.samplecontroller.k8s.io owner"
			}
			if asked != want {
				t.Errorf("the right to get %s was asked for, want %s", asked, want)
			}
			const secret = "held by an object that you may not get"
			got = validate(operation, foo, c.old, c.use, func(schema.GroupResource, string) bool { return false })
			if all := got.refusal + strings.Join(got.warnings, ""); !strings.Contains(all, secret) || strings.Contains(all, "owner") || strings.Contains(all, "Bar b") {
				t.Errorf("to a user who may not get the holder: %q", all)
			}
		})
	}
}

// TestNameUse reads the caches, and only after they are filled.
func TestNameUse(t *testing.T) {
	owner := newFoo("owner", "d")
	deployment := deploymentOf(owner)
	lookups := cached([]*v1alpha1.Foo{owner, newFoo("other", "o")}, deployment)
	if got := lookups.nameUse("ns", "d"); got.deployment != deployment || !slices.Equal(got.claimants, []*v1alpha1.Foo{owner}) || !got.belongsTo(owner) {
		t.Errorf("%+v", got)
	}
	if got := lookups.nameUse("ns", "none"); got.deployment != nil || len(got.claimants) != 0 {
		t.Errorf("%+v", got)
	}
	owner.UID = "another"
	if got := lookups.nameUse("ns", "d"); got.belongsTo(owner) {
		t.Errorf("the owner is an earlier Foo of the same name: %+v", got)
	}
	orphans := cached(nil, deployment)
	if got := orphans.nameUse("ns", "d"); got.deployment != deployment || len(got.claimants) != 0 {
		t.Errorf("the owner is gone: %+v", got)
	}
	deployment.OwnerReferences = nil
	if got := lookups.nameUse("ns", "d"); got.deployment != deployment || got.belongsTo(owner) {
		t.Errorf("the Deployment has no owner: %+v", got)
	}
	lookups.HasSynced = func() bool { return false }
	if got := lookups.nameUse("ns", "d"); got.deployment != nil || len(got.claimants) != 0 {
		t.Errorf("with empty caches: %+v", got)
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
