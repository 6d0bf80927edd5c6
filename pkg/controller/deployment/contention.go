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
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

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
func DescribeContention(kind string, live *appsv1.Deployment, patch Patch, undone []string) string {
	var fields []string
	for _, change := range patch.Changes {
		if slices.Contains(undone, change.Field) {
			fields = append(fields, fmt.Sprintf("%s (by %s)", change.Field, otherManager(live, change.Path)))
		}
	}
	return fmt.Sprintf("another writer keeps changing what this %s enforces on Deployment %q: %s; stop that writer, and scale or change the %s instead (a HorizontalPodAutoscaler belongs on the %s)",
		kind, live.Name, strings.Join(fields, ", "), kind, kind)
}

// otherManager returns the name of the other field manager that last set the field, and
// through which subresource. Managed fields do not record a writer that removed a field.
func otherManager(deployment *appsv1.Deployment, path fieldpath.Path) string {
	name, latest := "a writer that is not on record", time.Time{}
	for _, entry := range deployment.ManagedFields {
		if entry.Manager == controller.FieldManager {
			continue
		}
		var fields fieldpath.Set
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil || !fields.Has(path) {
			continue
		}
		if entry.Time != nil && entry.Time.Time.Before(latest) {
			continue
		}
		if entry.Time != nil {
			latest = entry.Time.Time
		}
		name = entry.Manager
		if entry.Subresource != "" {
			name += " through " + entry.Subresource
		}
	}
	return name
}
