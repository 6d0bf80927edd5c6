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
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/client"
)

// pod returns a different object for each n, because the events of one object are limited.
func pod(n int) *corev1.Pod {
	return podIn("ns", n)
}

func podIn(namespace string, n int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pod-%d", n)}}
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

// TestExpiredEvent: the API server deletes events after an hour, and client-go still counts
// them.
func TestExpiredEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		client, failures := fake.NewClientset(), 0
		recorder := New(ctx, client.CoreV1(), scheme.Scheme, "me", func() { failures++ })
		recorder.Event(pod(1), corev1.EventTypeNormal, "Again", "the same")
		synctest.Wait()
		list, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if err := client.CoreV1().Events(list.Items[i].Namespace).Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		recorder.Event(pod(1), corev1.EventTypeNormal, "Again", "the same")
		recorder.Shutdown(ctx)
		if list, err = client.CoreV1().Events("").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
			t.Errorf("rule 16: %v, events %+v, want the second one", err, list.Items)
		}
		if failures > 0 {
			t.Errorf("rule 16: %d failures counted, though nothing is lost", failures)
		}
	})
}

// overloadedServer is an API server that answers the first requests with these codes and
// all others with 201.
type overloadedServer struct {
	codes []int
	// retryAfter is the header of the first answers, "" for none.
	retryAfter string
	// asked are the times of the requests since begun.
	begun time.Time
	asked []time.Duration
}

// RoundTrip implements http.RoundTripper.
func (s *overloadedServer) RoundTrip(request *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, time.Since(s.begun))
	response := httptest.NewRecorder()
	if n := len(s.asked); n <= len(s.codes) {
		if s.retryAfter != "" {
			response.Header().Set("Retry-After", s.retryAfter)
		}
		response.WriteHeader(s.codes[n-1])
		return response.Result(), nil
	}
	response.Header().Set("Content-Type", request.Header.Get("Content-Type"))
	response.WriteHeader(http.StatusCreated)
	if _, err := io.Copy(response.Body, request.Body); err != nil {
		return nil, err
	}
	return response.Result(), nil
}

// TestOverloadDelaysEvents sends a warning with the program's client of events.
func TestOverloadDelaysEvents(t *testing.T) {
	for name, test := range map[string]struct {
		codes      []int
		retryAfter string
		requests   int
		// earliest is when the last request may be sent.
		earliest time.Duration
	}{
		"rule 12: 429 with Retry-After delays an event":                   {[]int{429}, "1", 2, time.Second},
		"rule 12: 503 with Retry-After delays an event":                   {[]int{503, 503}, "20", 3, 40 * time.Second},
		"rule 12: 429 without Retry-After delays an event":                {[]int{429}, "", 2, 0},
		"rule 12: 503 without Retry-After delays an event":                {[]int{503}, "", 2, 0},
		"rule 12: an event does not wait for an hour":                     {[]int{429}, "3600", 2, 5 * time.Minute},
		"rule 12: an event is sent twelve times at most":                  {slices.Repeat([]int{503}, 12), "", 12, 110 * time.Second},
		"rule 16: an event that the API server refuses is not sent again": {[]int{403}, "", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "")
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				server := &overloadedServer{codes: test.codes, retryAfter: test.retryAfter, begun: time.Now()}
				config, err := client.NewConfig(client.Options{Master: "http://api", QPS: client.Unlimited, Burst: 1})
				if err != nil {
					t.Fatal(err)
				}
				config.Transport = server
				limited, _ := client.ForEvents(config)
				kube, err := kubernetes.NewForConfig(limited)
				if err != nil {
					t.Fatal(err)
				}
				failures := 0
				recorder := New(ctx, kube.CoreV1(), scheme.Scheme, "me", func() { failures++ })
				recorder.Event(pod(1), corev1.EventTypeWarning, "Refused", "quota")
				time.Sleep(10 * time.Minute)
				recorder.Shutdown(ctx)
				if len(server.asked) != test.requests || failures != len(test.codes) {
					t.Fatalf("%d requests and %d failures, want %d and %d", len(server.asked), failures, test.requests, len(test.codes))
				}
				// There are ten seconds at least before each further request.
				latest := test.earliest + time.Duration(test.requests-1)*10*time.Second
				if last := server.asked[test.requests-1]; last < test.earliest || last > latest {
					t.Errorf("the last request was sent after %v, want %v to %v", last, test.earliest, latest)
				}
			})
		})
	}
}

