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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"example.com/sample-controller/test/kinds"
)

// attacker has the rights of a stolen token of the controller's service account, and tries what they allow in the
// namespace of the env. The API server stores nothing of it: all writes are dry runs.
type attacker struct {
	*env

	kube kubernetes.Interface
	// home is the namespace of the controller, and accountHome that of the service account.
	home, accountHome string
}

// attempt is what the controller would not do, or not to that object: see testdata/attempts/deployments.yaml.
type attempt struct {
	What, Request, Owner string
	Body                 map[string]any
}

// readAttempts returns those of the files of these names.
func readAttempts(t *testing.T, names ...string) (attempts []attempt) {
	t.Helper()
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join("testdata", "attempts", name+".yaml"))
		must(t, err)
		var of []attempt
		must(t, yaml.Unmarshal(data, &of))
		attempts = append(attempts, of...)
	}
	return slices.DeleteFunc(attempts, func(a attempt) bool {
		// The controller has this right if a further kind owns them.
		return a.What == "read a Secret" && slices.Contains(shared.dependents(), "secrets")
	})
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

// bodyOf returns the body of the requests, nil if they have none.
func (t *attacker) bodyOf(a attempt) []byte {
	t.Helper()
	object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(a.Body)}
	if a.Owner != "" {
		k := shared.kinds[slices.IndexFunc(shared.kinds, func(k *kinds.Data) bool { return k.Kind == a.Owner })]
		owner, err := shared.dynamic.Resource(k.GVR()).Namespace(t.namespace).Get(t.Context(), "x", metav1.GetOptions{})
		t.must(err)
		if object.Object == nil {
			object.Object = map[string]any{}
		}
		object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	}
	if object.Object == nil {
		return nil
	}
	body, err := json.Marshal(object.Object)
	t.must(err)
	return []byte(t.fill(string(body)))
}

// fill returns the text with what its placeholders stand for.
func (t *attacker) fill(text string) string {
	return strings.NewReplacer("$NS", t.namespace, "$HOME", t.home, "$ACCOUNT", t.accountHome).Replace(text)
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
	verb, paths, _ := strings.Cut(t.fill(a.Request), " ")
	body := t.bodyOf(a)
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
		t.Errorf("to %s: %v", a.What, err)
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

// steal returns two attackers in the env's namespace, with the rights that the manifests grant the service account in
// that other one: with an account of another name, to which no policy applies, and with this one. The policy refuses
// the first of the attempts in the file.
func steal(e *env, home, account, file string) (free, bound *attacker) {
	e.Helper()
	unbound := "unbound-" + account
	for i, ref := range rolesOf(e.T, home, account) {
		role := strings.ToLower(ref.Kind)
		binding := fmt.Sprintf("%sbinding %s-%s-%d --namespace=%s", role, e.namespace, unbound, i, home)
		shOnCleanup(e.T, "kubectl delete --ignore-not-found "+binding)
		sh(e.T, fmt.Sprintf("kubectl create %s --%s=%s --serviceaccount=%s:%s", binding, role, ref.Name, home, unbound))
	}
	free, bound = newAttacker(e, home, home, unbound), newAttacker(e, home, home, account)
	bound.eventually("the API server enforces the policy", func(context.Context) error {
		if err := bound.try(readAttempts(e.T, file)[0]); !apierrors.IsForbidden(err) {
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
	clusterFree, clusterBound := steal(cluster, systemNamespace, serviceAccount, "deployments")
	ownFree, ownBound := steal(own, own.namespace, serviceAccount, "deployments")
	attempts := readAttempts(t, "deployments", "others")
	attempts = append(attempts, readAttempts(t, "memcached")...) // +drop:memcached
	attempts = append(attempts, readAttempts(t, "crontab")...)   // +drop:crontab
	for _, a := range attempts {
		mustDocument(t, a.What, clusterFree.succeeds(a), clusterBound.succeeds(a), ownFree.succeeds(a), ownBound.succeeds(a))
		atHome := strings.Contains(a.Request, "/$HOME/") || strings.Contains(a.Request, "/$ACCOUNT/")
		if !atHome && ownFree.in(foreign).succeeds(a) != "no" {
			t.Errorf("the service account of one namespace may %s in another one", a.What)
		}
	}
}
