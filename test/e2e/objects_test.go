//go:build e2e

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
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Helpers for objects of every kind.

// client is the part of a typed client that these helpers use.
type client[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
}

func getObject[T any](e *env, client client[T], name string) T {
	e.Helper()
	object, err := client.Get(e.Context(), name, metav1.GetOptions{})
	e.must(err)
	return object
}

func createObject[T any](e *env, client client[T], object T) T {
	e.Helper()
	created, err := client.Create(e.Context(), object, metav1.CreateOptions{})
	e.must(err)
	return created
}

// conflictBackoff tries for a few seconds. During a rollout other writers may be faster more often than
// retry.DefaultBackoff tries.
func conflictBackoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Jitter: 1, Steps: 100}
}

// updateObject changes the object, and tries again after a conflict.
func updateObject[T any](e *env, client client[T], name string, change func(T)) {
	e.Helper()
	e.must(retry.RetryOnConflict(conflictBackoff(), func() error {
		object, err := client.Get(e.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(object)
		_, err = client.Update(e.Context(), object, metav1.UpdateOptions{})
		return err
	}))
}

// awaitObject waits until the object exists and passes the check, and returns it.
func awaitObject[T any](e *env, client client[T], name, what string, check func(T) error) T {
	e.Helper()
	var object T
	e.eventually(fmt.Sprintf("%T %s: %s", object, name, what), func(ctx context.Context) (err error) {
		if object, err = client.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(object)
	})
	return object
}

// awaitNotFound waits until the API server has no such object.
func awaitNotFound[T any](e *env, client client[T], name string) {
	e.Helper()
	e.eventually(name+" is not found", func(ctx context.Context) error {
		_, err := client.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return errors.New("it exists")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// hasReason returns the Ready condition if it is about the current generation and has that
// reason, and an error otherwise.
func hasReason(reason string, generation, observed int64, conditions []metav1.Condition) (metav1.Condition, error) {
	ready := meta.FindStatusCondition(conditions, v1alpha1.FooReady)
	if ready == nil || ready.Reason != reason || ready.ObservedGeneration != generation || observed != generation {
		return metav1.Condition{}, fmt.Errorf("generation %d, observed %d, conditions %+v", generation, observed, conditions)
	}
	return *ready, nil
}

// events returns the events about the object with that reason.
func (e *env) events(about metav1.Object, reason string) []corev1.Event {
	e.Helper()
	selector := fields.Set{"involvedObject.uid": string(about.GetUID()), "reason": reason}
	list, err := shared.kube.CoreV1().Events(e.namespace).List(e.Context(), metav1.ListOptions{FieldSelector: selector.String()})
	e.must(err)
	return list.Items
}

// awaitEvent waits for an event about the object with that reason.
func (e *env) awaitEvent(about metav1.Object, reason string) {
	e.Helper()
	e.eventually("an event "+reason, func(context.Context) error {
		if len(e.events(about, reason)) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
}

// awaitOneEvent waits for an event with that reason and returns its message. It fails the
// test if there is more than one, or if the event was repeated.
func (e *env) awaitOneEvent(about metav1.Object, reason string) string {
	e.Helper()
	e.awaitEvent(about, reason)
	events := e.events(about, reason)
	if len(events) != 1 || events[0].Count != 1 {
		e.Fatalf("want one event %s, got %+v", reason, events)
	}
	return events[0].Message
}
