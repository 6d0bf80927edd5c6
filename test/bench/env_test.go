//go:build bench

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

// Package bench measures the controller on local clusters: throughput, latency and memory. hack/bench.sh (`make bench`)
// starts the clusters and runs the measurements: each measures one program on one cluster, the controller or the one in
// peer with which benchstat compares it.
package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/client"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/check/trace"
	"example.com/sample-controller/test/stored"
)

const (
	namespace = "default"
	// creators is the number of concurrent requests of clients that only prepare a measurement.
	creators = 32
	// timeout bounds the waits for what the program serves. A local cluster on 2 cores needs a tenth of it.
	timeout = 10 * time.Minute
	// ours is the controller of this repository.
	ours = "ours"
)

// env is the cluster and the measured program of one turn. hack/bench.sh selects both through environment variables.
type env struct {
	*testing.T

	kube     kubernetes.Interface
	foos     clientset.Interface
	metadata metadata.Interface
	// who is the measured program: ours or peer.
	who string
	// objects is the number of objects to create.
	objects int

	// reached has when the watches first delivered objects of a group in a state. progress is told of each of them, and
	// locks it.
	reached  map[string]*reached
	progress *sync.Cond
}

// reached are the objects that have reached a state, and when the first and the last one did.
type reached struct {
	names       sets.Set[string]
	first, last time.Time
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{T: t, who: os.Getenv("BENCH_WHO"), reached: map[string]*reached{}, progress: sync.NewCond(&sync.Mutex{})}
	var err error
	if e.objects, err = strconv.Atoi(os.Getenv("BENCH_OBJECTS")); err != nil {
		t.Fatalf("BENCH_OBJECTS: %v; run `make bench` or hack/bench.sh", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig())
	e.must(err)
	// The clients have no rate limit and use the controller's encodings, so that they reach what the API server allows.
	config.QPS = -1
	builtin := client.ForBuiltin(config)
	e.kube, e.foos = kubernetes.NewForConfigOrDie(builtin), clientset.NewForConfigOrDie(config)
	e.metadata = metadata.NewForConfigOrDie(rest.CopyConfig(builtin))
	return e
}

// must fails the measurement if err is not nil.
func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) kubeconfig() string {
	return e.path("home", ".kube", "config")
}

// path returns a path in the temporary directory of hack/bench.sh.
func (e *env) path(names ...string) string {
	return filepath.Join(append([]string{os.Getenv("TEST_WORK")}, names...)...)
}

// record appends figures, by their units, to the file that benchstat reads.
func (e *env) record(what string, figures map[string]float64) {
	e.Helper()
	line := fmt.Sprintf("Benchmark%s/who=%s/objects=%d 1", what, e.who, e.objects)
	for _, unit := range slices.Sorted(maps.Keys(figures)) {
		line += fmt.Sprintf(" %.5g %s", figures[unit], unit)
	}
	e.Log(line)
	file, err := os.OpenFile(e.path("results"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	e.must(err)
	_, err = file.WriteString(line + "\n")
	e.must(errors.Join(err, file.Close()))
}

// inParallel calls do for each number below count, with as many concurrent calls as there are creators. It fails the
// measurement if a call fails.
func (e *env) inParallel(count int, do func(ctx context.Context, i int) error) {
	e.Helper()
	workqueue.ParallelizeUntil(e.Context(), creators, count, func(i int) {
		if e.Failed() {
			return
		}
		if err := do(e.Context(), i); err != nil {
			e.Errorf("object %d: %v", i, err)
		}
	})
	if e.Failed() {
		e.FailNow()
	}
}

// eventually waits until check returns nil.
func (e *env) eventually(check func() error) {
	e.Helper()
	e.must(trace.Poll(e.Context(), timeout, func(context.Context) error {
		if e.Failed() {
			e.FailNow()
		}
		return check()
	}))
}

// name returns the name of the i-th object of a group.
func name(group string, i int) string {
	return fmt.Sprintf("%s-%05d", group, i)
}

// createFoos creates Foos whose Deployments have the names of the group deployments.
func (e *env) createFoos(group, deployments string, count int) {
	e.Helper()
	e.inParallel(count, func(ctx context.Context, i int) error {
		foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name(group, i)}, Spec: v1alpha1.FooSpec{DeploymentName: name(deployments, i), Replicas: ptr.To[int32](1)}}
		_, err := e.foos.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, foo, metav1.CreateOptions{})
		return err
	})
}

