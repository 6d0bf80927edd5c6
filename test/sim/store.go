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

package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// objects are the present objects of one resource. Those that are stored never change.
type objects struct {
	group   schema.GroupResource
	present map[string]Object
}

// names returns the names of all present objects, sorted.
func (o *objects) names() []string {
	return slices.Sorted(maps.Keys(o.present))
}

// Event is one version of an object, as a watch tells of it.
type Event struct {
	Type   watch.EventType
	Object Object
}

// Store is what the API server stores, with the rules of its writes and with the controllers
// that run in the cluster. All objects share one counter of versions, as in etcd.
type Store struct {
	version     int64
	uids        int
	foos        *objects
	deployments *objects
	// podImages are the images of the running Pods, by Deployment.
	podImages map[types.UID]string
	// rewrites says that the policy of Rewrite is in force.
	// refuses says that a policy refuses every write to a Deployment.
	rewrites, refuses bool
	// terminating says that the namespace is.
	terminating bool

	now    func() metav1.Time
	logf   func(format string, args ...any)
	stored func(resource string, event Event)
}

// NewStore returns an empty Store, whose clock is now. stored is called with each version of an object.
func NewStore(now func() metav1.Time, stored func(resource string, event Event)) *Store {
	return &Store{
		version:     firstVersion,
		foos:        &objects{group: schema.GroupResource{Group: v1alpha1.GroupName, Resource: Foos}, present: map[string]Object{}},
		deployments: &objects{group: schema.GroupResource{Group: appsv1.GroupName, Resource: Deployments}, present: map[string]Object{}},
		podImages:   map[types.UID]string{},
		now:         now, stored: stored, logf: func(string, ...any) {},
	}
}

// Clone returns a Store with the same objects and another clock.
func (s *Store) Clone(now func() metav1.Time, stored func(resource string, event Event)) *Store {
	clone := *s
	clone.foos = &objects{s.foos.group, maps.Clone(s.foos.present)}
	clone.deployments = &objects{s.deployments.group, maps.Clone(s.deployments.present)}
	clone.podImages = maps.Clone(s.podImages)
	clone.now, clone.stored = now, stored
	return &clone
}

// Version returns the version that the last write had.
func (s *Store) Version() string { return strconv.FormatInt(s.version, 10) }

// Objects returns the present objects of a resource, sorted by name. They must not be changed.
func (s *Store) Objects(resource string) []Object {
	var all []Object
	for _, name := range s.of(resource).names() {
		all = append(all, s.of(resource).present[name])
	}
	return all
}

// PodImages returns the images of the running Pods of a Deployment, by its UID.
func (s *Store) PodImages(uid types.UID) string { return s.podImages[uid] }

// Policies describes the policies in force, and whether the namespace is terminating.
func (s *Store) Policies() string { return fmt.Sprint(s.rewrites, s.refuses, s.terminating) }

func (s *Store) of(resource string) *objects {
	if resource == Foos {
		return s.foos
	}
	return s.deployments
}

// Request is a request to read or write one object. Verb is get, create, patch or delete.
type Request struct {
	Verb, Resource, Subresource, Name string
	Object                            Object
	Patch                             []byte
	PatchType                         types.PatchType
	Options                           metav1.DeleteOptions
}

// String describes the request.
func (r *Request) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Verb, strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/"), r.Name, r.Patch))
}

// Serve carries out a request of the controller.
func (s *Store) Serve(r *Request) (Object, error) {
	o := s.of(r.Resource)
	switch {
	case r.Verb == "get":
		if object := o.present[r.Name]; object != nil {
			return object, nil
		}
		return nil, apierrors.NewNotFound(o.group, r.Name)
	case r.Verb == "create" && o == s.deployments:
		object := copyOf(r.Object.(*appsv1.Deployment))
		noteManager(nil, object, true)
		s.admit(object)
		err := s.checkPolicy(r.Name)
		if err == nil {
			err = s.create(o, object)
		}
		if err != nil {
			return nil, err
		}
		return object, nil
	case r.Verb == "patch" && o == s.deployments && r.Subresource == "" && r.PatchType == types.StrategicMergePatchType:
		return s.patch(r.Name, r.Patch)
	case r.Verb == "patch" && o == s.foos && r.Subresource == "status" && r.PatchType == types.MergePatchType:
		return s.patchStatus(r.Name, r.Patch)
	case r.Verb == "delete" && o == s.deployments:
		err := s.checkPreconditions(o, r.Name, r.Options.Preconditions)
		if err == nil {
			err = s.checkPolicy(r.Name)
		}
		if err == nil {
			err = s.remove(o, r.Name, r.Options)
		}
		return nil, err
	}
	return nil, apierrors.NewMethodNotSupported(o.group, r.Verb)
}

