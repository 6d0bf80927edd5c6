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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2/ktesting"
)

// TestEventsOfOneObject records events with different messages, the same number at a time.
func TestEventsOfOneObject(t *testing.T) {
	for name, test := range map[string]struct {
		atOnce, times int
		pause         time.Duration
		// sent is how many events are sent; the others are dropped.
		sent int
	}{
		"rule 16: two events a minute, for two hours":               {atOnce: 2, times: 120, pause: time.Minute, sent: 240},
		"rule 16: two events every ten seconds, for twenty minutes": {atOnce: 2, times: 120, pause: 10 * time.Second, sent: 240},
		"rule 16: a hundred events at once are not all sent":        {atOnce: 100, times: 1, sent: 25},
		"rule 16: after many events there is one in five seconds":   {atOnce: 100, times: 2, pause: 10 * time.Second, sent: 27},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				client := fake.NewClientset()
				var failures atomic.Int64
				recorder := New(ctx, client.CoreV1(), scheme.Scheme, "me", func() { failures.Add(1) })
				for range test.times {
					for number := range test.atOnce {
						recorder.Eventf(pod(1), corev1.EventTypeNormal, "Made", "number %d at %v", number, time.Now())
						// The name of an event has the time.
						time.Sleep(time.Millisecond)
					}
					time.Sleep(test.pause)
				}
				if sent := len(client.Actions()); sent != test.sent || int(failures.Load()) != test.atOnce*test.times-sent {
					t.Errorf("of %d events %d were sent, want %d, and %d counted as dropped", test.atOnce*test.times, sent, test.sent, failures.Load())
				}
				recorder.Event(pod(1), corev1.EventTypeWarning, "Failed", "")
				recorder.Event(pod(2), corev1.EventTypeNormal, "Made", "")
				recorder.Shutdown(ctx)
				if sent := len(client.Actions()); sent != test.sent+2 {
					t.Errorf("%d events of another type and of another object were sent, want 2", sent-test.sent)
				}
			})
		})
	}
}
