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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/sample-controller/test/kinds"
)

// maxRemovals is more than the repairs before a controller reports contention.
const maxRemovals = 20

// TestEveryKind checks what all kinds have in common, with the data in their testdata: test/check has
// more of it. The controllers here run with the rights of the manifests.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	for _, k := range shared.data {
		if len(k.Spec) == 0 {
			continue
		}
		t.Run(k.Kind, func(t *testing.T) {
			t.Parallel()
			e := newKindEnv(t, k)
			e.create("x", k.Spec)
			e.awaitConverged("x")
			e.checkAtRest()
			e.contend()
			for _, name := range []string{"x", "settle"} {
				e.delete(name)
			}
		})
	}
}

// kindEnv is an env for objects of one kind.
type kindEnv struct {
	*env

	kind          *kinds.Data
	owners, owned dynamic.ResourceInterface
	// service is the external service of the kind, nil if it has none.
	service *kinds.Service
}

// start starts the controller of the kind.
func (e *kindEnv) start() {
	e.Helper()
	e.startController(strings.Join(append(e.kind.Flags(e.service), "--controllers="+e.kind.Controller), " "))
}

// newKindEnv makes an env in which the controller of the kind runs.
func newKindEnv(t *testing.T, k *kinds.Data) *kindEnv {
	t.Helper()
	e := &kindEnv{env: newEnv(t), kind: k, service: k.StartService(t.Context())}
	e.owners, e.owned = shared.dynamic.Resource(k.GVR()).Namespace(e.namespace), shared.dynamic.Resource(k.Owns.GVR()).Namespace(e.namespace)
	e.start()
	return e
}

func (e *kindEnv) create(name string, spec json.RawMessage) {
	e.Helper()
	object, err := e.kind.New(name, spec)
	e.must(err)
	_, err = e.owners.Create(e.Context(), object, metav1.CreateOptions{})
	e.must(err)
}

// ownedName returns the name of what the object owns.
func (e *kindEnv) ownedName(name string) string {
	e.Helper()
	owner, err := e.owners.Get(e.Context(), name, metav1.GetOptions{})
	e.must(err)
	return kinds.Find(e.kind.Owns.Name, owner.Object)
}

