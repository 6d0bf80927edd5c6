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

	"example.com/sample-controller/pkg/controller"
)

// CheckAdmitted returns the compared values that admission put in place of those that were
// written: remaining is what a patch of the API server's answer would still change. It returns
// controller.ErrOverridden if the owner reference is among them.
func CheckAdmitted(remaining Patch) ([]controller.FieldValue, error) {
	var values []controller.FieldValue
	for _, change := range remaining.Changes {
		if change.Field == ownerReference {
			return nil, fmt.Errorf("%s: %w", change.Field, controller.ErrOverridden)
		}
		values = append(values, controller.FieldValue{Field: change.Field, Value: change.From})
	}
	return values, nil
}

// Effective returns the changes that had an effect: admission did not restore the old value.
func (p Patch) Effective(admitted []controller.FieldValue) Patch {
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(change Change) bool {
		return slices.Contains(admitted, controller.FieldValue{Field: change.Field, Value: change.From})
	})
	return p
}

// DescribeAdmitted says which fields are as admission made them, "" if there are none.
func DescribeAdmitted(patch Patch) string {
	var fields []string
	for _, change := range patch.Admitted {
		if change.To == "" {
			fields = append(fields, change.String())
		} else {
			fields = append(fields, fmt.Sprintf("%s %s in place of %s", change.Field, change.From, change.To))
		}
	}
	if len(fields) == 0 {
		return ""
	}
	return "; accepted from admission webhooks or policies: " + strings.Join(fields, ", ")
}
