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
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

const (
	controllerProgram  = "/sample-controller"
	controllerSelector = "app.kubernetes.io/name=sample-controller"
)

// leader returns the Pod that holds the lease of the controllers, and fails while that Pod is not
// ready.
func leader(ctx context.Context) (*corev1.Pod, error) {
	holder, err := leaseHolder(ctx)
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(holder, "_")
	pods, err := runningPods(ctx, systemNamespace, controllerSelector)
	for _, pod := range pods {
		if pod.Name == name {
			return &pod, nil
		}
	}
	return nil, errors.Join(err, fmt.Errorf("the leader %s is not ready", name))
}

// leaseHolder returns the identity of the process that holds the lease of the controllers.
func leaseHolder(ctx context.Context) (string, error) {
	lease, err := shared.kube.CoordinationV1().Leases(systemNamespace).Get(ctx, "sample-controller", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return "", errors.New("the lease has no holder")
	}
	return *lease.Spec.HolderIdentity, nil
}

// awaitLeader waits until a controller leads and is ready, and returns it.
func (e *env) awaitLeader() *corev1.Pod {
	e.Helper()
	var found *corev1.Pod
	e.eventually("a controller leads", func(ctx context.Context) (err error) {
		found, err = leader(ctx)
		return err
	})
	return found
}

// awaitControllers waits until both controllers are ready.
func (e *env) awaitControllers() {
	e.Helper()
	e.eventually("both controllers are ready", func(ctx context.Context) error {
		pods, err := runningPods(ctx, systemNamespace, controllerSelector)
		if err == nil && len(pods) != 2 {
			err = fmt.Errorf("%d are ready", len(pods))
		}
		return err
	})
}

// controllerProcess returns the process of that controller.
func controllerProcess(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	pids := processes(t, func(command, cgroup string) bool {
		return strings.HasPrefix(command, controllerProgram+"\x00") && strings.Contains(cgroup, "/pod"+string(pod.UID))
	})
	if len(pids) != 1 {
		t.Fatalf("the Pod %s has %d processes", pod.Name, len(pids))
	}
	return pids[0]
}

func mustSignal(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatalf("%s to process %d: %v", signal, pid, err)
	}
}

// TestNodeRestrictions reads what the kernel allows the controllers.
func TestNodeRestrictions(t *testing.T) {
	e := newEnv(t)
	e.awaitControllers()
	pods, err := runningPods(t.Context(), systemNamespace, controllerSelector)
	e.must(err)
	for _, pod := range pods {
		pid := controllerProcess(t, &pod)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		e.must(err)
		mustContain(t, string(status), "Uid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2")
		if limit := memoryLimit(t, pid); limit != "268435456" {
			t.Errorf("%s may use %s bytes", pod.Name, limit)
		}
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/x", pid), nil, 0o600); !errors.Is(err, syscall.EROFS) {
			t.Errorf("the root file system of %s can be written: %v", pod.Name, err)
		}
	}
}

// memoryLimit returns the limit of the process's cgroup, in bytes, of cgroups v1 or v2.
func memoryLimit(t *testing.T, pid int) string {
	t.Helper()
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	must(t, err)
	for line := range strings.Lines(strings.TrimSpace(string(cgroups))) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		file := filepath.Join("/sys/fs/cgroup", fields[2], "memory.max")
		if fields[1] == "memory" {
			file = filepath.Join("/sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes")
		}
		if limit, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(limit))
		}
	}
	t.Fatalf("no limit in %s", cgroups)
	return ""
}

// TestNodeLeader ends the leader in two ways. Each time another process takes over, which after a kill may be the one
// that the kubelet starts at once in the same Pod; a Foo that was created meanwhile becomes ready, and the kubelet
// starts the former leader again.
func TestNodeLeader(t *testing.T) {
	e := newEnv(t)
	for name, end := range map[string]func(t *testing.T, leader *corev1.Pod){
		"killed": func(t *testing.T, leader *corev1.Pod) {
			mustSignal(t, controllerProcess(t, leader), syscall.SIGKILL)
		},
		"frozen": func(t *testing.T, leader *corev1.Pod) {
			pid := controllerProcess(t, leader)
			mustSignal(t, pid, syscall.SIGSTOP)
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := e.in(t)
			f.awaitControllers()
			former := f.awaitLeader()
			holder, err := leaseHolder(t.Context())
			f.must(err)
			restarts := former.Status.ContainerStatuses[0].RestartCount
			began := time.Now()
			end(t, former)
			sh(t, applyFoo(f.namespace, name, "spec: {deploymentName: "+name+"}"))
			f.eventually("another process leads", func(ctx context.Context) error {
				now, err := leaseHolder(ctx)
				if err == nil && now == holder {
					err = errors.New("it is still " + holder)
				}
				return err
			})
			f.awaitFoo(name)
			t.Logf("ready after %s", time.Since(began).Round(100*time.Millisecond))
			f.eventually("the kubelet has started the former leader again", func(ctx context.Context) error {
				pod, err := shared.kube.CoreV1().Pods(systemNamespace).Get(ctx, former.Name, metav1.GetOptions{})
				if err == nil && pod.Status.ContainerStatuses[0].RestartCount == restarts {
					err = errors.New("it has not")
				}
				return err
			})
		})
	}
}

