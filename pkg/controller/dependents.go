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
	// EventUpdated says that the controller patched an object that the owner asks for. The message
	// has the fields.
	EventUpdated = "Updated"
	// EventAdopted says that the owner became the controller of an existing object, as that
	// object's annotation asks.
	EventAdopted = "Adopted"
	// EventDeleted says that the controller deleted an object that the owner no longer asks for.
	EventDeleted = "Deleted"
)

// byOwner indexes dependents by the owner that controls them.
const byOwner = "controller"

// DependentClient is what Dependents need of client-go's typed client of a namespace.
type DependentClient[T Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// DependentsOptions are what Dependents are made of. All are required.
type DependentsOptions[O, T Object] struct {
	// Kind is that of the dependents, for messages.
	Kind     string
	Resource schema.GroupResource
	Informer cache.TypedSharedIndexInformer[T]
	Client   func(namespace string) DependentClient[T]
	// Diff returns the patch that makes a dependent what the owner asks for.
	Diff func(owner O, dependent T) Patch
	// Trim returns what the cache keeps of a dependent that an owner controls.
	Trim func(dependent T) T
	// Existed reports whether the status of this generation of the owner tells of a dependent.
	Existed func(owner O) bool
	// Advice is what a user can do about another writer.
	Advice string
}

// Dependents are the objects of one resource that owners of one kind control. Each method that
// writes makes one write, with a precondition, and with all that belongs to it: live reads, the
// ledger, metric, log, event, and a look at the API server's answer. It returns the dependent as
// last known, also beside an error. Create them with NewDependents.
type Dependents[O, T Object] struct {
	DependentsOptions[O, T]

	owners *Owners[O]
	store  cache.TypedIndexer[T]
}

// NewDependents returns the dependents of the owners. It adds an index to the informer and
// returns an error if that fails.
func NewDependents[O, T Object](owners *Owners[O], options DependentsOptions[O, T]) (*Dependents[O, T], error) {
	err := options.Informer.AddTypedIndexers(cache.TypedIndexers[T]{byOwner: IndexByOwner[T](owners.Kind.GroupKind())})
	if err != nil {
		return nil, fmt.Errorf("adding an index to the %s informer: %w", options.Kind, err)
	}
	return &Dependents[O, T]{DependentsOptions: options, owners: owners, store: options.Informer.GetTypedIndexer()}, nil
}

// EventHandler returns the handler that enqueues the owners that control a dependent, before and
// after the event. It calls named, if that is not nil, with the name of each object that comes,
// goes or changes hands: other owners may ask for it.
func (d *Dependents[O, T]) EventHandler(named func(cache.ObjectName)) cache.TypedResourceEventHandlerFuncs[T] {
	if named == nil {
		named = func(cache.ObjectName) {}
	}
	return cache.TypedResourceEventHandlerFuncs[T]{
		AddFunc: func(object T) {
			d.enqueueOwner(object)
			named(cache.MetaObjectToName(object))
		},
		UpdateFunc: func(old, object T) {
			if old.GetResourceVersion() == object.GetResourceVersion() {
				return
			}
			d.enqueueOwner(old)
			d.enqueueOwner(object)
			if old.GetUID() != object.GetUID() || (old.GetDeletionTimestamp() == nil) != (object.GetDeletionTimestamp() == nil) ||
				!equality.Semantic.DeepEqual(old.GetOwnerReferences(), object.GetOwnerReferences()) ||
				!equality.Semantic.DeepEqual(old.GetAnnotations(), object.GetAnnotations()) ||
				len(old.GetManagedFields()) != len(object.GetManagedFields()) {
				named(cache.MetaObjectToName(object))
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[T]) {
			if deleted.OptionalObj != *new(T) {
				d.owners.DeletionSeen(deleted.OptionalObj.GetUID())
				d.enqueueOwner(deleted.OptionalObj)
			}
			named(deleted.GetObjectName())
		},
	}
}

// enqueueOwner enqueues the owner that controls the object, if one does.
func (d *Dependents[O, T]) enqueueOwner(object T) {
	if ref := ControllerOf(object, d.owners.Kind.GroupKind()); ref != nil {
		d.owners.Worker.Enqueue(cache.NewObjectName(object.GetNamespace(), ref.Name))
	}
}

// Get returns the object of that name from the cache, nil if there is none. One that this
// process has deleted is terminating.
func (d *Dependents[O, T]) Get(namespace, name string) T {
	// A store's GetByKey returns no error.
	if object, exists, _ := d.store.GetByKey(cache.NewObjectName(namespace, name).String()); exists {
		return d.withDeletion(object.(T))
	}
	return *new(T)
}

// Of returns the objects in the cache that the owner controls, sorted by name.
func (d *Dependents[O, T]) Of(owner O) []T {
	objects := LookUp(d.store, byOwner, OwnerKey(owner.GetNamespace(), owner.GetUID()))
	for i, object := range objects {
		objects[i] = d.withDeletion(object)
	}
	slices.SortFunc(objects, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

func (d *Dependents[O, T]) withDeletion(object T) T {
	if object.GetDeletionTimestamp() != nil || !d.owners.IsDeleted(object.GetUID()) {
		return object
	}
	terminating := object.DeepCopyObject().(T)
	now := metav1.NewTime(d.owners.Clock.Now())
	terminating.SetDeletionTimestamp(&now)
	return terminating
}

// Live reads a cached dependent from the API server, and returns what the cache keeps of it. It
// returns a NewConflict if the live one is gone, terminating, another one of the name, has another
// generation, or is not the owner's.
func (d *Dependents[O, T]) Live(ctx context.Context, owner O, cached T) (T, error) {
	release, err := d.owners.Worker.acquireLarge(ctx, cached)
	if err != nil {
		return cached, err
	}
	defer release()
	live, err := d.readLive(ctx, owner, cached)
	if err != nil {
		return cached, err
	}
	return d.Trim(live), nil
}

// readLive is Live without trimming. The caller has the permit for a large object.
func (d *Dependents[O, T]) readLive(ctx context.Context, owner O, cached T) (T, error) {
	live, err := d.Client(cached.GetNamespace()).Get(ctx, cached.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (live.GetUID() != cached.GetUID() || live.GetDeletionTimestamp() != nil ||
		live.GetGeneration() != cached.GetGeneration() || !d.isControlledBy(live, owner)) {
		err = NewConflict(d.Resource, cached.GetName())
	}
	if err != nil {
		return live, fmt.Errorf("reading %s %q: %w", d.Kind, cached.GetName(), err)
	}
	return live, nil
}

func (d *Dependents[O, T]) isControlledBy(object T, owner O) bool {
	return IsControlledBy(object, owner, d.owners.Kind.GroupKind())
}

// Apply makes current, the cached object of the name that the owner asks for, what the owner asks
// for: it creates a missing one, patches what has drifted of the owner's own, and leaves alone one
// that is terminating or not the owner's.
func (d *Dependents[O, T]) Apply(ctx context.Context, owner O, current T, desired func(O) T) (T, error) {
	switch {
	case current == *new(T):
		return d.Create(ctx, owner, desired(owner))
	case !d.isControlledBy(current, owner):
		return current, d.Overridden(owner, current)
	case current.GetDeletionTimestamp() != nil:
		return current, nil
	}
	return d.Patch(ctx, owner, current, d.Diff(owner, current))
}

// CreateCopy creates the object that newCopy makes of source, read live.
func (d *Dependents[O, T]) CreateCopy(ctx context.Context, owner O, source T, newCopy func(live T) T) (T, error) {
	release, err := d.owners.Worker.acquireLarge(ctx, source)
	if err != nil {
		return *new(T), err
	}
	defer release()
	live, err := d.readLive(ctx, owner, source)
	if err != nil {
		return *new(T), err
	}
	return d.Create(ctx, owner, newCopy(live))
}

// Create creates the object. If this process or the status knows of an earlier one in this
// generation, it reads the owner live before: the garbage collector may have deleted that one
// because the owner is gone, and the cache does not show that yet. If the API server has an object
// of the name, Create returns ErrStaleCache, and the next sync finds it in the cache.
func (d *Dependents[O, T]) Create(ctx context.Context, owner O, desired T) (none T, err error) {
	state, unsent, now := d.state(owner), d.Diff(owner, desired), d.owners.Clock.Now()
	existed := state.existed || d.Existed(owner)
	if state.pauses(unsent.replicas, now) {
		return none, nil
	}
	if err := d.owners.checkBeforeWrite(ctx, owner, existed); err != nil {
		return none, err
	}
	created, err := d.Client(desired.GetNamespace()).Create(ctx, desired, metav1.CreateOptions{FieldManager: FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return none, d.readExisting(ctx, owner, desired.GetName())
	}
	if err != nil {
		return none, fmt.Errorf("creating %s %q: %w", d.Kind, desired.GetName(), err)
	}
	if state.existed, state.repaired = true, now; existed {
		state.addRepair(unsent.replicas, now)
	}
	state.message = fmt.Sprintf("%s %q is deleted by another client again and again; stop that client, and change or delete the %s instead", d.Kind, desired.GetName(), d.owners.Kind.Kind)
	sent := func(change Change) bool { return !slices.ContainsFunc(unsent.Changes, change.isOf) }
	if err := d.answered(ctx, owner, created, "create", state, sent); err != nil {
		return created, fmt.Errorf("creating %s %q: %w", d.Kind, desired.GetName(), err)
	}
	klog.FromContext(ctx).V(2).Info("Created "+d.Kind, strings.ToLower(d.Kind), klog.KObj(created))
	d.owners.Recorder.Eventf(owner, corev1.EventTypeNormal, EventCreated, "Created %s %q", d.Kind, created.GetName())
	return created, nil
}

// readExisting makes the next sync wait until the cache shows the object of that name.
func (d *Dependents[O, T]) readExisting(ctx context.Context, owner O, name string) error {
	live, err := d.Client(owner.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading %s %q: %w", d.Kind, name, err)
	}
	d.owners.Wrote(owner, d.store, live.GetResourceVersion())
	return fmt.Errorf("%s %q exists: %w", d.Kind, name, ErrStaleCache)
}

// Patch sends what has drifted, but for what admission has put in place of what was sent. It sends
// nothing while it pauses after earlier repairs.
func (d *Dependents[O, T]) Patch(ctx context.Context, owner O, current T, patch Patch) (T, error) {
	state, now := d.state(owner), d.owners.Clock.Now()
	patch, accepted := patch.split(contains(state.answered))
	if patch.IsEmpty() || state.pauses(patch.replicas, now) {
		return current, nil
	}
	if err := d.owners.checkBeforeWrite(ctx, owner, false); err != nil {
		return current, err
	}
	release, err := d.owners.Worker.acquireLarge(ctx, current)
	if err != nil {
		return current, err
	}
	defer release()
	if state.addRepair(patch.replicas, now); state.repairs >= contested {
		if state.message, err = d.describeWriter(ctx, current, patch); err != nil {
			return current, err
		}
	}
	patched, err := d.Client(current.GetNamespace()).Patch(ctx, current.GetName(), types.StrategicMergePatchType, patch.JSON(), metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return current, fmt.Errorf("updating %s %q: %w", d.Kind, current.GetName(), err)
	}
	sent := func(change Change) bool {
		return slices.ContainsFunc(slices.Concat(patch.Changes, accepted), func(other Change) bool { return other.isOf(change) && other.To == change.To })
	}
	if err := d.answered(ctx, owner, patched, "patch", state, sent); err != nil {
		return patched, fmt.Errorf("updating %s %q: %w", d.Kind, current.GetName(), err)
	}
	klog.FromContext(ctx).V(2).Info("Patched "+d.Kind, strings.ToLower(d.Kind), klog.KObj(patched), "changes", patch.String())
	if effective, _ := patch.split(contains(d.state(owner).answered)); !effective.IsEmpty() {
		d.owners.Recorder.Eventf(owner, corev1.EventTypeNormal, EventUpdated, "Updated %s %q: %s", d.Kind, patched.GetName(), effective)
	}
	return patched, nil
}

// Adopt makes the owner, read live, the controller of an object that has none and asks for this by
// the annotation, which it removes. The next sync compares the object: Adopt returns ErrStaleCache.
func (d *Dependents[O, T]) Adopt(ctx context.Context, owner O, current T, annotation string) (T, error) {
	// The garbage collector would delete the object of an owner that is gone.
	if err := d.owners.CheckLive(ctx, owner); err != nil {
		return current, err
	}
	release, err := d.owners.Worker.acquireLarge(ctx, current)
	if err != nil {
		return current, err
	}
	defer release()
	patch := NewPatch(current)
	patch.setController(owner, d.owners.Kind)
	patch.Set(nil, "annotation "+annotation, "", "", "metadata", "annotations", annotation)
	adopted, err := d.Client(current.GetNamespace()).Patch(ctx, current.GetName(), types.StrategicMergePatchType, patch.JSON(), metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return current, fmt.Errorf("adopting %s %q: %w", d.Kind, current.GetName(), err)
	}
	if err := d.answered(ctx, owner, adopted, "patch", d.state(owner), func(Change) bool { return false }); err != nil {
		return adopted, fmt.Errorf("adopting %s %q: %w", d.Kind, current.GetName(), err)
	}
	klog.FromContext(ctx).V(2).Info("Adopted "+d.Kind, strings.ToLower(d.Kind), klog.KObj(adopted))
	d.owners.Recorder.Eventf(owner, corev1.EventTypeNormal, EventAdopted, "Adopted %s %q, as its annotation %s asks", d.Kind, adopted.GetName(), annotation)
	return adopted, fmt.Errorf("%s %q was adopted: %w", d.Kind, adopted.GetName(), ErrStaleCache)
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
	if apierrors.IsNotFound(err) {
		d.owners.Writes.Deleted(uid)
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s %q: %w", d.Kind, object.GetName(), err)
	}
	d.owners.metrics.Wrote(d.Resource.Resource, "delete")
	d.owners.Writes.Deleted(uid)
	klog.FromContext(ctx).V(2).Info("Deleted "+d.Kind, strings.ToLower(d.Kind), klog.KObj(object))
	d.owners.Recorder.Eventf(owner, corev1.EventTypeNormal, EventDeleted, "Deleted %s %q: %s", d.Kind, object.GetName(), why)
	return nil
}

func (d *Dependents[O, T]) state(owner O) dependentState {
	return d.owners.state(owner, d.store)
}

// answered counts a write and puts the API server's answer in the ledger, with state: which of the
// values that were sent it has replaced. It returns ErrOverridden if the owner does not control the
// dependent any more.
func (d *Dependents[O, T]) answered(ctx context.Context, owner O, answer T, verb string, state dependentState, sent func(Change) bool) error {
	d.owners.metrics.Wrote(d.Resource.Resource, verb)
	if old := d.Get(answer.GetNamespace(), answer.GetName()); old == *new(T) || old.GetResourceVersion() != answer.GetResourceVersion() {
		// A patch without an effect causes no event.
		d.owners.Wrote(owner, d.store, answer.GetResourceVersion())
	}
	if !d.isControlledBy(answer, owner) {
		refused := d.state(owner)
		refused.overridden = answer.GetUID()
		d.owners.setState(owner, d.store, refused)
		return fmt.Errorf("%s: %w", ownerReference, ErrOverridden)
	}
	complete := d.Diff(owner, answer)
	state.answered = nil
	for _, change := range d.Diff(owner, d.Trim(answer)).Changes {
		isKept := slices.ContainsFunc(complete.Changes, change.isOf)
		if !isKept {
			// Each generation sends the field once, for nothing.
			klog.FromContext(ctx).Error(nil, "The cache drops a field that the controller compares; keep it in the function that trims the "+d.Kind, "field", change.Field)
		}
		if sent(change) {
			state.answered = append(state.answered, Change{Field: change.Field, From: change.From, To: change.To})
		}
	}
	d.owners.setState(owner, d.store, state)
	return nil
}

// Overridden returns an ErrOverridden if admission has replaced the owner reference of this object
// in this generation of the owner: to write it once more would lead to the same policy.
func (d *Dependents[O, T]) Overridden(owner O, object T) error {
	if object.GetUID() != d.state(owner).overridden {
		return nil
	}
	return fmt.Errorf("writing %s %q: %s: %w", d.Kind, object.GetName(), ownerReference, ErrOverridden)
}

// Accepted says which fields of the owner's dependent are as admission made them, "" if none is.
func (d *Dependents[O, T]) Accepted(owner O, dependent T) string {
	answered := d.state(owner).answered
	if len(answered) == 0 {
		return ""
	}
	_, accepted := d.Diff(owner, d.Trim(dependent)).split(contains(answered))
	var fields []string
	for _, change := range accepted {
		if change.To == "" {
			fields = append(fields, change.String())
		} else {
			fields = append(fields, fmt.Sprintf("%s %s in place of %s", change.Field, change.From, change.To))
		}
	}
	return strings.Join(fields, ", ")
}

// Undone returns what to say about another writer that undoes the repairs of the owner's dependent,
// "" if there are few. end is when to sync the owner again because of them, zero if not by time.
func (d *Dependents[O, T]) Undone(owner O) (message string, end time.Time) {
	state := d.state(owner)
	if end = state.pauseEnd(); !end.After(d.owners.Clock.Now()) {
		end = time.Time{}
	}
	if state.repairs < contested {
		return "", end
	}
	if end.IsZero() {
		end = state.repaired.Add(repairTTL)
	}
	return state.message, end
}

// describeWriter says which fields of the patch another writer keeps changing, who that is, by the
// managed fields, which the cache does not hold, and what the user can do.
func (d *Dependents[O, T]) describeWriter(ctx context.Context, current T, patch Patch) (string, error) {
	live, err := d.Client(current.GetNamespace()).Get(ctx, current.GetName(), metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading %s %q: %w", d.Kind, current.GetName(), err)
	}
	var fields []string
	for _, change := range patch.Changes {
		fields = append(fields, fmt.Sprintf("%s (by %s)", change.Field, managerOf(change, live)))
	}
	return fmt.Sprintf("another writer keeps changing what this %s enforces on %s %q: %s; stop that writer, %s", d.owners.Kind.Kind, d.Kind, current.GetName(), strings.Join(fields, ", "), d.Advice), nil
}