// checkNamespace returns the refusal of a creation in a namespace that is terminating.
func (s *Store) checkNamespace(o *objects, name string) error {
	if !s.terminating {
		return nil
	}
	err := apierrors.NewForbidden(o.group, name, errors.New("the namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	return err
}

// checkPolicy returns the refusal of the policy that refuses writes to Deployments, if that is in force. It sees a
// write that is valid, and whose preconditions are met.
func (s *Store) checkPolicy(name string) error {
	if s.refuses {
		return apierrors.NewForbidden(s.deployments.group, name, errors.New("a policy refuses it"))
	}
	return nil
}

// Do does what a user does. An operation on an object that does not exist does nothing, like a
// kubectl command that fails.
func (s *Store) Do(op Op) {
	switch op.Verb {
	case CreateForeign, CopyDeployment, EditDeployment, DeleteDeployment:
		s.doToDeployment(op)
	case Rewrite:
		s.rewrites = true
	case Refuse:
		s.refuses = op.Count > 0
	case DeleteNamespace:
		s.terminating = true
	default:
		s.doToFoo(op)
	}
}

// Collect and RollOut are one step of the garbage collector, and of the Deployment controller, about one
// object. They report whether it changed anything.
func (s *Store) Collect(resource, name string) bool {
	before := s.version
	if foo := s.foo(name); resource == Foos && foo != nil {
		s.finishFoo(foo)
	} else if deployment := s.deployment(name); resource == Deployments && deployment != nil {
		s.collectDeployment(deployment)
	}
	return s.version != before
}

// RollOut is described with Collect.
func (s *Store) RollOut(name string) bool {
	before := s.version
	s.rollOutOne(s.deployment(name))
	return s.version != before
}

// store gives the object a new version, keeps a copy, and tells of it. A watch tells of a deleted object as it was
// stored: without the change that removed its last finalizer.
func (s *Store) store(o *objects, kind watch.EventType, object Object) {
	s.version++
	object.SetResourceVersion(strconv.FormatInt(s.version, 10))
	stored := copyOf(object)
	if kind == watch.Deleted {
		delete(o.present, object.GetName())
	} else {
		o.present[object.GetName()] = stored
	}
	s.stored(o.group.Resource, Event{kind, stored})
}

func (s *Store) foo(name string) *v1alpha1.Foo {
	foo, _ := s.foos.present[name].(*v1alpha1.Foo)
	return foo
}

func (s *Store) deployment(name string) *appsv1.Deployment {
	deployment, _ := s.deployments.present[name].(*appsv1.Deployment)
	return deployment
}

// State returns the present state. The caller must not change the objects.
func (s *Store) State() State {
	state := State{Foos: map[string]*v1alpha1.Foo{}, Deployments: map[string]*appsv1.Deployment{}}
	for name := range s.foos.present {
		state.Foos[name] = s.foo(name)
	}
	for name := range s.deployments.present {
		state.Deployments[name] = s.deployment(name)
	}
	return state
}

func copyOf[T Object](object T) T {
	return object.DeepCopyObject().(T)
}

// create stores a new object.
func (s *Store) create(o *objects, object Object) error {
	if err := s.checkNamespace(o, object.GetName()); err != nil {
		return err
	}
	if o.present[object.GetName()] != nil {
		return apierrors.NewAlreadyExists(o.group, object.GetName())
	}
	setDefaults(object)
	s.uids++
	object.SetUID(types.UID(fmt.Sprintf("uid-%d-%s", s.uids, object.GetName())))
	object.SetNamespace(Namespace)
	object.SetGeneration(1)
	object.SetCreationTimestamp(s.now())
	s.store(o, watch.Added, object)
	return nil
}

// replace stores a new version of a present object. A change of the spec increments the
// generation; without any change there is no new version.
func (s *Store) replace(o *objects, object Object) {
	old := o.present[object.GetName()]
	setDefaults(object)
	if sameObject(old, object) {
		return
	}
	if !sameIntent(old, object) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		s.store(o, watch.Deleted, copyOf(old))
		return
	}
	s.store(o, watch.Modified, object)
}

// checkPreconditions returns why an object must not be deleted.
func (s *Store) checkPreconditions(o *objects, name string, conditions *metav1.Preconditions) error {
	object := o.present[name]
	switch {
	case object == nil:
		return apierrors.NewNotFound(o.group, name)
	case conditions == nil:
	case conditions.UID != nil && *conditions.UID != object.GetUID() || conditions.ResourceVersion != nil && *conditions.ResourceVersion != object.GetResourceVersion():
		return apierrors.NewConflict(o.group, name, errors.New("the preconditions are not met"))
	}
	return nil
}

// remove deletes an object, or sets its deletion timestamp if it has finalizers.
func (s *Store) remove(o *objects, name string, options metav1.DeleteOptions) error {
	if err := s.checkPreconditions(o, name, options.Preconditions); err != nil {
		return err
	}
	old := o.present[name]
	object := copyOf(old)
	finalizers := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
	if options.PropagationPolicy != nil {
		switch *options.PropagationPolicy {
		case metav1.DeletePropagationForeground:
			finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
		case metav1.DeletePropagationOrphan:
			finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
		}
	}
	if len(finalizers) == 0 {
		if p := options.Preconditions; p != nil && p.ResourceVersion != nil && len(old.GetFinalizers()) > 0 {
			// The API server compares the version of an update that it did not make.
			return apierrors.NewConflict(o.group, name, errors.New("the preconditions are not met"))
		}
		s.store(o, watch.Deleted, object)
		return nil
	}
	object.SetFinalizers(finalizers)
	if object.GetDeletionTimestamp() == nil {
		now := s.now()
		object.SetDeletionTimestamp(&now)
		object.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
		object.SetGeneration(object.GetGeneration() + 1)
	}
	if !sameObject(old, object) {
		s.store(o, watch.Modified, object)
	}
	return nil
}

// patch applies a strategic merge patch to a Deployment. A resourceVersion in it is a precondition.
func (s *Store) patch(name string, patch []byte) (Object, error) {
	before, group := s.deployment(name), s.deployments.group
	if before == nil {
		return nil, apierrors.NewNotFound(group, name)
	}
	var sent metav1.PartialObjectMetadata
	if err := json.Unmarshal(patch, &sent); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if sent.ResourceVersion != "" && sent.ResourceVersion != before.ResourceVersion {
		return nil, apierrors.NewConflict(group, before.Name, errors.New("the object has been modified"))
	}
	after, err := StrategicMerge(before, string(patch))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	controllers := slices.DeleteFunc(slices.Clone(after.OwnerReferences), func(ref metav1.OwnerReference) bool { return !ptr.Deref(ref.Controller, false) })
	if len(controllers) > 1 {
		kind, path := schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}, field.NewPath("metadata", "ownerReferences")
		return nil, apierrors.NewInvalid(kind, before.Name, field.ErrorList{field.Invalid(path, nil, "only one can be the controller")})
	}
	if err := s.checkPolicy(name); err != nil {
		return nil, err
	}
	after.Status = before.Status
	noteManager(before, after, true)
	s.admit(after)
	s.replace(s.deployments, after)
	return after, nil
}

