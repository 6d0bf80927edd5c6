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

package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

// decoded decodes a JSON object; numbers keep their text.
func decoded(t *testing.T, text []byte) map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}

func encoded(t *testing.T, object any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatalf("%v: %v", object, err)
	}
	return text
}

func converted(t *testing.T, foo []byte, to string) []byte {
	text, err := Convert(foo, to)
	if err != nil {
		t.Fatalf("%s: %v", foo, err)
	}
	return text
}

func alpha() string { return schema.GroupVersion(v1alpha1.GroupVersion).String() }
func beta() string  { return schema.GroupVersion(v1beta1.GroupVersion).String() }

// TestConvert compares both versions of each Foo.
func TestConvert(t *testing.T) {
	const metadata = `"metadata":{"name":"x","uid":"1","annotations":{"a":"b"},"managedFields":[{"fieldsV1":{"f:spec":{}}}]}`
	for name, specs := range map[string][2]string{
		"all fields":                      {`{"deploymentName":"d","replicas":3,"image":"i"}`, `{"deployment":{"name":"d","image":"i"},"replicas":3}`},
		"an image and no name":            {`{"image":"i"}`, `{"deployment":{"image":"i"}}`},
		"empty values are kept":           {`{"deploymentName":"","image":""}`, `{"deployment":{"name":"","image":""}}`},
		"an empty spec":                   {`{}`, `{}`},
		"null":                            {`null`, `null`},
		"a spec that is a string is kept": {`"x"`, `"x"`},
		"values of other types are moved": {`{"deploymentName":1,"image":null}`, `{"deployment":{"name":1,"image":null}}`},
		"an unknown field":                {`{"deploymentName":"d","new":[1.50]}`, `{"deployment":{"name":"d"},"new":[1.50]}`},
		"an unknown field of deployment":  {`{"deploymentName":"d","deployment":{"new":1}}`, `{"deployment":{"name":"d","new":1}}`},
		"an empty deployment":             {`{"deployment":{}}`, `{"deployment":{}}`},
		"a deployment that is null":       {`{"deployment":null}`, `{"deployment":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			foo := func(version, spec string) []byte {
				return []byte(`{"kind":"Foo","apiVersion":"samplecontroller.k8s.io/` + version + `",` + metadata + `,"spec":` + spec + `,"status":{"availableReplicas":1}}`)
			}
			alphas, betas := foo("v1alpha1", specs[0]), foo("v1beta1", specs[1])
			for _, c := range []struct {
				from, want []byte
				to         string
			}{{alphas, betas, beta()}, {betas, alphas, alpha()}, {alphas, alphas, alpha()}, {betas, betas, beta()}} {
				got := converted(t, c.from, c.to)
				if diff := cmp.Diff(decoded(t, c.want), decoded(t, got)); diff != "" {
					t.Errorf("to %s (-want +got):\n%s", c.to, diff)
				}
			}
		})
	}
}

// TestConvertRefuses returns an error for what it cannot convert.
func TestConvertRefuses(t *testing.T) {
	const versions = `the versions are ["samplecontroller.k8s.io/v1alpha1" "samplecontroller.k8s.io/v1beta1"]`
	for name, c := range map[string]struct{ object, to, want string }{
		"another kind":             {`{"kind":"Bar","apiVersion":"samplecontroller.k8s.io/v1alpha1"}`, beta(), `kind: "Bar" is not Foo`},
		"a kind that is an object": {`{"kind":{},"apiVersion":"samplecontroller.k8s.io/v1alpha1"}`, beta(), `kind: "" is not Foo`},
		"another version":          {`{"kind":"Foo","apiVersion":"samplecontroller.k8s.io/none"}`, beta(), `apiVersion: cannot convert a Foo from "samplecontroller.k8s.io/none" to "samplecontroller.k8s.io/v1beta1": ` + versions},
		"to another version":       {`{"kind":"Foo","apiVersion":"samplecontroller.k8s.io/v1alpha1"}`, "samplecontroller.k8s.io/none", `apiVersion: cannot convert a Foo from "samplecontroller.k8s.io/v1alpha1" to "samplecontroller.k8s.io/none": ` + versions},
		"too many fields":          {"{" + strings.Repeat(`"a":1,`, maxFields) + `"kind":"Foo"}`, beta(), "decoding a Foo: an object has more than 1000 fields"},
		"not an object":            {`[]`, beta(), "decoding a Foo: not an object"},
		"null":                     {`null`, beta(), `kind: "" is not Foo`},
		"truncated JSON":           {`{"kind":"Foo"`, beta(), "decoding a Foo: unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Convert([]byte(c.object), c.to); err == nil || err.Error() != c.want {
				t.Errorf("got %s, error %v, want %s", got, err, c.want)
			}
		})
	}
}

// TestRoundTripOfTypes converts random Foos of the Go type of v1alpha1 to v1beta1 and back, without loss, and
// decodes them into the type of v1beta1.
func TestRoundTripOfTypes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.Install, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Int63()
	t.Logf("seed %d", seed)
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), serializer.NewCodecFactory(scheme))
	for range 2000 {
		a, b, back := &v1alpha1.Foo{}, &v1beta1.Foo{}, &v1alpha1.Foo{}
		fill.Fill(a)
		a.SetGroupVersionKind(schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"))
		there := converted(t, encoded(t, a), beta())
		if err := errors.Join(json.Unmarshal(there, b), json.Unmarshal(converted(t, there, alpha()), back)); err != nil {
			t.Fatal(err)
		}
		want := []any{a, a.ObjectMeta, a.Spec.DeploymentName, a.Spec.Image, a.Spec.Replicas, a.Status}
		got := []any{back, b.ObjectMeta, b.Spec.Deployment.Name, b.Spec.Deployment.Image, b.Spec.Replicas, b.Status}
		if diff := cmp.Diff(string(encoded(t, want)), string(encoded(t, got))); diff != "" {
			t.Fatalf("there and back, and fields of v1alpha1 and v1beta1 (-want +got):\n%s", diff)
		}
	}
}
