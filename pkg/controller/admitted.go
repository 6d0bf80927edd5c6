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
	"sync"

	"k8s.io/client-go/tools/cache"
)

// FieldValue is the value of one field in words.
type FieldValue struct {
	Field, Value string
}

// AdmittedValues remember what admission webhooks and policies made of this process's writes
// to an owned object: the answer to a write has other values than were sent. These values are
// accepted for that generation of the owner; without the record each event would repeat the
// write. Unlike other records they stay while the owner is at rest. Create it with
// NewAdmittedValues.
type AdmittedValues struct {
	mu     sync.Mutex
	owners map[cache.ObjectName]admitted
}

// admitted are the values of one owner's object in one generation.
type admitted struct {
	generation int64
	values     []FieldValue
}

// NewAdmittedValues returns a record without values.
func NewAdmittedValues() *AdmittedValues {
	return &AdmittedValues{owners: map[cache.ObjectName]admitted{}}
}

// Set records the values that the API server answered to the last write for that generation
// of the owner in place of those that were sent.
func (a *AdmittedValues) Set(owner cache.ObjectName, generation int64, values []FieldValue) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(values) == 0 {
		delete(a.owners, owner)
		return
	}
	a.owners[owner] = admitted{generation: generation, values: values}
}

// Get returns the values for that generation of the owner. It drops those for another one:
// the user has changed what is enforced.
func (a *AdmittedValues) Get(owner cache.ObjectName, generation int64) []FieldValue {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.owners[owner]
	if ok && known.generation != generation {
		delete(a.owners, owner)
		return nil
	}
	return known.values
}

// Drop drops the value of one field.
func (a *AdmittedValues) Drop(owner cache.ObjectName, field string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.owners[owner]
	if !ok {
		return
	}
	// Get has handed out the slice.
	known.values = slices.DeleteFunc(slices.Clone(known.values), func(v FieldValue) bool { return v.Field == field })
	if len(known.values) == 0 {
		delete(a.owners, owner)
		return
	}
	a.owners[owner] = known
}

// Clear drops the values of the owner, which is gone.
func (a *AdmittedValues) Clear(owner cache.ObjectName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.owners, owner)
}

// CheckAdmitted returns the compared values that admission put in place of those that were
// written: remaining is what a patch of the API server's answer would still change. It returns
// ErrOverridden if the owner reference is among them.
func CheckAdmitted(remaining Patch) ([]FieldValue, error) {
	var values []FieldValue
	for _, change := range remaining.Changes {
		if change.Field == ownerReference {
			return nil, fmt.Errorf("%s: %w", change.Field, ErrOverridden)
		}
		values = append(values, FieldValue{Field: change.Field, Value: change.From})
	}
	return values, nil
}

// Compared returns those of the values whose fields the patch writes or leaves as admission made
// them. The others are no answer to it: of a large object the cache holds a part.
func (p Patch) Compared(values []FieldValue) []FieldValue {
	compared := append(p.Fields(), fieldsOf(p.Admitted)...)
	return slices.DeleteFunc(values, func(value FieldValue) bool { return !slices.Contains(compared, value.Field) })
}

// Effective returns the changes that had an effect: admission did not restore the old value.
func (p Patch) Effective(admitted []FieldValue) Patch {
	p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(change Change) bool {
		return slices.Contains(admitted, FieldValue{Field: change.Field, Value: change.From})
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
