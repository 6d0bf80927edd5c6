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
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/conversion"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1beta1"
)

// mayGetTimeout is how long an answer waits for Lookups.MayGet: other reviews may wait for its turn.
const mayGetTimeout = 2 * time.Second

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

// admissionRequest is what the webhooks read of an admissionv1.AdmissionRequest. The user is not decoded yet:
// decoded, many groups take several times their text.
type admissionRequest struct {
	UID       types.UID            `json:"uid"`
	Namespace string               `json:"namespace"`
	UserInfo  json.RawMessage      `json:"userInfo"`
	Object    runtime.RawExtension `json:"object"`
	OldObject runtime.RawExtension `json:"oldObject"`
}

// mutate sets the defaults that the schema of the CRD cannot set.
func mutate(_ context.Context, body []byte) (any, error) {
	return review(body, func(request *admissionRequest, foo, old *v1alpha1.Foo, response *admissionv1.AdmissionResponse) {
		if response.Patch = patchOf(request.Object.Raw, defaults(foo, old)); response.Patch != nil {
			response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
		}
	})
}

// validate refuses a new Foo whose Deployment name is taken according to the caches.
func (s *server) validate(ctx context.Context, body []byte) (any, error) {
	return review(body, func(request *admissionRequest, foo, old *v1alpha1.Foo, response *admissionv1.AdmissionResponse) {
		if ptr.Deref(foo.Spec.Replicas, 1) == 0 && (old == nil || ptr.Deref(old.Spec.Replicas, 1) != 0) {
			response.Warnings = append(response.Warnings, "spec.replicas is 0: the Deployment will have no Pods")
		}
		name := foo.Spec.DeploymentName
		if name == "" || !s.Lookups.HasSynced() || foo.DeletionTimestamp != nil || old != nil && old.Spec.DeploymentName == name {
			return
		}
		holder := holderOf(foo, s.Lookups.Deployment(request.Namespace, name), s.Lookups.Claimants(request.Namespace, name))
		if holder == nil {
			return
		}
		owner := "an object that you may not get"
		if s.mayGet(ctx, request, holder) {
			owner = holder.description
		}
		held := fmt.Sprintf("%s: the name %q is held by %s; ", deploymentNameField, name, owner)
		if old != nil {
			// Refused, two Foos could not swap their names.
			response.Warnings = append(response.Warnings, fmt.Sprintf(
				"%suntil it is free the controller keeps the Deployment %q and does not create another", held, old.Spec.DeploymentName))
			return
		}
		s.Metrics.refusals.Inc()
		response.Allowed = false
		response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: held + "choose another name",
		}
	})
}

// mayGet reports whether the user of the request may get the holder. It reports false if that takes too long.
func (s *server) mayGet(ctx context.Context, request *admissionRequest, holder *holder) bool {
	var user authenticationv1.UserInfo
	if len(request.UserInfo) > maxSmallBody || json.Unmarshal(request.UserInfo, &user) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, mayGetTimeout)
	defer cancel()
	return s.Lookups.MayGet(ctx, user, authorizationv1.ResourceAttributes{
		Namespace: request.Namespace, Verb: "get", Group: holder.resource.Group, Resource: holder.resource.Resource, Name: holder.name,
	})
}

// review decodes an AdmissionReview and returns it with a response that allows the request, unless
// respond changes it. respond gets the Foo and the old Foo (nil when it is created) as v1alpha1. It is not
// called for objects that do not fit the types, which the API server refuses with a better message.
func review(body []byte, respond func(_ *admissionRequest, foo, old *v1alpha1.Foo, response *admissionv1.AdmissionResponse)) (any, error) {
	request, kind, err := decode[admissionRequest](body, admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	if err != nil {
		return nil, err
	}
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	foo, ok := fooOf(request.Object)
	var old *v1alpha1.Foo
	if ok && request.OldObject.Raw != nil {
		old, ok = fooOf(request.OldObject)
	}
	if ok {
		respond(request, foo, old, response)
	}
	return &admissionv1.AdmissionReview{TypeMeta: kind, Response: response}, nil
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
	ok := json.Unmarshal(text, &read) == nil && max(len(read.Metadata.Name), len(read.Spec.DeploymentName)) <= validation.DNS1123SubdomainMaxLength
	meta := metav1.ObjectMeta{Name: read.Metadata.Name, DeletionTimestamp: read.Metadata.DeletionTimestamp}
	return &v1alpha1.Foo{ObjectMeta: meta, Spec: read.Spec}, ok
}

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patchOf returns the JSON patch that adds the missing fields to a Foo of either version.
// It returns nil if no field is missing, and if a parent field has another type, because
// the API server then refuses the Foo.
func patchOf(foo []byte, missing v1alpha1.FooSpec) []byte {
	// The objects that the patch may have to add before it can add a field to them.
	var present struct {
		APIVersion string `json:"apiVersion"`
		Spec       *struct {
			Deployment *struct{} `json:"deployment"`
		} `json:"spec"`
	}
	if json.Unmarshal(foo, &present) != nil || missing.DeploymentName == "" && missing.Replicas == nil {
		return nil
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
	text, err := json.Marshal(patch)
	if err != nil {
		// Strings, numbers and empty objects can be encoded.
		panic(err)
	}
	return text
}
