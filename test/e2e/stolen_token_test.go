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
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
)

// attacker has a stolen token of the controller's service account, and tries what it allows in the
// namespace of the env. The API server stores nothing of it: all writes are dry runs.
type attacker struct {
	*env

	token     string
	kube      kubernetes.Interface
	clientset clientset.Interface
	// home is the namespace of the controller, and accountHome that of the service account.
	home, accountHome string
}

// attempt is a request that the controller would not send, or not to that object.
type attempt struct {
	what string
	try  func(ctx context.Context, t *attacker) error
	// atHome says that the request is about the namespace of the controller.
	atHome bool
	// unlessOwned is a resource of which the controller has this right if a further kind owns it.
	unlessOwned string
}

var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryUpdate = metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	dryPatch  = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	dryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

const evilImage = `{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"evil"}]}}}}`

// createFooVictims creates a Foo with its Deployment, and a Deployment of others.
func createFooVictims(e *env) {
	e.Helper()
	foo := e.create("x")
	createObject(e, e.deployments(), stockDeployment(foo, "nginx"))
	theirs := stockDeployment(foo, "nginx")
	theirs.Name, theirs.OwnerReferences = "theirs", nil
	createObject(e, e.deployments(), theirs)
}

// createDeployment tries to create a Deployment that Foo x controls, with these changes.
func (t *attacker) createDeployment(ctx context.Context, change func(*appsv1.Deployment)) error {
	deployment := stockDeployment(t.foo("x"), "evil")
	deployment.Name = "evil"
	change(deployment)
	namespace := t.namespace
	if deployment.Namespace != "" {
		namespace = deployment.Namespace
	}
	_, err := t.kube.AppsV1().Deployments(namespace).Create(ctx, deployment, dryCreate)
	return err
}

func (t *attacker) patchDeployment(ctx context.Context, name, patch string) error {
	_, err := t.kube.AppsV1().Deployments(t.namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), dryPatch)
	return err
}

// createEvilDeployment is an attempt to create a Deployment of Foo x with this Pod template.
func createEvilDeployment(what string, change func(*corev1.PodSpec)) attempt {
	return attempt{what: what, try: func(ctx context.Context, t *attacker) error {
		return t.createDeployment(ctx, func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec) })
	}}
}

func hostPath(pod *corev1.PodSpec) {
	pod.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
}

func privileged(pod *corev1.PodSpec) {
	yes := true
	pod.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
}

func otherAccount(pod *corev1.PodSpec) { pod.ServiceAccountName = "other" }

