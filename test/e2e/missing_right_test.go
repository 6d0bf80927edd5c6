//go:build e2e

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

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// accountsNamespace has the service accounts of TestEveryRightIsMissed. The audit
// policy names it, to record all that they do.
const accountsNamespace = "e2e-rights"

// These rights are asked for by an admission plugin, which the audit log does not tell.
const (
	fooFinalizersRight       = "update samplecontroller.k8s.io/foos/finalizers"
	memcachedFinalizersRight = "update cache.example.com/memcacheds/finalizers"
)

// TestEveryRightIsMissed runs for each right of the manifests a controller that has
// all the others, and waits until the API server refuses it exactly what is missing.
// So TestLeastPrivilege fails whichever right is dropped.
func TestEveryRightIsMissed(t *testing.T) {
	t.Parallel()
	shared.deploy(t)
	namespaces := shared.kube.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: accountsNamespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespaces.Delete(context.WithoutCancel(t.Context()), accountsNamespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	var rules []rbacv1.PolicyRule
	for _, rule := range grantedRules(t) {
		if isOfWebhooks(rule) {
			// Without them nobody reaches a webhook, as TestWalkthrough5 does.
			continue
		}
		rules = append(rules, singleRules(rule)...)
	}
	if len(rules) == 0 {
		t.Fatal("the service account has no rights")
	}
	for i, rule := range rules {
		missing := rightOf(rule.Verbs[0], rule.APIGroups[0], rule.Resources[0])
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			user, token := s.newAccount(slices.Concat(rules[:i], rules[i+1:]))
			s.keepBusy()
			flags := s.keepCronTabsBusy(missing, token)
			s.startAs(token, flags, strings.HasSuffix(missing, "reviews"))
			s.eventually("it is refused "+missing, func(ctx context.Context) error {
				return s.refused(ctx, user, token, missing)
			})
		})
	}
}

// isOfWebhooks reports whether the right is of the webhooks' component.
func isOfWebhooks(rule rbacv1.PolicyRule) bool {
	return slices.Contains([]string{"secrets", "customresourcedefinitions", "mutatingwebhookconfigurations"}, rule.Resources[0])
}

// newAccount makes a service account with those rights, and returns its name as a
// user's and a token.
func (s *scene) newAccount(rules []rbacv1.PolicyRule) (user, token string) {
	s.Helper()
	meta := metav1.ObjectMeta{Name: unique("account")}
	roles, bindings := shared.kube.RbacV1().ClusterRoles(), shared.kube.RbacV1().ClusterRoleBindings()
	accounts := shared.kube.CoreV1().ServiceAccounts(accountsNamespace)
	_, err := accounts.Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		ctx := context.WithoutCancel(s.Context())
		err := errors.Join(roles.Delete(ctx, meta.Name, metav1.DeleteOptions{}), bindings.Delete(ctx, meta.Name, metav1.DeleteOptions{}))
		if err != nil {
			s.Error(err)
		}
	})
	_, err = roles.Create(s.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	s.must(err)
	_, err = bindings.Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accountsNamespace, Name: meta.Name}},
	}, metav1.CreateOptions{})
	s.must(err)
	answer, err := accounts.CreateToken(s.Context(), meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.must(err)
	user = "system:serviceaccount:" + accountsNamespace + ":" + meta.Name
	s.awaitRight(user, rules[0])
	return user, answer.Status.Token
}

// awaitRight waits until the API server has taken notice of the user's rights.
func (s *scene) awaitRight(user string, rule rbacv1.PolicyRule) {
	s.Helper()
	s.eventually(user+" has its rights", func(ctx context.Context) error {
		review, err := shared.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: s.namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
			}},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = errors.New("not yet")
		}
		return err
	})
}

// keepBusy makes work that shows every right of a controller's: one Foo whose
// Deployment is to be repaired, one that was renamed while no controller ran, and a
// Memcached that has none yet.
func (s *scene) keepBusy() {
	s.Helper()
	for _, foo := range []struct{ name, asksFor string }{{"drift", "drift"}, {"renamed", "new"}} {
		created := s.create(foo.name, deploymentName(foo.asksFor))
		deployment := stockDeployment(created, "nginx")
		deployment.Name = foo.name
		deployment.Labels = map[string]string{managedBy: "sample-controller"}
		_, err := s.deployments().Create(s.Context(), deployment, metav1.CreateOptions{})
		s.must(err)
	}
	s.createMemcached(busyMemcached)
}

// busyMemcached is its name.
const busyMemcached = "cache"

// startAs starts a controller with that token. It need not get far.
func (s *scene) startAs(token, flags string, metrics bool) {
	s.Helper()
	// Streamed lists take no right to list.
	command := fmt.Sprintf("env KUBE_FEATURE_WatchListClient=false sample-controller -kubeconfig=%s --namespace=%s --leader-elect --leader-elect-resource-namespace=%s",
		kubeconfigOf(s.T, &clientcmdapi.AuthInfo{Token: token}), s.namespace, s.namespace)
	command += flags
	if metrics {
		command += " --metrics-bind-address=127.0.0.1:0"
	}
	// When the controller has ended: it would make the lease anew.
	s.Cleanup(func() {
		if output, err := tryIn(context.WithoutCancel(s.Context()), "kubectl delete lease sample-controller --ignore-not-found --namespace="+s.namespace); err != nil {
			s.Errorf("removing the lease: %v: %s", err, output)
		}
	})
	s.controller = start(s.T, s.TempDir(), command)
	if metrics {
		s.controller.served("metrics")
	}
}

// refused returns nil once the API server has refused the user that right. It fails
// the test if another one was refused.
func (s *scene) refused(ctx context.Context, user, token, missing string) error {
	s.Helper()
	requests, err := shared.audit.read()
	s.must(err)
	found := false
	for _, r := range requests {
		if r.User.Username != user || r.ResponseStatus.Code != http.StatusForbidden {
			continue
		}
		right := r.right()
		if right == "create apps/deployments" && r.Annotations["authorization.k8s.io/decision"] == "allow" {
			if right = fooFinalizersRight; r.ObjectRef.Name == busyMemcached {
				right = memcachedFinalizersRight
			}
		}
		if right == "create batch/jobs" && r.Annotations["authorization.k8s.io/decision"] == "allow" {
			right = cronTabFinalizersRight
		}
		if right != missing {
			s.Fatalf("it is refused %s, though it has all rights but %s", right, missing)
		}
		found = true
	}
	if found {
		return nil
	}
	// An event is patched when it comes a second time, and a Memcached is read live when
	// its Deployment is repaired a second time.
	for _, name := range []string{"drift", busyMemcached} {
		if d, err := s.deployments().Get(ctx, name, metav1.GetOptions{}); err == nil && *d.Spec.Replicas == 1 {
			d.Spec.Replicas = new(int32)
			_, _ = s.deployments().Update(ctx, d, metav1.UpdateOptions{})
		}
	}
	if strings.HasSuffix(missing, "reviews") {
		fetch(s.T, "https://"+s.controller.served("metrics")+"/metrics", token)
	}
	return fmt.Errorf("it is not among %d requests", len(requests))
}
