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

// What the controller does when it is refused, fails or is told to stop: rules
// 11, 12 and 20.

func quota(t *testing.T) {
	s := newScene(t, "")
	s.setQuota(1)
	s.create("fits")
	s.ready("fits")
	s.quotaUsedUp()
	foo := s.create("x")
	message := s.notReady("x", v1alpha1.ReasonDeploymentRejected)
	mustContain(t, message, "the API server refused", `deployments.apps "x" is forbidden: exceeded quota: few`, "count/deployments.apps")
	mustContain(t, s.oneEvent(foo, v1alpha1.ReasonDeploymentRejected), "exceeded quota: few")

	s.setQuota(2)
	s.update("x", replicas(2))
	if foo := s.ready("x"); foo.Status.AvailableReplicas != 2 {
		t.Errorf("status %+v", foo.Status)
	}
	// It was tried many times, and told once.
	s.oneEvent(foo, v1alpha1.ReasonDeploymentRejected)
}

func quotaOfOne(t *testing.T) {
	s := newScene(t, "")
	s.setQuota(1)
	foo := s.create("x", deploymentName("old"))
	s.ready("x")
	s.quotaUsedUp()
	s.update("x", deploymentName("new"))
	mustContain(t, s.notReady("x", v1alpha1.ReasonDeploymentRejected), "exceeded quota: few", "the former Deployment", "old", "raise the quota by one")
	s.deployment("old")

	s.setQuota(2)
	s.update("x", replicas(2))
	s.ready("x")
	s.awaitGone("old")
	s.oneEvent(foo, v1alpha1.ReasonDeploymentRejected)
}

// setQuota limits the number of Deployments in the namespace, and waits until
// the API server enforces it.
func (s *scene) setQuota(deployments int64) {
	s.Helper()
	quotas := shared.kube.CoreV1().ResourceQuotas(s.namespace)
	hard := corev1.ResourceList{"count/deployments.apps": *resource.NewQuantity(deployments, resource.DecimalSI)}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if old, err := quotas.Get(s.Context(), "few", metav1.GetOptions{}); err == nil {
		old.Spec.Hard = hard
		_, err = quotas.Update(s.Context(), old, metav1.UpdateOptions{})
		s.must(err)
	} else {
		_, err = quotas.Create(s.Context(), quota, metav1.CreateOptions{})
		s.must(err)
	}
	s.eventually("the quota is enforced", func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, "few", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, ok := quota.Status.Hard["count/deployments.apps"]; !ok || got.Value() != deployments {
			return fmt.Errorf("status %+v", quota.Status)
		}
		return nil
	})
}

// quotaUsedUp waits until the quota of one tells of the one Deployment: its own controller
// may just have counted without it.
func (s *scene) quotaUsedUp() {
	s.Helper()
	s.eventually("the quota is used up", func(ctx context.Context) error {
		quota, err := shared.kube.CoreV1().ResourceQuotas(s.namespace).Get(ctx, "few", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := quota.Status.Used["count/deployments.apps"]; got.Value() != 1 {
			return fmt.Errorf("status %+v", quota.Status)
		}
		return nil
	})
}

func terminatingNamespace(t *testing.T) {
	g := newGate(t)
	s := newStage(t).behind(g.server.URL)
	s.startController("")
	s.create("ready")
	s.ready("ready")
	// This creation will come when the namespace is on its way out.
	arrived, release := g.hold(createsDeployment)
	s.create("late")
	<-arrived
	s.kubectl("create configmap hold")
	s.kubectl(`patch configmap hold --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}'`)
	sh(t, "kubectl delete namespace --wait=false "+s.namespace)
	s.awaitGone("ready")
	release()
	throughout(t, "the controller is quiet", time.Second, func() error {
		if lines := errorLines(s.controller.output()); len(lines) > 0 {
			return fmt.Errorf("errors in the log: %q", lines)
		}
		return nil
	})
	s.kubectl(`patch configmap hold --type=merge -p '{"metadata":{"finalizers":[]}}'`)
	shUntil(t, "kubectl get namespace --ignore-not-found "+s.namespace, `^$`)
	s.controller.stop()
}

func passingFailures(t *testing.T) {
	g := newGate(t)
	s := newStage(t).behind(g.server.URL)
	s.startController("")
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
	g.add(func(w http.ResponseWriter, r *http.Request) bool {
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
	foo := s.create("x")
	s.ready("x")
	if got := failed.Load(); got <= int64(len(answers)) {
		t.Errorf("%d tries, though there were %d failures", got, len(answers))
	}
	for _, reason := range []string{v1alpha1.ReasonDeploymentRejected, "ErrResourceExists"} {
		if events := s.events(foo, reason); len(events) > 0 {
			t.Errorf("events %+v", events)
		}
	}
	if writes := s.accepted(s.began, "update foos/status x"); writes > 2 {
		t.Errorf("%d status writes tell of failures: %v", writes, s.writes(s.began))
	}
}

func finishesSync(t *testing.T) {
	g := newGate(t)
	s := newStage(t).behind(g.server.URL)
	s.startController("")
	arrived, release := g.hold(createsDeployment)
	told, releaseEvents := g.hold(createsEvent)
	foo := s.create("x")
	<-arrived
	s.controller.signal(syscall.SIGTERM)
	s.controller.prints("Shutting down", `signal="terminated"`, "Stopping workers")
	if strings.Contains(s.controller.output(), `"Stopped workers" controller="foo"`) {
		t.Fatal("it did not wait for the sync")
	}
	release()
	s.controller.prints(`"Stopped workers" controller="foo"`)
	<-told
	releaseEvents()
	if code := s.controller.exited(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.controller.prints(append(append([]string{}, startLines...), stopLines...)...)
	s.deployment("x")
	s.oneEvent(foo, "Created")
}

func secondSignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			g := newGate(t)
			s := newStage(t).behind(g.server.URL)
			s.startController("--shutdown-grace-period=10m")
			arrived, _ := g.hold(createsDeployment)
			s.create("x")
			<-arrived
			s.controller.signal(signal)
			s.controller.prints("Shutting down; a second signal exits at once", "Stopping workers")
			s.controller.signal(signal)
			if code := s.controller.exited(); code != 128+int(signal) {
				t.Errorf("exit code %d, want %d", code, 128+int(signal))
			}
		})
	}
}

func gracePeriod(t *testing.T) {
	g := newGate(t)
	s := newStage(t).behind(g.server.URL)
	s.startController("--shutdown-grace-period=1s")
	arrived, _ := g.hold(createsDeployment)
	s.create("x")
	<-arrived
	began := time.Now()
	s.controller.stop()
	if took := time.Since(began); took < time.Second || took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	s.controller.prints(stopLines...)
}
