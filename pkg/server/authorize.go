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
	// verdictTTL is for how long an answer of the API server's holds: that of
	// kube-controller-manager. A token that was withdrawn works for as long.
	verdictTTL = 10 * time.Second
	// verdictLimit bounds the memory that strangers can take.
	verdictLimit = 1024
	// reviewTimeout bounds the questions to the API server.
	reviewTimeout = 10 * time.Second
)

// authorizer asks the API server who the bearer of a token is (TokenReview) and
// whether they may do what they ask for (SubjectAccessReview).
//
// The library that kube-controller-manager has for it, in k8s.io/apiserver, brings
// CEL, gRPC and tracing along and doubles the size of the program.
type authorizer struct {
	client   kubernetes.Interface
	verdicts *cache.LRUExpireCache
	next     http.Handler
}

// Authorized returns a handler that passes on to next the requests of those whom
// the API server allows the verb on the path as a non-resource URL, such as get on
// /metrics. Others get 401 or 403. Whoever runs the program must be allowed to
// create TokenReviews and SubjectAccessReviews.
func Authorized(client kubernetes.Interface, next http.Handler) http.Handler {
	return &authorizer{client: client, verdicts: cache.NewLRUExpireCache(verdictLimit), next: next}
}

// ServeHTTP implements http.Handler.
func (a *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a bearer token is required", http.StatusUnauthorized)
		return
	}
	code, err := a.verdict(r.Context(), token, strings.ToLower(r.Method), r.URL.Path)
	switch {
	case err != nil:
		klog.FromContext(r.Context()).Error(err, "Asking the API server about a request failed", "path", r.URL.Path)
		http.Error(w, "the API server could not be asked", http.StatusInternalServerError)
	case code != http.StatusOK:
		http.Error(w, strings.ToLower(http.StatusText(code)), code)
	default:
		a.next.ServeHTTP(w, r)
	}
}

// verdict returns 200, 401 or 403.
func (a *authorizer) verdict(ctx context.Context, token, verb, path string) (int, error) {
	// The token itself is not kept.
	key := sha256.Sum256([]byte(verb + " " + path + " " + token))
	if code, ok := a.verdicts.Get(key); ok {
		return code.(int), nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	code, err := a.ask(ctx, token, verb, path)
	if err == nil {
		a.verdicts.Add(key, code, verdictTTL)
	}
	return code, err
}

func (a *authorizer) ask(ctx context.Context, token, verb, path string) (int, error) {
	identity, err := a.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("reviewing a token: %w", err)
	}
	if !identity.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := identity.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("reviewing the access of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
