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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// OwnerClient is what Owners need of client-go's typed client of a namespace.
type OwnerClient[O Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (O, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (O, error)
}

// OwnersOptions are what Owners are made of. All are required.
type OwnersOptions[O Object] struct {
	Options

	Kind     schema.GroupVersionKind
	Resource schema.GroupResource
	Informer cache.TypedSharedIndexInformer[O]
	Client   func(namespace string) OwnerClient[O]
	// LatestVersion returns the resource version of a consistent list, which should be limited to one object.
	LatestVersion func(ctx context.Context) (resourceVersion string, err error)
	// Status returns a pointer to the status.
	Status func(O) any
}

// Owners are the objects of a controller's own kind. Create them with NewOwners.
type Owners[O Object] struct {
	OwnersOptions[O]
	*Writes

	store cache.TypedIndexer[O]

	// startVersion is the version that the API server had when this process began to lead, nil before.
	startVersion atomic.Pointer[string]
}

// NewOwners returns the owners, with an empty ledger.
func NewOwners[O Object](options OwnersOptions[O]) *Owners[O] {
	o := &Owners[O]{OwnersOptions: options, Writes: NewWrites(options.Clock), store: options.Informer.GetTypedIndexer()}
	options.Worker.atStart = append(options.Worker.atStart, o.ReadStartVersion)
	return o
}

// Get returns the owner, once the caches show what the last sync wrote. One that is terminating does not exist.
func (o *Owners[O]) Get(key cache.ObjectName) (owner O, exists bool, err error) {
	// The store is read after its version.
	if err := o.Seen(key); err != nil {
		return owner, false, err
	}
	owner, exists = o.Cached(key)
	if exists = exists && !isTerminating(owner); !exists {
		o.forget(key)
	}
	return owner, exists, nil
}

// Cached returns the owner as the cache has it.
func (o *Owners[O]) Cached(key cache.ObjectName) (owner O, exists bool) {
	owner = stored(o.store, key)
	return owner, owner != *new(O)
}

// Enqueue enqueues the owner of that name, if there is one. It is for the EventHandler of dependents that have the names
// of their owners: one that waits for the name takes it over when it is free.
func (o *Owners[O]) Enqueue(name cache.ObjectName) {
	if _, exists := o.Cached(name); exists {
		o.Worker.Queue.AddHighPriority(name)
	}
}

func (o *Owners[O]) forget(key cache.ObjectName) {
	o.Forget(key)
	o.Worker.Debouncer.Reset(key)
}

// statusEventDelay is the delay after an update that leaves the spec alone: as a rule the controller's own.
const statusEventDelay = time.Second

// EventHandler returns the handler that enqueues an owner for its events. An update of its status waits for
// the retry of a failed sync: a refusal whose message differs each time would be retried without backoff.
func (o *Owners[O]) EventHandler() cache.TypedResourceEventHandlerDetailedFuncs[O] {
	return cache.TypedResourceEventHandlerDetailedFuncs[O]{
		AddFunc: func(owner O, isInInitialList bool) {
			if key := cache.MetaObjectToName(owner); isInInitialList {
				// With low priority: a user's change does not wait for the whole list.
				o.Worker.Queue.Add(key)
			} else {
				o.Worker.Queue.AddHighPriority(key)
			}
		},
		UpdateFunc: func(old, owner O) {
			key := cache.MetaObjectToName(owner)
			switch {
			case old.GetResourceVersion() == owner.GetResourceVersion():
				if o.Worker.options.Resync {
					o.Worker.Queue.Add(key)
				}
			case old.GetUID() != owner.GetUID():
				o.enqueueGone(key)
			case old.GetGeneration() != owner.GetGeneration():
				// The backoff belongs to the old spec.
				o.Worker.Queue.Forget(key)
				o.Worker.Queue.AddHighPriority(key)
			// The cache keeps the annotations and finalizers that a controller reads, for Foos none.
			case isTerminating(old) != isTerminating(owner) || !maps.Equal(old.GetAnnotations(), owner.GetAnnotations()) ||
				!slices.Equal(old.GetFinalizers(), owner.GetFinalizers()):
				o.Worker.Queue.AddHighPriority(key)
			case o.Worker.Queue.NumRequeues(key) > 0:
				// The retry comes first. This is only a safety net.
				o.Worker.Queue.AddAfter(key, maxBackoff)
			default:
				o.Worker.Queue.AddAfter(key, statusEventDelay)
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[O]) { o.enqueueGone(deleted.GetObjectName()) },
	}
}

// enqueueGone enqueues an owner that is gone, or was created again. It leaves the ledger to the sync, which may have
// written for the new owner before this event of the former one.
func (o *Owners[O]) enqueueGone(key cache.ObjectName) {
	o.Worker.Queue.Forget(key)
	o.Worker.Queue.AddHighPriority(key)
}

// CheckLive returns nil if the API server has the owner as the cache does, and a NewConflict if the live one is gone,
// terminating, or has another UID or generation: another process may have acted on a newer spec.
func (o *Owners[O]) CheckLive(ctx context.Context, owner O) error {
	_, err := o.read(ctx, owner, func(live O) bool { return isCurrent(live, owner) })
	return err
}

// Live returns the live owner, in full, or a NewConflict if that has another resourceVersion than the cached one.
func (o *Owners[O]) Live(ctx context.Context, owner O) (O, error) {
	return o.read(ctx, owner, func(live O) bool { return live.GetResourceVersion() == owner.GetResourceVersion() })
}

// read reads the owner from the API server. It returns a NewConflict if that is gone or not the same.
func (o *Owners[O]) read(ctx context.Context, owner O, same func(live O) bool) (none O, err error) {
	if err := o.Worker.acquireIfLarge(ctx, owner); err != nil {
		return none, err
	}
	live, err := o.Client(owner.GetNamespace()).Get(ctx, owner.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !same(live) {
		err = NewConflict(o.Resource, owner.GetName())
	}
	if err != nil {
		return none, fmt.Errorf("reading %s %s: %w", o.Kind.Kind, klog.KObj(owner), err)
	}
	return live, nil
}

// ReadStartVersion asks for the owners' latest version until the API server answers, when a process begins to lead.
func (o *Owners[O]) ReadStartVersion(ctx context.Context) {
	// It fails if ctx ends.
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		latest, err := o.LatestVersion(ctx)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Reading the latest version failed, trying again", "resource", o.Resource, "err", err)
			return false, nil
		}
		o.startVersion.Store(&latest)
		return true, nil
	})
}

