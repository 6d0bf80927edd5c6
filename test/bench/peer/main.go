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

// Command peer is a controller of Foos as controller-runtime invites to write it: CreateOrUpdate
// of the Deployment, and a status update if the number of available replicas has changed. It
// reports no progress and sends no events. test/bench compares the controller with it.
package main

import (
	"context"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// workers is the default of the measured controller.
const workers = 8

// run reconciles the Foos of all namespaces until the context ends. It has no rate limit, as
// the measured controller has none.
func run(ctx context.Context) error {
	ctrl.SetLogger(zap.New())
	known, err := newScheme()
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: known, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).For(&Foo{}).Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{client: manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

// newScheme returns the types of Kubernetes and Foo.
func newScheme() (*runtime.Scheme, error) {
	known := runtime.NewScheme()
	known.AddKnownTypes(groupVersion(), &Foo{}, &FooList{})
	metav1.AddToGroupVersion(known, groupVersion())
	return known, scheme.AddToScheme(known)
}

type reconciler struct {
	client client.Client
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	foo := &Foo{}
	if err := r.client.Get(ctx, request.NamespacedName, foo); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: foo.Namespace, Name: foo.Spec.DeploymentName}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, deployment, func() error {
		setSpec(&deployment.Spec, foo)
		return controllerutil.SetControllerReference(foo, deployment, r.client.Scheme())
	})
	if err != nil || foo.Status.AvailableReplicas == deployment.Status.AvailableReplicas {
		return ctrl.Result{}, err
	}
	foo.Status.AvailableReplicas = deployment.Status.AvailableReplicas
	return ctrl.Result{}, r.client.Status().Update(ctx, foo)
}

// setSpec sets the fields that the Foo determines. It keeps what the API server has defaulted,
// so that CreateOrUpdate finds no difference.
func setSpec(spec *appsv1.DeploymentSpec, foo *Foo) {
	labels := map[string]string{"app": "nginx", "controller": foo.Name}
	spec.Replicas = foo.Spec.Replicas
	spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	spec.Template.Labels = labels
	if len(spec.Template.Spec.Containers) == 0 {
		spec.Template.Spec.Containers = make([]corev1.Container, 1)
	}
	container := &spec.Template.Spec.Containers[0]
	container.Name, container.Image = "nginx", "nginx:latest"
}

func groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "samplecontroller.k8s.io", Version: "v1alpha1"}
}

// Foo has the fields that k8s.io/sample-controller has. Fewer fields take less time to decode.
type Foo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FooSpec   `json:"spec"`
	Status FooStatus `json:"status"`
}

// FooSpec is what a user asks for.
type FooSpec struct {
	DeploymentName string `json:"deploymentName"`
	Replicas       *int32 `json:"replicas"`
}

// FooStatus is what the controller reports.
type FooStatus struct {
	AvailableReplicas int32 `json:"availableReplicas"`
}

// DeepCopyObject implements runtime.Object.
func (f *Foo) DeepCopyObject() runtime.Object {
	copied := f.deepCopy()
	return &copied
}

func (f *Foo) deepCopy() Foo {
	copied := *f
	f.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	if f.Spec.Replicas != nil {
		copied.Spec.Replicas = new(*f.Spec.Replicas)
	}
	return copied
}

// FooList is the answer to a list request.
type FooList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Foo `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *FooList) DeepCopyObject() runtime.Object {
	copied := *l
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	copied.Items = make([]Foo, 0, len(l.Items))
	for i := range l.Items {
		copied.Items = append(copied.Items, l.Items[i].deepCopy())
	}
	return &copied
}
