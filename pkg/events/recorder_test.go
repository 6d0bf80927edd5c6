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

package events

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
)

// pod returns a different object for each n, because client-go limits the events of one
// object.
func pod(n int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("pod-%d", n)}}
}

func TestShutdownSendsQueuedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		client := fake.NewClientset()
		recorder := New(ctx, client.CoreV1(), scheme.Scheme, "me", func() { t.Error("a failure was counted") })
		for i := range 100 {
			recorder.Eventf(pod(i), corev1.EventTypeNormal, "Made", "number %d", i)
		}
		recorder.Shutdown(ctx)

		list, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 100 {
			t.Errorf("%d events were sent, want 100", len(list.Items))
		}
		for _, event := range list.Items {
			if event.Source.Component != "me" || event.Reason != "Made" || event.InvolvedObject.Kind != "Pod" {
				t.Fatalf("event %+v", event)
			}
		}
	})
}

func TestShutdownAfterTheSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		client := fake.NewClientset()
		cancelled, cancel := context.WithCancel(ctx)
		recorder := New(cancelled, client.CoreV1(), scheme.Scheme, "me", func() {})
		cancel()
		recorder.Event(pod(1), corev1.EventTypeNormal, "Late", "")
		recorder.Shutdown(ctx)
		if got := len(client.Actions()); got != 1 {
			t.Errorf("%d requests, want the event that came after the signal", got)
		}
	})
}

func TestRepeatedEventsAreOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		client := fake.NewClientset()
		recorder := New(ctx, client.CoreV1(), scheme.Scheme, "me", func() {})
		for range 3 {
			recorder.Event(pod(1), corev1.EventTypeNormal, "Again", "the same")
		}
		recorder.Shutdown(ctx)
		list, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].Count != 3 {
			t.Errorf("rule 16: events %+v, want one with count 3", list.Items)
		}
	})
}

func TestFailuresAreCountedAndDoNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		client := fake.NewClientset()
		client.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("unavailable")
		})
		var failures atomic.Int64
		recorder := New(ctx, client.CoreV1(), scheme.Scheme, "me", func() { failures.Add(1) })
		start := time.Now()
		for i := range 5000 {
			recorder.Event(pod(i), corev1.EventTypeNormal, "Made", "")
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("rule 16: recording took %v", took)
		}
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		recorder.Shutdown(limited)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("rule 20: giving up took %v, want the 5s that it was given", took)
		}
		if failures.Load() == 0 {
			t.Error("rule 16: no failure was counted")
		}
	})
}
