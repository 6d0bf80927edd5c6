//go:build faults

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

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestRestore restores etcd from a snapshot, by which resourceVersions go back and objects vanish or
// return, while two replicas run. Both exit, since their caches are not updated any more, and the replicas
// that follow them bring about what the restored Foos say. It needs a cluster of its own: hack/outages.sh
func TestRestore(t *testing.T) {
	control, etcd, stop := setUp(t)
	defer stop()
	e := newEnv(t, control, etcd)
	e.createForeign("foreign")
	e.startElected()
	e.startElected()
	for _, name := range []string{"kept", "removed", "renamed"} {
		e.createFoo(name, name)
		e.awaitReady(name, name)
	}
	e.createFoo("blocked", "foreign")
	e.awaitReason("blocked", "DeploymentNotOwned")
	foreign := e.deploymentNow("foreign")
	snapshot := t.TempDir()
	e.replaceEtcd(func(data string) error { return os.CopyFS(snapshot, os.DirFS(data)) })

	foos := cluster.foos.SamplecontrollerV1alpha1().Foos(e.namespace)
	e.must(foos.Delete(t.Context(), "removed", metav1.DeleteOptions{}))
	e.must(cluster.kube.AppsV1().Deployments(e.namespace).Delete(t.Context(), "foreign", metav1.DeleteOptions{}))
	_, err := foos.Patch(t.Context(), "renamed", types.MergePatchType, []byte(`{"spec":{"deploymentName":"later"}}`), metav1.PatchOptions{})
	e.must(err)
	e.createFoo("vanishing", "vanishing")
	e.awaitReady("vanishing", "vanishing")
	e.awaitReady("renamed", "later")
	e.awaitReady("blocked", "foreign")
	e.awaitGone("removed")
	e.awaitGone("renamed")

	// Their exit is expected from here on.
	running := e.replicas
	e.replicas = nil
	e.replaceEtcd(func(data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(snapshot)))
	})
	e.awaitRestoreNoticed(running)
	e.startElected()
	e.startElected()
	e.awaitReady("kept", "kept")
	e.awaitReady("removed", "removed")
	e.awaitReady("renamed", "renamed")
	e.createFoo("after", "after")
	e.awaitReady("after", "after")
	e.awaitReason("blocked", "DeploymentNotOwned")
	if now := e.deploymentNow("foreign"); now.UID != foreign.UID || now.Generation != foreign.Generation || len(now.OwnerReferences) != 0 {
		t.Errorf("the foreign Deployment was %+v and is %+v", foreign.ObjectMeta, now.ObjectMeta)
	}
	e.awaitGone("later")
	e.awaitGone("vanishing")
}

// startElected starts a replica with leader election.
func (e *env) startElected() {
	e.t.Helper()
	started := e.startReplica(cluster.controllerBinary(), cluster.transport, nil, func(proxy *recordingProxy) []string {
		return []string{"--master=http://" + proxy.address, "--namespace=" + e.namespace, "-v=2", "--leader-elect", "--leader-elect-resource-namespace=" + e.namespace}
	})
	e.poll("the replica has seen the lease", func(context.Context) error {
		if output := started.output.String(); !started.started() && !strings.Contains(output, "Standing by") {
			return errors.New("it has not")
		}
		return nil
	})
}

// replaceEtcd ends the control plane, replaces the data of etcd, and starts the control plane: its other
// components have caches as well.
func (e *env) replaceEtcd(replace func(data string) error) {
	e.t.Helper()
	components := e.controlPlane.components
	for _, c := range components {
		e.must(c.kill(e.t.Context()))
	}
	e.must(replace(e.controlPlane.find(etcdName).flag("data-dir")))
	for _, c := range components {
		e.must(c.start())
		if c.name == apiServerName {
			e.must(awaitListening(e.t.Context(), cluster.server.Host))
		}
	}
	e.awaitAPIServer()
}

// awaitRestoreNoticed waits until the replicas have exited, and fails unless one of them says why.
func (e *env) awaitRestoreNoticed(running []*replica) {
	e.t.Helper()
	noticed := 0
	for _, r := range running {
		e.poll("the replica exits", func(context.Context) error {
			if !r.exited() {
				return errors.New("it still runs")
			}
			return nil
		})
		if code := r.cmd.ProcessState.ExitCode(); code != 1 {
			e.t.Errorf("a replica exited with %d", code)
		}
		if strings.Contains(r.output.String(), "restore of etcd") {
			noticed++
		}
	}
	// The leader may have lost its lease before the API server was ready.
	if noticed == 0 {
		e.t.Error("no replica said that etcd was restored")
	}
}

func (e *env) createFoo(name, deployment string) {
	e.t.Helper()
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FooSpec{DeploymentName: deployment, Replicas: ptr.To[int32](1)}}
	_, err := cluster.foos.SamplecontrollerV1alpha1().Foos(e.namespace).Create(e.t.Context(), foo, metav1.CreateOptions{})
	e.must(err)
}

func (e *env) createForeign(name string) {
	e.t.Helper()
	_, err := cluster.kube.AppsV1().Deployments(e.namespace).Create(e.t.Context(), foreignDeployment(name), metav1.CreateOptions{})
	e.must(err)
}

func (e *env) deploymentNow(name string) *appsv1.Deployment {
	e.t.Helper()
	deployment, err := cluster.kube.AppsV1().Deployments(e.namespace).Get(e.t.Context(), name, metav1.GetOptions{})
	e.must(err)
	return deployment
}

// awaitReason waits until the Foo's condition Ready has the reason for its generation.
func (e *env) awaitReason(name, reason string) {
	e.t.Helper()
	e.poll(name+": "+reason, func(ctx context.Context) error {
		foo, err := cluster.foos.SamplecontrollerV1alpha1().Foos(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
		if ready == nil || ready.Reason != reason || ready.ObservedGeneration != foo.Generation {
			return fmt.Errorf("condition %+v", ready)
		}
		return nil
	})
}

// awaitReady waits until the Foo is ready and owns the Deployment.
func (e *env) awaitReady(name, deployment string) {
	e.t.Helper()
	e.poll(name+" is ready and owns "+deployment, func(ctx context.Context) error {
		foo, err := cluster.foos.SamplecontrollerV1alpha1().Foos(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		owned, err := cluster.kube.AppsV1().Deployments(e.namespace).Get(ctx, deployment, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !metav1.IsControlledBy(owned, foo) || !meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.FooReady) || foo.Status.AvailableReplicas != 1 {
			return fmt.Errorf("status %+v, owners %+v", foo.Status, owned.OwnerReferences)
		}
		return nil
	})
}

// awaitGone waits until there is no such Deployment.
func (e *env) awaitGone(deployment string) {
	e.t.Helper()
	e.poll(deployment+" is gone", func(ctx context.Context) error {
		_, err := cluster.kube.AppsV1().Deployments(e.namespace).Get(ctx, deployment, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it exists"))
	})
}