// checkBeforeWrite reads the owner live if that is needed, or while the cache may be older than what a former leader
// acted on: this process must apply no spec older than that (docs/contract.md, S6). If the cache reached that version
// during the sync, it has to have the same owner still.
func (o *Owners[O]) checkBeforeWrite(ctx context.Context, owner O, needed bool) error {
	// A bookmark raises the version of the store within about a minute. Unknown versions cannot be compared.
	order, err := resourceversion.CompareResourceVersion(o.store.LastStoreSyncResourceVersion(), ptr.Deref(o.startVersion.Load(), ""))
	cached, exists := o.Cached(cache.MetaObjectToName(owner))
	if !needed && err == nil && order >= 0 && exists && isCurrent(cached, owner) {
		return nil
	}
	return o.CheckLive(ctx, owner)
}

// UpdateStatus replaces the status of the owner if it differs from the cached one, then records the events that are not
// nil. A status that reports only progress is delayed: next is when to call it again. ready is for the log. With the
// cached resourceVersion the API server refuses the patch for an owner that has changed or was created anew.
func (o *Owners[O]) UpdateStatus(ctx context.Context, owner O, status any, progress bool, ready metav1.Condition, events ...*Event) (next time.Time, err error) {
	key := cache.MetaObjectToName(owner)
	if equality.Semantic.DeepEqual(o.Status(owner), status) {
		o.Worker.Debouncer.Reset(key)
		return time.Time{}, nil
	}
	if progress {
		if delay := o.Worker.Debouncer.Postpone(key); delay > 0 {
			return o.Clock.Now().Add(delay), nil
		}
	}
	patch, err := newStatusPatch(owner.GetResourceVersion(), o.Status(owner), status)
	if err != nil {
		return time.Time{}, err
	}
	if err := o.Worker.acquireIfLarge(ctx, owner); err != nil {
		return time.Time{}, err
	}
	answer, err := o.Client(owner.GetNamespace()).Patch(ctx, owner.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager}, "status")
	if err != nil {
		return time.Time{}, fmt.Errorf("updating the status of %s: %w", o.Kind.Kind, err)
	}
	o.Metrics.Wrote(o.Kind.Kind, o.Resource.Resource+"/status", "patch")
	o.Worker.Debouncer.Reset(key)
	o.Await(owner, o.store, answer.GetResourceVersion())
	klog.FromContext(ctx).V(2).Info("Updated status", "ready", ready.Status, "reason", ready.Reason)
	for _, event := range events {
		if event != nil {
			o.Recorder.Event(owner, event.Type, event.Reason, event.Message)
		}
	}
	return time.Time{}, nil
}

