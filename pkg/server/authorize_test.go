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

// newReviewer returns an API server that knows two tokens: that of a scraper, who
// may get /metrics, and that of a stranger, who may do nothing.
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
		whole := spec.UID == "uid of "+spec.User && strings.Join(spec.Groups, " ") == "a b" && fmt.Sprint(spec.Extra["key"]) == "[value]"
		review.Status.Allowed = whole && spec.User == "scraper" && *spec.NonResourceAttributes == authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}
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
		{"who may is served", http.MethodGet, "/metrics", "Bearer scraper", http.StatusOK},
		{"the scheme may be in any case", http.MethodGet, "/metrics", "bearer scraper", http.StatusOK},
		{"who may not is forbidden", http.MethodGet, "/metrics", "Bearer stranger", http.StatusForbidden},
		{"one path is not another", http.MethodGet, "/debug/pprof/heap", "Bearer scraper", http.StatusForbidden},
		{"one verb is not another", http.MethodPost, "/metrics", "Bearer scraper", http.StatusForbidden},
		{"an unknown token is no one's", http.MethodGet, "/metrics", "Bearer forged", http.StatusUnauthorized},
		{"there is no guest", http.MethodGet, "/metrics", "", http.StatusUnauthorized},
		{"an empty token is none", http.MethodGet, "/metrics", "Bearer  ", http.StatusUnauthorized},
		{"a password is no token", http.MethodGet, "/metrics", "Basic scraper", http.StatusUnauthorized},
		{"nobody is served while the API server cannot be asked", http.MethodGet, "/metrics", "Bearer broken", http.StatusInternalServerError},
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
				t.Error("the client is not told what is wanted")
			}
		})
	}
}

func TestVerdictsHoldForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newReviewer()
		handler := Authorized(client, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask := func(token string) {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		questions := func(want int, when string) {
			t.Helper()
			if got := len(client.Actions()); got != want {
				t.Errorf("%d questions %s, want %d", got, when, want)
			}
		}
		ask("scraper")
		ask("scraper")
		questions(2, "for two requests with one token")
		ask("forged")
		ask("forged")
		questions(3, "after two with a token that is no one's")
		ask("broken")
		ask("broken")
		questions(5, "after two failures, which are not remembered")
		time.Sleep(verdictTTL + time.Second)
		ask("scraper")
		questions(7, "after ten seconds")
	})
}
