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

// Package conversion converts Foos between v1alpha1 and v1beta1 without loss.
//
// The versions have the same fields in different places. The package moves them as raw
// JSON: it keeps fields that this program does not know, because the CRD is newer, and all
// digits of a number.
package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

// maxFields limits the fields of a Foo, and of its spec: a million of them would take many times the
// memory of their text.
const maxFields = 1000

// fields are the fields of a JSON object.
type fields map[string]json.RawMessage

// UnmarshalJSON implements json.Unmarshaler. It returns an error if there are more than maxFields.
func (f *fields) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*f = nil
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return errors.New("not an object")
	}
	*f = fields{}
	for count := 1; decoder.More(); count++ {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		if count > maxFields {
			return fmt.Errorf("an object has more than %d fields", maxFields)
		}
		(*f)[name.(string)] = value
	}
	return nil
}

// deployment is the field of a v1beta1 spec that has the moved fields.
const deployment = "deployment"

// moved returns the fields of a v1alpha1 spec that v1beta1 has in deployment, with their
// names there.
func moved() map[string]string {
	return map[string]string{"deploymentName": "name", "image": "image"}
}

// Convert returns the Foo in that apiVersion; both are JSON. It changes no other field. It
// returns an error if the text is not a JSON object, not a Foo, or if one of the versions
// is unknown.
func Convert(foo []byte, apiVersion string) ([]byte, error) {
	var all fields
	if err := json.Unmarshal(foo, &all); err != nil {
		return nil, fmt.Errorf("decoding a Foo: %w", err)
	}
	if kind := all.text("kind"); kind != "Foo" {
		return nil, fmt.Errorf("kind: %.100q is not Foo", kind)
	}
	alpha, beta := schema.GroupVersion(v1alpha1.GroupVersion).String(), schema.GroupVersion(v1beta1.GroupVersion).String()
	versions := []string{alpha, beta}
	from := all.text("apiVersion")
	for _, version := range []string{from, apiVersion} {
		if !slices.Contains(versions, version) {
			return nil, fmt.Errorf("apiVersion: cannot convert a Foo from %.100q to %.100q: the versions are %q", from, apiVersion, versions)
		}
	}
	if spec, ok := all.object("spec"); ok && from != apiVersion {
		if apiVersion == beta {
			spec.toBeta()
		} else {
			spec.toAlpha()
		}
		all.set("spec", spec)
	}
	all.set("apiVersion", apiVersion)
	return encode(all), nil
}

// toBeta moves the fields of a v1alpha1 spec to where v1beta1 has them.
func (f fields) toBeta() {
	inside, _ := f.object(deployment)
	for outer, inner := range moved() {
		value, ok := f[outer]
		if !ok {
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

// toAlpha moves the fields of a v1beta1 spec to where v1alpha1 has them.
func (f fields) toAlpha() {
	inside, ok := f.object(deployment)
	if !ok || len(inside) == 0 {
		return
	}
	for outer, inner := range moved() {
		if value, ok := inside[inner]; ok {
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

// text returns a field as a string, "" if it is not one.
func (f fields) text(name string) string {
	var text string
	if json.Unmarshal(f[name], &text) != nil {
		return ""
	}
	return text
}

// object returns a field as an object, and whether it is one.
func (f fields) object(name string) (fields, bool) {
	var inside fields
	if json.Unmarshal(f[name], &inside) != nil {
		return nil, false
	}
	// null is not an object.
	return inside, inside != nil
}

func (f fields) set(name string, value any) {
	f[name] = encode(value)
}

// encode returns a value as JSON, without escapes for HTML, which take six times the text. It does not fail
// for strings and decoded JSON, and is not called with other values.
func encode(value any) json.RawMessage {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}
