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
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/client"
)

// apiServer answers the first requests with these codes, where 0 is no answer, and all others
// with the event that they send. If it hangs, it answers when the request is cancelled.
type apiServer struct {
	codes    []int
	hangs    bool
	methods  []string
	failures int
	log      ktesting.Underlier
}

// RoundTrip implements http.RoundTripper.
func (s *apiServer) RoundTrip(request *http.Request) (*http.Response, error) {
	s.methods = append(s.methods, request.Method)
	if s.hangs {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	answer, code := httptest.NewRecorder(), http.StatusCreated
	if n := len(s.methods); n <= len(s.codes) {
		code = s.codes[n-1]
	}
	switch {
	case code == 0:
		return nil, errors.New("connection refused")
	case code >= http.StatusTooManyRequests:
		answer.Header().Set("Retry-After", "1")
	case code == http.StatusCreated:
		answer.Header().Set("Content-Type", "application/json")
		answer.Body.WriteString(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"event","namespace":"ns"}}`)
	}
	answer.WriteHeader(code)
	return answer.Result(), nil
}

// start returns a recorder that sends events with the program's client of events, without its
// rate limit.
func (s *apiServer) start(t *testing.T) (record.EventRecorder, context.CancelFunc) {
	t.Helper()
	config, err := client.NewConfig(client.Options{Master: "http://api", QPS: client.Unlimited, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	config.Transport = s
	kube := kubernetes.NewForConfigOrDie(config)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	s.log = logger.GetSink().(ktesting.Underlier)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	// The events of syncs in progress are sent after a signal.
	cancel()
	return New(ctx, kube.CoreV1(), scheme.Scheme, "me", func() { s.failures++ })
}

func pod(n int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("pod-%d", n)}}
}

func TestRequests(t *testing.T) {
	again := func(recorder record.EventRecorder) {
		for range 2 {
			recorder.Event(pod(1), corev1.EventTypeNormal, "Again", "the same")
		}
	}
	one := func(recorder record.EventRecorder) {
		recorder.Event(pod(1), corev1.EventTypeWarning, "Refused", "quota")
	}
	for sentence, test := range map[string]struct {
		record   func(record.EventRecorder)
		codes    []int
		methods  string
		failures int
	}{
		"rule 16: a repeated event is one object":                         {again, nil, "[POST PATCH]", 0},
		"rule 16: an event that has expired is created again":             {again, []int{201, 404}, "[POST PATCH POST]", 0},
		"rule 16: an event that the API server refuses is not sent again": {one, []int{403}, "[POST]", 1},
		"rule 16: an event waits while the API server is overloaded":      {one, []int{429, 503}, "[POST POST POST]", 2},
		"rule 16: an event waits while the API server cannot be reached":  {one, []int{0}, "[POST POST]", 1},
		"rule 16: an object has a burst of 25 events of a type":           {burst(30, 0), nil, posts(25), 0},
		"rule 16: after the burst it has one event every 5 seconds":       {burst(30, 21*time.Second), nil, posts(29), 0},
		"rule 16: an event of the other type does not count in that burst": {
			func(recorder record.EventRecorder) { burst(30, 0)(recorder); one(recorder) }, nil, posts(26), 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &apiServer{codes: test.codes}
				recorder, stop := s.start(t)
				defer stop()
				test.record(recorder)
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := fmt.Sprint(s.methods); got != test.methods || s.failures != test.failures {
					t.Errorf("requests %s and %d failures, want %s and %d", got, s.failures, test.methods, test.failures)
				}
			})
		})
	}
}

// burst records events of one Pod with different reasons, which client-go does not aggregate,
// and as many more as pass in that time.
func burst(events int, then time.Duration) func(record.EventRecorder) {
	return func(recorder record.EventRecorder) {
		for i := range events {
			recorder.Event(pod(1), corev1.EventTypeNormal, fmt.Sprintf("Reason%d", i), "")
		}
		time.Sleep(then)
		for i := range int(then/(5*time.Second)) * 2 {
			recorder.Event(pod(1), corev1.EventTypeNormal, fmt.Sprintf("Later%d", i), "")
		}
	}
}

func posts(n int) string { return fmt.Sprint(slices.Repeat([]string{"POST"}, n)) }

// TestStop: recording does not block while the API server hangs, and the stop ends all
// goroutines, without an error in the log for what it cuts off.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiServer{hangs: true}
		recorder, stop := s.start(t)
		for i := range 100 {
			recorder.Event(pod(i), corev1.EventTypeNormal, "Made", "")
		}
		synctest.Wait()
		stop()
		// The bubble waits for all goroutines.
		synctest.Wait()
		for _, entry := range s.log.GetBuffer().Data() {
			if entry.Type == ktesting.LogError {
				t.Errorf("rule 20: logged at the stop: %s %v", entry.Message, entry.Err)
			}
		}
		if s.failures > 0 || len(s.methods) != 1 {
			t.Errorf("rule 20: %d requests and %d failures, want the one that hung, which counts as none", len(s.methods), s.failures)
		}
	})
}
