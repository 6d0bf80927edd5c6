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
	appsv1 "k8s.io/api/apps/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

// Foos is what the caches know, once they are filled. All of its functions are required.
type Foos struct {
	// Synced reports whether the caches are filled. Before, nothing is known, and
	// everybody is admitted.
	Synced func() bool
	// Named returns the Foo of that name, nil if there is none.
	Named func(namespace, name string) *v1alpha1.Foo
	// Asking returns the Foos that ask for a Deployment of that name.
	Asking func(namespace, deployment string) []*v1alpha1.Foo
	// Deployment returns the Deployment of that name, nil if there is none.
	Deployment func(namespace, name string) *appsv1.Deployment
}

// holding returns what is known about a name of a Deployment.
func (f Foos) holding(namespace, name string) holding {
	if !f.Synced() {
		return holding{}
	}
	known := holding{deployment: f.Deployment(namespace, name), askers: f.Asking(namespace, name)}
	if known.deployment == nil {
		return known
	}
	if ref := controller.ControllerOf(known.deployment, fooKind()); ref != nil {
		if owner := f.Named(namespace, ref.Name); owner != nil && owner.UID == ref.UID {
			known.owner = owner
		}
	}
	return known
}
