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

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fooinformersv1alpha1 "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
)

const (
	namespace = "default"
	// creators is how many objects are created at the same time.
	creators = 32
	// patience bounds a benchmark; a local cluster on 2 cores needs a tenth.
	patience = 10 * time.Minute
)

// BenchmarkFoos tells how long it takes until all of many Foos, created at once,
// are ready. hack/bench.sh runs the controller.
func BenchmarkFoos(b *testing.B) {
	client, err := clientset.NewForConfig(config(b))
	if err != nil {
		b.Fatal(err)
	}
	factory := fooinformers.NewSharedInformerFactory(client, 0)
	m := newMeasurement(b)
	see := func(foo *v1alpha1.Foo) {
		if meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.FooReady) {
			m.isReady(foo.Name)
		}
	}
	handler := fooinformersv1alpha1.FooHandlerFuncs{AddFunc: see, UpdateFunc: func(_, foo *v1alpha1.Foo) { see(foo) }}
	if _, err := factory.Samplecontroller().V1alpha1().Foos().TypedInformer().AddTypedEventHandler(handler); err != nil {
		b.Fatal(err)
	}
	factory.StartWithContext(b.Context())
	factory.WaitForCacheSyncWithContext(b.Context())

	m.run("Foos", func(ctx context.Context, name string) error {
		foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FooSpec{DeploymentName: name}}
		_, err := client.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, foo, metav1.CreateOptions{})
		return err
	})
}

// BenchmarkDeployments does the same with bare Deployments of the shape that the
// controller makes: what is left of the time of Foos is the controller's.
func BenchmarkDeployments(b *testing.B) {
	client, err := kubernetes.NewForConfig(config(b))
	if err != nil {
		b.Fatal(err)
	}
	factory := kubeinformers.NewSharedInformerFactory(client, 0)
	m := newMeasurement(b)
	see := func(deployment *appsv1.Deployment) {
		if deployment.Status.AvailableReplicas > 0 {
			m.isReady(deployment.Name)
		}
	}
	handler := appsinformers.DeploymentHandlerFuncs{AddFunc: see, UpdateFunc: func(_, deployment *appsv1.Deployment) { see(deployment) }}
	if _, err := factory.Apps().V1().Deployments().TypedInformer().AddTypedEventHandler(handler); err != nil {
		b.Fatal(err)
	}
	factory.StartWithContext(b.Context())
	factory.WaitForCacheSyncWithContext(b.Context())

	m.run("Deployments", func(ctx context.Context, name string) error {
		_, err := client.AppsV1().Deployments(namespace).Create(ctx, bareDeployment(name), metav1.CreateOptions{})
		return err
	})
}

func bareDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}},
			},
		},
	}
}

// config returns a client configuration for the cluster of hack/bench.sh, without
// a rate limit.
func config(b *testing.B) *rest.Config {
	b.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(work(b), "home", ".kube", "config"))
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	return config
}

func work(b *testing.B) string {
	b.Helper()
	work := os.Getenv("TEST_WORK")
	if work == "" {
		b.Fatal("there is no cluster; run `make bench` or hack/bench.sh")
	}
	return work
}

// measurement creates objects and watches them get ready.
type measurement struct {
	b       *testing.B
	objects int

	mu    sync.Mutex
	ready map[string]bool
	done  chan struct{}
}

func newMeasurement(b *testing.B) *measurement {
	b.Helper()
	objects, err := strconv.Atoi(os.Getenv("BENCH_OBJECTS"))
	if err != nil {
		b.Fatalf("BENCH_OBJECTS: %v", err)
	}
	return &measurement{b: b, objects: objects, ready: map[string]bool{}, done: make(chan struct{})}
}

func (m *measurement) isReady(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready[name] {
		return
	}
	m.ready[name] = true
	if len(m.ready) == m.objects {
		close(m.done)
	}
}

// run creates all objects at once and writes a row of hack/bench.sh's table when
// they are ready.
func (m *measurement) run(what string, create func(ctx context.Context, name string) error) {
	m.b.Helper()
	ctx, cancel := context.WithTimeout(m.b.Context(), patience)
	defer cancel()
	names := make(chan string, m.objects)
	for i := range m.objects {
		names <- fmt.Sprintf("bench-%05d", i)
	}
	close(names)

	m.b.ResetTimer()
	began := time.Now()
	var workers sync.WaitGroup
	for range creators {
		workers.Go(func() {
			for name := range names {
				if err := create(ctx, name); err != nil {
					m.b.Errorf("creating %s: %v", name, err)
				}
			}
		})
	}
	workers.Wait()
	created := time.Since(began)
	select {
	case <-m.done:
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		m.b.Fatalf("%d of %d are ready after %s", len(m.ready), m.objects, patience)
	}
	ready := time.Since(began)
	m.b.StopTimer()

	m.b.ReportMetric(created.Seconds(), "s-to-created")
	m.b.ReportMetric(ready.Seconds(), "s-to-ready")
	row := fmt.Sprintf("%-12s %8d %14.1f %14.1f %9.1f\n", what, m.objects, created.Seconds(), ready.Seconds(), float64(m.objects)/ready.Seconds())
	if err := os.WriteFile(filepath.Join(work(m.b), "row-"+what), []byte(row), 0o600); err != nil {
		m.b.Fatal(err)
	}
}
