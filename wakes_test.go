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

package main

import (
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestWakes is rule 19: which events wake which Foos.
func TestWakes(t *testing.T) {
	foo, bar := newFoo(), newFoo(fooNamed("bar"), wants("other"))
	barOwnsWeb := newForeign(ownedBy(kindOfFoo().Reference(bar)))
	changed := func(deployment *appsv1.Deployment) *appsv1.Deployment {
		deployment = deployment.DeepCopy()
		deployment.ResourceVersion = "11"
		return deployment
	}
	changedFoo := func(options ...fooOption) *v1alpha1.Foo {
		return newFoo(append([]fooOption{func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }}, options...)...)
	}
	tests := map[string]struct {
		deployments []*appsv1.Deployment
		event       func(*fixture)
		want        []string
	}{
		"rule 19: a new Foo is woken": {
			event: func(f *fixture) { f.fooAdded(foo) }, want: []string{"foo"}},
		"rule 19: a new Foo wakes the holder of the name it asks for": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.fooAdded(foo) }, want: []string{"foo", "bar"}},
		"rule 19: a changed Foo is woken": {
			event: func(f *fixture) { f.fooUpdated(foo, changedFoo()) }, want: []string{"foo"}},
		"rule 19: a renamed Foo wakes the holder of the name it asked for": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.fooUpdated(foo, changedFoo(wants("free"))) }, want: []string{"foo", "bar"}},
		"rule 19: a renamed Foo wakes the holder of the name it now asks for": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.fooUpdated(newFoo(wants("free")), changedFoo()) }, want: []string{"foo", "bar"}},
		"rule 19: a relist wakes nobody": {
			event: func(f *fixture) { f.fooUpdated(foo, newFoo()) }},
		"rule 19: a deleted Foo wakes itself and the holder of its name": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: foo}) }, want: []string{"foo", "bar"}},
		"rule 19: a deleted Foo of which only the key is known": {
			event: func(f *fixture) {
				f.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/foo"}})
			}, want: []string{"foo"}},
		"rule 19: a Deployment wakes its owner and everyone who asks for its name": {
			event: func(f *fixture) { f.deploymentEvents().AddFunc(barOwnsWeb) }, want: []string{"bar", "foo"}},
		"rule 19: a foreign Deployment wakes those who ask for its name": {
			event: func(f *fixture) { f.deploymentEvents().AddFunc(newForeign()) }, want: []string{"foo"}},
		"rule 19: a Deployment that nobody cares for wakes nobody": {
			event: func(f *fixture) {
				f.deploymentEvents().AddFunc(newForeign(func(d *appsv1.Deployment) { d.Name = "nobody's" }))
			}},
		"rule 19: a Deployment of the name in another namespace wakes nobody": {
			event: func(f *fixture) {
				f.deploymentEvents().AddFunc(newForeign(func(d *appsv1.Deployment) { d.Namespace = "elsewhere" }))
			}},
		"rule 17: a Foo of another group is no owner": {
			event: func(f *fixture) {
				f.deploymentEvents().AddFunc(newForeign(func(d *appsv1.Deployment) { d.Name = "else" }, ownedBy(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Foo", Name: "foo", UID: "uid-foo", Controller: ptr.To(true)})))
			}},
		"rule 5: a Deployment that is handed over wakes the former and the new owner": {
			event: func(f *fixture) {
				f.deploymentEvents().UpdateFunc(newForeign(ownedBy(kindOfFoo().Reference(bar))), changed(newForeign(ownedBy(kindOfFoo().Reference(foo)))))
			}, want: []string{"bar", "foo"}},
		"rule 5: a Deployment that is handed over wakes a new owner who does not ask for its name": {
			event: func(f *fixture) {
				elsewhere := func(d *appsv1.Deployment) { d.Name = "else" }
				f.deploymentEvents().UpdateFunc(newForeign(elsewhere), changed(newForeign(elsewhere, ownedBy(kindOfFoo().Reference(foo)))))
			}, want: []string{"foo"}},
		"rule 19: a changed Deployment of somebody else wakes those who ask for its name": {
			event: func(f *fixture) { f.deploymentEvents().UpdateFunc(newForeign(), changed(newForeign())) }, want: []string{"foo"}},
		"rule 19: a relisted Deployment wakes nobody": {
			event: func(f *fixture) { f.deploymentEvents().UpdateFunc(barOwnsWeb, barOwnsWeb.DeepCopy()) }},
		"rule 5: a deleted Deployment wakes its owner and everyone who asks for its name": {
			event: func(f *fixture) {
				f.deploymentEvents().DeleteFunc(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: barOwnsWeb})
			}, want: []string{"bar", "foo"}},
		"rule 5: a deleted Deployment of which only the key is known": {
			event: func(f *fixture) {
				f.deploymentEvents().DeleteFunc(cache.DeletedObject[*appsv1.Deployment]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/web"}})
			}, want: []string{"foo"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, f := newFixture(t, nil, nil)
				f.fill(t, []*v1alpha1.Foo{foo, bar}, test.deployments)
				test.event(f)
				differ(t, "woken", test.want, f.woken(0))
				differ(t, "requests", []string(nil), f.requests())
			})
		})
	}
}

// TestResyncWakesNobodyElse: each Foo has a resync of its own, which waits behind what
// happens now, and so must not wake others.
func TestResyncWakesNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo, bar := newFoo(), newFoo(fooNamed("bar"), wants("other"))
		_, f := newFixture(t, nil, nil, func(o *ControllerOptions) { o.Resync = true })
		f.fill(t, []*v1alpha1.Foo{foo, bar}, []*appsv1.Deployment{newForeign(ownedBy(kindOfFoo().Reference(bar)))})
		f.fooUpdated(foo, newFoo())
		differ(t, "woken", []string{"foo"}, f.woken(0))
	})
}
