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
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Rules 11, 12 and 20: refusals, transient errors and shutdown.

func quota(t *testing.T) {
	e := startEnv(t, "")
	e.setQuota(1)
	e.create("fits")
	e.awaitReady("fits")
	e.awaitQuotaUsed()
	foo := e.create("x")
	message := e.awaitNotReady("x", v1alpha1.ReasonDeploymentRejected)
	mustContain(t, message, "the API server refused", `deployments.apps "x" is forbidden: exceeded quota: few`, "count/deployments.apps")
	mustContain(t, e.awaitOneEvent(foo, v1alpha1.ReasonDeploymentRejected), "exceeded quota: few")

	e.setQuota(2)
	e.update("x", replicas(2))
	if foo := e.awaitReady("x"); foo.Status.AvailableReplicas != 2 {
		t.Errorf("status %+v", foo.Status)
	}
	// The controller tried many times and sent one event.
	e.awaitOneEvent(foo, v1alpha1.ReasonDeploymentRejected)
}

func quotaOfOne(t *testing.T) {
	e := startEnv(t, "")
	e.setQuota(1)
	foo := e.create("x", deploymentName("old"))
	e.awaitReady("x")
	e.awaitQuotaUsed()
	e.update("x", deploymentName("new"))
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentRejected), "exceeded quota: few", "the former Deployment", "old", "raise the quota")
	e.deployment("old")

	e.setQuota(2)
	e.update("x", replicas(2))
	e.awaitReady("x")
	e.awaitGone("old")
	e.awaitOneEvent(foo, v1alpha1.ReasonDeploymentRejected)
}

// setQuota limits the number of Deployments in the namespace, and waits until the API server
// enforces the quota.
func (e *env) setQuota(deployments int64) {
	e.Helper()
	quotas := shared.kube.CoreV1().ResourceQuotas(e.namespace)
	hard := corev1.ResourceList{"count/deployments.apps": *resource.NewQuantity(deployments, resource.DecimalSI)}
	if _, err := quotas.Get(e.Context(), "few", metav1.GetOptions{}); err == nil {
		updateObject(e, quotas, "few", func(quota *corev1.ResourceQuota) { quota.Spec.Hard = hard })
	} else {
		createObject(e, quotas, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}})
	}
	awaitObject(e, quotas, "few", "is enforced", func(quota *corev1.ResourceQuota) error {
		if got, ok := quota.Status.Hard["count/deployments.apps"]; !ok || got.Value() != deployments {
			return fmt.Errorf("status %+v", quota.Status)
		}
		return nil
	})
}

// awaitQuotaUsed waits until the quota of one Deployment counts it. Otherwise a recount that
// the quota controller began before the Deployment existed would admit a second one.
func (e *env) awaitQuotaUsed() {
	e.Helper()
	awaitObject(e, shared.kube.CoreV1().ResourceQuotas(e.namespace), "few", "is used up", func(quota *corev1.ResourceQuota) error {
		if got := quota.Status.Used["count/deployments.apps"]; got.Value() != 1 {
			return fmt.Errorf("status %+v", quota.Status)
		}
		return nil
	})
}

func terminatingNamespace(t *testing.T) {
	e, proxy := newProxiedEnv(t)
	e.startController("")
	e.create("ready")
	e.awaitReady("ready")
	// This request reaches the API server when the namespace is terminating.
	arrived, resume := proxy.hold(createsDeployment)
	e.create("late")
	<-arrived
	e.kubectl("create configmap hold")
	e.kubectl(`patch configmap hold --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}'`)
	sh(t, "kubectl delete namespace --wait=false "+e.namespace)
	e.awaitGone("ready")
	resume()
	consistently(t, "the controller logs no error", time.Second, func() error {
		if lines := errorLines(e.controller.output()); len(lines) > 0 {
			return fmt.Errorf("errors in the log: %q", lines)
		}
		return nil
	})
	e.kubectl(`patch configmap hold --type=merge -p '{"metadata":{"finalizers":[]}}'`)
	shUntil(t, "kubectl get namespace --ignore-not-found "+e.namespace, `^$`)
	e.controller.stop()
}

