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

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

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
