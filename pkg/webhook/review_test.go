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
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

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
	raw := func(version, fields string) *admissionv1.AdmissionReview {
		review := admissionOf(t, admissionv1.Create, newFoo("x", ""), nil)
		review.Request.Object.Raw = fmt.Appendf(nil, `{"apiVersion":"samplecontroller.k8s.io/%s","kind":"Foo","metadata":{"name":"x"}%s}`, version, fields)
		return review
	}
	create := func(foo *v1alpha1.Foo) *admissionv1.AdmissionReview {
		return admissionOf(t, admissionv1.Create, foo, nil)
	}
	update := func(foo, old *v1alpha1.Foo) *admissionv1.AdmissionReview {
		return admissionOf(t, admissionv1.Update, foo, old)
	}
	const name, betaName, replicas = `add /spec/deploymentName "x"`, `add /spec/deployment/name "x"`, `add /spec/replicas 1`
	for sentence, c := range map[string]struct {
		review *admissionv1.AdmissionReview
		patch  string
	}{
		"a complete Foo":                     {create(newFoo("x", "d")), ""},
		"replicas 0 are not missing":         {create(newFoo("x", "d", noReplicas)), ""},
		"the API server has yet to name it":  {create(newFoo("", "")), ""},
		"v1alpha1: no spec":                  {raw("v1alpha1", ""), "add /spec {}, " + name + ", " + replicas},
		"v1alpha1: spec is null":             {raw("v1alpha1", `,"spec":null`), "add /spec {}, " + name + ", " + replicas},
		"v1alpha1: an empty spec":            {raw("v1alpha1", `,"spec":{}`), name + ", " + replicas},
		"v1alpha1: a name":                   {raw("v1alpha1", `,"spec":{"deploymentName":"d"}`), replicas},
		"v1alpha1: replicas":                 {raw("v1alpha1", `,"spec":{"replicas":0}`), name},
		"v1beta1: no spec":                   {raw("v1beta1", ""), "add /spec {}, add /spec/deployment {}, " + betaName + ", " + replicas},
		"v1beta1: no deployment":             {raw("v1beta1", `,"spec":{"replicas":2}`), "add /spec/deployment {}, " + betaName},
		"v1beta1: an image and no name":      {raw("v1beta1", `,"spec":{"replicas":2,"deployment":{"image":"i"}}`), betaName},
		"v1beta1: a complete Foo":            {raw("v1beta1", `,"spec":{"replicas":2,"deployment":{"name":"d"}}`), ""},
		"an update that leaves the name out": {update(newFoo("x", ""), newFoo("x", "d")), `add /spec/deploymentName "d"`},
		"the same in v1beta1":                {inBeta(t, update(newFoo("x", ""), newFoo("x", "d"))), `add /spec/deployment/name "d"`},
		"an update gets replicas, too":       {update(newFoo("x", "d", withoutReplicas), newFoo("x", "")), replicas},
		"an update of one without a spec":    {update(newFoo("x", "", withoutReplicas), newFoo("x", "", withoutReplicas)), ""},
		"a string: left to the API server":   {raw("v1beta1", `,"spec":{"deployment":"d"}`), ""},
		"a number: left to the API server":   {raw("v1alpha1", `,"spec":{"deploymentName":1}`), ""},
		"not a Foo: left to the API server":  {raw("v2", ""), ""},
		"not JSON: left to the API server":   {raw("v1alpha1", `,"spec":[]`), ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			response := f.admit(t, MutatePath, c.review)
			var operations []struct {
				Op, Path string
				Value    json.RawMessage
			}
			if response.Patch != nil {
				if err := json.Unmarshal(response.Patch, &operations); err != nil {
					t.Fatal(err)
				}
			}
			var patch []string
			for _, o := range operations {
				patch = append(patch, fmt.Sprintf("%s %s %s", o.Op, o.Path, o.Value))
			}
			if got := strings.Join(patch, ", "); !response.Allowed || got != c.patch {
				t.Errorf("%+v, patch %s, want %s", response, got, c.patch)
			}
			if got := ptr.Deref(response.PatchType, ""); (got == admissionv1.PatchTypeJSONPatch) != (c.patch != "") {
				t.Errorf("a patch of the type %q", got)
			}
		})
	}
}

