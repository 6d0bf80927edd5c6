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

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

func TestRefusalsShareABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackoff(clock.RealClock{})
		buckets := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.buckets)
		}
		expect := func(sentence, namespace string, want time.Duration) {
			t.Helper()
			if got := b.token(namespace).Round(time.Microsecond); got != want {
				t.Errorf("rule 25: %s: delay %v, want %v", sentence, got, want)
			}
		}
		for range refusalBurst {
			expect("a hundred refusals have no delay", "ns", 0)
		}
		expect("ten a second follow", "ns", 100*time.Millisecond)
		expect("another namespace has a bucket of its own", "other", 0)
		for i := range 5*60*refusalQPS - 1 {
			expect("each waits for its token", "ns", time.Duration(i+2)*100*time.Millisecond)
		}
		for range 1000 {
			expect("a refusal waits for 5 minutes at most", "ns", 5*time.Minute)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		expect("and takes no token then", "ns", 5*time.Minute-900*time.Millisecond)
		if got := buckets(); got != 1 {
			t.Errorf("rule 23: %d namespaces are remembered, want the one whose bucket is not full", got)
		}
		time.Sleep(3*time.Minute - time.Second)
		for range 40 {
			b.token("ns")
		}
		// 3,141 tokens are back after 314.1 s.
		time.Sleep(134 * time.Second)
		synctest.Wait()
		if got := buckets(); got != 1 {
			t.Errorf("rule 25: %d namespaces are remembered before the bucket is full", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := buckets(); got != 0 {
			t.Errorf("rule 23: %d namespaces are remembered", got)
		}
	})
}

// syncsOf returns a sync that calls result for the keys of the namespace ns, and the number of
// these calls. A key of another namespace succeeds.
func syncsOf(result func(key cache.ObjectName) error) (SyncFunc, func() int) {
	var mu sync.Mutex
	count := 0
	return func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			time.Sleep(time.Millisecond)
			if key.Namespace != "ns" {
				return 0, nil
			}
			mu.Lock()
			defer mu.Unlock()
			count++
			return 0, result(key)
		}, func() int {
			mu.Lock()
			defer mu.Unlock()
			return count
		}
}

// TestRefusedNamespace is about objects that are refused for ever: up to 3,000 of them are synced
// ten times a second, more of them once in 5 minutes each. A change of another namespace waits for
// the syncs in progress.
func TestRefusedNamespace(t *testing.T) {
	for keys, want := range map[int]int{2000: 5 * 60 * refusalQPS, 10_000: 10_000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sync, count := syncsOf(func(cache.ObjectName) error { return errQuota() })
				var changed atomic.Int32
				w := newTestWorker(t, func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
					if key.Namespace == "other" {
						changed.Add(1)
					}
					return sync(ctx, key)
				})
				stop := run(t, w)
				for _, key := range keysOf(keys) {
					w.Enqueue(key)
				}
				settled, begun := 0, time.Now()
				for i := int32(1); time.Since(begun) < 20*time.Minute; i++ {
					if settled == 0 && time.Since(begun) > 15*time.Minute {
						settled = count()
					}
					w.Enqueue(cache.NewObjectName("other", "foo"))
					time.Sleep(2 * time.Millisecond)
					synctest.Wait()
					if changed.Load() != i {
						t.Fatal("rule 25: a change of another namespace waits for more than the syncs in progress")
					}
					time.Sleep(95 * time.Millisecond)
				}
				if got := count() - settled; got < want*98/100 || got > want*102/100 {
					t.Errorf("rule 25: %d syncs are refused in 5 minutes, want about %d", got, want)
				}
				stop()
			})
		})
	}
}

// TestOutage: the API server is away for a minute. Its return is found soon, however many objects of
// one namespace wait for it.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, converged := time.Now(), map[cache.ObjectName]bool{}
		sync, _ := syncsOf(func(key cache.ObjectName) error {
			if time.Since(begun) < time.Minute {
				return errors.New("connection refused")
			}
			converged[key] = true
			return nil
		})
		w := newTestWorker(t, sync, func(o *WorkerOptions) { o.Workers = 8 })
		stop := run(t, w)
		for _, key := range keysOf(10_000) {
			w.Enqueue(key)
		}
		time.Sleep(2 * time.Minute)
		stop()
		if len(converged) != 10_000 {
			t.Errorf("rule 12: %d of 10,000 objects have converged a minute after the outage", len(converged))
		}
		if len(w.backoff.buckets) > 0 {
			t.Error("rule 25: a failure takes a token")
		}
	})
}
