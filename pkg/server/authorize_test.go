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
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// newReviewer returns an API server that knows two tokens: scraper may get /metrics,
// stranger may do nothing.
func newReviewer() *fake.Clientset {
	client := &fake.Clientset{}
	client.AddReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		switch review.Spec.Token {
		case "scraper", "stranger":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: review.Spec.Token, UID: "uid of " + review.Spec.Token, Groups: []string{"a", "b"},
				Extra: map[string]authenticationv1.ExtraValue{"key": {"value"}},
			}}
		case "broken":
			return true, nil, errors.New("broken")
		}
		return true, review, nil
	})
	client.AddReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		spec := review.Spec
		complete := spec.UID == "uid of "+spec.User && strings.Join(spec.Groups, " ") == "a b" && fmt.Sprint(spec.Extra["key"]) == "[value]"
		review.Status.Allowed = complete && spec.User == "scraper" && *spec.NonResourceAttributes == authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}
		return true, review, nil
	})
	return client
}

func TestAuthorized(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
	for _, test := range []struct {
		sentence, method, path, authorization string
		want                                  int
	}{
		{"a user with access is served", http.MethodGet, "/metrics", "Bearer scraper", http.StatusOK},
		{"the scheme may be in any case", http.MethodGet, "/metrics", "bearer scraper", http.StatusOK},
		{"a user without access is forbidden", http.MethodGet, "/metrics", "Bearer stranger", http.StatusForbidden},
		{"access to one path gives no access to another", http.MethodGet, "/debug/pprof/heap", "Bearer scraper", http.StatusForbidden},
		{"access by one verb gives no access by another", http.MethodPost, "/metrics", "Bearer scraper", http.StatusForbidden},
		{"an unknown token is not authenticated", http.MethodGet, "/metrics", "Bearer forged", http.StatusUnauthorized},
		{"anonymous requests are not authenticated", http.MethodGet, "/metrics", "", http.StatusUnauthorized},
		{"an empty token is not authenticated", http.MethodGet, "/metrics", "Bearer  ", http.StatusUnauthorized},
		{"another scheme is not authenticated", http.MethodGet, "/metrics", "Basic scraper", http.StatusUnauthorized},
		{"no request is served while reviews fail", http.MethodGet, "/metrics", "Bearer broken", http.StatusInternalServerError},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			r := httptest.NewRequest(test.method, test.path, nil)
			if test.authorization != "" {
				r.Header.Set("Authorization", test.authorization)
			}
			w := httptest.NewRecorder()
			Authorized(newReviewer(), served).ServeHTTP(w, r)
			if w.Code != test.want {
				t.Errorf("code %d, want %d", w.Code, test.want)
			}
			if got := strings.Contains(w.Body.String(), "served"); got != (test.want == http.StatusOK) {
				t.Errorf("body %q", w.Body)
			}
			if got := w.Header().Get("WWW-Authenticate"); got == "" && test.want == http.StatusUnauthorized && !strings.Contains(test.authorization, "forged") {
				t.Error("the answer has no WWW-Authenticate header")
			}
		})
	}
}

func TestDecisionsAreCachedForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newReviewer()
		handler := Authorized(client, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		get := func(token string) {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		expectReviews := func(want int, when string) {
			t.Helper()
			if got := len(client.Actions()); got != want {
				t.Errorf("%d reviews %s, want %d", got, when, want)
			}
		}
		get("scraper")
		get("scraper")
		expectReviews(2, "for two requests with one token")
		get("forged")
		get("forged")
		expectReviews(3, "after two requests with an unknown token")
		get("broken")
		get("broken")
		expectReviews(5, "after two failures, which are not cached")
		time.Sleep(decisionTTL + time.Second)
		get("scraper")
		expectReviews(7, "after ten seconds")
	})
}
