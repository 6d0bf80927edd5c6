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
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Rule 8: renames. The controllers here do not resync, so that a missed event fails the test.

// samplePeriod is how often a client asks whether the Foo serves.
const samplePeriod = 20 * time.Millisecond

// watchAvailability asks every 20 ms how many Pods of each Foo's Deployments are available,
// until stop is called, which returns how often a Foo had none, and how often it asked of all.
func (e *env) watchAvailability(foos ...*v1alpha1.Foo) (stop func() (none, asked int)) {
	ctx, cancel := context.WithCancel(e.Context())
	type counts struct{ none, asked int }
	result := make(chan counts)
	go func() {
		var c counts
		ticker := time.NewTicker(samplePeriod)
		defer ticker.Stop()
		for ; ctx.Err() == nil; <-ticker.C {
			all, err := e.deployments().List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, foo := range foos {
				c.asked++
				available := int32(0)
				for i := range all.Items {
					if metav1.IsControlledBy(&all.Items[i], foo) {
						available += all.Items[i].Status.AvailableReplicas
					}
				}
				if available == 0 {
					c.none++
				}
			}
		}
		result <- c
	}()
	return func() (int, int) {
		cancel()
		c := <-result
		return c.none, c.asked
	}
}

// containers returns names, images and environments of the Deployment's containers.
func containers(d *appsv1.Deployment) (words []string) {
	for _, c := range d.Spec.Template.Spec.Containers {
		words = append(words, fmt.Sprintf("%s=%s %v %v", c.Name, c.Image, c.Env, c.Resources.Requests))
	}
	return words
}

// addSidecar changes what rule 4 leaves to others.
const addSidecar = `{"spec":{"template":{"metadata":{"labels":{"theirs":"kept"}},"spec":{"containers":[
	{"name":"nginx","image":"nginx:theirs","env":[{"name":"A","value":"b"}],"resources":{"requests":{"cpu":"1m"}}},{"name":"sidecar","image":"sidecar:1"}]}}}}`

// fiftyRenames renames ten Foos five times each, while the controller scales others.
func fiftyRenames(t *testing.T) {
	e := startEnv(t, "")
	var foos []*v1alpha1.Foo
	for i := range 10 {
		foos = append(foos, e.create(fmt.Sprintf("x%d", i), deploymentName(fmt.Sprintf("x%d-0", i)), replicas(2)))
		e.create(fmt.Sprintf("load%d", i), deploymentName(fmt.Sprintf("load%d", i)), replicas(0))
	}
	for _, foo := range foos {
		e.awaitReady(foo.Name)
	}
	stop := e.watchAvailability(foos...)
	for round := 1; round <= 5; round++ {
		for i, foo := range foos {
			e.update(foo.Name, deploymentName(fmt.Sprintf("%s-%d", foo.Name, round)))
			e.update(fmt.Sprintf("load%d", i), replicas(int32(round%2)))
		}
		for _, foo := range foos {
			e.awaitReady(foo.Name)
			e.awaitGone(fmt.Sprintf("%s-%d", foo.Name, round-1))
		}
	}
	none, asked := stop()
	t.Logf("at %d of %d moments a Foo had no available Pod", none, asked)
	if none > 0 || asked == 0 {
		t.Errorf("at %d of %d moments a Foo had no available Pod", none, asked)
	}
}

