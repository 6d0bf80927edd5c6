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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

const (
	// objectBurst is how many events of a type an object may have at once, objectQPS how many
	// a second after that. A schedule with a run every ten seconds has two events a run.
	objectBurst = 25
	objectQPS   = 0.2
	// limitedObjects is how many rate limits are kept: one for each object and event type.
	limitedObjects = 4096
)

// limiter limits the events of an object: those of all objects share a rate limit.
type limiter struct {
	buckets *lru.Cache
}

func newLimiter() *limiter {
	return &limiter{buckets: lru.New(limitedObjects)}
}

// accept reports whether the event may be sent. It is not safe for use by several goroutines.
func (l *limiter) accept(event *corev1.Event) bool {
	type key struct {
		object    corev1.ObjectReference
		eventType string
	}
	of := key{object: event.InvolvedObject, eventType: event.Type}
	of.object.ResourceVersion = ""
	bucket, ok := l.buckets.Get(of)
	if !ok {
		bucket = flowcontrol.NewTokenBucketPassiveRateLimiter(objectQPS, objectBurst)
		l.buckets.Add(of, bucket)
	}
	return bucket.(flowcontrol.PassiveRateLimiter).TryAccept()
}
