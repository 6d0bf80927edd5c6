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

package app

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"example.com/sample-controller/pkg/client"
)

// refuse answers every request with a conflict, which no client retries. client-go reports it
// as AlreadyExists after a POST.
func refuse(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusConflict, apierrors.NewConflict(schema.GroupResource{}, r.URL.Path, errors.New("refused")).Status())
}

// TestFencedClients: which clients send a write while the process does not hold the lease.
func TestFencedClients(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(refuse))
	defer server.Close()
	ctx, options := t.Context(), metav1.DeleteOptions{}
	writes := map[string]struct {
		// free says that the write is not the leader's work.
		free bool
		send func(*clients) error
	}{
		"rule 20: the lease itself is written without a lease": {true, func(c *clients) error {
			return c.lease.CoordinationV1().Leases("system").Delete(ctx, "lease", options)
		}},
		"rule 20: token reviews are created without a lease": {true, func(c *clients) error {
			_, err := c.reviews.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{}, metav1.CreateOptions{})
			return err
		}},
		"rule 20: access reviews are created without a lease": {true, func(c *clients) error {
			_, err := c.reviews.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{}, metav1.CreateOptions{})
			return err
		}},
		"rule 20: a client of the certificate writes without a lease": {true, func(c *clients) error {
			certificates, err := kubernetes.NewForConfig(client.ForBuiltin(c.config))
			if err != nil {
				return err
			}
			return certificates.CoreV1().Secrets("system").Delete(ctx, "webhook", options)
		}},
		"rule 20: a built-in object is not written without a lease": {false, func(c *clients) error {
			return c.kube.AppsV1().Deployments("ns").Delete(ctx, "web", options)
		}},
		"rule 20: a custom resource is not written without a lease": {false, func(c *clients) error {
			return c.own.SamplecontrollerV1alpha1().Foos("ns").Delete(ctx, "foo", options)
		}},
		"rule 20: an event is not written without a lease": {false, func(c *clients) error {
			_, err := c.events.CoreV1().Events("ns").Create(ctx, &corev1.Event{}, metav1.CreateOptions{})
			return err
		}},
		"rule 20: another service is not written to without a lease": {false, func(c *clients) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, http.NoBody)
			if err != nil {
				return err
			}
			response, err := c.fence.Wrap(server.Client().Transport).RoundTrip(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			return apierrors.NewGenericServerResponse(response.StatusCode, request.Method, schema.GroupResource{}, "", "", 0, false)
		}},
	}
	for arguments, elects := range map[string]bool{leaderElection: true, "": false} {
		parsed, err := parseTestOptions(append(strings.Fields(arguments), "--master="+server.URL))
		if err != nil {
			t.Fatal(err)
		}
		c, err := newClients(parsed)
		if err != nil {
			t.Fatal(err)
		}
		for sentence, write := range writes {
			t.Run(fmt.Sprintf("%s, leader election %t", sentence, elects), func(t *testing.T) {
				err := write.send(c)
				if fenced := elects && !write.free; errors.Is(err, client.ErrFenced) != fenced || (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) == fenced {
					t.Errorf("the write ends with %v, fenced should be %t", err, fenced)
				}
			})
		}
	}
}
