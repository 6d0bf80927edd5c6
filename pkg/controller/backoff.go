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
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	// minBackoff is the delay before a failed sync is retried. It doubles with each failure, up to
	// maxBackoff after refusals and up to maxTransientBackoff after other errors: no event announces
	// that the API server has recovered.
	minBackoff          = 5 * time.Millisecond
	maxBackoff          = 5 * time.Minute
	maxTransientBackoff = 30 * time.Second
	// maxRetryAfter caps Retry-After: a proxy that answers with an hour must not stop an object.
	maxRetryAfter = 5 * time.Minute
	// refusalQPS and refusalBurst are those of workqueue.DefaultTypedControllerRateLimiter.
	refusalQPS   = 10
	refusalBurst = 100
)

// backoff tells how long to wait after a failed sync: for a delay that doubles with each failure of
// the key, and after a refusal also for a token of its namespace. Ten thousand objects that are
// refused for ever must not take the API server from other namespaces.
type backoff struct {
	workqueue.TypedRateLimiter[cache.ObjectName]

	clock clock.WithDelayedExecution

	mu sync.Mutex
	// buckets has those of namespaces that are not full.
	buckets map[string]*rate.Limiter
}

func newBackoff(clock clock.WithDelayedExecution) *backoff {
	items := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](minBackoff, maxBackoff)
	return &backoff{TypedRateLimiter: items, clock: clock, buckets: map[string]*rate.Limiter{}}
}

// next counts a failure and returns the delay that follows it.
func (b *backoff) next(key cache.ObjectName, err error) time.Duration {
	delay := b.When(key)
	if IsRejection(err) {
		return max(delay, b.token(key.Namespace))
	}
	return min(delay, maxTransientBackoff)
}

// token takes a token of the namespace and returns how long to wait for it. It takes none if that
// is longer than maxBackoff.
func (b *backoff) token(namespace string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	bucket, ok := b.buckets[namespace]
	if !ok {
		bucket = rate.NewLimiter(refusalQPS, refusalBurst)
		b.buckets[namespace] = bucket
		b.clock.AfterFunc(time.Second/refusalQPS, func() { b.dropFull(namespace) })
	}
	token := bucket.ReserveN(now, 1)
	delay := token.DelayFrom(now)
	if delay > maxBackoff {
		token.CancelAt(now)
	}
	return min(delay, maxBackoff)
}

// dropFull drops the namespace's bucket once it is full.
func (b *backoff) dropFull(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	missing := refusalBurst - b.buckets[namespace].TokensAt(b.clock.Now())
	if missing > 0 {
		b.clock.AfterFunc(time.Duration(missing*float64(time.Second/refusalQPS))+1, func() { b.dropFull(namespace) })
	} else if delete(b.buckets, namespace); len(b.buckets) == 0 {
		b.buckets = map[string]*rate.Limiter{} // A Go map never shrinks.
	}
}

// longestRetryAfter returns the longest Retry-After of all errors that err joins, 5 minutes at most.
func longestRetryAfter(err error) (longest time.Duration) {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, err := range joined.Unwrap() {
			longest = max(longest, longestRetryAfter(err))
		}
		return longest
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
