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
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// newFoo returns a Foo of that name that asks for the Deployment.
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

// newDeployment returns the Deployment "d", with that controller unless its kind is "".
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

func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		foo, old *v1alpha1.Foo
		want     v1alpha1.FooSpec
	}{
		"nothing is missing":                        {foo: newFoo("x", "d")},
		"a new Foo gets its own name and 1":         {foo: newFoo("x", "", withoutReplicas), want: v1alpha1.FooSpec{DeploymentName: "x", Replicas: ptr.To[int32](1)}},
		"replicas alone":                            {foo: newFoo("x", "d", withoutReplicas), want: v1alpha1.FooSpec{Replicas: ptr.To[int32](1)}},
		"replicas 0 are not missing":                {foo: newFoo("x", "", noReplicas), want: v1alpha1.FooSpec{DeploymentName: "x"}},
		"a name that is yet to be generated":        {foo: newFoo("", "")},
		"a name that was left out stays":            {foo: newFoo("x", ""), old: newFoo("x", "d"), want: v1alpha1.FooSpec{DeploymentName: "d"}},
		"one that never had a spec gets none":       {foo: newFoo("x", "", withoutReplicas), old: newFoo("x", "", withoutReplicas)},
		"one that is changed gets replicas as well": {foo: newFoo("x", "d", withoutReplicas), old: newFoo("x", ""), want: v1alpha1.FooSpec{Replicas: ptr.To[int32](1)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, defaults(c.foo, c.old)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	holder := newFoo("holder", "d")
	leaving := newFoo("leaving", "elsewhere")
	const (
		refused = `spec.deploymentName (v1beta1: spec.deployment.name): the name "d" is held by `
		other   = "; choose another name"
		waits   = `; nothing is done until it is free, and the former Deployment "before" stays until then`
		noPods  = "spec.replicas is 0: the Deployment will have no Pods"
	)
	for name, c := range map[string]struct {
		foo, old *v1alpha1.Foo
		held     holding
		refusal  string
		warnings []string
	}{
		"the name is free":                                                {},
		"a Foo has it":                                                    {held: holding{deployment: deploymentOf(holder), owner: holder, askers: []*v1alpha1.Foo{holder}}, refusal: refused + "Foo holder" + other},
		"a Foo is about to have it":                                       {held: holding{askers: []*v1alpha1.Foo{holder}}, refusal: refused + "Foo holder" + other},
		"a Foo is about to have it again":                                 {held: holding{deployment: terminating(deploymentOf(holder)), owner: holder, askers: []*v1alpha1.Foo{holder}}, refusal: refused + "Foo holder" + other},
		"another Foo waits until its Deployment is gone":                  {held: holding{deployment: terminating(deploymentOf(leaving)), owner: leaving, askers: []*v1alpha1.Foo{holder}}, refusal: refused + "Foo holder" + other},
		"the Foo that has it is being deleted":                            {held: holding{deployment: deploymentOf(holder), owner: holder, askers: []*v1alpha1.Foo{newFoo("holder", "d", deletedFoo)}}},
		"the Foo that has it is about to leave it, and another one waits": {held: holding{deployment: deploymentOf(leaving), owner: leaving, askers: []*v1alpha1.Foo{holder}}},
		"the Foo that had it is gone":                                     {held: holding{deployment: deploymentOf(holder)}},
		"an earlier Foo of this name has it":                              {held: holding{deployment: newDeployment("samplecontroller.k8s.io/v1alpha1", "Foo", "x", "uid-earlier")}},
		"itself is in the cache already":                                  {held: holding{askers: []*v1alpha1.Foo{newFoo("x", "d", ofUID("uid-earlier"))}}},
		"nobody's Deployment has it":                                      {held: holding{deployment: newDeployment("", "", "", "")}, refusal: refused + "a Deployment that has no controller" + other},
		"somebody else's Deployment has it":                               {held: holding{deployment: newDeployment("example.com/v1", "Bar", "b", "1")}, refusal: refused + "a Deployment of Bar b" + other},
		"a Foo of another group has it":                                   {held: holding{deployment: newDeployment("example.com/v1", "Foo", "b", "1")}, refusal: refused + "a Deployment of Foo b" + other},
		"a foreign Deployment is about to go":                             {held: holding{deployment: terminating(newDeployment("", "", "", ""))}},
		"a foreign Deployment has it, for which another Foo waits":        {held: holding{deployment: newDeployment("", "", "", ""), askers: []*v1alpha1.Foo{holder}}, refusal: refused + "a Deployment that has no controller" + other},
		"replicas 0":                              {foo: newFoo("x", "d", noReplicas), warnings: []string{noPods}},
		"replicas are not said":                   {foo: newFoo("x", "d", withoutReplicas)},
		"replicas become 0":                       {foo: newFoo("x", "d", noReplicas), old: newFoo("x", "d"), warnings: []string{noPods}},
		"replicas were 0":                         {foo: newFoo("x", "d", noReplicas), old: newFoo("x", "d", noReplicas)},
		"a change that keeps the name":            {old: newFoo("x", "d"), held: holding{deployment: newDeployment("", "", "", "")}},
		"a change to a free name":                 {old: newFoo("x", "before")},
		"a change to a name that is taken":        {old: newFoo("x", "before"), held: holding{askers: []*v1alpha1.Foo{holder}}, warnings: []string{refused + "Foo holder" + waits}},
		"a change of one that is being deleted":   {foo: newFoo("x", "d", deletedFoo), old: newFoo("x", "before"), held: holding{askers: []*v1alpha1.Foo{holder}}},
		"a change to a taken name and 0 replicas": {foo: newFoo("x", "d", noReplicas), old: newFoo("x", "before"), held: holding{askers: []*v1alpha1.Foo{holder}}, warnings: []string{noPods, refused + "Foo holder" + waits}},
		"a new Foo with a taken name, 0 replicas": {foo: newFoo("x", "d", noReplicas), held: holding{askers: []*v1alpha1.Foo{holder}}, refusal: refused + "Foo holder" + other, warnings: []string{noPods}},
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
			got := judge(operation, foo, c.old, c.held)
			if got.refusal != c.refusal || !slices.Equal(got.warnings, c.warnings) {
				t.Errorf("refusal %q, want %q; warnings %q, want %q", got.refusal, c.refusal, got.warnings, c.warnings)
			}
		})
	}
}

