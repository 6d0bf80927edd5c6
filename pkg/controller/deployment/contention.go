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

package deployment

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/sample-controller/pkg/controller"
)

// DescribeDeletions says that another client keeps deleting the Deployment of that name, and
// what the user can do. kind is that of the Deployment's owner.
func DescribeDeletions(kind, name string) string {
	return fmt.Sprintf("Deployment %q is deleted by another client again and again; stop that client, and scale the %s to 0 or delete the %s instead", name, kind, kind)
}

// DescribeContention says which fields of the patch another writer keeps changing, which
// writer that is, and what the user can do: undone are the names of these fields. live is the
// Deployment with its managed fields, which the cache does not hold; kind is that of the
// Deployment's owner.
func DescribeContention(kind string, live *appsv1.Deployment, patch controller.Patch, undone []string) string {
	return fmt.Sprintf("another writer keeps changing what this %s enforces on Deployment %q: %s; stop that writer, and scale or change the %s instead (a HorizontalPodAutoscaler belongs on the %s)",
		kind, live.Name, patch.DescribeWriters(live, undone), kind, kind)
}
