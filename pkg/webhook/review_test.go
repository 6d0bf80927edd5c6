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

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"

	"example.com/sample-controller/pkg/apis/samplecontroller/conversion"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

const (
	alphaFoo = `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"a","namespace":"ns","uid":"1","labels":{"l":"1"}},"spec":{"deploymentName":"d"}}`
	betaFoo  = `{"apiVersion":"samplecontroller.k8s.io/v1beta1","kind":"Foo","metadata":{"labels":{"l":"1"},"name":"a","namespace":"ns","uid":"1"},"spec":{"deployment":{"name":"d"}}}`
)

func mustEncode(t testing.TB, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// admissionOf returns the review of an operation on a v1alpha1 Foo.
func admissionOf(t testing.TB, operation admissionv1.Operation, foo, old *v1alpha1.Foo) *admissionv1.AdmissionReview {
	t.Helper()
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "review", Operation: operation, Namespace: "ns", Name: foo.Name,
			Resource: metav1.GroupVersionResource{Group: v1alpha1.GroupName, Version: "v1alpha1", Resource: "foos"},
			Object:   runtime.RawExtension{Raw: []byte(mustEncode(t, foo))},
		},
	}
	if old != nil {
		review.Request.OldObject = runtime.RawExtension{Raw: []byte(mustEncode(t, old))}
	}
	return review
}

// conversionOf returns the review of a conversion to a version.
func conversionOf(version string, objects ...string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"review","desiredAPIVersion":"samplecontroller.k8s.io/` + version +
		`","objects":[` + strings.Join(objects, ",") + `]}}`
}

// admit sends a review and returns the response.
func (f *fixture) admit(t *testing.T, path string, review *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse {
	t.Helper()
	code, answer := f.send(t, path, strings.NewReader(mustEncode(t, review)))
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatalf("%d %s: %v", code, answer, err)
	}
	if got.GroupVersionKind() != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") || got.Request != nil || got.Response == nil || got.Response.UID != "review" {
		t.Fatalf("answer %s", answer)
	}
	return got.Response
}

// inBeta converts a review to v1beta1.
func inBeta(t testing.TB, review *admissionv1.AdmissionReview) *admissionv1.AdmissionReview {
	t.Helper()
	review.Request.Resource.Version = "v1beta1"
	for _, object := range []*runtime.RawExtension{&review.Request.Object, &review.Request.OldObject} {
		if object.Raw == nil {
			continue
		}
		text, err := conversion.Convert(object.Raw, schema.GroupVersion(v1beta1.GroupVersion).String())
		if err != nil {
			t.Fatal(err)
		}
		object.Raw = text
	}
	return review
}

