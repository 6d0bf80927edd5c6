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
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// attacker has the rights of a stolen token of the controller's service account, and tries what they allow in the
// namespace of the env. The API server stores nothing of it: all writes are dry runs.
type attacker struct {
	*env

	kube kubernetes.Interface
	// home is the namespace of the controller, and accountHome that of the service account.
	home, accountHome string
}

// attempt is what the controller would not do, or not to that object: a verb of HTTP with a path, or several, and a
// body. That of PUT has what differs from the live object. NS, HOME and ACCOUNT stand for the namespaces of the
// attacker, OWNER(Foo) for a reference to Foo x.
type attempt struct {
	what, request, body string
}

const (
	deploymentsPath = "/apis/apps/v1/namespaces/NS/deployments"
	foosPath        = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/NS/foos"
	anyImage        = "containers: [{name: evil, image: evil}]"
	hostPath        = "volumes: [{name: host, hostPath: {path: /}}], " + anyImage
	privileged      = "containers: [{name: evil, image: evil, securityContext: {privileged: true}}]"
	otherAccount    = "serviceAccountName: other, " + anyImage
)

// deploymentAttempts take the rights to Deployments.
func deploymentAttempts() []attempt {
	const create, theirs, owned = "POST " + deploymentsPath, deploymentsPath + "/theirs", deploymentsPath + "/x"
	const image = `{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"evil"}]}}}}`
	evil := func(metadata, pod string) string {
		return "{metadata: {name: evil" + metadata + "}, spec: {selector: {matchLabels: {app: evil}}, " +
			"template: {metadata: {labels: {app: evil}}, spec: {" + pod + "}}}}"
	}
	of := func(pod string) string { return evil(", OWNER(Foo)", pod) }
	return []attempt{
		{"create a Deployment without an owner", create, evil("", anyImage)},
		{"create a Deployment that a Foo controls, with any image and command", create, of(anyImage)},
		{"create a Deployment in kube-system", "POST /apis/apps/v1/namespaces/kube-system/deployments", of(anyImage)},
		{"create a Deployment in the namespace of the service account", "POST /apis/apps/v1/namespaces/ACCOUNT/deployments", of(anyImage)},
		{"create one with a hostPath volume", create, of(hostPath)},
		{"create one with a privileged container", create, of(privileged)},
		{"create one in the network of the host", create, of("hostNetwork: true, " + anyImage)},
		{"create one among the processes of the host", create, of("hostPID: true, " + anyImage)},
		{"create one in the IPC namespace of the host", create, of("hostIPC: true, " + anyImage)},
		{"create one with another service account than default", create, of(otherAccount)},
		{"change the image in a Deployment that a Foo controls", "PATCH " + owned, image},
		{"delete a Deployment that a Foo controls", "DELETE " + owned, ""},
		{"change the image in a Deployment of others", "PATCH " + theirs, image},
		{"take over a Deployment of others with an owner reference", "PATCH " + theirs, "{metadata: {OWNER(Foo)}}"},
		{"delete a Deployment of others", "DELETE " + theirs, ""},
		{"read all Deployments, with what is in their environment", "GET " + deploymentsPath, ""},
	}
}

// otherAttempts take other rights of the controller, or none that it has.
func otherAttempts() []attempt {
	const core, secrets = "/api/v1/namespaces/NS/", "secrets"
	attempts := []attempt{
		{"write the status of a Foo", "PATCH " + foosPath + "/x/status", "{status: {replicas: 7}}"},
		{"record an event about any object", "POST " + core + "events",
			"{metadata: {name: evil}, involvedObject: {kind: Pod, namespace: NS, name: theirs}}"},
		{"take the controller's Lease, so that it stops", "PUT /apis/coordination.k8s.io/v1/namespaces/HOME/leases/sample-controller",
			"{metadata: {name: sample-controller}, spec: {holderIdentity: attacker}}"},
		{"ask whose token it is (TokenReview), and who may do what (SubjectAccessReview)",
			"POST /apis/authentication.k8s.io/v1/tokenreviews /apis/authorization.k8s.io/v1/subjectaccessreviews",
			"{spec: {token: x, user: jane, resourceAttributes: {verb: list, resource: secrets}}}"},
		{"create, change or delete a Foo", "POST " + foosPath,
			"{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {name: evil}, spec: {deploymentName: evil}}"},
		{"create a Pod, or run a command in one", "POST " + core + "pods", "{metadata: {name: evil}, spec: {" + anyImage + "}}"},
		{"request a token of a service account", "POST " + core + "serviceaccounts/default/token", "{spec: {}}"},
		{"bind a role, or change a role or a policy", "POST /apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings",
			"{metadata: {name: evil}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}}"},
	}
	// The controller has this right if a further kind owns them.
	if !slices.Contains(shared.dependents(), secrets) {
		attempts = append(attempts, attempt{"read a Secret", "GET " + core + secrets, ""})
	}
	return attempts
}

// createVictims creates an object of each kind, and objects of others.
func createVictims(e *env) {
	e.Helper()
	foo := e.create("x")
	createObject(e, e.deployments(), stockDeployment(foo))
	e.kubectl("create deployment theirs --image=nginx --replicas=0")
	createMemcachedVictims(e) // +drop:memcached
	createCronTabVictims(e)   // +drop:crontab
}

