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

package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// decisionTTL is how long a decision of the API server is cached, as in
	// kube-controller-manager. A revoked token works for as long.
	decisionTTL = 10 * time.Second
	// decisionLimit limits the cache, which clients without access can fill.
	decisionLimit = 1024
	// reviewTimeout limits both requests to the API server together.
	reviewTimeout = 10 * time.Second
)

// authorizer authenticates a bearer token with a TokenReview and authorizes its user with
// a SubjectAccessReview.
//
// It does not use the authorizer of kube-controller-manager, in k8s.io/apiserver, because
// that imports CEL, gRPC and tracing and doubles the size of the binary.
type authorizer struct {
	client    kubernetes.Interface
	decisions *cache.LRUExpireCache
	next      http.Handler
}

// request is the key of a decision.
type request struct {
	verb, path string
	token      [sha256.Size]byte
}

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=sample-controller-metrics-auth
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=sample-controller-metrics-auth

// Authorized returns a handler that calls next for users to whom the API server allows
// the verb on the path as a non-resource URL, such as get on /metrics. Other requests get
// 401 or 403. The client must be allowed to create TokenReviews and SubjectAccessReviews.
func Authorized(client kubernetes.Interface, next http.Handler) http.Handler {
	return &authorizer{client: client, decisions: cache.NewLRUExpireCache(decisionLimit), next: next}
}

// ServeHTTP implements http.Handler.
func (a *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a bearer token is required", http.StatusUnauthorized)
		return
	}
	code, err := a.decide(r.Context(), token, strings.ToLower(r.Method), r.URL.Path)
	switch {
	case err != nil:
		klog.FromContext(r.Context()).Error(err, "Failed to authorize a request", "path", r.URL.Path)
		http.Error(w, "the API server did not review the request", http.StatusInternalServerError)
	case code != http.StatusOK:
		http.Error(w, strings.ToLower(http.StatusText(code)), code)
	default:
		a.next.ServeHTTP(w, r)
	}
}

// decide returns 200, 401 or 403, from the cache if it can.
func (a *authorizer) decide(ctx context.Context, token, verb, path string) (int, error) {
	// The token is hashed, so that the cache does not hold it.
	key := request{verb: verb, path: path, token: sha256.Sum256([]byte(token))}
	if code, ok := a.decisions.Get(key); ok {
		return code.(int), nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	code, err := a.review(ctx, token, verb, path)
	if err == nil {
		a.decisions.Add(key, code, decisionTTL)
	}
	return code, err
}

func (a *authorizer) review(ctx context.Context, token, verb, path string) (int, error) {
	identity, err := a.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("reviewing a token: %w", err)
	}
	if !identity.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	allowed, err := IsAllowed(ctx, a.client, identity.Status.User, authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
	})
	if err != nil || allowed {
		return http.StatusOK, err
	}
	return http.StatusForbidden, nil
}

// IsAllowed asks the API server whether the user may do what the attributes in the spec say. The client
// must be allowed to create SubjectAccessReviews.
func IsAllowed(ctx context.Context, client kubernetes.Interface, user authenticationv1.UserInfo, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	spec.User, spec.UID, spec.Groups, spec.Extra = user.Username, user.UID, user.Groups, map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("reviewing the access of %s: %w", user.Username, err)
	}
	return access.Status.Allowed, nil
}
