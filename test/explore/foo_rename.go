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

package explore

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
	"example.com/sample-controller/test/stored"
)

// recreate checks that no Pods of the Deployment run beside those of one with strategy Recreate that it follows, unless
// a user has changed that since the sync has read it.
func (j *Foo) recreate(w *Write, d *appsv1.Deployment, violated func(string, ...any)) {
	if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
		return
	}
	for _, object := range w.Store.Objects(sim.Deployments) {
		former := object.(*appsv1.Deployment)
		if read := Read[*appsv1.Deployment](w, former.Name); read != nil && read.Generation != former.Generation {
			continue
		}
		if owner := sim.Owner(former); former.Name != d.Name && owner != nil && owner.UID == sim.Owner(d).UID && sim.WrittenByController(former) &&
			former.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && former.Status.Replicas > 0 {
			violated("rule 8: Deployment %s was given Pods beside those of %s, whose strategy is Recreate", d.Name, former.Name)
		}
	}
}

// copies checks that a Deployment has the Pod template of the former one that the sync has read, but what the Foo asks
// for.
func (j *Foo) copies(w *Write, d *appsv1.Deployment, acting *v1alpha1.Foo, violated func(string, ...any)) {
	for _, object := range w.Reads {
		former, ok := object.(*appsv1.Deployment)
		if !ok || former.Name == d.Name {
			continue
		}
		want := former.Spec.Template.DeepCopy()
		metav1.SetMetaDataLabel(&want.ObjectMeta, "controller", d.Spec.Template.Labels["controller"])
		for i := range want.Spec.Containers {
			if container := &want.Spec.Containers[i]; container.Name == stored.Container && acting.Spec.Image != "" {
				container.Image = acting.Spec.Image
			}
		}
		if !equality.Semantic.DeepEqual(want, &d.Spec.Template) {
			violated("rule 8: Deployment %s was created with the Pod template %+v in place of %+v", d.Name, d.Spec.Template, want)
		}
	}
}

// delete checks S4 and rule 8 by what the sync has read live.
func (j *Foo) delete(w *Write, acting *v1alpha1.Foo, violated func(string, ...any)) {
	former := w.Before.(*appsv1.Deployment)
	if owner := sim.Owner(former); owner == nil || owner.UID != acting.UID {
		violated("S1: Deployment %s was deleted for Foo %s, and belongs to %+v", former.Name, acting.Name, former.OwnerReferences)
	}
	if !sim.WrittenByController(former) {
		violated("rule 8: Deployment %s was deleted, which a user made", former.Name)
	}
	foo := Read[*v1alpha1.Foo](w, acting.Name)
	if foo == nil || foo.UID != acting.UID || foo.Generation != acting.Generation || foo.DeletionTimestamp != nil || foo.Spec.DeploymentName == former.Name {
		violated("rule 8: Deployment %s was deleted for Foo %s, which was read live as %v", former.Name, acting.Name, foo)
		return
	}
	present := Read[*appsv1.Deployment](w, foo.Spec.DeploymentName)
	if present == nil {
		violated("S4: Deployment %s was deleted, and %s was not read live", former.Name, foo.Spec.DeploymentName)
		return
	}
	switch owner := sim.Owner(present); {
	case owner == nil:
		violated("S4: Deployment %s was deleted, while nobody owns %s", former.Name, present.Name)
	case owner.UID == foo.UID:
		hasPods := present.Spec.Replicas == nil || *present.Spec.Replicas > 0
		asksForNone := foo.Spec.Replicas != nil && *foo.Spec.Replicas == 0
		if present.DeletionTimestamp != nil || !sim.RolledOut(present) || !hasPods && !asksForNone && former.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
			violated("S4: Deployment %s was deleted, while %s is not rolled out", former.Name, present.Name)
		}
	default:
		// A cycle: the other Foos were read live, and one of them asks for the former Deployment.
		if other := Read[*v1alpha1.Foo](w, owner.Name); other == nil || other.UID != owner.UID || other.Name < foo.Name {
			violated("S4: Deployment %s was deleted, while %s belongs to Foo %s", former.Name, present.Name, owner.Name)
		}
		if !slices.ContainsFunc(w.Reads, func(object sim.Object) bool {
			other, ok := object.(*v1alpha1.Foo)
			return ok && other.Name > foo.Name && other.Spec.DeploymentName == former.Name
		}) {
			violated("S4: Deployment %s was deleted in no cycle", former.Name)
		}
	}
}