// TestShutdownDoesNotWaitForRetryAfter: a shutdown ends in time although the API server
// asks to wait.
func TestShutdownDoesNotWaitForRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		client := fake.NewClientset()
		client.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewTooManyRequests("later", 60)
		})
		recorder := New(ctx, client.CoreV1(), scheme.Scheme, "me", func() {})
		recorder.Event(pod(1), corev1.EventTypeNormal, "Made", "")
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		recorder.Shutdown(limited)
		synctest.Wait()
		if took := time.Since(start); took != 5*time.Second || len(client.Actions()) != 1 {
			t.Errorf("rule 20: giving up took %v with %d requests, want 5s with 1", took, len(client.Actions()))
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

// TestNamespacesHaveAShare records very many events of one namespace, and then some of others,
// while the API server takes 50 ms for each.
func TestNamespacesHaveAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		client := fake.NewClientset()
		var mu sync.Mutex
		var namespaces []string
		sent := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(namespaces)
		}
		client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(50 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			namespaces = append(namespaces, action.GetNamespace())
			return true, action.(clienttesting.CreateAction).GetObject(), nil
		})
		var failures atomic.Int64
		recorder := New(ctx, client.CoreV1(), scheme.Scheme, "me", func() { failures.Add(1) })
		recorder.Event(podIn("many", 0), corev1.EventTypeNormal, "Made", "")
		synctest.Wait()
		record := func(namespace string, count int) (dropped int64) {
			before := failures.Load()
			for i := range count {
				recorder.Event(podIn(namespace, i), corev1.EventTypeNormal, "Made", "")
			}
			return failures.Load() - before
		}
		for _, test := range []struct {
			namespace      string
			count, dropped int
		}{{"many", 1500, 500}, {"few", 25, 0}, {"others", 26, 1}} {
			if got := record(test.namespace, test.count); got != int64(test.dropped) {
				t.Errorf("rule 16: of %d events of the namespace %s %d were dropped, not %d", test.count, test.namespace, got, test.dropped)
			}
		}
		time.Sleep(4 * time.Second)
		turns := slices.Concat([]string{"many"}, slices.Repeat([]string{"many", "few", "others"}, 25))
		if got := sent(); len(got) < len(turns) || !slices.Equal(got[:len(turns)], turns) {
			t.Errorf("rule 25: in four seconds the events of these namespaces were sent: %v", got)
		}
		recorder.Shutdown(ctx)
		if got := len(sent()); got != 1051 {
			t.Errorf("rule 16: %d events were sent, not each of the 1051 that were not dropped", got)
		}
	})
}

// TestEventsThatAreNeverSent: each is counted.
func TestEventsThatAreNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		client, failures := fake.NewClientset(), 0
		recorder := New(ctx, client.CoreV1(), scheme.Scheme, "me", func() { failures++ })
		recorder.Event(nil, corev1.EventTypeNormal, "NoObject", "")
		if failures != 1 {
			t.Errorf("rule 16: %d failures counted after an event about nothing", failures)
		}
		recorder.Shutdown(ctx)
		recorder.Event(pod(1), corev1.EventTypeNormal, "Late", "")
		if failures != 2 || len(client.Actions()) > 0 {
			t.Errorf("rule 16: %d failures counted and %d requests after an event that came after the shutdown", failures, len(client.Actions()))
		}
	})
}

// TestDroppedEventsAreCounted records more events than the queue holds while the API server
// does not answer.
func TestDroppedEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		client, answer := fake.NewClientset(), make(chan struct{})
		client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
			<-answer
			return true, action.(clienttesting.CreateAction).GetObject(), nil
		})
		var failures atomic.Int64
		recorder := New(ctx, client.CoreV1(), scheme.Scheme, "me", func() { failures.Add(1) })
		recorder.Event(pod(0), corev1.EventTypeNormal, "Made", "")
		// One event is being sent, a thousand wait.
		synctest.Wait()
		for i := range 1000 {
			recorder.Event(pod(i+1), corev1.EventTypeNormal, "Made", "")
		}
		if got := failures.Load(); got != 0 {
			t.Errorf("rule 16: %d failures counted while the queue had room", got)
		}
		recorder.Event(pod(0), corev1.EventTypeNormal, "Dropped", "")
		recorder.Eventf(pod(0), corev1.EventTypeNormal, "Dropped", "%d", 2)
		recorder.AnnotatedEventf(pod(0), nil, corev1.EventTypeNormal, "Dropped", "%d", 3)
		if got := failures.Load(); got != 3 {
			t.Errorf("rule 16: %d failures counted, want one for each of the 3 events that were dropped", got)
		}
		close(answer)
		synctest.Wait()
		recorder.Event(pod(1001), corev1.EventTypeNormal, "Sent", "")
		recorder.Shutdown(ctx)
		if got := len(client.Actions()); got != 1002 {
			t.Errorf("rule 16: %d requests, want one for each of the 1002 events that were not dropped", got)
		}
		if got := failures.Load(); got != 3 {
			t.Errorf("rule 16: %d failures counted at the end, want 3", got)
		}
	})
}
