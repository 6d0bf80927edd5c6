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
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

const (
	// objectBurst is how many events of a type an object may have at once, objectQPS how many
	// a second after that. A schedule with a run every ten seconds has two events a run.
	objectBurst = 25
	objectQPS   = 0.2
	// limitedObjects is for how many objects the events are counted.
	limitedObjects = 4096
)

// correlatorOptions turn client-go's own limit off, which is one event in five minutes and
// does not tell what it drops.
func correlatorOptions() record.CorrelatorOptions {
	return record.CorrelatorOptions{BurstSize: math.MaxInt32}
}

// limiter is a sink that drops events of an object that has very many: the events of all
// objects share a rate limit. It calls dropped for each.
type limiter struct {
	record.EventSink

	dropped func()
	buckets *lru.Cache
	// accepted is the event that was accepted last. client-go sends it again if that fails.
	accepted *corev1.Event
}

func newLimiter(sink record.EventSink, dropped func()) *limiter {
	return &limiter{EventSink: sink, dropped: dropped, buckets: lru.New(limitedObjects)}
}

// Create implements record.EventSink.
func (l *limiter) Create(event *corev1.Event) (*corev1.Event, error) {
	if !l.accept(event) {
		return event, nil
	}
	return l.EventSink.Create(event)
}

// Patch implements record.EventSink.
func (l *limiter) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	if !l.accept(event) {
		return event, nil
	}
	return l.EventSink.Patch(event, data)
}

// accept reports whether the event may be sent. client-go calls the sink from one goroutine.
func (l *limiter) accept(event *corev1.Event) bool {
	if event == l.accepted {
		return true
	}
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
	if !bucket.(flowcontrol.PassiveRateLimiter).TryAccept() {
		l.dropped()
		return false
	}
	l.accepted = event
	return true
}