// TestValidate decides about Foos of both versions, and about no other object.
func TestValidate(t *testing.T) {
	taken, free, none := newFoo("x", "d"), newFoo("x", "free"), newFoo("x", "free", noReplicas)
	const (
		refused = `refused: spec.deploymentName (v1beta1: spec.deployment.name): the name "d" is held by Foo owner; choose another name`
		warned  = `spec.deploymentName (v1beta1: spec.deployment.name): the name "d" is held by Foo owner; until it is free the controller keeps the Deployment "free" and does not create another`
		noPods  = "spec.replicas is 0: the Deployment will have no Pods"
	)
	type request = admissionv1.AdmissionRequest
	create := func(foo *v1alpha1.Foo, change ...func(*request)) *admissionv1.AdmissionReview {
		review := admissionOf(t, admissionv1.Create, foo, nil)
		for _, c := range change {
			c(review.Request)
		}
		return review
	}
	update := func(foo, old *v1alpha1.Foo) *admissionv1.AdmissionReview {
		return admissionOf(t, admissionv1.Update, foo, old)
	}
	withoutOld := update(taken, free)
	withoutOld.Request.OldObject.Raw = []byte("{}")
	for sentence, c := range map[string]struct {
		review *admissionv1.AdmissionReview
		says   string
	}{
		"a free name":                        {create(free), ""},
		"a taken name":                       {create(taken), refused},
		"a taken name, v1beta1":              {inBeta(t, create(taken)), refused},
		"an update to a taken name":          {update(taken, free), warned},
		"an update to a taken name, v1beta1": {inBeta(t, update(taken, free)), warned},
		"a subresource":                      {create(taken, func(r *request) { r.SubResource = "status" }), ""},
		"a deletion":                         {create(taken, func(r *request) { r.Operation = admissionv1.Delete }), ""},
		"another resource":                   {create(taken, func(r *request) { r.Resource.Resource = "bars" }), ""},
		"another group":                      {create(taken, func(r *request) { r.Resource.Group = "example.com" }), ""},
		"the object is not a Foo":            {create(taken, func(r *request) { r.Object.Raw = []byte("{}") }), ""},
		"the old object is not a Foo":        {withoutOld, ""},
		"replicas 0":                         {create(none), noPods},
		"replicas are unset":                 {create(newFoo("x", "free", withoutReplicas)), ""},
		"replicas become 0":                  {update(none, free), noPods},
		"replicas were 0":                    {update(none, none), ""},
		"a taken name and 0 replicas":        {create(newFoo("x", "d", noReplicas)), refused + ", " + noPods},
		"an update to both":                  {update(newFoo("x", "d", noReplicas), free), noPods + ", " + warned},
		"a user with many groups is not looked up": {
			create(taken, func(r *request) { r.UserInfo.Groups = []string{strings.Repeat("g", maxSmallBody)} }),
			strings.Replace(refused, "Foo owner", "an object that you may not get", 1),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			response := newFixture(cached([]*v1alpha1.Foo{newFoo("owner", "d")})).admit(t, ValidatePath, c.review)
			says := response.Warnings
			if result := response.Result; !response.Allowed {
				says = append([]string{"refused: " + result.Message}, says...)
				if result.Status != metav1.StatusFailure || result.Code != http.StatusForbidden || result.Reason != metav1.StatusReasonForbidden {
					t.Errorf("%+v", result)
				}
			}
			if got := strings.Join(says, ", "); got != c.says {
				t.Errorf("%q, want %q", got, c.says)
			}
		})
	}
	t.Run("with empty caches every Foo is admitted", func(t *testing.T) {
		lookups := cached([]*v1alpha1.Foo{newFoo("owner", "d")})
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
				if got := got.Response.ConvertedObjects[i].Raw; !cmp.Equal(decoded(t, want), decoded(t, string(got))) {
					t.Errorf("objects[%d]: %s, want %s", i, got, want)
				}
			}
		})
	}
}

func decoded(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestConversionEnds stops converting once the API server has stopped waiting.
func TestConversionEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer, err := newFixture(cached(nil)).Handler.(*server).convert(ctx, []byte(conversionOf("v1beta1", alphaFoo, alphaFoo)))
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
	const foo = `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo",%s}`
	create := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","operation":"CREATE",` +
		`"resource":{"group":"samplecontroller.k8s.io","version":"v1alpha1","resource":"foos"},"userInfo":{"groups":[%s]},"object":%s}}`
	fields := &strings.Builder{}
	for i := range size / 10 {
		fmt.Fprintf(fields, `,"%d":1`, i)
	}
	convert := newFixture(cached(nil)).Handler.(*server).convert
	for name, test := range map[string]struct {
		review reviewer
		body   string
	}{
		"numbers for objects":    {convert, fill(conversionOf("v1beta1", "%s"), "1")},
		"a Foo with many fields": {convert, conversionOf("v1beta1", fmt.Sprintf(foo, `"spec":{}`+fields.String()))},
		"many managed fields":    {mutate, fmt.Sprintf(create, "", fmt.Sprintf(foo, fill(`"metadata":{"managedFields":[%s]}`, "{}")))},
		"a user of many groups":  {mutate, fmt.Sprintf(create, fill("%s", `""`), fmt.Sprintf(foo, `"spec":{}`))},
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
