//go:build e2e && node

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
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	controllerSelector = "app.kubernetes.io/name=sample-controller"
	rolloutStatus      = "kubectl rollout status deployment/sample-controller --timeout=3m --namespace=" + systemNamespace
)

// leader returns the Pod and the identity of the process that holds the lease of the controllers, and fails while
// that Pod is not ready.
func leader(ctx context.Context) (*corev1.Pod, string, error) {
	lease, err := shared.kube.CoordinationV1().Leases(systemNamespace).Get(ctx, "sample-controller", metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	name, _, _ := strings.Cut(holder, "_")
	pods, err := runningPods(ctx, systemNamespace, controllerSelector)
	for _, pod := range pods {
		if pod.Name == name {
			return &pod, holder, nil
		}
	}
	return nil, "", errors.Join(err, fmt.Errorf("the leader %q is not ready", holder))
}

// awaitLeader waits until another process than the former one leads and is ready, and returns it.
func (e *env) awaitLeader(former string) (pod *corev1.Pod, holder string) {
	e.Helper()
	e.eventually("a controller leads", func(ctx context.Context) (err error) {
		if pod, holder, err = leader(ctx); err == nil && holder == former {
			err = errors.New("it is still " + former)
		}
		return err
	})
	return pod, holder
}

// awaitControllers waits until both controllers are ready, and returns them.
func (e *env) awaitControllers() (pods []corev1.Pod) {
	e.Helper()
	e.eventually("both controllers are ready", func(ctx context.Context) (err error) {
		if pods, err = runningPods(ctx, systemNamespace, controllerSelector); err == nil && len(pods) != 2 {
			err = fmt.Errorf("%d are ready", len(pods))
		}
		return err
	})
	return pods
}

// controllerProcess returns the process of that controller.
func controllerProcess(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	pids := strings.Fields(sh(t, "for pid in $(grep --files-with-matches --no-messages /pod"+string(pod.UID)+" /proc/[0-9]*/cgroup | cut -d / -f 3); "+
		"do ! grep --quiet --no-messages ^/sample-controller /proc/${pid}/cmdline || echo ${pid}; done"))
	if len(pids) != 1 {
		t.Fatalf("the Pod %s has the processes %q", pod.Name, pids)
	}
	return pids[0]
}

// TestNodeRestrictions reads what the kernel allows the controllers.
func TestNodeRestrictions(t *testing.T) {
	for _, pod := range newEnv(t).awaitControllers() {
		pid := controllerProcess(t, &pod)
		mustContain(t, sh(t, "cat /proc/"+pid+"/status"), "Uid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2")
		// The limit is in another file with cgroups v1.
		const limit = `of() { sed -n "s/^[0-9]*:$1://p" /proc/%s/cgroup; }; cat "/sys/fs/cgroup/memory$(of memory)/memory.limit_in_bytes" || cat "/sys/fs/cgroup$(of)/memory.max"`
		mustContain(t, sh(t, fmt.Sprintf(limit, pid)), "268435456\n")
		mustContain(t, shFails(t, "touch /proc/"+pid+"/root/x"), "Read-only file system")
	}
}

// TestNodeLeader ends the leader in two ways. Each time another process takes over, which after a kill may be the one
// that the kubelet starts at once in the same Pod; a Foo that was created meanwhile becomes ready, and the kubelet
// starts the former leader again.
func TestNodeLeader(t *testing.T) {
	e := newEnv(t)
	for name, signal := range map[string]string{"killed": "KILL", "frozen": "STOP"} {
		t.Run(name, func(t *testing.T) {
			f := e.in(t)
			f.awaitControllers()
			former, holder := f.awaitLeader("")
			pid, began := controllerProcess(t, former), time.Now()
			sh(t, "kill -"+signal+" "+pid)
			shOnCleanup(t, "kill -CONT "+pid+" || true")
			f.create(name)
			f.awaitLeader(holder)
			f.awaitReady(name)
			t.Logf("ready after %s", time.Since(began).Round(100*time.Millisecond))
			f.eventually("the kubelet has started the former leader again", func(ctx context.Context) error {
				pod, err := shared.kube.CoreV1().Pods(systemNamespace).Get(ctx, former.Name, metav1.GetOptions{})
				if err == nil && restarts(pod) == restarts(former) {
					err = errors.New("it has not")
				}
				return err
			})
		})
	}
}

// TestNodeDrain drains the node of the leader. The PodDisruptionBudget lets one controller go after
// the other, and the Foos' Pods move.
func TestNodeDrain(t *testing.T) {
	e := newEnv(t)
	e.awaitControllers()
	e.createWith("x", replicas(2))
	e.awaitReady("x")
	pod, former := e.awaitLeader("")
	node := pod.Spec.NodeName
	shOnCleanup(t, "kubectl uncordon "+node)
	sh(t, "kubectl drain "+node+" --ignore-daemonsets --delete-emptydir-data --timeout=150s")
	e.awaitControllers()
	if pod, _ := e.awaitLeader(former); pod.Spec.NodeName == node {
		t.Errorf("the leader is on %s, which was drained", node)
	}
	e.update(replicas(3))
	e.awaitReady("x")
}
