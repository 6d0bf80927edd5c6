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

// Package conversion turns a Foo of one version into the same Foo of another.
//
// Both versions say the same in other places, so that nothing is lost on the way there
// and back. It moves pieces of JSON and does not look into them: a field that this
// program does not know of yet, because the CRD is newer, is carried along, and a number
// keeps all its digits.
package conversion

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

// fields are those of a JSON object.
type fields map[string]json.RawMessage

// deployment is the field of a v1beta1 spec that has what in v1alpha1 is beside it.
const deployment = "deployment"

// moved returns the fields that it has, by their names in v1alpha1 and in it.
func moved() map[string]string {
	return map[string]string{"deploymentName": "name", "image": "image"}
}

// Convert returns the Foo as one of the version with that apiVersion, both in JSON. What
// a Foo is not made of, and what the versions have in common, stays as it is. It fails if
// the text is no JSON object, or no Foo of a version that it knows, or the other version
// is none. All others can be converted.
func Convert(foo []byte, apiVersion string) ([]byte, error) {
	var all fields
	if err := json.Unmarshal(foo, &all); err != nil {
		return nil, fmt.Errorf("decoding a Foo: %w", err)
	}
	if kind := all.text("kind"); kind != "Foo" {
		return nil, fmt.Errorf("kind: %q is not Foo", kind)
	}
	versions := []string{schema.GroupVersion(v1alpha1.GroupVersion).String(), schema.GroupVersion(v1beta1.GroupVersion).String()}
	is := all.text("apiVersion")
	for _, version := range []string{is, apiVersion} {
		if !slices.Contains(versions, version) {
			return nil, fmt.Errorf("apiVersion: a Foo of %q cannot be made one of %q: the versions are %q", is, apiVersion, versions)
		}
	}
	if spec, ok := all.object("spec"); ok && is != apiVersion {
		if apiVersion == schema.GroupVersion(v1beta1.GroupVersion).String() {
			spec.gather()
		} else {
			spec.spread()
		}
		all.set("spec", spec)
	}
	all.set("apiVersion", apiVersion)
	return encode(all), nil
}

// gather moves fields of a v1alpha1 spec to where v1beta1 has them.
func (f fields) gather() {
	inside, _ := f.object(deployment)
	for outer, inner := range moved() {
		value, there := f[outer]
		if !there {
			continue
		}
		if inside == nil {
			inside = fields{}
		}
		delete(f, outer)
		inside[inner] = value
	}
	if inside != nil {
		f.set(deployment, inside)
	}
}

// spread moves fields of a v1beta1 spec to where v1alpha1 has them.
func (f fields) spread() {
	inside, ok := f.object(deployment)
	if !ok || len(inside) == 0 {
		return
	}
	for outer, inner := range moved() {
		if value, there := inside[inner]; there {
			delete(inside, inner)
			f[outer] = value
		}
	}
	if len(inside) == 0 {
		delete(f, deployment)
		return
	}
	f.set(deployment, inside)
}

// text returns a field that is a string, "" if it is none.
func (f fields) text(name string) string {
	var text string
	if json.Unmarshal(f[name], &text) != nil {
		return ""
	}
	return text
}

// object returns a field that is an object, and whether it is one.
func (f fields) object(name string) (fields, bool) {
	var inside fields
	if json.Unmarshal(f[name], &inside) != nil {
		return nil, false
	}
	// null is none.
	return inside, inside != nil
}

func (f fields) set(name string, value any) {
	f[name] = encode(value)
}

// encode returns a value as JSON: strings, and what was JSON before, always can be.
func encode(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}
