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

package stored

import (
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Mirror is the registry that a policy puts before images.
const Mirror = "mirror.example/"

// What the Foo controller owns in a Deployment, beside replicas and owner reference.
const (
	// ManagedBy is a label.
	ManagedBy = "app.kubernetes.io/managed-by"
	// Container is the one whose image the controller owns.
	Container = "nginx"
)

// StrategicMerge returns the Deployment as the API server stores it after a strategic merge
// patch. It fails where the API server refuses the patch.
func StrategicMerge(deployment *appsv1.Deployment, patch string) (*appsv1.Deployment, error) {
	data, err := json.Marshal(deployment)
	if err != nil {
		return nil, err
	}
	if data, err = strategicpatch.StrategicMergePatch(data, []byte(patch), &appsv1.Deployment{}); err != nil {
		return nil, err
	}
	merged := &appsv1.Deployment{}
	return merged, json.Unmarshal(data, merged)
}

// UnownedDiff returns how two versions of a Deployment differ in fields that the controller
// does not own, "" if they do not.
func UnownedDiff(before, after *appsv1.Deployment) string {
	unowned := func(deployment *appsv1.Deployment) *appsv1.Deployment {
		deployment = deployment.DeepCopy()
		deployment.ResourceVersion, deployment.Generation, deployment.OwnerReferences, deployment.Spec.Replicas = "", 0, nil, nil
		deployment.ManagedFields = nil
		delete(deployment.Labels, ManagedBy)
		for i := range deployment.Spec.Template.Spec.Containers {
			if container := &deployment.Spec.Template.Spec.Containers[i]; container.Name == Container {
				container.Image = ""
			} else {
				container.Image = strings.TrimPrefix(container.Image, Mirror)
			}
		}
		return deployment
	}
	a, b := unowned(before), unowned(after)
	if equality.Semantic.DeepEqual(a, b) {
		return ""
	}
	return fmt.Sprintf("%+v became %+v", a, b)
}