// TestNodeOutOfMemory rolls out a controller with less memory than it needs. The former Pods serve on.
func TestNodeOutOfMemory(t *testing.T) {
	e := newEnv(t)
	e.awaitControllers()
	sh(t, "kubectl set resources deployment/sample-controller --namespace="+systemNamespace+" --limits=memory=6Mi --requests=memory=6Mi")
	e.eventually("the kernel has killed the new controller", func(ctx context.Context) error {
		list, err := shared.kube.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{LabelSelector: controllerSelector})
		if err != nil {
			return err
		}
		var states []corev1.ContainerState
		for _, pod := range list.Items {
			for _, status := range pod.Status.ContainerStatuses {
				for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
					if state.Terminated != nil && state.Terminated.Reason == "OOMKilled" {
						return nil
					}
					states = append(states, state)
				}
			}
		}
		return fmt.Errorf("states %+v", states)
	})
	e.awaitControllers()
	sh(t, applyFoo(e.namespace, "web", "spec: {deploymentName: web}"))
	e.awaitFoo("web")
	sh(t, "kubectl rollout undo deployment/sample-controller --namespace="+systemNamespace)
	sh(t, rolloutStatus)
}

const rolloutStatus = "kubectl rollout status deployment/sample-controller --timeout=3m --namespace=" + systemNamespace

// TestNodeRollout updates the controllers to another version and back while Foos are created, scaled
// and deleted. None fails, and each becomes ready.
func TestNodeRollout(t *testing.T) {
	e := newEnv(t)
	e.awaitControllers()
	churn := e.startChurn()
	for _, command := range []string{
		"kubectl set image deployment/sample-controller sample-controller=registry.example.com/sample-controller:v2 --namespace=" + systemNamespace,
		"kubectl rollout undo deployment/sample-controller --namespace=" + systemNamespace,
	} {
		began := time.Now()
		sh(t, command)
		sh(t, rolloutStatus)
		e.awaitControllers()
		e.awaitLeader()
		t.Logf("rolled out in %s", time.Since(began).Round(100*time.Millisecond))
	}
	t.Logf("%d Foos were served meanwhile", churn.stop())
}

// startChurn creates, scales and deletes Foos, one after the other. The test fails if one does not become ready.
func (e *env) startChurn() *load {
	return startLoad(e.T, func(ctx context.Context, n int64) error { return e.serveOne(ctx, fmt.Sprintf("churn-%d", n)) })
}