// patchStatus applies a JSON merge patch to the status of a Foo, and to nothing else. A
// resourceVersion in it is a precondition; the API server ignores a uid.
func (s *Store) patchStatus(name string, patch []byte) (Object, error) {
	before, group := s.foo(name), s.foos.group
	if before == nil {
		return nil, apierrors.NewNotFound(group, name)
	}
	text, err := json.Marshal(before)
	if err == nil {
		text, err = jsonpatch.MergePatch(text, patch)
	}
	var merged v1alpha1.Foo
	if err == nil {
		err = json.Unmarshal(text, &merged)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if merged.ResourceVersion != before.ResourceVersion {
		return nil, apierrors.NewConflict(group, name, errors.New("the object has been modified"))
	}
	after := copyOf(before)
	after.Status = merged.Status
	s.replace(s.foos, after)
	return after, nil
}

// StrategicMerge returns the Deployment as the API server stores it after a strategic merge
// patch. It fails where the API server refuses the patch.
func StrategicMerge(deployment *appsv1.Deployment, patch string) (*appsv1.Deployment, error) {
	data, err := json.Marshal(deployment)
	if err != nil {
		return nil, err
	}
	if data, err = strategicpatch.StrategicMergePatch(data, []byte(patch), &appsv1.Deployment{}); err != nil {
		return nil, err
	}
	merged := &appsv1.Deployment{}
	return merged, json.Unmarshal(data, merged)
}

// WrittenByController reports whether the controller is on record as a writer of the Deployment.
func WrittenByController(deployment *appsv1.Deployment) bool {
	return slices.ContainsFunc(deployment.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == fieldManager })
}

// sameObject compares two objects without their resource versions.
func sameObject(a, b Object) bool {
	if a.GetResourceVersion() != b.GetResourceVersion() {
		b = copyOf(b)
		b.SetResourceVersion(a.GetResourceVersion())
	}
	return equality.Semantic.DeepEqual(a, b)
}

// sameIntent compares what the generation counts changes of: of Deployments also annotations.
func sameIntent(a, b Object) bool {
	switch a := a.(type) {
	case *v1alpha1.Foo:
		return equality.Semantic.DeepEqual(a.Spec, b.(*v1alpha1.Foo).Spec)
	case *appsv1.Deployment:
		b := b.(*appsv1.Deployment)
		return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations)
	}
	panic(fmt.Sprintf("unexpected %T", a))
}
