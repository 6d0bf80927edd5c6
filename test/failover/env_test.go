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

package failover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	typed "example.com/sample-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/check/trace"
	"example.com/sample-controller/test/sim"
)

const (
	deployments  = "deployments"
	foos         = "foos"
	pollInterval = 100 * time.Millisecond
	// requestTimeout bounds each request of the test.
	requestTimeout = 10 * time.Second
	// settleTimeout bounds how long the cluster may take to converge.
	settleTimeout     = 5 * time.Minute
	operationsBetween = 40
)

// env is one outage or one series of leader changes: a namespace, its users, and the controllers that work on it.
type env struct {
	t *testing.T
	// work is the directory that the script in hack creates and removes, kwokctl the program that has started the cluster.
	work, kwokctl string
	// config and the clients are those of an administrator.
	config    *rest.Config
	kube      kubernetes.Interface
	client    typed.FooInterface
	namespace string
	// replicas are all controllers in the order of their start, including those that ended.
	replicas []*replica
	// outage is true once a component of the control plane was killed.
	outage bool
	// operations counts those that users have finished.
	operations atomic.Int64
	// current is the build of this commit, previous the one that it replaces.
	current, previous *build
	// history has all versions of our objects, as etcd had them.
	history *trace.History
}

// newEnv connects to the cluster and records its history until the test has ended.
func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{t: t, work: os.Getenv("TEST_WORK"), history: trace.NewHistory()}
	if e.work == "" {
		t.Fatal("there is no cluster; run hack/e2e.sh outages or hack/e2e.sh failover")
	}
	var err error
	e.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(e.work, "home", ".kube", "config"))
	e.must(err)
	e.config.QPS, e.config.Timeout = -1, requestTimeout
	e.kube = kubernetes.NewForConfigOrDie(e.config)
	e.kwokctl, err = filepath.Abs("../../bin/kwokctl")
	e.must(err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "outage-"}}
	namespace, err = e.kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	e.must(err)
	e.namespace = namespace.Name
	e.client = clientset.NewForConfigOrDie(e.config).SamplecontrollerV1alpha1().Foos(e.namespace)
	began, err := strconv.ParseInt(namespace.ResourceVersion, 10, 64)
	e.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	for resource, prefix := range map[string]string{foos: "samplecontroller.k8s.io/foos", deployments: "deployments"} {
		background.Go(func() {
			if err := e.record(ctx, resource, "/registry/"+prefix+"/"+e.namespace+"/", began); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		background.Wait()
	})
	return e
}

// startReplica starts a controller behind a proxy, which sends its requests on as that user.
func (e *env) startReplica(program, user string, arguments ...string) *replica {
	config := rest.CopyConfig(e.config)
	config.Impersonate.UserName = user
	p, err := newProxy(config)
	e.must(err)
	e.t.Cleanup(func() { trace.Close(p.server) })
	kubeconfig := filepath.Join(e.t.TempDir(), "kubeconfig")
	e.must(trace.WriteKubeconfig(kubeconfig, p.server, "", e.namespace))
	home, arguments := "HOME="+filepath.Join(e.work, "tmp"), append([]string{"--kubeconfig=" + kubeconfig}, arguments...)
	name := fmt.Sprintf("controller-%s-%d", e.namespace, len(e.replicas)+1)
	process, err := trace.StartRecorded(e.work, name, []string{home}, program, arguments...)
	e.must(err)
	r := &replica{Process: process, proxy: p}
	e.t.Cleanup(r.Kill)
	e.replicas = append(e.replicas, r)
	return r
}

func (e *env) versions() []trace.Version {
	all, _ := e.history.All()
	return all
}

func (e *env) recorded() (all []trace.Request) {
	for _, r := range e.replicas {
		all = append(all, r.proxy.recorded()...)
	}
	return all
}

// run starts the users, disrupts, stops the users, and waits until the cluster has converged.
func (e *env) run(d *disruption) {
	stop := e.startUsers(d.foosEach)
	e.awaitOperations()
	d.disrupt(e)
	e.awaitOperations()
	stop()
	e.poll("the cluster has converged", func(ctx context.Context) error { return e.checkConverged(ctx, countOfUsers*d.foosEach) })
	e.checkNoMoreWrites()
}

func (e *env) checkInvariants() {
	rules := readRules(e.t)
	for _, r := range e.replicas {
		e.report(judge(rules, e.versions(), r.proxy.recorded()))
		// A sync, or the whole process.
		if text := r.Output(); strings.Contains(text, "panic: ") || strings.Contains(text, "Observed a panic") {
			e.t.Error("rule 18: the controller panicked")
		}
	}
	lost := slices.DeleteFunc(e.recorded(), func(r trace.Request) bool { return !r.IsLost() })
	e.t.Logf("%d operations, %d versions, %d requests, %d without an answer",
		e.operations.Load(), len(e.versions()), len(e.recorded()), len(lost))
	if e.t.Failed() {
		e.dump()
	}
}

func (e *env) report(violations []string) {
	for _, violation := range violations {
		e.t.Error(violation)
	}
}

func (e *env) dump() {
	for i, r := range e.replicas {
		var text strings.Builder
		for _, request := range r.proxy.recorded() {
			fmt.Fprintf(&text, "    %s %s (precondition %q) → %d\n", request.At.Format("15:04:05.000000"), class(&request), request.Precondition, request.Code)
		}
		e.t.Logf("%s: the requests of controller %d:\n%s  Its output:\n%s", e.namespace, i+1, text.String(), r.Output())
	}
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.fatalf("%v", err)
	}
}

