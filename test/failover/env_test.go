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
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/check/trace"
	"example.com/sample-controller/test/kinds"
	"example.com/sample-controller/test/sim"
)

const (
	// settleTimeout bounds how long the cluster may take to converge.
	settleTimeout     = 5 * time.Minute
	operationsBetween = 40
)

// env is one outage or one series of leader changes: a namespace, its users, and the controllers that work on it.
type env struct {
	*testCluster

	t         *testing.T
	namespace string
	// replicas are all controllers in the order of their start, including those that ended.
	replicas   []*replica
	userConfig *rest.Config
	users      *userGroup
	// history has all versions of our objects, as etcd had them.
	history *trace.History

	violations violations
}

type violations []string

func (v *violations) add(format string, args ...any) {
	*v = append(*v, fmt.Sprintf(format, args...))
}

func newEnv(t *testing.T, c *testCluster) *env {
	t.Helper()
	e := &env{testCluster: c, t: t, namespace: c.uniqueName("outage"), userConfig: c.config}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
	_, err := e.kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	e.must(err)
	began, err := e.etcd.revision(t.Context())
	e.must(err)
	e.history = trace.NewHistory()
	ctx, cancel := context.WithCancel(t.Context())
	var recording sync.WaitGroup
	for resource, prefix := range map[string]string{foos: "samplecontroller.k8s.io/foos", deployments: "deployments"} {
		recording.Go(func() {
			if err := e.etcd.record(ctx, e.history, resource, "/registry/"+prefix+"/"+e.namespace+"/", began+1); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		recording.Wait()
	})
	return e
}

func readRules(t *testing.T) (rules trace.RuleSet) {
	t.Helper()
	data, err := kinds.ReadFile("../../testdata/suites.yaml")
	if err == nil {
		err = json.Unmarshal(data.Check, &rules)
	}
	if err = errors.Join(err, rules.Prepare()); err != nil {
		t.Fatal(err)
	}
	return rules
}

func (e *env) startController() {
	e.startReplica(filepath.Join(e.work, "bin", "sample-controller"), "", e.Transport, "--namespace="+e.namespace, "-v=2")
}

// startReplica starts a controller with that token behind a proxy, which sends its requests on.
func (e *env) startReplica(program, token string, to http.RoundTripper, arguments ...string) *replica {
	p := &proxy{Upstream: trace.Upstream{URL: e.URL, Transport: to}, address: "127.0.0.1:0", http2: token != ""}
	e.must(p.listen())
	e.t.Cleanup(p.close)
	kubeconfig := filepath.Join(e.t.TempDir(), "kubeconfig")
	e.must(trace.WriteKubeconfig(kubeconfig, p.server, token, e.namespace))
	home, arguments := "HOME="+filepath.Join(e.work, "tmp"), append([]string{"--kubeconfig=" + kubeconfig}, arguments...)
	process, err := trace.StartRecorded(e.work, e.uniqueName("controller"), []string{home}, program, arguments...)
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

func (e *env) recorded() (all []request) {
	for _, r := range e.replicas {
		all = append(all, r.proxy.recorded()...)
	}
	return all
}

// run starts the users, calls disrupt, stops the users, and waits until the cluster has converged.
func (e *env) run(foosEach int, disrupt func(*env)) {
	e.users = startUsers(e.t.Context(), e.userConfig, e.namespace, foosEach)
	defer e.users.stop()
	e.awaitOperations()
	disrupt(e)
	e.awaitOperations()
	desired, err := e.users.finish()
	e.must(err)
	ended := time.Now()
	e.poll("the cluster has converged", func(ctx context.Context) error { return e.checkConverged(ctx, desired, ended) })
	e.checkNoMoreWrites(desired)
}

func (e *env) checkInvariants() {
	rules := readRules(e.t)
	for _, r := range e.replicas {
		e.violations = append(e.violations, judge(&rules, e.versions(), r.proxy.recorded())...)
		// A sync, or the whole process.
		if text := r.Output(); strings.Contains(text, "panic: ") || strings.Contains(text, "Observed a panic") {
			e.violations.add("rule 18: the controller panicked")
		}
	}
	for _, violation := range e.violations {
		e.t.Error(violation)
	}
	if e.t.Failed() {
		e.dump()
	}
}

func (e *env) addReport(name string, took time.Duration) {
	lost := slices.DeleteFunc(e.recorded(), func(r request) bool { return !r.IsLost() })
	e.t.Logf("%s: %d operations, %d versions, %d requests, %d without an answer, %d violations, %.0f s",
		name, e.users.operations.Load(), len(e.versions()), len(e.recorded()), len(lost), len(e.violations), took.Seconds())
}

func (e *env) dump() {
	for i, r := range e.replicas {
		var text strings.Builder
		for _, request := range r.proxy.recorded() {
			fmt.Fprintf(&text, "    %s +%s %s (precondition %q) → %d\n", request.At.Format("15:04:05.000000"),
				request.answered.Sub(request.At).Round(time.Microsecond), &request, request.Precondition, request.Code)
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
		return attempt(ctx, check)
	})
	if err != nil {
		e.fatalf("%s: %v", what, err)
	}
}

func (e *env) awaitOperations() {
	until := e.users.operations.Load() + operationsBetween
	e.poll("the users do operations", func(context.Context) error {
		if done := e.users.operations.Load(); done < until {
			return fmt.Errorf("%d operations left", until-done)
		}
		return e.users.failure()
	})
}

func (e *env) killComponents(names ...string) {
	for _, name := range names {
		e.must(e.control.find(name).kill(e.t.Context()))
		if name == apiServerName {
			e.replicas[0].proxy.close()
		}
	}
}

// startComponents returns once etcd answers and the API server accepts connections, before they are ready.
func (e *env) startComponents(names ...string) {
	for _, name := range names {
		e.must(e.control.find(name).start())
		switch name {
		case etcdName:
			e.poll("etcd answers", func(ctx context.Context) error {
				_, err := e.etcd.revision(ctx)
				return err
			})
		case apiServerName:
			e.poll("the API server listens", func(context.Context) error {
				connection, err := net.Dial("tcp", e.URL.Host)
				if err == nil {
					err = connection.Close()
				}
				return err
			})
			e.must(e.replicas[0].proxy.listen())
		}
	}
}

const (
	// stuckAfter is when a scheduled Pod that is still pending, or a Deployment whose Foo is gone, counts as stuck.
	stuckAfter  = 45 * time.Second
	quietRounds = 20
	// quiet is longer than a controller with nothing to do waits on its own.
	quiet = 3 * time.Second
)

// checkConverged returns nil if the namespace has the Foos and Deployments that the users want, all ready, and no
// others, and the history has them too. It removes what others have left.
func (e *env) checkConverged(ctx context.Context, desired map[string]desiredFoo, finished time.Time) error {
	state := sim.State{Foos: map[string]*v1alpha1.Foo{}, Deployments: map[string]*appsv1.Deployment{}}
	// The Deployments come first, so that each has a Foo in the later list if it has one at all.
	deploymentList, err := e.kube.AppsV1().Deployments(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	fooList, err := e.foos.SamplecontrollerV1alpha1().Foos(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range deploymentList.Items {
		state.Deployments[deploymentList.Items[i].Name] = &deploymentList.Items[i]
	}
	for i := range fooList.Items {
		state.Foos[fooList.Items[i].Name] = &fooList.Items[i]
	}
	found := violations(state.Violations())
	for name, want := range desired {
		foo := state.Foos[name]
		if foo == nil || !want.matches(foo) || !meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.FooReady) {
			found.add("Foo %s does not have the spec that its user wants, or is not ready", name)
		}
	}
	live, versions := 0, e.versions()
	for _, v := range trace.Latest(versions) {
		if !v.Deleted {
			live++
		}
	}
	if n := len(desired); len(state.Foos) != n || len(state.Deployments) != n || live != 2*n {
		found.add("%d Foos, %d Deployments, %d in the history: not %d", len(state.Foos), len(state.Deployments), live, n)
	}
	if len(found) == 0 {
		return nil
	}
	err = fmt.Errorf("%d violations:\n%s", len(found), strings.Join(found[:min(len(found), 10)], "\n"))
	return errors.Join(err, e.cleanUp(ctx, state, finished))
}

// cleanUp does in time what other components never do. kwok forgets a Pod if its update fails during an outage; a
// kubelet retries. The garbage collector of Kubernetes 1.37 never deletes a Deployment that the controller created
// after awaitGarbageCollector, if the collector missed the deletion of the Foo.
func (e *env) cleanUp(ctx context.Context, state sim.State, finished time.Time) error {
	pods, err := e.kube.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		age := time.Since(pod.CreationTimestamp.Time)
		if pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" && age > stuckAfter {
			now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
			err = errors.Join(err, e.kube.CoreV1().Pods(e.namespace).Delete(ctx, pod.Name, now))
		}
	}
	for name, deployment := range state.Deployments {
		owner := sim.Owner(deployment)
		if owner == nil || time.Since(finished) < stuckAfter {
			continue
		}
		if foo := state.Foos[owner.Name]; foo == nil || foo.UID != owner.UID {
			e.t.Logf("Deleting Deployment %s, which the garbage collector left: %+v", name, owner)
			this := *metav1.NewPreconditionDeleteOptions(string(deployment.UID))
			err = errors.Join(err, e.kube.AppsV1().Deployments(e.namespace).Delete(ctx, name, this))
		}
	}
	return err
}

// checkNoMoreWrites checks liveness L1: the controller has nothing left to write. It enqueues every Foo, and repeats
// that while other controllers still change Deployments.
func (e *env) checkNoMoreWrites(desired map[string]desiredFoo) {
	client := e.foos.SamplecontrollerV1alpha1().Foos(e.namespace)
	for range quietRounds {
		since := time.Now()
		for name := range desired {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"example.com/touched":%q}}}`, e.uniqueName("touch"))
			e.poll("Foo "+name+" is labeled", func(ctx context.Context) error {
				_, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			})
		}
		var late []request
		e.poll("nothing changes", func(context.Context) error {
			late = slices.DeleteFunc(e.recorded(), func(r request) bool { return !r.writesOurs() || r.At.Before(since) })
			_, last := e.history.All()
			for i := range late {
				if late[i].At.After(last) {
					last = late[i].At
				}
			}
			if time.Since(last) < quiet {
				return errors.New("something did just now")
			}
			return nil
		})
		if len(late) == 0 {
			e.must(e.checkConverged(e.t.Context(), desired, since))
			return
		}
		changed := func(v trace.Version) bool { return v.Resource == deployments && v.At.After(since) }
		if !slices.ContainsFunc(e.versions(), changed) {
			e.violations.add("L1: there was nothing to do, but %s was sent, and %d requests in all", &late[0], len(late))
			return
		}
	}
	e.violations.add("L1: Deployments still change after %d rounds", quietRounds)
}
