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
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Reasons of Normal events.
const (
	// EventCreated says that the controller created an object that the owner asks for.
	EventCreated = "Created"
	// EventUpdated says that the controller patched such an object.
	EventUpdated = "Updated"
	// EventAdopted says that the owner became the controller of an existing object, as its annotation asks.
	EventAdopted = "Adopted"
	// EventDeleted says that the controller deleted an object that the owner no longer asks for.
	EventDeleted = "Deleted"
	// EventSynced says that Ready became True.
	EventSynced = "Synced"
)

// Reasons of Warning events, beside those of conditions.
const (
	// EventErrResourceExists says that an object of the name exists that the owner does not control. The controller
	// does not change it.
	EventErrResourceExists = "ErrResourceExists"
)

// DependentClient is what Dependents need of client-go's typed client of a namespace.
type DependentClient[T Object] interface {
	OwnerClient[T]
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// DependentsOptions are what Dependents are made of. Those that only CreateOnce and Delete write, such as
// Jobs, need no more than the first four.
type DependentsOptions[O, T Object] struct {
	// Kind is that of the dependents, for messages.
	Kind     string
	Resource schema.GroupResource
	Informer cache.TypedSharedIndexInformer[T]
	Client   func(namespace string) DependentClient[T]
	// Diff returns the patch of the fields in which current, the owner's own, has drifted from desired.
	Diff func(owner O, desired, current T) Patch
	// Replicas returns how many replicas are wanted, if that changes within a generation: repairs count anew then.
	Replicas func(desired T) int32
	// Trim returns what the cache keeps of a dependent that an owner controls. It is called for no other one.
	Trim func(dependent T) T
	// Existed reports whether the status of this generation of the owner tells of a dependent. Then a write
	// is a repair, and Create reads the owner live.
	Existed func(owner O) bool
	// Advice is what a user can do about another writer.
	Advice string
}

// Dependents are the objects of one resource that owners of one kind control. Each method that writes makes one
// write, with a precondition and all that belongs to it: live reads, ledger, metric, log, event. Create and
// Patch return what the cache keeps of the answer, beside an error what they know of the dependent.
type Dependents[O, T Object] struct {
	DependentsOptions[O, T]

	owners *Owners[O]
	store  cache.TypedIndexer[T]
}

// NewDependents returns the dependents of the owners. It adds an index to the informer.
func NewDependents[O, T Object](owners *Owners[O], options DependentsOptions[O, T]) (*Dependents[O, T], error) {
	indexers := cache.TypedIndexers[T]{ByOwner: IndexByOwner[T](owners.Kind.GroupKind())}
	if err := options.Informer.AddTypedIndexers(indexers); err != nil {
		return nil, fmt.Errorf("adding an index to the %s informer: %w", options.Kind, err)
	}
	if options.Replicas == nil {
		options.Replicas = func(T) int32 { return 0 }
	}
	return &Dependents[O, T]{DependentsOptions: options, owners: owners, store: options.Informer.GetTypedIndexer()}, nil
}

// Get returns the object of that name from the cache, nil if there is none.
func (d *Dependents[O, T]) Get(namespace, name string) T {
	return stored(d.store, cache.NewObjectName(namespace, name))
}

// Of returns the objects in the cache that the owner controls, sorted by name.
func (d *Dependents[O, T]) Of(owner O) []T {
	objects := LookUpOwned(d.store, owner)
	slices.SortFunc(objects, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

// Live reads a cached dependent from the API server, in full. It returns a NewConflict if the live one is
// gone, terminating, another one of the name, has another generation, or is not the owner's.
func (d *Dependents[O, T]) Live(ctx context.Context, owner O, cached T) (none T, err error) {
	if err := d.owners.Worker.acquireIfLarge(ctx, cached); err != nil {
		return none, err
	}
	live, err := d.Client(cached.GetNamespace()).Get(ctx, cached.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (!isCurrent(live, cached) || !d.isControlledBy(live, owner)) {
		err = NewConflict(d.Resource, cached.GetName())
	}
	if err != nil {
		return none, d.failed("reading", cached, err)
	}
	return live, nil
}

func (d *Dependents[O, T]) isControlledBy(object T, owner O) bool {
	return IsControlledBy(object, owner, d.owners.Kind.GroupKind())
}

// Create creates the object, unless a pause lasts. If this process or the status knows of an earlier one in this
// generation, it reads the owner live before: the garbage collector may have deleted that one with the owner. If the
// API server has an object of the name, it returns a NewConflict: the next sync finds that.
func (d *Dependents[O, T]) Create(ctx context.Context, owner O, desired T) (none T, err error) {
	state, now := d.state(owner).forReplicas(d.Replicas(desired)), d.owners.Clock.Now()
	if state.pause(now) > 0 {
		return none, nil
	}
	isRepair := !state.lastWrite.IsZero() || d.Existed(owner)
	if err := d.owners.checkBeforeWrite(ctx, owner, isRepair); err != nil {
		return none, err
	}
	created, err := d.CreateOnce(ctx, owner, desired, "")
	if apierrors.IsAlreadyExists(err) {
		err = cmp.Or(d.CheckGone(ctx, owner, desired.GetName(), ""), err)
	}
	if err != nil {
		return created, err
	}
	if state = state.withWrite(isRepair, now); isRepair {
		state.message = fmt.Sprintf("another client keeps changing or deleting %s %q, and deleted it last; stop that client, and change or delete the %s instead",
			d.Kind, desired.GetName(), d.owners.Kind.Kind)
	}
	return d.compareAnswer(ctx, owner, desired, created, state), nil
}

// CreateOnce creates an object without comparing the answer, as for a Job. Once admission has taken an owner reference
// in this generation, it asks in a dry run first. why ends the message of the event.
func (d *Dependents[O, T]) CreateOnce(ctx context.Context, owner O, desired T, why string) (none T, err error) {
	if d.state(owner).overridden != "" {
		if err := d.TryCreate(ctx, owner, desired); err != nil {
			return none, err
		}
	}
	created, err := d.Client(desired.GetNamespace()).Create(ctx, desired, metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil {
		return none, d.failed("creating", desired, err)
	}
	if err := d.recordAnswer(owner, created, "create"); err != nil {
		return created, d.failed("creating", desired, err)
	}
	d.recordEvent(ctx, owner, created, EventCreated, why)
	return created, nil
}

// TryCreate asks the API server in a dry run whether it would create the object, and keep its owner.
func (d *Dependents[O, T]) TryCreate(ctx context.Context, owner O, desired T) error {
	answer, err := d.Client(desired.GetNamespace()).Create(ctx, desired, metav1.CreateOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		err = d.checkOwner(owner, answer)
	}
	return d.failed("creating", desired, err)
}

// CheckGone returns nil if the owner's object of that name and UID, which the cache does not have, is
// gone, and a NewConflict if the API server has it. Without a UID each object of that name counts.
func (d *Dependents[O, T]) CheckGone(ctx context.Context, owner O, name string, uid types.UID) error {
	// The size of an object that the cache does not have is unknown.
	if err := d.owners.Worker.acquireLarge(ctx); err != nil {
		return err
	}
	live, err := d.Client(owner.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && uid != "" && (live.GetUID() != uid || !d.isControlledBy(live, owner)):
		return nil
	case err == nil:
		d.owners.Await(owner, d.store, live.GetResourceVersion())
		err = NewConflict(d.Resource, name)
	}
	return fmt.Errorf("reading %s %q: %w", d.Kind, name, err)
}

// Patch repairs the fields in which the owner's own dependent differs from desired, but for what admission has put in
// place of it. It writes nothing to one that is terminating, or while a pause after earlier repairs lasts. It leaves an
// object alone that the owner does not control, with an ErrOverridden if that is admission's doing.
func (d *Dependents[O, T]) Patch(ctx context.Context, owner O, current, desired T) (T, error) {
	if !d.isControlledBy(current, owner) {
		return current, d.checkOverridden(owner, current)
	}
	state, now := d.state(owner).forReplicas(d.Replicas(desired)), d.owners.Clock.Now()
	patch, _ := d.Diff(owner, desired, current).split(state.accepted)
	if isTerminating(current) || patch.IsEmpty() || state.pause(now) > 0 {
		return current, nil
	}
	if err := d.owners.checkBeforeWrite(ctx, owner, false); err != nil {
		return current, err
	}
	// compareAnswer keeps this state once the API server has accepted the patch.
	state = state.withWrite(!state.lastWrite.IsZero() || d.Existed(owner), now)
	if state.isContested() {
		// The cache does not tell who manages which field.
		live, err := d.Live(ctx, owner, current)
		if err != nil {
			return current, err
		}
		state.message = d.describeWriter(live, patch)
	}
	patched, err := d.send(ctx, owner, current, patch)
	if err != nil {
		return patched, d.failed("updating", current, err)
	}
	kept := d.compareAnswer(ctx, owner, desired, patched, state)
	klog.FromContext(ctx).V(2).Info("Patched "+d.Kind, strings.ToLower(d.Kind), klog.KObj(patched), "changes", patch.String())
	if effect, _ := patch.split(d.state(owner).accepted); !effect.IsEmpty() {
		d.owners.Recorder.Eventf(owner, corev1.EventTypeNormal, EventUpdated, "Updated %s %q: %s", d.Kind, patched.GetName(), effect)
	}
	return kept, nil
}

// Adopt makes the owner, read live, the controller of an object that asks for this by the annotation, which it removes.
// It always returns an error, ErrStaleCache after a success: the next sync compares the object.
func (d *Dependents[O, T]) Adopt(ctx context.Context, owner O, current T, annotation string) error {
	if err := d.checkOverridden(owner, current); err != nil {
		return err
	}
	// The garbage collector would delete the object of an owner that is gone.
	if err := d.owners.CheckLive(ctx, owner); err != nil {
		return err
	}
	patch := NewPatch(current)
	patch.setController(metav1.NewControllerRef(owner, d.owners.Kind), "")
	patch.Set(nil, "annotation "+annotation, "", "", "metadata", "annotations", annotation)
	adopted, err := d.send(ctx, owner, current, patch)
	if err == nil {
		d.recordEvent(ctx, owner, adopted, EventAdopted, ", as its annotation "+annotation+" asks")
		err = ErrStaleCache
	}
	return d.failed("adopting", current, err)
}

// Delete deletes the object after a live read of the owner, if the object still has the cached UID
// and resourceVersion. why ends the message of the event.
func (d *Dependents[O, T]) Delete(ctx context.Context, owner O, object T, propagation metav1.DeletionPropagation, why string) error {
	if err := d.owners.CheckLive(ctx, owner); err != nil {
		return err
	}
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := d.Client(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &propagation,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return d.failed("deleting", object, err)
	}
	d.owners.AwaitDeletion(owner, d.store, object)
	if err == nil {
		d.owners.Metrics.Wrote(d.owners.Kind.Kind, d.Resource.Resource, "delete")
		d.recordEvent(ctx, owner, object, EventDeleted, ": "+why)
	}
	return nil
}

// send sends the patch. It returns what it has of the object, also beside an error.
func (d *Dependents[O, T]) send(ctx context.Context, owner O, current T, patch Patch) (T, error) {
	if err := d.owners.Worker.acquireIfLarge(ctx, current); err != nil {
		return current, err
	}
	options := metav1.PatchOptions{FieldManager: FieldManager}
	patched, err := d.Client(current.GetNamespace()).Patch(ctx, current.GetName(), types.StrategicMergePatchType, patch.JSON(), options)
	if err != nil {
		return current, err
	}
	return patched, d.recordAnswer(owner, patched, "patch")
}

// recordAnswer counts a write, and makes the next sync wait for its answer. It returns what checkOwner does.
func (d *Dependents[O, T]) recordAnswer(owner O, answer T, verb string) error {
	d.owners.Metrics.Wrote(d.owners.Kind.Kind, d.Resource.Resource, verb)
	if old := d.Get(answer.GetNamespace(), answer.GetName()); old == *new(T) || old.GetResourceVersion() != answer.GetResourceVersion() {
		// A patch without an effect causes no event.
		d.owners.Await(owner, d.store, answer.GetResourceVersion())
	}
	return d.checkOwner(owner, answer)
}

// checkOwner returns ErrOverridden, and remembers that, if the owner does not control the answer.
func (d *Dependents[O, T]) checkOwner(owner O, answer T) error {
	if d.isControlledBy(answer, owner) {
		return nil
	}
	state := d.state(owner)
	state.overridden = answer.GetUID()
	d.owners.setState(owner, d.store, state)
	return ErrOverridden
}

// compareAnswer returns what the cache keeps of the API server's answer. It puts state in the ledger, with
// the values that admission has put in place of the desired ones: each field that differs. A field in which desired
// itself differs from what Diff wants, such as one that is missing there, is not counted as admission's; the next sync repairs it.
func (d *Dependents[O, T]) compareAnswer(ctx context.Context, owner O, desired, answer T, state dependentState) (kept T) {
	state.accepted, kept = nil, d.Trim(answer)
	sent, whole := d.Diff(owner, desired, desired), d.Diff(owner, desired, answer)
	byOthers := slices.DeleteFunc(d.Diff(owner, desired, kept).Changes, func(c Change) bool { return sent.changes(c.Field) })
	for _, change := range byOthers {
		if !whole.changes(change.Field) {
			klog.FromContext(ctx).Error(nil, "A field that is compared is not in the cache; keep it in Trim", "kind", d.Kind, "field", change.Field)
		}
		state.accepted = append(state.accepted, Change{Field: change.Field, From: change.From, To: change.To})
	}
	d.owners.setState(owner, d.store, state)
	return kept
}

// Report is what became of the writes to a dependent. A text is "" if there is nothing to say.
type Report struct {
	// Contested tells of another writer that keeps undoing the repairs.
	Contested string
	// Accepted says which fields admission has changed, and Drift which ones wait for a repair.
	Accepted, Drift string
	// Next is when to sync the owner again because of repairs, zero if not by time.
	Next time.Time
}

// Report tells what became of the writes that turn current, which may be nil or another owner's, into desired.
func (d *Dependents[O, T]) Report(owner O, current, desired T) (report Report) {
	state, now := d.state(owner).forReplicas(d.Replicas(desired)), d.owners.Clock.Now()
	if state.isContested() {
		report.Contested = state.message
	}
	if pause := state.pause(now); pause > 0 {
		report.Next = now.Add(pause)
	} else if state.isContested() {
		report.Next = state.lastWrite.Add(repairTTL)
	}
	if current != *new(T) && d.isControlledBy(current, owner) {
		drift, accepted := d.Diff(owner, desired, current).split(state.accepted)
		report.Accepted, report.Drift = describe(accepted, "%[1]s %[2]s in place of %[3]s"), drift.String()
	}
	return report
}

// describeWriter says which fields of the patch another writer keeps changing, who that is, and what to do.
func (d *Dependents[O, T]) describeWriter(live T, patch Patch) string {
	var fields []string
	for _, change := range patch.Changes {
		fields = append(fields, change.Field+" (by "+managerOf(change, live)+")")
	}
	return fmt.Sprintf("another writer keeps changing what this %s enforces on %s %q: %s; stop that writer, %s",
		d.owners.Kind.Kind, d.Kind, live.GetName(), strings.Join(fields, ", "), d.Advice)
}

// recordEvent tells of a write in the log and by an event with verb as its reason.
func (d *Dependents[O, T]) recordEvent(ctx context.Context, owner O, object T, verb, message string) {
	klog.FromContext(ctx).V(2).Info(verb+" "+d.Kind, strings.ToLower(d.Kind), klog.KObj(object))
	d.owners.Recorder.Eventf(owner, corev1.EventTypeNormal, verb, "%s %s %q%s", verb, d.Kind, object.GetName(), message)
}

// failed returns the error of a request about the object, or of what followed, nil for nil.
func (d *Dependents[O, T]) failed(verb string, object T, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %q: %w", verb, d.Kind, object.GetName(), err)
}

func (d *Dependents[O, T]) state(owner O) dependentState {
	return d.owners.state(owner, d.store)
}

// checkOverridden returns an ErrOverridden if the owner does not control the object because admission has
// replaced its owner reference in this generation of the owner: another write would lead to the same policy.
func (d *Dependents[O, T]) checkOverridden(owner O, object T) error {
	if object.GetUID() != d.state(owner).overridden {
		return nil
	}
	return d.failed("writing", object, ErrOverridden)
}

// EventHandler returns the handler that enqueues the owners that control a dependent, before and
// after the event. It calls enqueueAsking with the name of the object if the event matters to other owners
// that ask for that name: annotations tell of an adoption, managed fields that this program has written it.
func (d *Dependents[O, T]) EventHandler(enqueueAsking func(cache.ObjectName)) cache.TypedResourceEventHandlerDetailedFuncs[T] {
	return cache.TypedResourceEventHandlerDetailedFuncs[T]{
		AddFunc: func(object T, isInInitialList bool) {
			// Each owner is in the queue because of its own list.
			if !isInInitialList {
				d.enqueueOwner(object)
				enqueueAsking(cache.MetaObjectToName(object))
			}
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
				// The cache has an entry if this program has written the object, else none.
				len(old.GetManagedFields()) != len(object.GetManagedFields()) {
				enqueueAsking(cache.MetaObjectToName(object))
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[T]) {
			if deleted.OptionalObj != *new(T) {
				d.enqueueOwner(deleted.OptionalObj)
			}
			enqueueAsking(deleted.GetObjectName())
		},
	}
}

// enqueueOwner enqueues the owner that controls the object, if one does.
func (d *Dependents[O, T]) enqueueOwner(object T) {
	if ref := ControllerOf(object, d.owners.Kind.GroupKind()); ref != nil {
		d.owners.Worker.Queue.AddHighPriority(cache.NewObjectName(object.GetNamespace(), ref.Name))
	}
}