func (e *env) fatalf(format string, args ...any) {
	e.t.Helper()
	e.t.Errorf(format, args...)
	e.dump()
	e.t.FailNow()
}

// poll waits until check returns nil, and fails the test if a controller exits meanwhile.
func (e *env) poll(what string, check func(context.Context) error) {
	e.t.Helper()
	err := trace.Poll(e.t.Context(), settleTimeout, func(ctx context.Context) error {
		if i := slices.IndexFunc(e.replicas, func(r *replica) bool { return !r.stopping && r.exited() }); i >= 0 {
			e.fatalf("%s: controller %d exited", what, i+1)
		}
		return check(ctx)
	})
	if err != nil {
		e.fatalf("%s: %v", what, err)
	}
}

func (e *env) awaitOperations() {
	until := e.operations.Load() + operationsBetween
	e.poll("the users do operations", func(context.Context) error {
		if done := e.operations.Load(); done < until {
			return fmt.Errorf("%d operations left", until-done)
		}
		return nil
	})
}

const (
	// stuckAfter is for how long nothing has changed when what is left counts as stuck.
	stuckAfter = 30 * time.Second
	// quiet is longer than a controller with nothing to do waits on its own.
	quiet = 3 * time.Second
)

// checkConverged returns nil if the history ends with so many Foos, all ready, and their Deployments. By the rules the
// controller has not written to their specs.
func (e *env) checkConverged(ctx context.Context, count int) error {
	state := sim.State{Foos: map[string]*v1alpha1.Foo{}, Deployments: map[string]*appsv1.Deployment{}}
	for _, v := range trace.Latest(e.versions()) {
		switch name := v.Object.GetName(); {
		case v.Deleted:
		case v.Resource == foos:
			state.Foos[name] = as[v1alpha1.Foo](e, v)
		default:
			state.Deployments[name] = as[appsv1.Deployment](e, v)
		}
	}
	found := state.Violations()
	for name, foo := range state.Foos {
		if !meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.FooReady) {
			found = append(found, fmt.Sprintf("Foo %s is not ready", name))
		}
	}
	if len(state.Foos) != count || len(state.Deployments) != count {
		found = append(found, fmt.Sprintf("%d Foos, %d Deployments: not %d", len(state.Foos), len(state.Deployments), count))
	}
	if len(found) == 0 {
		return nil
	}
	err := fmt.Errorf("%d violations:\n%s", len(found), strings.Join(found[:min(len(found), 10)], "\n"))
	return errors.Join(err, e.deleteStuck(ctx, &state))
}

func as[T any](e *env, v trace.Version) *T {
	object := new(T)
	e.must(runtime.DefaultUnstructuredConverter.FromUnstructured(v.Object.Object, object))
	return object
}

// deleteStuck does what a kubelet and a user would: kwok forgets a Pod if its update fails, and after an outage the
// garbage collector misses the deletion of an owner if another one of its name exists when the collector lists again.
func (e *env) deleteStuck(ctx context.Context, state *sim.State) error {
	if _, last := e.history.All(); time.Since(last) < stuckAfter {
		return nil
	}
	now, pending := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{FieldSelector: "status.phase=Pending"}
	err := e.kube.CoreV1().Pods(e.namespace).DeleteCollection(ctx, now, pending)
	for name, deployment := range state.Deployments {
		ref := metav1.GetControllerOfNoCopy(deployment)
		if e.outage && ref != nil && state.Foos[ref.Name] != nil && state.Foos[ref.Name].UID != ref.UID {
			e.t.Logf("deleting Deployment %s, whose Foo was replaced", name)
			options := metav1.NewPreconditionDeleteOptions(string(deployment.UID))
			err = errors.Join(err, e.kube.AppsV1().Deployments(e.namespace).Delete(ctx, name, *options))
		}
	}
	return err
}

// checkNoMoreWrites checks liveness L1: at rest a touch of every Foo leads to no write.
func (e *env) checkNoMoreWrites() {
	e.awaitQuiet()
	list, err := e.client.List(e.t.Context(), metav1.ListOptions{})
	e.must(err)
	touched := time.Now()
	for i := range list.Items {
		patch := []byte(`{"metadata":{"labels":{"example.com/touched":"true"}}}`)
		_, err = e.client.Patch(e.t.Context(), list.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{})
		e.must(err)
	}
	e.awaitQuiet()
	for _, w := range e.writes() {
		if w.At.After(touched) {
			e.t.Errorf("L1: there was nothing to do, but %s was sent", class(&w))
		}
	}
}

// writes returns what the controllers have sent to our objects.
func (e *env) writes() []trace.Request {
	return slices.DeleteFunc(e.recorded(), func(r trace.Request) bool { return !writesOurs(&r) })
}

// awaitQuiet waits until no object has changed for a time, and no controller has written.
func (e *env) awaitQuiet() {
	e.poll("nothing changes", func(context.Context) error {
		_, last := e.history.All()
		for _, w := range e.writes() {
			if w.At.After(last) {
				last = w.At
			}
		}
		if time.Since(last) < quiet {
			return errors.New("something did just now")
		}
		return nil
	})
}
