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
	"time"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/conversion"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

const (
	// mayGetTimeout is how long an answer waits for Lookups.MayGet.
	mayGetTimeout = 2 * time.Second
	// maxMayGet is how many answers wait for it at the same time: each has its review in memory.
	maxMayGet = 16
)

// The first three are what the decisions read, the last one is for the metrics of the process.
// +kubebuilder:rbac:groups=samplecontroller.k8s.io,resources=foos,verbs=list;watch,roleName=sample-controller-webhook-lookups
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=list;watch,roleName=sample-controller-webhook-lookups
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=sample-controller-webhook-lookups
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=sample-controller-webhook-lookups

// Lookups read the caches, however many informers fill them. All functions are required.
type Lookups struct {
	// HasSynced reports whether the caches are filled. Until then every Foo is admitted.
	HasSynced func() bool
	// Claimants returns the Foos of the namespace whose spec asks for the Deployment name.
	Claimants func(namespace, deploymentName string) []*v1alpha1.Foo
	// Deployment returns the Deployment of that name, nil if there is none.
	Deployment func(namespace, name string) *appsv1.Deployment
	// MayGet reports whether the API server allows a user to get an object. It asks the API server,
	// and is called only for answers that name another object.
	MayGet func(ctx context.Context, user authenticationv1.UserInfo, object authorizationv1.ResourceAttributes) bool
}

// nameUse returns what the caches know about a Deployment name.
func (l Lookups) nameUse(namespace, deploymentName string) nameUse {
	if !l.HasSynced() {
		return nameUse{}
	}
	return nameUse{deployment: l.Deployment(namespace, deploymentName), claimants: l.Claimants(namespace, deploymentName)}
}

// admission answers AdmissionReviews of Foos.
type admission struct {
	lookups Lookups
	metrics *Metrics
	// asking has a permit for each call of Lookups.MayGet.
	asking *semaphore.Weighted
}

// mutate sets the defaults that the schema of the CRD cannot set.
func (a admission) mutate(_ context.Context, body []byte) (any, error) {
	return a.review(body, func(request *admissionv1.AdmissionRequest, foo, old *v1alpha1.Foo) (*admissionv1.AdmissionResponse, error) {
		patch, err := patchOf(request.Object.Raw, defaults(foo, old))
		if patch == nil {
			return allowed(), err
		}
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}, nil
	})
}

// validate refuses a new Foo whose Deployment name is taken according to the caches.
func (a admission) validate(ctx context.Context, body []byte) (any, error) {
	return a.review(body, func(request *admissionv1.AdmissionRequest, foo, old *v1alpha1.Foo) (*admissionv1.AdmissionResponse, error) {
		decision := validate(request.Operation, foo, old, a.lookups.nameUse(request.Namespace, foo.Spec.DeploymentName), func(resource schema.GroupResource, name string) bool {
			if !a.asking.TryAcquire(1) {
				return false
			}
			defer a.asking.Release(1)
			ctx, cancel := context.WithTimeout(ctx, mayGetTimeout)
			defer cancel()
			return a.lookups.MayGet(ctx, request.UserInfo, authorizationv1.ResourceAttributes{Namespace: request.Namespace, Verb: "get", Group: resource.Group, Resource: resource.Resource, Name: name})
		})
		response := allowed()
		response.Warnings = decision.warnings
		if decision.refusal != "" {
			a.metrics.refused()
			response.Allowed = false
			response.Result = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: decision.refusal}
		}
		return response, nil
	})
}

func allowed() *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// review decodes an AdmissionReview and returns it with the response of respond, which
// gets the Foo and the old Foo (nil when it is created) as v1alpha1.
func (a admission) review(body []byte, respond func(_ *admissionv1.AdmissionRequest, foo, old *v1alpha1.Foo) (*admissionv1.AdmissionResponse, error)) (any, error) {
	var review admissionv1.AdmissionReview
	if err := decode(body, &review); err != nil {
		return nil, err
	}
	if want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"); review.GroupVersionKind() != want || review.Request == nil {
		return nil, noRequest(want)
	}
	request := review.Request
	review.Request = nil
	review.Response = allowed()
	if foo, old, ok := foosOf(request); ok {
		response, err := respond(request, foo, old)
		if err != nil {
			return nil, err
		}
		review.Response = response
	}
	review.Response.UID = request.UID
	return &review, nil
}

// foosOf returns the Foo of a request and the old one. It returns false for requests that
// are admitted unchanged: other resources, subresources, deletions, and objects that do
// not fit the types, which the API server refuses with a better message.
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

// fooOf returns what the decisions read of an object, as a v1alpha1 Foo. Managed fields take many
// times the memory of their text.
func fooOf(object runtime.RawExtension) (*v1alpha1.Foo, bool) {
	// If the conversion fails, text is empty, and so decoding it fails.
	text, _ := conversion.Convert(object.Raw, fooGVK.GroupVersion().String())
	var read struct {
		Metadata struct {
			Name              string       `json:"name"`
			DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
		} `json:"metadata"`
		Spec v1alpha1.FooSpec `json:"spec"`
	}
	ok := json.Unmarshal(text, &read) == nil
	return &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: read.Metadata.Name, DeletionTimestamp: read.Metadata.DeletionTimestamp}, Spec: read.Spec}, ok
}

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// parents are the objects of a Foo that a patch may have to add before it can add a field
// to them.
type parents struct {
	APIVersion string `json:"apiVersion"`
	Spec       *struct {
		Deployment *struct{} `json:"deployment"`
	} `json:"spec"`
}

func parentsOf(foo []byte) (*parents, bool) {
	p := &parents{}
	return p, json.Unmarshal(foo, p) == nil
}

// patchOf returns the JSON patch that adds the missing fields to a Foo of either version.
// It returns nil if no field is missing, and if a parent field has another type, because
// the API server then refuses the Foo.
func patchOf(foo []byte, missing v1alpha1.FooSpec) ([]byte, error) {
	present, ok := parentsOf(foo)
	if !ok || missing.DeploymentName == "" && missing.Replicas == nil {
		return nil, nil
	}
	var patch []operation
	add := func(path string, value any) { patch = append(patch, operation{"add", path, value}) }
	if present.Spec == nil {
		add("/spec", struct{}{})
	}
	if name := missing.DeploymentName; name != "" {
		path := "/spec/deploymentName"
		if present.APIVersion == schema.GroupVersion(v1beta1.GroupVersion).String() {
			path = "/spec/deployment/name"
			if present.Spec == nil || present.Spec.Deployment == nil {
				add("/spec/deployment", struct{}{})
			}
		}
		add(path, name)
	}
	if missing.Replicas != nil {
		add("/spec/replicas", *missing.Replicas)
	}
	return json.Marshal(patch)
}
