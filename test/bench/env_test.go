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

// Package bench measures the controller on local clusters: throughput, requests to the API server, memory and latency.
// hack/bench.sh (`make bench`) starts the clusters and runs the measurements: each measures one program on one cluster,
// the controller or the programs in peer and plain with which it is compared. Package report has the targets and
// computes the ratios and their intervals.
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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
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
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fooinformersv1alpha1 "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/check/trace"
	"example.com/sample-controller/test/stored"
)

const (
	namespace = "default"
	// creators is the number of concurrent requests of clients that only prepare a measurement.
	creators = 32
	// timeout bounds every wait. A local cluster on 2 cores needs a tenth of it.
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
	// who is the measured program: ours, peer or plain.
	who string
	// objects is the number of objects to create, workers that of the program's workers.
	objects, workers int
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{T: t, who: os.Getenv("BENCH_WHO"), objects: intFromEnv(t, "BENCH_OBJECTS"), workers: intFromEnv(t, "BENCH_WORKERS")}
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig())
	e.must(err)
	// The clients have no rate limit and use the controller's encodings, so that they reach what the API server allows.
	config.QPS = -1
	builtin := client.ForBuiltin(config)
	e.kube, err = kubernetes.NewForConfig(builtin)
	e.must(err)
	e.metadata, err = metadata.NewForConfig(rest.CopyConfig(builtin))
	e.must(err)
	e.foos, err = clientset.NewForConfig(config)
	e.must(err)
	return e
}

func intFromEnv(t *testing.T, variable string) int {
	t.Helper()
	value, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		t.Fatalf("%s: %v; run `make bench` or hack/bench.sh", variable, err)
	}
	return value
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

// record appends figures, by their units, to the file from which hack/bench.sh prints its table. It has the form of the
// output of go test -bench.
func (e *env) record(what string, figures map[string]float64) {
	e.Helper()
	line := fmt.Sprintf("round: %d\nworkers: %d\nBenchmark%s/who=%s/objects=%d 1", intFromEnv(e.T, "BENCH_ROUND"), e.workers, what, e.who, e.objects)
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
	updated, now := deployment.DeepCopy(), metav1.NewTime(time.Now().Truncate(time.Second))
	condition := func(kind appsv1.DeploymentConditionType, reason, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: kind, Status: corev1.ConditionTrue, LastUpdateTime: now, LastTransitionTime: now, Reason: reason, Message: message}
	}
	updated.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation,
		Replicas:           available, UpdatedReplicas: available, ReadyReplicas: available, AvailableReplicas: available,
		Conditions: []appsv1.DeploymentCondition{
			condition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable", "Deployment has minimum availability."),
			condition(appsv1.DeploymentProgressing, "NewReplicaSetAvailable", fmt.Sprintf("ReplicaSet %q has successfully progressed.", deployment.Name+"-5d59d67564")),
		},
	}
	return e.kube.AppsV1().Deployments(namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
}

// group returns the group of an object, by its name.
func group(name string) string {
	return name[:max(0, strings.LastIndex(name, "-"))]
}

// observer records when a watch first delivered objects in each state.
type observer struct {
	*env

	mu      sync.Mutex
	reached map[milestone]*reached
	// updated is closed when an object reaches a milestone.
	updated chan struct{}
}

// milestone is a state of the objects of a group.
type milestone struct {
	group, state string
}

// reached are the objects that have reached a milestone, and when the first and the last one did.
type reached struct {
	names       sets.Set[string]
	first, last time.Time
}

func (e *env) newObserver() *observer {
	return &observer{env: e, reached: map[milestone]*reached{}, updated: make(chan struct{})}
}

// note records that an object is in that state.
func (o *observer) note(name, state string) {
	now, at := time.Now(), milestone{group(name), state}
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.reached[at]
	if r == nil {
		r = &reached{names: sets.New[string](), first: now}
		o.reached[at] = r
	}
	if r.names.Has(name) {
		return
	}
	r.names.Insert(name)
	r.last = now
	close(o.updated)
	o.updated = make(chan struct{})
}

// await waits until so many objects of the group have been in that state, and returns when the watch delivered the first
// and the last one.
func (o *observer) await(group, state string, count int) (first, last time.Time) {
	o.Helper()
	deadline, got := time.After(timeout), 0
	for {
		o.mu.Lock()
		updated := o.updated
		if r := o.reached[milestone{group, state}]; r != nil {
			first, last, got = r.first, r.last, r.names.Len()
		}
		o.mu.Unlock()
		if got >= count {
			return first, last
		}
		select {
		case <-updated:
		case <-deadline:
			o.Fatalf("timed out: %d of %d objects %s are %s", got, count, group, state)
		}
	}
}

// observeDeployments watches Deployments until the measurement ends: "generation 1" is the state in which they are
// created. It watches metadata only, to take little CPU from the measured program.
func (e *env) observeDeployments() *observer {
	e.Helper()
	o, factory := e.newObserver(), metadatainformer.NewSharedInformerFactory(e.metadata, 0)
	record := func(event any) {
		object, err := meta.Accessor(event)
		if err != nil {
			e.Error(err)
			return
		}
		for generation := range object.GetGeneration() {
			o.note(object.GetName(), fmt.Sprint("generation ", generation+1))
		}
	}
	informer := factory.ForResource(appsv1.SchemeGroupVersion.WithResource("deployments")).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: record, UpdateFunc: func(_, object any) { record(object) }})
	e.must(err)
	factory.Start(e.Context().Done())
	factory.WaitForCacheSync(e.Context().Done())
	return o
}

// observeFoos watches Foos until the measurement ends: they are "reported" once they have a condition, and "available N"
// with so many available replicas.
func (e *env) observeFoos() *observer {
	e.Helper()
	o, factory := e.newObserver(), fooinformers.NewSharedInformerFactory(e.foos, 0)
	record := func(foo *v1alpha1.Foo) {
		o.note(foo.Name, fmt.Sprint("available ", foo.Status.AvailableReplicas))
		if len(foo.Status.Conditions) > 0 {
			o.note(foo.Name, "reported")
		}
	}
	_, err := factory.Samplecontroller().V1alpha1().Foos().TypedInformer().AddTypedEventHandler(fooinformersv1alpha1.FooHandlerFuncs{
		AddFunc: record, UpdateFunc: func(_, foo *v1alpha1.Foo) { record(foo) },
	})
	e.must(err)
	factory.StartWithContext(e.Context())
	factory.WaitForCacheSyncWithContext(e.Context())
	return o
}

// simulateDeploymentController makes every owned Deployment available as soon as the watch delivers its spec.
func (e *env) simulateDeploymentController() {
	e.Helper()
	outdated, factory := make(chan *appsv1.Deployment, 10*e.objects), kubeinformers.NewSharedInformerFactory(e.kube, 0)
	handle := func(deployment *appsv1.Deployment) {
		if deployment.Status.ObservedGeneration < deployment.Generation && metav1.GetControllerOf(deployment) != nil {
			outdated <- deployment
		}
	}
	_, err := factory.Apps().V1().Deployments().TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, deployment *appsv1.Deployment) { handle(deployment) },
	})
	e.must(err)
	factory.StartWithContext(e.Context())
	factory.WaitForCacheSyncWithContext(e.Context())
	for range creators {
		go func() {
			for {
				select {
				case deployment := <-outdated:
					if _, err := e.makeAvailable(e.Context(), deployment, *deployment.Spec.Replicas); err != nil && e.Context().Err() == nil {
						e.Errorf("updating the status of Deployment %s: %v", deployment.Name, err)
					}
				case <-e.Context().Done():
					return
				}
			}
		}()
	}
}