// TestMutate adds missing fields by a patch that fits the version.
func TestMutate(t *testing.T) {
	f := newFixture(cached(nil))
	raw := func(text string) *admissionv1.AdmissionReview {
		review := admissionOf(t, admissionv1.Create, newFoo("x", ""), nil)
		review.Request.Object.Raw = []byte(text)
		return review
	}
	const alpha, beta = `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"x"}`, `{"apiVersion":"samplecontroller.k8s.io/v1beta1","kind":"Foo","metadata":{"name":"x"}`
	for name, c := range map[string]struct {
		review *admissionv1.AdmissionReview
		patch  string
	}{
		"a complete Foo":                                          {admissionOf(t, admissionv1.Create, newFoo("x", "d"), nil), ""},
		"v1alpha1: no spec":                                       {raw(alpha + `}`), `[{"op":"add","path":"/spec","value":{}},{"op":"add","path":"/spec/deploymentName","value":"x"},{"op":"add","path":"/spec/replicas","value":1}]`},
		"v1alpha1: spec is null":                                  {raw(alpha + `,"spec":null}`), `[{"op":"add","path":"/spec","value":{}},{"op":"add","path":"/spec/deploymentName","value":"x"},{"op":"add","path":"/spec/replicas","value":1}]`},
		"v1alpha1: an empty spec":                                 {raw(alpha + `,"spec":{}}`), `[{"op":"add","path":"/spec/deploymentName","value":"x"},{"op":"add","path":"/spec/replicas","value":1}]`},
		"v1alpha1: a name":                                        {raw(alpha + `,"spec":{"deploymentName":"d"}}`), `[{"op":"add","path":"/spec/replicas","value":1}]`},
		"v1alpha1: replicas":                                      {raw(alpha + `,"spec":{"replicas":0}}`), `[{"op":"add","path":"/spec/deploymentName","value":"x"}]`},
		"v1beta1: no spec":                                        {raw(beta + `}`), `[{"op":"add","path":"/spec","value":{}},{"op":"add","path":"/spec/deployment","value":{}},{"op":"add","path":"/spec/deployment/name","value":"x"},{"op":"add","path":"/spec/replicas","value":1}]`},
		"v1beta1: no deployment":                                  {raw(beta + `,"spec":{"replicas":2}}`), `[{"op":"add","path":"/spec/deployment","value":{}},{"op":"add","path":"/spec/deployment/name","value":"x"}]`},
		"v1beta1: an image and no name":                           {raw(beta + `,"spec":{"replicas":2,"deployment":{"image":"i"}}}`), `[{"op":"add","path":"/spec/deployment/name","value":"x"}]`},
		"v1beta1: a complete Foo":                                 {raw(beta + `,"spec":{"replicas":2,"deployment":{"name":"d"}}}`), ""},
		"an update without a name":                                {admissionOf(t, admissionv1.Update, newFoo("x", ""), newFoo("x", "d")), `[{"op":"add","path":"/spec/deploymentName","value":"d"}]`},
		"v1beta1: an update without a name":                       {inBeta(t, admissionOf(t, admissionv1.Update, newFoo("x", ""), newFoo("x", "d"))), `[{"op":"add","path":"/spec/deployment/name","value":"d"}]`},
		"v1beta1: deployment is a string: left to the API server": {raw(beta + `,"spec":{"deployment":"d"}}`), ""},
		"a name that is a number: left to the API server":         {raw(alpha + `,"spec":{"deploymentName":1}}`), ""},
		"not a Foo: left to the API server":                       {raw(`{}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			response := f.admit(t, MutatePath, c.review)
			if !response.Allowed || string(response.Patch) != c.patch || (response.PatchType != nil) != (c.patch != "") {
				t.Errorf("%+v, patch %s", response, response.Patch)
			}
			if c.patch != "" && *response.PatchType != admissionv1.PatchTypeJSONPatch {
				t.Errorf("%s", *response.PatchType)
			}
		})
	}
}

// TestValidate refuses a taken name to new Foos of both versions, and only to those.
func TestValidate(t *testing.T) {
	f := newFixture(cached([]*v1alpha1.Foo{newFoo("owner", "d")}))
	taken, free := newFoo("x", "d"), newFoo("x", "free")
	const refused = `spec.deploymentName (v1beta1: spec.deployment.name): the name "d" is held by Foo owner; choose another name`
	change := func(review *admissionv1.AdmissionReview, change func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionReview {
		change(review.Request)
		return review
	}
	create := func(foo *v1alpha1.Foo) *admissionv1.AdmissionReview {
		return admissionOf(t, admissionv1.Create, foo, nil)
	}
	for name, c := range map[string]struct {
		review   *admissionv1.AdmissionReview
		refusal  string
		warnings int
	}{
		"a free name":                        {review: create(free)},
		"a taken name":                       {review: create(taken), refusal: refused},
		"a taken name, v1beta1":              {review: inBeta(t, create(taken)), refusal: refused},
		"an update to a taken name":          {review: admissionOf(t, admissionv1.Update, taken, free), warnings: 1},
		"an update to a taken name, v1beta1": {review: inBeta(t, admissionOf(t, admissionv1.Update, taken, free)), warnings: 1},
		"an update that keeps the name":      {review: admissionOf(t, admissionv1.Update, taken, taken)},
		"a subresource":                      {review: change(create(taken), func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" })},
		"a deletion":                         {review: change(create(taken), func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete })},
		"another resource":                   {review: change(create(taken), func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "bars" })},
		"another group":                      {review: change(create(taken), func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "example.com" })},
		"the old object is not a Foo":        {review: change(admissionOf(t, admissionv1.Update, taken, free), func(r *admissionv1.AdmissionRequest) { r.OldObject.Raw = []byte("{}") })},
	} {
		t.Run(name, func(t *testing.T) {
			response := f.admit(t, ValidatePath, c.review)
			if response.Allowed != (c.refusal == "") || len(response.Warnings) != c.warnings {
				t.Errorf("%+v", response)
			}
			if c.refusal != "" && (response.Result.Message != c.refusal || response.Result.Code != 403 || response.Result.Reason != metav1.StatusReasonForbidden) {
				t.Errorf("%+v", response.Result)
			}
		})
	}
	t.Run("with empty caches every Foo is admitted", func(t *testing.T) {
		lookups := cached([]*v1alpha1.Foo{newFoo("owner", "d")}, &appsv1.Deployment{})
		lookups.HasSynced = func() bool { return false }
		if response := newFixture(lookups).admit(t, ValidatePath, create(taken)); !response.Allowed {
			t.Errorf("%+v", response)
		}
	})
}

// TestConversions converts all objects in their order with their metadata, or none.
func TestConversions(t *testing.T) {
	f := newFixture(cached(nil))
	named := func(foo string, i int) string {
		return strings.Replace(foo, `"name":"a"`, fmt.Sprintf(`"name":"a%d"`, i), 1)
	}
	var alphas, betas []string
	for i := range 3 {
		alphas, betas = append(alphas, named(alphaFoo, i)), append(betas, named(betaFoo, i))
	}
	for name, c := range map[string]struct {
		review  string
		want    []string
		failure string
	}{
		"no objects":       {review: conversionOf("v1beta1")},
		"to v1beta1":       {review: conversionOf("v1beta1", alphas...), want: betas},
		"to v1alpha1":      {review: conversionOf("v1alpha1", betas...), want: alphas},
		"both versions":    {review: conversionOf("v1beta1", alphas[0], betas[1]), want: betas[:2]},
		"another version":  {review: conversionOf("none", alphas[0]), failure: `objects[0]: apiVersion: cannot convert a Foo from "samplecontroller.k8s.io/v1alpha1" to "samplecontroller.k8s.io/none"`},
		"one is not a Foo": {review: conversionOf("v1beta1", alphas[0], `{"kind":"Bar"}`), failure: `objects[1]: kind: "Bar" is not Foo`},
		"one is null":      {review: conversionOf("v1beta1", "null"), failure: "objects[0]: "},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer := f.send(t, ConvertPath, strings.NewReader(c.review))
			var got apiextensionsv1.ConversionReview
			if err := json.Unmarshal([]byte(answer), &got); err != nil || code != 200 || got.Response == nil || got.Response.UID != "review" || got.Request != nil {
				t.Fatalf("%d %s %v", code, answer, err)
			}
			result := got.Response.Result
			if c.failure != "" {
				if result.Status != metav1.StatusFailure || !strings.HasPrefix(result.Message, c.failure) || got.Response.ConvertedObjects != nil {
					t.Errorf("%s", answer)
				}
				return
			}
			if result.Status != metav1.StatusSuccess || len(got.Response.ConvertedObjects) != len(c.want) {
				t.Fatalf("%s", answer)
			}
			for i, want := range c.want {
				var a, b any
				if err := json.Unmarshal([]byte(want), &a); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(got.Response.ConvertedObjects[i].Raw, &b); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(a, b); diff != "" {
					t.Errorf("objects[%d] (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestConversionEnds stops converting once the API server has stopped waiting.
func TestConversionEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer, err := converter{NewMetrics(metrics.NewKubeRegistry())}.convert(ctx, []byte(conversionOf("v1beta1", alphaFoo, alphaFoo)))
	if err != nil {
		t.Fatal(err)
	}
	const want = "converted 0 objects: context canceled"
	if got := answer.(*apiextensionsv1.ConversionReview).Response; got.Result.Message != want || got.ConvertedObjects != nil {
		t.Errorf("%+v, want %s", got, want)
	}
}

// TestReviewsTakeLittleMemory decodes bodies whose objects would take a multiple of their text.
func TestReviewsTakeLittleMemory(t *testing.T) {
	const size = 1 << 20
	fill := func(format, element string) string {
		return fmt.Sprintf(format, strings.Repeat(element+",", size/(len(element)+1))+element)
	}
	convert := converter{NewMetrics(metrics.NewKubeRegistry())}.convert
	foo := `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo",%s}`
	lists := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"x","desiredAPIVersion":"samplecontroller.k8s.io/v1beta1","objects":[%s]}}`
	fields := &strings.Builder{}
	for i := range size / 10 {
		fmt.Fprintf(fields, `,"%d":1`, i)
	}
	for name, test := range map[string]struct {
		review reviewer
		body   string
	}{
		"numbers for objects":    {convert, fill(lists, "1")},
		"a Foo with many fields": {convert, fmt.Sprintf(lists, fmt.Sprintf(foo, `"spec":{}`+fields.String()))},
		"many managed fields": {
			admission{lookups: Lookups{HasSynced: func() bool { return false }}, metrics: NewMetrics(metrics.NewKubeRegistry())}.mutate,
			fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","operation":"CREATE","resource":{"group":"samplecontroller.k8s.io","version":"v1alpha1","resource":"foos"},"object":%s}}`,
				fmt.Sprintf(foo, fill(`"metadata":{"managedFields":[%s]}`, "{}"))),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			if _, err := test.review(t.Context(), []byte(test.body)); err != nil {
				t.Fatal(err)
			}
			goruntime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > uint64(12*len(test.body)) {
				t.Errorf("a body of %d bytes takes %d bytes, %d times as much", len(test.body), took, took/uint64(len(test.body)))
			}
		})
	}
}