func renamed(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("x", deploymentName("old"), replicas(2))
	e.awaitReady("x")
	e.kubectl("patch deployment old -p '" + addSidecar + "'")
	e.kubectl("rollout status deployment old")
	e.awaitReady("x")
	before := e.deployment("old")
	mark := e.mark()
	stop := e.watchAvailability(foo)
	e.update("x", deploymentName("new"))
	e.awaitReady("x")
	e.awaitGone("old")
	if none, asked := stop(); none > 0 || asked == 0 {
		t.Errorf("at %d of %d moments no Pod was available", none, asked)
	}
	mustContain(t, e.awaitOneEvent(foo, "Deleted"), `Deleted Deployment "old"`)
	e.settle()
	after := e.deployment("new")
	if !slices.Equal(containers(before), containers(after)) || after.Spec.Template.Labels["theirs"] != "kept" {
		t.Errorf("the containers were %q and are %q, labels %v", containers(before), containers(after), after.Spec.Template.Labels)
	}
	writes := e.writes(mark)
	created, deleted := slices.Index(writes, "create deployments new"), slices.Index(writes, "delete deployments old")
	if created < 0 || deleted < created {
		t.Errorf("want a create, then a delete, got %v", writes)
	}
	if names := e.deploymentsOf(foo); !slices.Equal(names, []string{"new"}) {
		t.Errorf("the Foo's Deployments are %v", names)
	}
	reads := slices.DeleteFunc(writes, func(request string) bool {
		return !strings.HasPrefix(request, "get ") || strings.Contains(request, "settle")
	})
	if len(reads) > 4 {
		t.Errorf("%d reads, the rule allows 4: %v", len(reads), reads)
	}
}

// stalledTemplate pauses a Deployment and adds to its Pod template what no node has: its own
// Pods keep running, and those of a copy never start.
const stalledTemplate = `{"spec":{"paused":true,"progressDeadlineSeconds":2,"template":{"spec":{"nodeSelector":{"no":"node"}}}}}`

// startStalledRename makes a Foo x whose rename from old to new does not come to an end.
func (e *env) startStalledRename() *v1alpha1.Foo {
	e.Helper()
	foo := e.create("x", deploymentName("old"), replicas(2))
	e.awaitReady("x")
	e.kubectl("patch deployment old -p '" + stalledTemplate + "'")
	e.awaitNotReady("x", v1alpha1.ReasonDeploymentPaused)
	e.update("x", deploymentName("new"))
	return foo
}

func renameStalls(t *testing.T) {
	e := startEnv(t, "")
	foo := e.startStalledRename()
	stop := e.watchAvailability(foo)
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentStalled), `the former Deployment "old" still serves`, "kubectl delete deployment old")
	e.settle()
	if deletes := e.accepted(e.startMark, "delete deployments old"); len(deletes) > 0 {
		t.Errorf("the former Deployment was deleted: %v", deletes)
	}
	if none, asked := stop(); none > 0 || asked == 0 {
		t.Errorf("at %d of %d moments no Pod was available", none, asked)
	}
	e.kubectl(`patch deployment new --type=json -p '[{"op":"remove","path":"/spec/template/spec/nodeSelector"}]'`)
	e.awaitReady("x")
	e.awaitGone("old")
}

func renamedBack(t *testing.T) {
	e := startEnv(t, "")
	foo := e.startStalledRename()
	e.awaitNotReady("x", v1alpha1.ReasonDeploymentStalled)
	uid := e.deployment("old").UID
	e.kubectl(`patch deployment old --type=json -p '[{"op":"remove","path":"/spec/template/spec/nodeSelector"},{"op":"remove","path":"/spec/paused"}]'`)
	stop := e.watchAvailability(foo)
	e.update("x", deploymentName("old"))
	e.awaitReady("x")
	e.awaitGone("new")
	if none, asked := stop(); none > 0 || asked == 0 || e.deployment("old").UID != uid {
		t.Errorf("at %d of %d moments no Pod was available; the Deployment has the UID %s, had %s", none, asked, e.deployment("old").UID, uid)
	}
}

// podsOf returns how many Pods there are of the Deployment of that name.
func podsOf(pods []corev1.Pod, deployment string) (count int) {
	for i := range pods {
		if strings.HasPrefix(pods[i].Name, deployment+"-") {
			count++
		}
	}
	return count
}

