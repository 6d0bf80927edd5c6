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
	"slices"
	"testing"
)

func TestAdmittedValues(t *testing.T) {
	foo, bar := testKey("foo"), testKey("bar")
	mirror := []FieldValue{{Field: "image", Value: "mirror/nginx"}}
	tests := map[string]struct {
		act  func(*AdmittedValues)
		want []FieldValue
	}{
		"rule 4: nothing is known before a write": {
			act: func(*AdmittedValues) {}},
		"rule 4: what admission made of a write is known": {
			act: func(a *AdmittedValues) { a.Set(foo, 1, mirror) }, want: mirror},
		"rule 4: it is known as long as the generation is the same": {
			act: func(a *AdmittedValues) { a.Set(foo, 1, mirror); a.Get(foo, 1) }, want: mirror},
		"rule 4: a later write replaces it": {
			act: func(a *AdmittedValues) { a.Set(foo, 1, []FieldValue{{"replicas", "3"}}); a.Set(foo, 1, mirror) }, want: mirror},
		"rule 4: a write that admission left alone ends it": {
			act: func(a *AdmittedValues) { a.Set(foo, 1, mirror); a.Set(foo, 1, nil) }},
		"rule 4: a new generation ends it": {
			act: func(a *AdmittedValues) { a.Set(foo, 1, mirror); a.Get(foo, 2) }},
		"rule 4: another Foo has its own": {
			act: func(a *AdmittedValues) { a.Set(bar, 1, mirror) }},
		"rule 1: nothing is remembered of a Foo that is gone": {
			act: func(a *AdmittedValues) { a.Set(foo, 1, mirror); a.Clear(foo) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := NewAdmittedValues()
			test.act(a)
			if got := a.Get(foo, 1); !slices.Equal(got, test.want) {
				t.Errorf("values %v, want %v", got, test.want)
			}
		})
	}
	a := NewAdmittedValues()
	a.Set(foo, 1, mirror)
	a.Get(foo, 2)
	if len(a.owners) > 0 {
		t.Error("rule 23: the values of a former generation are kept")
	}
}