// newStatusPatch returns the merge patch that makes the old status the new one. It has all fields of the new status,
// since one that is 0 in the cache may be missing in what is stored, and null for those that go.
func newStatusPatch(version string, old, status any) ([]byte, error) {
	before, err := json.Marshal(map[string]any{"status": old})
	after, err2 := json.Marshal(map[string]any{"status": status, "metadata": map[string]any{"resourceVersion": version}})
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("encoding a status: %w", err)
	}
	changes, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("comparing the statuses: %w", err)
	}
	return jsonpatch.MergeMergePatches(after, changes)
}

// Ready is the type of the condition that every controller sets.
const Ready = "Ready"

// Event is an event to record about an object.
type Event struct {
	Type, Reason, Message string
}

// SetReady sets the Ready condition. lastTransitionTime is in whole seconds, as the API server keeps it.
func SetReady(conditions *[]metav1.Condition, ready metav1.Condition, generation int64, now metav1.Time) {
	ready.Type = Ready
	ready.ObservedGeneration = generation
	ready.LastTransitionTime = now.Rfc3339Copy()
	meta.SetStatusCondition(conditions, ready)
}

// GetReady returns the Ready condition, an empty one if there is none.
func GetReady(conditions []metav1.Condition) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(conditions, Ready), metav1.Condition{})
}

// NotReady returns a Ready condition that is False.
func NotReady(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// LostReady reports whether the condition was True for this generation and is not any more: the cluster has changed.
func LostReady(old, ready metav1.Condition, generation int64) bool {
	return old.Status == metav1.ConditionTrue && ready.Status != metav1.ConditionTrue && old.ObservedGeneration == generation
}

// IsNews reports whether a problem is worth an event: it has another reason than the old one, or
// its message begins with another clause. What follows a semicolon is advice.
func IsNews(old, ready metav1.Condition) bool {
	was, _, _ := strings.Cut(old.Message, ";")
	is, _, _ := strings.Cut(ready.Message, ";")
	return old.Reason != ready.Reason || was != is
}

// ReadyEvent returns the event about a change of the Ready condition of an owner of that kind: it became Ready, or it
// has one of the problems, which its user has to solve, with a reason or a first clause that is new (IsNews). It returns
// nil for other changes.
func ReadyEvent(kind string, old, ready metav1.Condition, problems ...string) *Event {
	if ready.Status == metav1.ConditionTrue && old.Status != metav1.ConditionTrue {
		return &Event{Type: corev1.EventTypeNormal, Reason: EventSynced, Message: kind + " is ready: " + ready.Message}
	}
	if !slices.Contains(problems, ready.Reason) || !IsNews(old, ready) {
		return nil
	}
	event := &Event{Type: corev1.EventTypeWarning, Reason: ready.Reason, Message: ready.Message}
	if strings.HasSuffix(ready.Reason, "NotOwned") {
		event.Reason = EventErrResourceExists
	}
	return event
}

// DescribeRefusal says what the API server refused, and when the write is tried again. kind is that of the owner.
func DescribeRefusal(kind string, refused error) string {
	message := "the API server refused: " + RefusalMessage(refused)
	if errors.Is(refused, ErrOverridden) {
		return message + "; once it no longer does, delete that object, and it is created again"
	}
	return message + "; it is tried again at least every 5 minutes, and at once when the " + kind + " changes"
}