// TestReviewFails returns the error and does not admit the Foo instead.
func TestReviewFails(t *testing.T) {
	failure := errors.New("failure")
	review := mustEncode(t, admissionOf(t, admissionv1.Create, newFoo("x", "d"), nil))
	answer, err := admission{}.review([]byte(review), func(*admissionv1.AdmissionRequest, *v1alpha1.Foo, *v1alpha1.Foo) (*admissionv1.AdmissionResponse, error) {
		return allowed(), failure
	})
	if answer != nil || !errors.Is(err, failure) {
		t.Errorf("%v, %v", answer, err)
	}
}

func BenchmarkConvert(b *testing.B) {
	for _, c := range []struct{ to, foo string }{{"v1beta1", alphaFoo}, {"v1alpha1", betaFoo}} {
		b.Run("to "+c.to, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conversion.Convert([]byte(c.foo), "samplecontroller.k8s.io/"+c.to); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAdmission answers reviews of a Foo whose Deployment name is taken.
func BenchmarkAdmission(b *testing.B) {
	lookups := cached(nil)
	lookups.Claimants = func(_, _ string) []*v1alpha1.Foo { return []*v1alpha1.Foo{newFoo("owner", "d")} }
	handler := newFixture(lookups)
	review := mustEncode(b, admissionOf(b, admissionv1.Create, newFoo("x", "d"), nil))
	for _, path := range []string{MutatePath, ValidatePath} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, path, strings.NewReader(review))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				if handler.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
