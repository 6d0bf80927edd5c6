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

// Command plain is the plain client with which test/bench compares the controller. It sends
// the requests that the controller sends for a Foo, and has none of its logic: it creates the
// Deployment of each Foo, patches it when the Foo's spec changes, copies its availability into
// the Foo's status once that is complete, and sends two events. It looks at nothing twice and
// repeats only a status that conflicts.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/controller"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fooinformersv1alpha1 "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	foolisters "example.com/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/stored"
)

// queueSize is the number of requests that can wait. A full queue would delay the watch.
const queueSize = 1 << 17

func main() {
	workers := flag.Int("workers", 8, "Number of concurrent requests.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *workers)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run works until the context ends or a request fails.
func run(ctx context.Context, workers int) error {
	config, err := client.NewConfig(client.Options{QPS: client.Unlimited})
	if err != nil {
		return err
	}
	p, err := newPlain(config)
	if err != nil {
		return err
	}
	if err := p.watch(ctx); err != nil {
		return err
	}
	failed := make(chan error)
	go p.sendEvents(ctx)
	for range workers {
		go func() {
			for {
				select {
				case send := <-p.queue:
					if err := send(ctx); err != nil {
						failed <- err
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// newPlain returns a client with the encodings and the limit of events of the controller.
func newPlain(config *rest.Config) (*plain, error) {
	p := &plain{queue: make(chan request, queueSize), events: make(chan happened, queueSize)}
	var err error
	if p.kube, err = kubernetes.NewForConfig(client.ForBuiltin(config)); err != nil {
		return nil, err
	}
	if p.foos, err = clientset.NewForConfig(config); err != nil {
		return nil, err
	}
	p.limited, err = kubernetes.NewForConfig(client.ForEvents(config))
	return p, err
}

type plain struct {
	kube kubernetes.Interface
	// limited is for events, which have a rate limit of their own.
	limited   kubernetes.Interface
	foos      clientset.Interface
	fooLister foolisters.FooLister

	queue  chan request
	events chan happened
}

// request sends one request.
type request func(ctx context.Context) error

// happened is the content of an event about a Foo.
type happened struct {
	foo             *v1alpha1.Foo
	reason, message string
}

// watch turns the events of Foos and Deployments into requests. It returns once both caches
// are synced.
func (p *plain) watch(ctx context.Context) error {
	kubeFactory, fooFactory := kubeinformers.NewSharedInformerFactory(p.kube, 0), fooinformers.NewSharedInformerFactory(p.foos, 0)
	deployments, foos := kubeFactory.Apps().V1().Deployments(), fooFactory.Samplecontroller().V1alpha1().Foos()
	p.fooLister = foos.Lister()
	_, err := deployments.TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{UpdateFunc: func(before, after *appsv1.Deployment) {
		if after.Status.AvailableReplicas != before.Status.AvailableReplicas && isComplete(after) {
			p.queue <- func(ctx context.Context) error { return p.updateStatus(ctx, after) }
		}
	}})
	if err != nil {
		return err
	}
	kubeFactory.StartWithContext(ctx)
	// Only a complete cache tells which Foos have no Deployment yet.
	kubeFactory.WaitForCacheSyncWithContext(ctx)
	_, err = foos.TypedInformer().AddTypedEventHandler(fooinformersv1alpha1.FooHandlerFuncs{
		AddFunc: func(foo *v1alpha1.Foo) {
			if _, err := deployments.Lister().Deployments(foo.Namespace).Get(foo.Spec.DeploymentName); err != nil {
				p.queue <- func(ctx context.Context) error { return p.create(ctx, foo) }
			}
		},
		UpdateFunc: func(before, after *v1alpha1.Foo) {
			if after.Generation != before.Generation {
				p.queue <- func(ctx context.Context) error { return p.scale(ctx, after) }
			}
		},
	})
	if err != nil {
		return err
	}
	fooFactory.StartWithContext(ctx)
	fooFactory.WaitForCacheSyncWithContext(ctx)
	return nil
}

// create creates the Deployment that the controller creates.
func (p *plain) create(ctx context.Context, foo *v1alpha1.Foo) error {
	deployment := stored.Created(foo.Spec.DeploymentName, foo.Name, "nginx:latest", foo.Spec.Replicas, stored.ControllerRef(foo))
	deployment.Labels = map[string]string{controller.ManagedByLabel: controller.ManagedByValue}
	_, err := p.kube.AppsV1().Deployments(foo.Namespace).Create(ctx, deployment, metav1.CreateOptions{FieldManager: controller.FieldManager})
	p.events <- happened{foo, "Created", fmt.Sprintf("Created Deployment %q", foo.Spec.DeploymentName)}
	return err
}

// scale patches the replicas of the Foo's Deployment.
func (p *plain) scale(ctx context.Context, foo *v1alpha1.Foo) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, *foo.Spec.Replicas)
	_, err := p.kube.AppsV1().Deployments(foo.Namespace).Patch(ctx, foo.Spec.DeploymentName, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: controller.FieldManager})
	p.events <- happened{foo, "Updated", fmt.Sprintf("Updated Deployment %q: replicas to %d", foo.Spec.DeploymentName, *foo.Spec.Replicas)}
	return err
}

// isComplete says whether the rollout is complete, so that the status of a Foo says Ready.
func isComplete(deployment *appsv1.Deployment) bool {
	desired, status := *deployment.Spec.Replicas, deployment.Status
	return status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas >= desired && status.AvailableReplicas >= desired
}

// updateStatus writes the status of the Foo that owns a complete Deployment.
func (p *plain) updateStatus(ctx context.Context, deployment *appsv1.Deployment) error {
	owner := metav1.GetControllerOf(deployment)
	if owner == nil {
		return nil
	}
	foo, err := p.fooLister.Foos(deployment.Namespace).Get(owner.Name)
	for err == nil {
		_, err = p.foos.SamplecontrollerV1alpha1().Foos(foo.Namespace).UpdateStatus(ctx, withStatus(foo, deployment), metav1.UpdateOptions{FieldManager: controller.FieldManager})
		if !apierrors.IsConflict(err) {
			break
		}
		// A user has changed the Foo since.
		foo, err = p.foos.SamplecontrollerV1alpha1().Foos(foo.Namespace).Get(ctx, foo.Name, metav1.GetOptions{})
	}
	if err == nil {
		p.events <- happened{foo, "Synced", "Foo synced successfully"}
	}
	return err
}

// withStatus returns the Foo with a status of the size of the controller's.
func withStatus(foo *v1alpha1.Foo, deployment *appsv1.Deployment) *v1alpha1.Foo {
	updated := foo.DeepCopy()
	updated.Status.ObservedGeneration = foo.Generation
	updated.Status.AvailableReplicas, updated.Status.Replicas = deployment.Status.AvailableReplicas, deployment.Status.Replicas
	updated.Status.Selector = metav1.FormatLabelSelector(deployment.Spec.Selector)
	meta.SetStatusCondition(&updated.Status.Conditions, metav1.Condition{
		Type: controller.Ready, Status: metav1.ConditionTrue, ObservedGeneration: foo.Generation,
		Reason: "DeploymentAvailable", Message: fmt.Sprintf("%d of %d Pods are available", deployment.Status.AvailableReplicas, ptr.Deref(foo.Spec.Replicas, 1)),
	})
	return updated
}

// sendEvents sends events at the controller's rate until the context ends.
func (p *plain) sendEvents(ctx context.Context) {
	for {
		select {
		case event := <-p.events:
			foo, now := event.foo, metav1.Now()
			_, err := p.limited.CoreV1().Events(foo.Namespace).Create(ctx, &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{GenerateName: foo.Name + "."},
				InvolvedObject: corev1.ObjectReference{
					APIVersion: v1alpha1.GroupVersion.String(), Kind: "Foo",
					Namespace: foo.Namespace, Name: foo.Name, UID: foo.UID, ResourceVersion: foo.ResourceVersion,
				},
				Reason: event.reason, Message: event.message, Type: corev1.EventTypeNormal, Count: 1,
				Source: corev1.EventSource{Component: controller.FieldManager}, FirstTimestamp: now, LastTimestamp: now,
			}, metav1.CreateOptions{})
			if err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, err)
			}
		case <-ctx.Done():
			return
		}
	}
}
