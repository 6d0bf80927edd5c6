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
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/conversion"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

// admission answers for Foos that are created or changed.
type admission struct {
	foos    Foos
	metrics *Metrics
}

// mutate fills in what a Foo lacks.
func (a admission) mutate(_ context.Context, body []byte) (any, error) {
	return a.review(body, func(request *admissionv1.AdmissionRequest, foo, old *v1alpha1.Foo) (*admissionv1.AdmissionResponse, error) {
		patch, err := patchOf(request.Object.Raw, defaults(foo, old))
		if patch == nil {
			return allowed(), err
		}
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}, nil
	})
}

// validate refuses a Foo that asks for a name which somebody else has, as far as the
// caches know.
func (a admission) validate(_ context.Context, body []byte) (any, error) {
	return a.review(body, func(request *admissionv1.AdmissionRequest, foo, old *v1alpha1.Foo) (*admissionv1.AdmissionResponse, error) {
		answer := judge(request.Operation, foo, old, a.foos.holding(request.Namespace, foo.Spec.DeploymentName))
		response := allowed()
		response.Warnings = answer.warnings
		if answer.refusal != "" {
			a.metrics.refused()
			response.Allowed = false
			response.Result = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: answer.refusal}
		}
		return response, nil
	})
}

func allowed() *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// review answers an AdmissionReview by what answer says about a Foo and what it was
// before, which is nil for a new one. Both are v1alpha1, whatever was sent.
func (a admission) review(body []byte, answer func(_ *admissionv1.AdmissionRequest, foo, old *v1alpha1.Foo) (*admissionv1.AdmissionResponse, error)) (any, error) {
	var review admissionv1.AdmissionReview
	if err := decode(body, &review); err != nil {
		return nil, err
	}
	if want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"); review.GroupVersionKind() != want || review.Request == nil {
		return nil, malformed("the body is no request of the kind %s", want)
	}
	request := review.Request
	review.Request = nil
	review.Response = allowed()
	if foo, old, ok := foosOf(request); ok {
		response, err := answer(request, foo, old)
		if err != nil {
			return nil, err
		}
		review.Response = response
	}
	review.Response.UID = request.UID
	return &review, nil
}

// foosOf returns the Foo of a request, and what it was before. It returns false for what
// is none of our business: other resources, subresources, deletions, and what is not even
// of the types of a Foo, about which the API server's own validation has better words.
func foosOf(request *admissionv1.AdmissionRequest) (foo, old *v1alpha1.Foo, ok bool) {
	created, updated := request.Operation == admissionv1.Create, request.Operation == admissionv1.Update
	if !created && !updated || request.SubResource != "" || request.Resource.Group != v1alpha1.GroupName || request.Resource.Resource != "foos" {
		return nil, nil, false
	}
	if foo, ok = fooOf(request.Object); !ok {
		return nil, nil, false
	}
	if updated {
		if old, ok = fooOf(request.OldObject); !ok {
			return nil, nil, false
		}
	}
	return foo, old, true
}

// fooOf returns the Foo as v1alpha1.
func fooOf(object runtime.RawExtension) (*v1alpha1.Foo, bool) {
	// What cannot be converted becomes nothing, which is no Foo either.
	text, _ := conversion.Convert(object.Raw, schema.GroupVersion(v1alpha1.GroupVersion).String())
	foo := &v1alpha1.Foo{}
	return foo, json.Unmarshal(text, foo) == nil
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// shape is what there may be of a Foo to fill something in to.
type shape struct {
	APIVersion string `json:"apiVersion"`
	Spec       *struct {
		Deployment *struct{} `json:"deployment"`
	} `json:"spec"`
}

func shapeOf(foo []byte) (*shape, bool) {
	s := &shape{}
	return s, json.Unmarshal(foo, s) == nil
}

// patchOf returns the JSON patch that fills in what is missing to a Foo of either
// version, nil if nothing is or the Foo has something else in its place, which the API
// server refuses.
func patchOf(foo []byte, missing v1alpha1.FooSpec) ([]byte, error) {
	present, ok := shapeOf(foo)
	if !ok || missing.DeploymentName == "" && missing.Replicas == nil {
		return nil, nil
	}
	var patch []operation
	if present.Spec == nil {
		patch = append(patch, operation{"add", "/spec", struct{}{}})
	}
	if name := missing.DeploymentName; name != "" {
		path := "/spec/deploymentName"
		if present.APIVersion == schema.GroupVersion(v1beta1.GroupVersion).String() {
			path = "/spec/deployment/name"
			if present.Spec == nil || present.Spec.Deployment == nil {
				patch = append(patch, operation{"add", "/spec/deployment", struct{}{}})
			}
		}
		patch = append(patch, operation{"add", path, name})
	}
	if missing.Replicas != nil {
		patch = append(patch, operation{"add", "/spec/replicas", *missing.Replicas})
	}
	return json.Marshal(patch)
}
