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
	const get, metrics, challenge = http.MethodGet, "/metrics", "Bearer"
	for _, test := range []struct {
		sentence, method, path, authorization string
		want                                  int
		challenge                             string
	}{
		{"a user with access is served", get, metrics, "Bearer scraper", http.StatusOK, ""},
		{"the scheme may be in any case", get, metrics, "bearer scraper", http.StatusOK, ""},
		{"a user without access is forbidden", get, metrics, "Bearer stranger", http.StatusForbidden, ""},
		{"access to one path is none to another", get, "/debug/pprof/heap", "Bearer scraper", http.StatusForbidden, ""},
		{"access by one verb is none by another", http.MethodPost, metrics, "Bearer scraper", http.StatusForbidden, ""},
		{"an unknown token is not authenticated", get, metrics, "Bearer forged", http.StatusUnauthorized, ""},
		{"anonymous requests are not authenticated", get, metrics, "", http.StatusUnauthorized, challenge},
		{"an empty token is not authenticated", get, metrics, "Bearer  ", http.StatusUnauthorized, challenge},
		{"another scheme is not authenticated", get, metrics, "Basic scraper", http.StatusUnauthorized, challenge},
		{"no request is served while reviews fail", get, metrics, "Bearer broken", http.StatusInternalServerError, ""},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			r := httptest.NewRequest(test.method, test.path, nil)
			r.Header.Set("Authorization", test.authorization)
			w := httptest.NewRecorder()
			Authorized(newReviewer(), served).ServeHTTP(w, r)
			if served := w.Body.String() == "served"; w.Code != test.want || served != (test.want == http.StatusOK) {
				t.Errorf("answer %d %q, want %d", w.Code, w.Body, test.want)
			}
			if got := w.Header().Get("WWW-Authenticate"); got != test.challenge {
				t.Errorf("WWW-Authenticate is %q, want %q", got, test.challenge)
			}
		})
	}
}

func TestDecisionsAreCachedForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newReviewer()
		handler := Authorized(client, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, step := range []struct {
			after   time.Duration
			token   string
			reviews int
		}{{0, "scraper", 2}, {decisionTTL - 1, "scraper", 0}, {0, "forged", 1}, {0, "forged", 0}, {0, "broken", 1}, {0, "broken", 1}, {2, "scraper", 2}} {
			time.Sleep(step.after)
			client.ClearActions()
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Authorization", "Bearer "+step.token)
			handler.ServeHTTP(httptest.NewRecorder(), r)
			if got := len(client.Actions()); got != step.reviews {
				t.Errorf("%d reviews of %s, want %d", got, step.token, step.reviews)
			}
		}
	})
}