// scaleFoos scales all Foos of a group.
func (e *env) scaleFoos(group string, replicas int) {
	e.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	e.inParallel(e.objects, func(ctx context.Context, i int) error {
		_, err := e.foos.SamplecontrollerV1alpha1().Foos(namespace).Patch(ctx, name(group, i), types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// createDeployments creates Deployments without an owner, of the shape that the controller creates.
func (e *env) createDeployments(group string, count int) {
	e.Helper()
	e.inParallel(count, func(ctx context.Context, i int) error {
		deployment := stored.Created(name(group, i), name(group, i), "nginx:latest", nil)
		_, err := e.kube.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{})
		return err
	})
}

// makeAvailable writes the status that the Deployment controller writes when so many replicas are available. It returns
// the API server's answer.
func (e *env) makeAvailable(ctx context.Context, deployment *appsv1.Deployment, available int32) (*appsv1.Deployment, error) {
	updated := deployment.DeepCopy()
	stored.RollOut(updated, available, metav1.Now(), metav1.Now())
	return e.kube.AppsV1().Deployments(namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
}

// rollOut makes the Deployments of the Foos available once all are there, and returns them.
func (e *env) rollOut() []*appsv1.Deployment {
	e.Helper()
	deployments := make([]*appsv1.Deployment, e.objects)
	e.await("foo", "generation 1", e.objects)
	e.inParallel(e.objects, func(ctx context.Context, i int) (err error) {
		deployments[i], err = e.kube.AppsV1().Deployments(namespace).Get(ctx, name("foo", i), metav1.GetOptions{})
		if err == nil {
			deployments[i], err = e.makeAvailable(ctx, deployments[i], 1)
		}
		return err
	})
	e.await("foo", "available 1", e.objects)
	return deployments
}

// note records that an object is in that state.
func (e *env) note(name, state string) {
	now, group := time.Now(), name[:max(0, strings.LastIndex(name, "-"))]
	e.progress.L.Lock()
	defer e.progress.L.Unlock()
	r := e.reached[group+" "+state]
	if r == nil {
		r = &reached{names: sets.New[string](), first: now}
		e.reached[group+" "+state] = r
	}
	if !r.names.Has(name) {
		r.names.Insert(name)
		r.last = now
		e.progress.Broadcast()
	}
}

// await waits until so many objects of the group have been in that state, and returns when the watch delivered the first
// and the last one.
func (e *env) await(group, state string, count int) (first, last time.Time) {
	e.Helper()
	e.progress.L.Lock()
	defer e.progress.L.Unlock()
	for ; !e.Failed(); e.progress.Wait() {
		if r := e.reached[group+" "+state]; r != nil && r.names.Len() >= count {
			return r.first, r.last
		}
	}
	e.FailNow()
	return first, last
}

// watch calls each with all versions of objects until the measurement ends.
func (e *env) watch(informer cache.SharedIndexInformer, each func(object any)) {
	e.Helper()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: each, UpdateFunc: func(_, object any) { each(object) }})
	e.must(err)
	go informer.RunWithContext(e.Context())
	cache.WaitForCacheSync(e.Context().Done(), informer.HasSynced)
}

// observeDeployments notes "generation 1" when a Deployment is created. It watches metadata only, to take little CPU
// from the measured program.
func (e *env) observeDeployments() {
	e.Helper()
	resource := appsv1.SchemeGroupVersion.WithResource("deployments")
	e.watch(metadatainformer.NewFilteredMetadataInformer(e.metadata, resource, namespace, 0, nil, nil).Informer(), func(object any) {
		deployment := object.(metav1.Object)
		for generation := range deployment.GetGeneration() {
			e.note(deployment.GetName(), fmt.Sprint("generation ", generation+1))
		}
	})
}

// observeFoos notes that Foos are "reported" once they have a condition, and "available N" with so many available
// replicas.
func (e *env) observeFoos() {
	e.Helper()
	e.watch(fooinformers.NewFooInformer(e.foos, namespace, 0, nil), func(object any) {
		foo := object.(*v1alpha1.Foo)
		e.note(foo.Name, fmt.Sprint("available ", foo.Status.AvailableReplicas))
		if len(foo.Status.Conditions) > 0 {
			e.note(foo.Name, "reported")
		}
	})
}