func renameRecreate(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("x", deploymentName("old"), replicas(2))
	e.awaitReady("x")
	e.kubectl("patch deployment old -p '" + addSidecar + "'")
	e.kubectl(`patch deployment old -p '{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}'`)
	e.kubectl("rollout status deployment old")
	e.awaitReady("x")
	before := e.deployment("old")
	e.update("x", deploymentName("new"))
	e.eventually("the new Deployment has Pods", func(ctx context.Context) error {
		pods, err := shared.kube.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		former, present := podsOf(pods.Items, "old"), podsOf(pods.Items, "new")
		if former > 0 && present > 0 {
			t.Errorf("%d Pods of the former Deployment run beside %d of the new one", former, present)
		}
		if present == 0 {
			return errors.New("there are none")
		}
		return nil
	})
	e.awaitReady("x")
	if after := e.deployment("new"); !slices.Equal(containers(before), containers(after)) {
		t.Errorf("the containers were %q and are %q", containers(before), containers(after))
	}
	if names := e.deploymentsOf(foo); !slices.Equal(names, []string{"new"}) {
		t.Errorf("the Foo's Deployments are %v", names)
	}
}

func copyOfDeployment(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("x")
	e.awaitReady("x")
	e.createDeployment("copy", controllerRef(foo))
	e.eventually("the message names the copy", func(context.Context) error {
		for _, condition := range e.foo("x").Status.Conditions {
			if strings.Contains(condition.Message, `Deployment "copy" carries this Foo's owner reference`) {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", e.foo("x").Status.Conditions)
	})
	e.update("x", deploymentName("new"))
	e.awaitReady("x")
	e.awaitGone("x")
	e.settle()
	e.noWrites(e.startMark, "deployments", "copy")
}

// renameSharesSelector shows what follows from the equal selectors of both Deployments
// (docs/operations.md).
func renameSharesSelector(t *testing.T) {
	e := startEnv(t, "")
	e.startStalledRename()
	e.awaitNotReady("x", v1alpha1.ReasonDeploymentStalled)
	// An HPA lists Pods by the selector of the scale subresource, kubectl logs by that of the
	// Deployment.
	for _, selector := range []string{e.foo("x").Status.Selector, metav1.FormatLabelSelector(e.deployment("new").Spec.Selector)} {
		pods, err := shared.kube.CoreV1().Pods(e.namespace).List(e.Context(), metav1.ListOptions{LabelSelector: selector})
		e.must(err)
		if podsOf(pods.Items, "old") != 2 || podsOf(pods.Items, "new") == 0 {
			t.Errorf("selector %q selects %d Pods of the former and %d of the new Deployment", selector, podsOf(pods.Items, "old"), podsOf(pods.Items, "new"))
		}
	}
	e.kubectl("delete deployment old --cascade=orphan")
	e.awaitGone("old")
	present := e.deployment("new")
	e.eventually("the new Deployment adopts the former one's ReplicaSets", func(ctx context.Context) error {
		all, err := shared.kube.AppsV1().ReplicaSets(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range all.Items {
			if strings.HasPrefix(all.Items[i].Name, "old-") && !metav1.IsControlledBy(&all.Items[i], present) {
				return fmt.Errorf("ReplicaSet %s has the owners %v", all.Items[i].Name, all.Items[i].OwnerReferences)
			}
		}
		return nil
	})
}

func renamedToTaken(t *testing.T) {
	e := startEnv(t, "")
	e.create("x", deploymentName("old"))
	e.awaitReady("x")
	e.createDeployment("taken")
	before := e.deployment("old")
	e.update("x", deploymentName("taken"))
	e.awaitNotReady("x", v1alpha1.ReasonDeploymentNotOwned)
	e.settle()
	if now := e.deployment("old"); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("the old Deployment was written to: %+v", now.ObjectMeta)
	}
	e.noWrites(e.startMark, "deployments", "taken")
	e.kubectl("delete deployment taken")
	e.awaitReady("x")
	e.awaitGone("old")
}

func rotateNames(t *testing.T, count int) {
	e := startEnv(t, "")
	name := func(i int) string { return fmt.Sprintf("n%d", i%count) }
	for i := range count {
		e.create(name(i))
	}
	for i := range count {
		e.awaitReady(name(i))
	}
	for i := range count {
		e.update(name(i), deploymentName(name(i+1)))
	}
	for i := range count {
		foo := e.awaitReady(name(i))
		if names := e.deploymentsOf(foo); !slices.Equal(names, []string{name(i + 1)}) {
			t.Errorf("the Deployments of Foo %s are %v, not %s alone", foo.Name, names, name(i+1))
		}
	}
}
