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
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// DescribeWriters says which of the patch's fields another writer keeps changing, and which
// writer that is: undone are the names of these fields. live is the object with its managed
// fields, which the cache does not hold.
func (p Patch) DescribeWriters(live metav1.Object, undone []string) string {
	var fields []string
	for _, change := range p.Changes {
		if slices.Contains(undone, change.Field) {
			fields = append(fields, fmt.Sprintf("%s (by %s)", change.Field, otherManager(live, change.Path)))
		}
	}
	return strings.Join(fields, ", ")
}

// otherManager returns the name of the other field manager that last set the field, and
// through which subresource. Managed fields do not record a writer that removed a field.
func otherManager(object metav1.Object, path fieldpath.Path) string {
	name, latest := "a writer that is not on record", time.Time{}
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == FieldManager {
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