// TestHolding: what is known is read from the caches, once they are filled.
func TestHolding(t *testing.T) {
	holder := newFoo("holder", "d")
	deployment := deploymentOf(holder)
	foos := cached([]*v1alpha1.Foo{holder, newFoo("other", "o")}, deployment)
	if got := foos.holding("ns", "d"); got.deployment != deployment || got.owner != holder || len(got.askers) != 1 || got.askers[0] != holder {
		t.Errorf("%+v", got)
	}
	if got := foos.holding("ns", "none"); got.deployment != nil || got.owner != nil || len(got.askers) != 0 {
		t.Errorf("%+v", got)
	}
	holder.UID = "another"
	if got := foos.holding("ns", "d"); got.owner != nil {
		t.Errorf("the owner is another of the same name: %+v", got)
	}
	orphans := cached(nil, deployment)
	if got := orphans.holding("ns", "d"); got.deployment != deployment || got.owner != nil {
		t.Errorf("the owner is gone: %+v", got)
	}
	deployment.OwnerReferences = nil
	if got := foos.holding("ns", "d"); got.deployment != deployment || got.owner != nil {
		t.Errorf("the Deployment is nobody's: %+v", got)
	}
	foos.Synced = func() bool { return false }
	if got := foos.holding("ns", "d"); got.deployment != nil || len(got.askers) != 0 {
		t.Errorf("with empty caches: %+v", got)
	}
}

// cached returns caches with those in them.
func cached(all []*v1alpha1.Foo, deployments ...*appsv1.Deployment) Foos {
	return Foos{
		Synced: func() bool { return true },
		Named: func(_, name string) *v1alpha1.Foo {
			for _, foo := range all {
				if foo.Name == name {
					return foo
				}
			}
			return nil
		},
		Asking: func(_, deployment string) []*v1alpha1.Foo {
			return slices.DeleteFunc(slices.Clone(all), func(foo *v1alpha1.Foo) bool { return foo.Spec.DeploymentName != deployment })
		},
		Deployment: func(_, name string) *appsv1.Deployment {
			for _, deployment := range deployments {
				if deployment.Name == name {
					return deployment
				}
			}
			return nil
		},
	}
}
