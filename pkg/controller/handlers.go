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
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// AddEventHandler makes Run add a handler to the informer of a kind. Before that, in a process that stands
// by, it would fill a queue that no worker drains.
func AddEventHandler[T cache.Object](w *Worker, kind string, informer cache.TypedSharedIndexInformer[T], handler cache.TypedResourceEventHandler[T]) {
	w.handlers = append(w.handlers, func(ctx context.Context) (cache.DoneChecker, error) {
		logger := klog.FromContext(ctx)
		registration, err := informer.AddTypedEventHandler(handler, cache.HandlerOptions{Logger: &logger})
		if err != nil {
			return nil, fmt.Errorf("adding an event handler to the %s informer: %w", kind, err)
		}
		return registration.HasSyncedChecker(), nil
	})
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
			// The cache keeps the annotations that a controller reads, for Foos none.
			case isTerminating(old) != isTerminating(owner) || !maps.Equal(old.GetAnnotations(), owner.GetAnnotations()):
				o.Worker.Queue.AddHighPriority(key)
			case o.Worker.Queue.NumRequeues(key) > 0:
				// The retry comes before that, or has just succeeded.
				o.Worker.Queue.AddAfter(key, maxBackoff)
			default:
				o.Worker.Queue.AddAfter(key, statusEventDelay)
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[O]) { o.enqueueGone(deleted.GetObjectName()) },
	}
}

// enqueueGone forgets and enqueues an owner that is gone, or was created again.
func (o *Owners[O]) enqueueGone(key cache.ObjectName) {
	o.forget(key)
	o.Worker.Queue.Forget(key)
	o.Worker.Queue.AddHighPriority(key)
}

// EventHandler returns the handler that enqueues the owners that control a dependent, before and
// after the event. It calls enqueueName with the name of the object if the event matters to other owners
// that ask for that name: annotations tell of an adoption, managed fields of our first write.
func (d *Dependents[O, T]) EventHandler(enqueueName func(cache.ObjectName)) cache.TypedResourceEventHandlerDetailedFuncs[T] {
	return cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc: func(object T, isInInitialList bool) {
			if isInInitialList {
				// Each owner is in the queue because of its own list.
				return
			}
			d.enqueueOwner(object)
			enqueueName(cache.MetaObjectToName(object))
		},
		UpdateFunc: func(old, object T) {
			if old.GetResourceVersion() == object.GetResourceVersion() {
				return
			}
			d.enqueueOwner(old)
			d.enqueueOwner(object)
			if old.GetUID() != object.GetUID() || isTerminating(old) != isTerminating(object) ||
				!equality.Semantic.DeepEqual(old.GetOwnerReferences(), object.GetOwnerReferences()) ||
				!equality.Semantic.DeepEqual(old.GetAnnotations(), object.GetAnnotations()) ||
				len(old.GetManagedFields()) != len(object.GetManagedFields()) {
				enqueueName(cache.MetaObjectToName(object))
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[T]) {
			if deleted.OptionalObj != *new(T) {
				d.enqueueOwner(deleted.OptionalObj)
			}
			enqueueName(deleted.GetObjectName())
		},
	}
}

// enqueueOwner enqueues the owner that controls the object, if one does.
func (d *Dependents[O, T]) enqueueOwner(object T) {
	if ref := ControllerOf(object, d.owners.Kind.GroupKind()); ref != nil {
		d.owners.Worker.Queue.AddHighPriority(cache.NewObjectName(object.GetNamespace(), ref.Name))
	}
}