func transientErrors(t *testing.T) {
	e, proxy := newProxiedEnv(t)
	e.startController("")
	answers := []func(http.ResponseWriter){
		func(w http.ResponseWriter) { http.Error(w, "internal error", http.StatusInternalServerError) },
		func(w http.ResponseWriter) { http.Error(w, "bad gateway", http.StatusBadGateway) },
		func(w http.ResponseWriter) { http.Error(w, "unavailable", http.StatusServiceUnavailable) },
		func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		},
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	}
	var failed atomic.Int64
	proxy.add(func(w http.ResponseWriter, r *http.Request) bool {
		if !createsDeployment(r) {
			return false
		}
		next := int(failed.Add(1)) - 1
		if next >= len(answers) {
			return false
		}
		answers[next](w)
		return true
	})
	foo := e.create("x")
	e.awaitReady("x")
	if got := failed.Load(); got <= int64(len(answers)) {
		t.Errorf("%d requests, want one after %d failures", got, len(answers))
	}
	for _, reason := range []string{v1alpha1.ReasonDeploymentRejected, "ErrResourceExists"} {
		if events := e.events(foo, reason); len(events) > 0 {
			t.Errorf("events %+v", events)
		}
	}
	if writes := e.accepted(e.startMark, "patch foos/status x"); len(writes) > 2 {
		t.Errorf("%d status updates, want 2 at most: %v", len(writes), e.writes(e.startMark))
	}
}

func finishesSync(t *testing.T) {
	e, proxy := newProxiedEnv(t)
	e.startController("")
	arrived, resume := proxy.hold(createsDeployment)
	e.create("x")
	<-arrived
	e.controller.signal(syscall.SIGTERM)
	e.controller.awaitOutput("Shutting down", `signal="terminated"`, "Stopping workers")
	if strings.Contains(e.controller.output(), `"Stopped workers" controller="foo"`) {
		t.Fatal("the controller did not wait for the running sync")
	}
	resume()
	e.controller.awaitOutput(`"Stopped workers" controller="foo"`)
	if code := e.controller.awaitExit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	e.controller.awaitOutput(slices.Concat(startLines, stopLines)...)
	e.deployment("x")
}

func secondSignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			e, proxy := newProxiedEnv(t)
			e.startController("--shutdown-grace-period=10m")
			arrived, _ := proxy.hold(createsDeployment)
			e.create("x")
			<-arrived
			e.controller.signal(signal)
			e.controller.awaitOutput("Shutting down; a second signal exits at once", "Stopping workers")
			e.controller.signal(signal)
			if code := e.controller.awaitExit(); code != 128+int(signal) {
				t.Errorf("exit code %d, want %d", code, 128+int(signal))
			}
		})
	}
}

func gracePeriod(t *testing.T) {
	e, proxy := newProxiedEnv(t)
	e.startController("--shutdown-grace-period=1s")
	arrived, _ := proxy.hold(createsDeployment)
	e.create("x")
	<-arrived
	began := time.Now()
	e.controller.stop()
	if took := time.Since(began); took < time.Second || took > 10*time.Second {
		t.Errorf("the shutdown took %s", took)
	}
	e.controller.awaitOutput(stopLines...)
}

func stuckDeletion(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	e.awaitReady("x")
	e.kubectl(`patch deployment x --type=merge -p '{"spec":{"progressDeadlineSeconds":2}}'`)
	unblock := e.blockDeletion()
	e.kubectl("delete deployment x --wait=false")
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentStalled), "terminating for longer than its progress deadline of 2s", "it is held by the finalizers ")
	unblock()
	e.awaitReady("x")
}

// quotaOnReplicaSets forbids the ReplicaSet: the Deployment controller then does not raise
// observedGeneration.
func quotaOnReplicaSets(t *testing.T) {
	e := startEnv(t, "")
	e.kubectl("create quota none --hard=count/replicasets.apps=0")
	e.eventually("the API server enforces the quota", func(context.Context) error {
		if hard := e.kubectl("get quota none -o jsonpath={.status.hard}"); !strings.Contains(hard, "replicasets") {
			return fmt.Errorf("hard: %s", hard)
		}
		return nil
	})
	e.create("x")
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentStalled), "exceeded quota: none")
	e.kubectl("delete quota none")
	e.awaitReady("x")
}