// awaitConverged waits until the object is ready, what it owns is as its spec asks, has the
// controller's label and all its Pods, and the status counts them. Then the status is final.
func (e *kindEnv) awaitConverged(name string) {
	e.Helper()
	e.eventually(e.kind.Kind+" "+name+" converges", func(ctx context.Context) error {
		owner, err := e.owners.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		owned, err := e.owned.Get(ctx, kinds.Find(e.kind.Owns.Name, owner.Object), metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _ := kinds.Ready(owner)
		if status != string(metav1.ConditionTrue) || !metav1.IsControlledBy(owned, owner) || owned.GetLabels()[managedBy] == "" || !e.kind.Owns.ShowSpec(owned.Object, owner.Object) {
			return fmt.Errorf("%v owns %v", owner.Object, owned.Object)
		}
		wanted := kinds.Find("{.spec.replicas}", owned.Object)
		if observed := kinds.Find("{.status.observedGeneration}", owned.Object); wanted != "" && observed != fmt.Sprint(owned.GetGeneration()) {
			return fmt.Errorf("generation %d of %s is not observed yet, but %s", owned.GetGeneration(), owned.GetName(), observed)
		}
		for _, count := range []string{"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"} {
			path := "{.status." + count + "}"
			got, told := kinds.Find(path, owned.Object), kinds.Find(path, owner.Object)
			if wanted != "" && (wanted != cmp.Or(got, "0") || wanted != cmp.Or(told, wanted)) {
				return fmt.Errorf("%s is %s, and %s by the status; %s are wanted", count, got, told, wanted)
			}
		}
		if e.service != nil && !slices.Contains(e.service.IDs(), string(owner.GetUID())) {
			return errors.New("the external service has no item for it")
		}
		return nil
	})
}

// checkAtRest starts the controller anew, and checks that it writes nothing for x, which has
// converged.
func (e *kindEnv) checkAtRest() {
	e.Helper()
	e.controller.stop()
	mark := e.mark()
	e.start()
	e.create("settle", e.kind.MarkerSpec)
	e.awaitConverged("settle")
	e.noWrites(mark, e.kind.Resource, "x")
	e.noWrites(mark, e.kind.Owns.GVR().Resource, e.ownedName("x"))
}

// contend removes the controller's label from what x owns until the status of x says that
// another writer does so.
func (e *kindEnv) contend() {
	e.Helper()
	name, removals := e.ownedName("x"), 0
	e.eventually("the status reports the other writer", func(ctx context.Context) error {
		owned, err := e.owned.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if owned.GetLabels()[managedBy] != "" && removals < maxRemovals {
			removals++
			remove := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, managedBy)
			if _, err := e.owned.Patch(ctx, name, types.MergePatchType, remove, metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		owner, err := e.owners.Get(ctx, "x", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, reason := kinds.Ready(owner); reason != e.kind.Owns.Kind+"Contested" {
			return fmt.Errorf("%s after %d removals", reason, removals)
		}
		return nil
	})
}

// delete deletes the object, and waits until it and all that it had are gone.
func (e *kindEnv) delete(name string) {
	e.Helper()
	owner, err := e.owners.Get(e.Context(), name, metav1.GetOptions{})
	e.must(err)
	e.must(e.owners.Delete(e.Context(), name, metav1.DeleteOptions{}))
	owned := kinds.Find(e.kind.Owns.Name, owner.Object)
	e.eventually(e.kind.Kind+" "+name+" is gone", func(ctx context.Context) error {
		_, ownerErr := e.owners.Get(ctx, name, metav1.GetOptions{})
		_, ownedErr := e.owned.Get(ctx, owned, metav1.GetOptions{})
		if !apierrors.IsNotFound(ownerErr) || !apierrors.IsNotFound(ownedErr) {
			return fmt.Errorf("reading it: %w; reading what it owns: %w", ownerErr, ownedErr)
		}
		if e.service != nil && slices.Contains(e.service.IDs(), string(owner.GetUID())) {
			return errors.New("the external service has its item")
		}
		return nil
	})
}

// accountsNamespace has the service accounts of TestEveryRightIsMissed. The audit policy
// names it, to record all of their requests.
const accountsNamespace = "e2e-rights"

// TestEveryRightIsMissed runs a controller for each right in the manifests. The controller
// has all rights but this one, and the test waits until the API server has refused the
// controller exactly this right. It proves that TestLeastPrivilege fails if any right is
// removed from the manifests.
func TestEveryRightIsMissed(t *testing.T) {
	t.Parallel()
	shared.deploy(t)
	createAccountsNamespace(t)
	shOnCleanup(t, "kubectl delete namespace --wait=false "+accountsNamespace)
	granted := grantedRules(t, serviceAccount)
	var rules []rbacv1.PolicyRule
	for _, role := range slices.Sorted(maps.Keys(granted)) {
		for _, rule := range singleRules(granted[role]...) {
			// The roles of two kinds may grant the same right.
			if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return ruleRight(r) == ruleRight(rule) }) {
				rules = append(rules, rule)
			}
		}
	}
	if len(rules) == 0 {
		t.Fatal("the service account has no rights")
	}
	for i, rule := range rules {
		missing := ruleRight(rule)
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			user, token := e.newAccount(slices.Concat(rules[:i], rules[i+1:]))
			flags := e.keepBusy(missing, token)
			e.startAs(token, flags, strings.HasSuffix(missing, "reviews"))
			e.eventually("the API server refuses to "+missing, func(context.Context) error { return e.refused(user, token, missing) })
		})
	}
	// +drop:webhooks
	missWebhookRights(t, false)
	// +drop:end
}

// createAccountsNamespace creates the namespace of the service accounts if there is none.
func createAccountsNamespace(t *testing.T) {
	t.Helper()
	sh(t, "kubectl create namespace "+accountsNamespace+" -o yaml --dry-run=client | kubectl apply -f -")
}

// newAccount creates a service account with these rights, and returns its user name and a
// token.
func (e *env) newAccount(rules []rbacv1.PolicyRule) (user, token string) {
	e.Helper()
	meta := metav1.ObjectMeta{Name: unique("account")}
	shOnCleanup(e.T, "kubectl delete clusterrole,clusterrolebinding "+meta.Name)
	createObject(e, shared.kube.CoreV1().ServiceAccounts(accountsNamespace), &corev1.ServiceAccount{ObjectMeta: meta})
	createObject(e, shared.kube.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})
	createObject(e, shared.kube.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accountsNamespace, Name: meta.Name}},
	})
	user = "system:serviceaccount:" + accountsNamespace + ":" + meta.Name
	e.awaitAccess(user, rules[0])
	return user, requestToken(e.T, accountsNamespace, meta.Name)
}

// keepKindBusy returns what keepBusy does for the kinds that have more than an example.
func keepKindBusy() map[string]func(e *env, missing, token string) (flags string) {
	return map[string]func(e *env, missing, token string) (flags string){
		"foo":       keepFoosBusy,
		"memcached": keepMemcachedsBusy, // +drop:memcached
		"crontab":   keepCronTabsBusy,   // +drop:crontab
	}
}