// newAttacker returns a client that acts as that service account.
func newAttacker(e *env, home, namespace, account string) *attacker {
	e.Helper()
	config := rest.CopyConfig(shared.config)
	config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":" + account
	kube, err := kubernetes.NewForConfig(config)
	e.must(err)
	t := &attacker{env: e, kube: kube, home: home, accountHome: namespace}
	e.eventually(account+" has its rights", func(ctx context.Context) error {
		_, err := kube.AppsV1().Deployments(e.namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	return t
}

// in returns the attacker in another namespace.
func (t *attacker) in(e *env) *attacker {
	other := *t
	other.env = e
	return &other
}

// fill returns the text with what its placeholders stand for.
func (t *attacker) fill(text string) string {
	t.Helper()
	text = strings.NewReplacer("NS", t.namespace, "HOME", t.home, "ACCOUNT", t.accountHome).Replace(text)
	for _, k := range shared.kinds {
		placeholder := "OWNER(" + k.Kind + ")"
		if !strings.Contains(text, placeholder) {
			continue
		}
		owner, err := shared.dynamic.Resource(k.GVR()).Namespace(t.namespace).Get(t.Context(), "x", metav1.GetOptions{})
		t.must(err)
		text = strings.ReplaceAll(text, placeholder, fmt.Sprintf(`"ownerReferences": [{"apiVersion": %q, "kind": %q, "name": "x", "uid": %q, "controller": true, "blockOwnerDeletion": true}]`,
			k.APIVersion, k.Kind, owner.GetUID()))
	}
	return text
}

// try sends the requests, without any effect, until one fails.
func (t *attacker) try(a attempt) error {
	t.Helper()
	server := func(client kubernetes.Interface, verb, path string, body []byte) *rest.Request {
		request := client.Discovery().RESTClient().Verb(verb).RequestURI(path)
		if verb == http.MethodGet {
			return request
		}
		if verb == http.MethodPatch {
			request.SetHeader("Content-Type", string(types.MergePatchType))
		} else if verb != http.MethodDelete {
			request.SetHeader("Content-Type", "application/json")
		}
		return request.Body(body).Param("dryRun", "All")
	}
	verb, paths, _ := strings.Cut(t.fill(a.request), " ")
	var body []byte
	if a.body != "" {
		var object map[string]any
		t.must(yaml.Unmarshal([]byte(t.fill(a.body)), &object))
		var err error
		body, err = json.Marshal(object)
		t.must(err)
	}
	for _, path := range strings.Fields(paths) {
		if verb == http.MethodPut {
			// Somebody who may do everything asks for the whole object.
			if whole, err := server(shared.kube, http.MethodPatch, path, body).DoRaw(t.Context()); err == nil {
				body = whole
			} else if !apierrors.IsNotFound(err) {
				return err
			}
		}
		if err := server(t.kube, verb, path, body).Do(t.Context()).Error(); err != nil {
			return err
		}
	}
	return nil
}

// succeeds tries, and returns "yes" or "no". Any answer but a refusal fails the test.
func (t *attacker) succeeds(a attempt) string {
	t.Helper()
	// Another writer may act between the two requests of a PUT.
	switch err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return t.try(a) }); {
	case err == nil:
		return "yes"
	case apierrors.IsForbidden(err):
		return "no"
	default:
		t.Errorf("to %s: %v", a.what, err)
		return "failed"
	}
}

// mustDocument fails the test unless docs/security.md has the row.
func mustDocument(t *testing.T, cells ...string) {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(shared.root, "docs/security.md"))
	must(t, err)
	if row := "| " + strings.Join(cells, " | ") + " |\n"; !strings.Contains(string(document), row) {
		t.Errorf("docs/security.md lacks the row %s", row)
	}
}

// steal returns two attackers in the env's namespace, with the rights that the manifests grant in that other one:
// with an account of another name, to which the policy does not apply, and with that of the controller.
func steal(e *env, home string) (free, bound *attacker) {
	e.Helper()
	const unbound = "unbound"
	for i, ref := range rolesOf(e.T, home, serviceAccount) {
		role := strings.ToLower(ref.Kind)
		binding := fmt.Sprintf("%sbinding %s-%s-%d --namespace=%s", role, e.namespace, unbound, i, home)
		shOnCleanup(e.T, "kubectl delete --ignore-not-found "+binding)
		sh(e.T, fmt.Sprintf("kubectl create %s --%s=%s --serviceaccount=%s:%s", binding, role, ref.Name, home, unbound))
	}
	free, bound = newAttacker(e, home, home, unbound), newAttacker(e, home, home, serviceAccount)
	bound.eventually("the API server enforces the policy", func(context.Context) error {
		if err := bound.try(deploymentAttempts()[0]); !apierrors.IsForbidden(err) {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	return free, bound
}

// TestStolenToken tries what an attacker with the service account's token can do, with and without
// the policy, for the variants for a cluster and for a namespace. The tables of docs/security.md
// are its result.
func TestStolenToken(t *testing.T) {
	t.Parallel()
	cluster, own, foreign := newEnv(t), newEnv(t), newEnv(t)
	for _, e := range []*env{cluster, own, foreign} {
		createVictims(e)
	}
	own.installNamespaced()
	clusterFree, clusterBound := steal(cluster, systemNamespace)
	ownFree, ownBound := steal(own, own.namespace)
	attempts := slices.Concat(deploymentAttempts(), otherAttempts())
	attempts = append(attempts, memcachedAttempts()...) // +drop:memcached
	attempts = append(attempts, cronTabAttempts()...)   // +drop:crontab
	for _, a := range attempts {
		mustDocument(t, a.what, clusterFree.succeeds(a), clusterBound.succeeds(a), ownFree.succeeds(a), ownBound.succeeds(a))
		atHome := strings.Contains(a.request, "/HOME/") || strings.Contains(a.request, "/ACCOUNT/")
		if !atHome && ownFree.in(foreign).succeeds(a) != "no" {
			t.Errorf("the service account of one namespace may %s in another one", a.what)
		}
	}
}