// deploymentAttempts take the rights to Deployments.
func deploymentAttempts() []attempt {
	return []attempt{
		{what: "create a Deployment that a Foo controls, with any image and command", try: func(ctx context.Context, t *attacker) error {
			return t.createDeployment(ctx, func(*appsv1.Deployment) {})
		}},
		{what: "create a Deployment without an owner", try: func(ctx context.Context, t *attacker) error {
			return t.createDeployment(ctx, func(d *appsv1.Deployment) { d.OwnerReferences = nil })
		}},
		{what: "create a Deployment in kube-system", try: func(ctx context.Context, t *attacker) error {
			return t.createDeployment(ctx, func(d *appsv1.Deployment) { d.Namespace = metav1.NamespaceSystem })
		}},
		{what: "create a Deployment in the namespace of the service account", atHome: true, try: func(ctx context.Context, t *attacker) error {
			return t.createDeployment(ctx, func(d *appsv1.Deployment) { d.Namespace = t.accountHome })
		}},
		createEvilDeployment("create one with a hostPath volume", hostPath),
		createEvilDeployment("create one with a privileged container", privileged),
		createEvilDeployment("create one in the network of the host", func(pod *corev1.PodSpec) { pod.HostNetwork = true }),
		createEvilDeployment("create one among the processes of the host", func(pod *corev1.PodSpec) { pod.HostPID = true }),
		createEvilDeployment("create one in the IPC namespace of the host", func(pod *corev1.PodSpec) { pod.HostIPC = true }),
		createEvilDeployment("create one with another service account than default", otherAccount),
		{what: "change the image in a Deployment that a Foo controls", try: func(ctx context.Context, t *attacker) error {
			return t.patchDeployment(ctx, "x", evilImage)
		}},
		{what: "delete a Deployment that a Foo controls", try: func(ctx context.Context, t *attacker) error {
			return t.kube.AppsV1().Deployments(t.namespace).Delete(ctx, "x", dryDelete)
		}},
		{what: "change the image in a Deployment of others", try: func(ctx context.Context, t *attacker) error {
			return t.patchDeployment(ctx, "theirs", evilImage)
		}},
		{what: "take over a Deployment of others with an owner reference", try: func(ctx context.Context, t *attacker) error {
			return t.patchDeployment(ctx, "theirs", fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"x","uid":%q,"controller":true}]}}`, t.foo("x").UID))
		}},
		{what: "delete a Deployment of others", try: func(ctx context.Context, t *attacker) error {
			return t.kube.AppsV1().Deployments(t.namespace).Delete(ctx, "theirs", dryDelete)
		}},
		{what: "read all Deployments, with what is in their environment", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.AppsV1().Deployments(t.namespace).List(ctx, metav1.ListOptions{})
			return err
		}},
	}
}

// otherAttempts take other rights of the controller, or none that it has.
func otherAttempts() []attempt {
	return []attempt{
		{what: "write the status of a Foo", try: func(ctx context.Context, t *attacker) error {
			_, err := t.clientset.SamplecontrollerV1alpha1().Foos(t.namespace).Patch(ctx, "x", types.MergePatchType, []byte(`{"status":{"replicas":7}}`), dryPatch, "status")
			return err
		}},
		{what: "record an event about any object", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.CoreV1().Events(t.namespace).Create(ctx, &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Name: "evil", Namespace: t.namespace},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: t.namespace, Name: "theirs"},
			}, dryCreate)
			return err
		}},
		{what: "take the controller's Lease, so that it stops", atHome: true, try: func(ctx context.Context, t *attacker) error {
			lease, err := t.kube.CoordinationV1().Leases(t.home).Get(ctx, "sample-controller", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				lease, err = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "sample-controller", Namespace: t.home}}, nil
			}
			if err != nil {
				return err
			}
			lease.Spec.HolderIdentity = ptr.To("attacker")
			_, err = t.kube.CoordinationV1().Leases(t.home).Update(ctx, lease, dryUpdate)
			return err
		}},
		{what: "ask whose token it is (TokenReview), and who may do what (SubjectAccessReview)", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			_, err = t.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "jane", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"},
			}}, metav1.CreateOptions{})
			return err
		}},
		{what: "create, change or delete a Foo", try: func(ctx context.Context, t *attacker) error {
			_, err := t.clientset.SamplecontrollerV1alpha1().Foos(t.namespace).Create(ctx, newFoo("evil"), dryCreate)
			return err
		}},
		{what: "read a Secret", unlessOwned: "secrets", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.CoreV1().Secrets(t.namespace).List(ctx, metav1.ListOptions{})
			return err
		}},
		{what: "create a Pod, or run a command in one", try: func(ctx context.Context, t *attacker) error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "evil", Image: "evil"}}}}
			_, err := t.kube.CoreV1().Pods(t.namespace).Create(ctx, pod, dryCreate)
			return err
		}},
		{what: "request a token of a service account", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.CoreV1().ServiceAccounts(t.namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, dryCreate)
			return err
		}},
		{what: "bind a role, or change a role or a policy", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.RbacV1().RoleBindings(t.namespace).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "evil"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			}, dryCreate)
			return err
		}},
	}
}

// newAttacker returns a client with a token of that service account.
func newAttacker(e *env, home, namespace, account string) *attacker {
	e.Helper()
	config := rest.AnonymousClientConfig(shared.config)
	config.BearerToken, config.QPS, config.UserAgent = requestToken(e.T, namespace, account), -1, stolenToken
	kube, err := kubernetes.NewForConfig(config)
	e.must(err)
	clients, err := clientset.NewForConfig(config)
	e.must(err)
	return &attacker{env: e, token: config.BearerToken, kube: kube, clientset: clients, home: home, accountHome: namespace}
}

// in returns the attacker in another namespace.
func (t *attacker) in(e *env) *attacker {
	other := *t
	other.env = e
	return &other
}

// succeeds tries, and returns "yes" or "no". Any answer but a refusal fails the test.
func (t *attacker) succeeds(a attempt) string {
	t.Helper()
	switch err := a.try(t.Context(), t); {
	case err == nil:
		return "yes"
	case apierrors.IsForbidden(err):
		return "no"
	default:
		t.Errorf("to %s: %v", a.what, err)
		return "failed"
	}
}

// steal creates two service accounts with the same rights: one of another name, to which the
// policy does not apply, and one with the name of the controller's. grant grants the rights.
func steal(e *env, home *env, leases string, grant func(account string)) (free, bound *attacker) {
	e.Helper()
	var attackers []*attacker
	for _, account := range []string{"unbound", serviceAccount} {
		// Their namespace is deleted later, and TestUndeploy looks for what the manifests leave behind.
		shOnCleanup(e.T, fmt.Sprintf("kubectl delete serviceaccount %s --ignore-not-found --namespace=%s", account, home.namespace))
		_, err := shared.kube.CoreV1().ServiceAccounts(home.namespace).Create(e.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			e.must(err)
		}
		grant(account)
		attackers = append(attackers, newAttacker(e, leases, home.namespace, account))
	}
	for _, t := range attackers {
		e.eventually("the token has its rights", func(ctx context.Context) error {
			_, err := t.kube.AppsV1().Deployments(e.namespace).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	return attackers[0], attackers[1]
}

// stealFromCluster steals the token of the variant for the whole cluster.
func stealFromCluster(e *env) (free, bound *attacker) {
	e.Helper()
	home := newEnv(e.T)
	return steal(e, home, systemNamespace, func(account string) {
		name := home.namespace + "-" + account
		for _, ref := range rolesOf(e.T, systemNamespace, serviceAccount) {
			options, kind := "", "clusterrolebinding"
			if ref.Kind == "Role" {
				options, kind = " --namespace="+systemNamespace, "rolebinding"
			}
			binding := fmt.Sprintf("%s %s-%s%s", kind, name, ref.Name, options)
			shOnCleanup(e.T, "kubectl delete --ignore-not-found "+binding)
			sh(e.T, fmt.Sprintf("kubectl create %s --%s=%s --serviceaccount=%s:%s", binding, strings.ToLower(ref.Kind), ref.Name, home.namespace, account))
		}
	})
}

// stealFromNamespace steals the token of the variant for one namespace.
func stealFromNamespace(e *env) (free, bound *attacker) {
	e.Helper()
	e.installNamespaced()
	return steal(e, e, e.namespace, func(account string) {
		if account == serviceAccount {
			return
		}
		for i, ref := range rolesOf(e.T, e.namespace, serviceAccount) {
			sh(e.T, fmt.Sprintf("kubectl create rolebinding %s-%d --role=%s --serviceaccount=%s:%s --namespace=%s", account, i, ref.Name, e.namespace, account, e.namespace))
		}
	})
}

// TestStolenToken tries what an attacker with the service account's token can do, with and without
// the policy, for the variants for a cluster and for a namespace. The tables of docs/security.md
// are its result.
func TestStolenToken(t *testing.T) {
	t.Parallel()
	cluster, own, foreign := newEnv(t), newEnv(t), newEnv(t)
	for _, e := range []*env{cluster, own, foreign} {
		for _, create := range []func(e *env){
			createFooVictims,
			createMemcachedVictims, // +drop:memcached
			createCronTabVictims,   // +drop:crontab
		} {
			create(e)
		}
	}
	clusterFree, clusterBound := stealFromCluster(cluster)
	ownFree, ownBound := stealFromNamespace(own)
	without := deploymentAttempts()[1]
	for _, bound := range []*attacker{clusterBound, ownBound} {
		bound.eventually("the API server enforces the policy", func(ctx context.Context) error {
			if err := without.try(ctx, bound); !apierrors.IsForbidden(err) {
				return fmt.Errorf("error %w", err)
			}
			return nil
		})
	}
	document, err := os.ReadFile(filepath.Join(shared.root, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, attempts := range []func() []attempt{
		deploymentAttempts, otherAttempts,
		memcachedAttempts, // +drop:memcached
		cronTabAttempts,   // +drop:crontab
	} {
		for _, a := range attempts() {
			if slices.Contains(shared.dependents, a.unlessOwned) {
				continue
			}
			row := fmt.Sprintf("| %s | %s | %s | %s | %s |", a.what, clusterFree.succeeds(a), clusterBound.succeeds(a), ownFree.succeeds(a), ownBound.succeeds(a))
			t.Log(row)
			if !strings.Contains(string(document), row+"\n") {
				t.Errorf("docs/security.md lacks the row %s", row)
			}
			if !a.atHome && ownFree.in(foreign).succeeds(a) != "no" {
				t.Errorf("the service account of one namespace may %s in another one", a.what)
			}
		}
	}
}