// keepBusy creates objects of each kind whose reconciliation takes every right of the
// controllers, and returns the controller's flags. The names of the objects begin with the
// kind, by which refused recognizes them.
func (e *env) keepBusy(missing, token string) (flags string) {
	e.Helper()
	busy := keepKindBusy()
	for _, k := range shared.data {
		if service := k.StartService(e.Context()); service != nil {
			flags += " " + strings.Join(k.Flags(service), " ")
			// No controller may have the rights to remove the finalizers.
			shOnCleanup(e.T, fmt.Sprintf(`kubectl get %[1]s --namespace=%[2]s -o name | xargs -r -n 1 kubectl patch --namespace=%[2]s --type=merge -p '{"metadata":{"finalizers":null}}'`,
				k.GVR().GroupResource(), e.namespace))
		}
	}
	for _, k := range shared.kinds {
		if keep, ok := busy[k.Names.Singular]; ok {
			flags += keep(e, missing, token)
			continue
		}
		sh(e.T, "kubectl create --namespace="+e.namespace+" -f artifacts/examples/"+k.Names.Singular+".yaml")
	}
	return flags
}

// keepFoosBusy creates Foos whose Deployments differ from the spec, by a field or by the name.
func keepFoosBusy(e *env, _, _ string) (flags string) {
	e.Helper()
	for _, foo := range []struct{ name, asksFor string }{{"foo-drift", "foo-drift"}, {"foo-renamed", "foo-new"}} {
		deployment := stockDeployment(e.create(foo.name, deploymentName(foo.asksFor)))
		deployment.Name, deployment.Labels = foo.name, map[string]string{managedBy: "sample-controller"}
		// The controller deletes no Deployment that it has not written.
		_, err := e.deployments().Create(e.Context(), deployment, metav1.CreateOptions{FieldManager: "sample-controller"})
		e.must(err)
	}
	return ""
}

// startAs starts a controller with that token, which may lack rights that it needs to start.
func (e *env) startAs(token, flags string, metrics bool) {
	e.Helper()
	// Streaming lists do not take the right to list.
	command := fmt.Sprintf("env KUBE_FEATURE_WatchListClient=false sample-controller -kubeconfig=%s --namespace=%s --leader-elect --leader-elect-resource-namespace=%s",
		kubeconfigOf(e.T, &clientcmdapi.AuthInfo{Token: token}), e.namespace, e.namespace)
	command += flags
	if metrics {
		command += " --metrics-bind-address=127.0.0.1:0"
	}
	// This cleanup runs after the controller has ended, which would create the lease again.
	shOnCleanup(e.T, "kubectl delete lease sample-controller --ignore-not-found --namespace="+e.namespace)
	e.controller = start(e.T, e.TempDir(), command)
	if metrics {
		e.controller.awaitServing("metrics")
	}
}

// refused returns nil once the API server has refused the user the missing right. It fails
// the test if the API server has refused another one.
func (e *env) refused(user, token, missing string) error {
	e.Helper()
	requests, err := shared.audit.read()
	e.must(err)
	found := false
	for _, r := range requests {
		if r.User.Username != user || r.ResponseStatus.Code != http.StatusForbidden {
			continue
		}
		right := r.right()
		// RBAC allowed the creation, so the admission plugin
		// OwnerReferencesPermissionEnforcement refused the owner reference.
		isDependent := slices.Contains(shared.dependents, schema.GroupResource{Group: r.ObjectRef.APIGroup, Resource: r.resource()}.String())
		if r.Verb == "create" && isDependent && r.Annotations["authorization.k8s.io/decision"] == "allow" {
			right = shared.kindOfObject(r.ObjectRef.Name).finalizersRight()
		}
		if right != missing {
			e.Fatalf("the API server refused to %s, though the controller lacks only the right to %s", right, missing)
		}
		found = true
	}
	if found {
		return nil
	}
	// Controllers repair this label. They patch an event and read the owner live at the second repair, and the
	// dependent at the sixth. An object may be deleted meanwhile: the next call removes the others' labels.
	if strings.HasPrefix(missing, "get ") || strings.HasPrefix(missing, "patch ") {
		_, _ = try(e.T, fmt.Sprintf("kubectl label --all --namespace=%s %s %s-", e.namespace, strings.Join(shared.dependents, ","), managedBy))
	}
	if strings.HasSuffix(missing, "reviews") {
		fetch(e.T, "https://"+e.controller.awaitServing("metrics")+"/metrics", token)
	}
	return fmt.Errorf("not among %d requests", len(requests))
}