// serveOne creates a Foo, scales it, and deletes it when its Deployment has followed.
func (e *env) serveOne(ctx context.Context, name string) error {
	if _, err := e.foos().Create(ctx, newFoo(name), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := e.awaitReplicas(ctx, name, 1); err != nil {
		return err
	}
	if _, err := e.foos().Patch(ctx, name, types.MergePatchType, []byte(`{"spec": {"replicas": 0}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := e.awaitReplicas(ctx, name, 0); err != nil {
		return err
	}
	return e.foos().Delete(ctx, name, metav1.DeleteOptions{})
}

// awaitReplicas waits until the Foo's Pods are available and its condition Ready is of that spec.
func (e *env) awaitReplicas(ctx context.Context, name string, replicas int32) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, apiInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		foo, err := e.foos().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		ready := meta.FindStatusCondition(foo.Status.Conditions, "Ready")
		last = fmt.Errorf("%d replicas are wanted, the status is %+v", replicas, foo.Status)
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == foo.Generation && foo.Status.AvailableReplicas == replicas, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// TestNodeDrain drains the node of the leader. The PodDisruptionBudget lets one controller go after
// the other, and the Foos' Pods move.
func TestNodeDrain(t *testing.T) {
	e := newEnv(t)
	e.awaitControllers()
	sh(t, applyFoo(e.namespace, "web", "spec: {deploymentName: web, replicas: 2}"))
	e.awaitFoo("web")
	node := e.awaitLeader().Spec.NodeName
	shOnCleanup(t, "kubectl uncordon "+node)
	began := time.Now()
	sh(t, "kubectl drain "+node+" --ignore-daemonsets --delete-emptydir-data --timeout=150s")
	t.Logf("drained in %s", time.Since(began).Round(100*time.Millisecond))
	e.awaitControllers()
	if to := e.awaitLeader().Spec.NodeName; to == node {
		t.Errorf("the leader is on %s, which was drained", to)
	}
	sh(t, applyFoo(e.namespace, "web", "spec: {deploymentName: web, replicas: 3}"))
	e.awaitFoo("web")
}

// TestNodeLost stops the kubelet of a node that has a Pod of a Foo. The node controller reports the
// Pods of that node as not ready, and the Foo counts the others.
func TestNodeLost(t *testing.T) {
	e := newEnv(t)
	sh(t, applyFoo(e.namespace, "web", "spec: {deploymentName: web, replicas: 2}"))
	e.awaitFoo("web")
	pods, err := runningPods(t.Context(), e.namespace, "controller=web")
	e.must(err)
	node := pods[0].Spec.NodeName
	lost := 0
	for _, pod := range pods {
		if pod.Spec.NodeName == node {
			lost++
		}
	}
	kubelet := kubeletOf(t, node)
	mustSignal(t, kubelet, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(kubelet, syscall.SIGCONT) })
	e.awaitMessage("web", fmt.Sprintf("%d updated Pods are available, 2 are wanted", 2-lost))
	mustSignal(t, kubelet, syscall.SIGCONT)
	e.awaitFoo("web")
	e.awaitControllers()
}

// kubeletOf returns the process of that node's kubelet.
func kubeletOf(t *testing.T, node string) int {
	t.Helper()
	pids := processes(t, func(command, _ string) bool {
		return strings.Contains(command, "/kubelet\x00") && strings.Contains(command, "--hostname-override\x00"+node+"\x00")
	})
	if len(pids) == 0 {
		t.Fatalf("no kubelet of %s", node)
	}
	return pids[0]
}

// TestNodeNetworkPolicies connects to the controllers from Pods in a namespace with the label of their
// NetworkPolicy and in one without, if the network of the nodes enforces policies at all.
func TestNodeNetworkPolicies(t *testing.T) {
	labelled, other := newEnv(t), newEnv(t)
	sh(t, "kubectl label namespace "+labelled.namespace+" metrics=enabled")
	for _, e := range []*env{labelled, other} {
		e.kubectl("run client --image=busybox --command -- tail -f /dev/null")
		e.kubectl("wait --for=condition=Ready --timeout=3m pod/client")
	}
	labelled.kubectl("run server --image=nginx")
	labelled.kubectl("wait --for=condition=Ready --timeout=3m pod/server")
	labelled.apply("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: none}, spec: {podSelector: {matchLabels: {run: server}}, policyTypes: [Ingress]}}")
	server := strings.TrimSpace(labelled.kubectl("get pod/server --output='jsonpath={.status.podIP}'"))
	if other.connects(server, 80) {
		t.Log("The network plugin of these nodes enforces no NetworkPolicy: those of the manifests have no effect here, and are not tested.")
		return
	}
	labelled.awaitControllers()
	controller := labelled.awaitLeader().Status.PodIP
	for _, c := range []struct {
		from  *env
		port  int
		wants bool
	}{{labelled, 8443, true}, {other, 8443, false}, {labelled, 8081, false}} {
		if c.from.connects(controller, c.port) != c.wants {
			t.Errorf("port %d of the controller can be reached from %s: %t", c.port, c.from.namespace, !c.wants)
		}
	}
}

// connects reports whether the Pod client can connect to that port within 3 s. Its input is at an end, so
// that the server closes the connection.
func (e *env) connects(address string, port int) bool {
	e.Helper()
	output, err := try(e.T, fmt.Sprintf("kubectl --namespace=%s exec client -- nc -w 3 %s %d", e.namespace, address, port))
	e.Logf("%s:%d from %s: %v %s", address, port, e.namespace, err, output)
	return err == nil
}
