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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Namespace is the namespace of all objects in the simulated cluster.
const Namespace = "ns"

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Resource is a resource of the API server. New returns an empty object.
type Resource struct {
	schema.GroupResource

	New func() Object
}

// FooResources are those of a cluster with Foos.
func FooResources() []Resource {
	return []Resource{
		{v1alpha1.Resource(Foos), func() Object { return &v1alpha1.Foo{} }},
		{appsv1.Resource(Deployments), func() Object { return &appsv1.Deployment{} }},
	}
}

// objects are the present objects of one resource. Those that are stored never change.
type objects struct {
	Resource

	present map[string]Object
	// version and uids are the last ones.
	version, uids int64
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

// Policies are what is in force in a cluster.
type Policies struct {
	// Rewrites says that a policy changes the registry of images. Strips says that one removes the owner references
	// from every Deployment that is written.
	Rewrites, Strips bool
	// Refused is the resource, or the subresource such as foos/status, whose writes a policy refuses, "" for none.
	Refused string
	// Retells says that the text of each refusal differs from that of the last one, which was the odd one or not.
	Retells, odd bool
	// Terminating says that the namespace is.
	Terminating bool
	// Rivals is how often another client will yet delete a Deployment that has not RivalReplicas, or scale the next
	// one to that, in turns.
	Rivals int
}

// Store is what the API server stores, with the rules of its writes and with the controllers
// that run in the cluster. Each resource counts versions and UIDs for itself, versions from far apart: then it makes no
// difference in which order objects of different resources are written. No client may compare their versions.
type Store struct {
	Policies

	// version counts all writes.
	version int64
	tables  []*objects
	// podImages are the images of the running Pods, by Deployment.
	podImages map[types.UID]string

	now    func() metav1.Time
	stored func(resource string, event Event)
	share  func(Object) Object
}

// NewStore returns an empty Store with these resources, whose clock is now. stored is called with each version of an object.
func NewStore(resources []Resource, now func() metav1.Time, stored func(resource string, event Event)) *Store {
	s := &Store{version: 100, podImages: map[types.UID]string{}, now: now, stored: stored}
	for i, resource := range resources {
		s.tables = append(s.tables, &objects{Resource: resource, present: map[string]Object{}, version: int64(i+1) * 1_000_000})
	}
	return s
}

// Clone returns a Store with the same objects and another clock.
func (s *Store) Clone(now func() metav1.Time, stored func(resource string, event Event)) *Store {
	clone := *s
	clone.tables = nil
	for _, table := range s.tables {
		clone.tables = append(clone.tables, &objects{table.Resource, maps.Clone(table.present), table.version, table.uids})
	}
	clone.podImages = maps.Clone(s.podImages)
	clone.now, clone.stored, clone.share = now, stored, nil
	return &clone
}

// Share makes the Store keep what share returns in place of each object that it stores, an equal one.
func (s *Store) Share(share func(Object) Object) { s.share = share }

// VersionOf returns the version that a list of the resource has.
func (s *Store) VersionOf(resource string) string {
	return strconv.FormatInt(s.of(resource).version, 10)
}

// Counters describes what the next version and the next UID of each resource depend on.
func (s *Store) Counters() string {
	var all []int64
	for _, o := range s.tables {
		all = append(all, o.version, o.uids)
	}
	return fmt.Sprint(all)
}

// Version returns the number of the last write.
func (s *Store) Version() int64 { return s.version }

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

// of returns the table of a resource.
func (s *Store) of(resource string) *objects {
	return s.tables[slices.IndexFunc(s.tables, func(table *objects) bool { return table.GroupResource.Resource == resource })]
}

// Request is a request to read or write one object. Verb is get, create, patch or delete, or put for an external service.
type Request struct {
	Verb, Resource, Subresource, Name string
	// DryRun is a creation that is not stored.
	DryRun    bool
	Object    Object
	Patch     []byte
	PatchType types.PatchType
	Options   metav1.DeleteOptions
}

// String describes the request.
func (r *Request) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Verb, strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/"), r.Name, r.Patch))
}

// path returns the resource with its subresource.
func (r *Request) path() string { return strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/") }

// Serve carries out a request of the controller.
func (s *Store) Serve(r *Request) (Object, error) {
	o := s.of(r.Resource)
	switch r.Verb {
	case "get":
		if object := o.present[r.Name]; object != nil {
			return object, nil
		}
		return nil, apierrors.NewNotFound(o.GroupResource, r.Name)
	case "create":
		object := copyOf(r.Object)
		noteManager(nil, object, true)
		s.admit(object)
		if err := s.checkCreation(o, r); err != nil {
			return nil, err
		}
		if r.DryRun {
			s = s.Clone(s.now, func(string, Event) {})
			o = s.of(r.Resource)
		}
		if err := s.create(o, object); err != nil {
			return nil, err
		}
		if r.DryRun {
			object.SetResourceVersion("")
		}
		return object, nil
	case "put":
		// An external service creates or replaces.
		if old := o.present[r.Name]; old != nil {
			s.must(s.remove(o, r.Name, metav1.DeleteOptions{}))
		}
		return nil, s.create(o, copyOf(r.Object))
	case "patch":
		return s.patch(o, r)
	case "delete":
		err := s.checkPreconditions(o, r.Name, r.Options.Preconditions)
		if err == nil {
			err = s.checkPolicy(o, r)
		}
		if err == nil {
			err = s.remove(o, r.Name, r.Options)
		}
		return nil, err
	}
	return nil, apierrors.NewMethodNotSupported(o.GroupResource, r.Verb)
}

// checkCreation returns why an object must not be created: admission decides before the name does.
func (s *Store) checkCreation(o *objects, r *Request) error {
	if s.Terminating {
		err := apierrors.NewForbidden(o.GroupResource, r.Name, errors.New("the namespace is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
		return err
	}
	return s.checkPolicy(o, r)
}

// checkPolicy returns the refusal of the policy that refuses writes, if one is in force. It sees a write that is
// valid, and whose preconditions are met.
func (s *Store) checkPolicy(o *objects, r *Request) error {
	if r.path() != s.Refused {
		return nil
	}
	text := "a policy refuses it"
	if s.odd = s.Retells && !s.odd; s.odd {
		text = "a policy refuses it again"
	}
	return apierrors.NewForbidden(o.GroupResource, r.Name, errors.New(text))
}

// Do does what a user does. Rewrite is a policy that is in force from then on.
func (s *Store) Do(op Op) {
	s.Rewrites = s.Rewrites || op.Verb == Rewrite
	op.Do(s)
}

// Get implements User.
func (s *Store) Get(resource, name string) Object { return s.of(resource).present[name] }

// Create implements User.
func (s *Store) Create(resource string, object Object) {
	if o := s.of(resource); o.present[object.GetName()] == nil && !s.Terminating {
		s.must(s.create(o, s.admit(object)))
	}
}

// Change implements User.
func (s *Store) Change(resource, name string, change func(Object)) {
	resource, _, _ = strings.Cut(resource, "/")
	o := s.of(resource)
	object := o.present[name]
	if object == nil {
		return
	}
	after := copyOf(object)
	change(after)
	if foo, ok := after.(*v1alpha1.Foo); ok && foo.Spec.DeploymentName == "" && !sameIntent(object, after) {
		return // The schema refuses it.
	}
	noteManager(object, after, false)
	s.replace(o, s.admit(after))
}

// Delete implements User.
func (s *Store) Delete(resource, name string, propagation metav1.DeletionPropagation) {
	if o := s.of(resource); o.present[name] != nil {
		s.must(s.remove(o, name, metav1.DeleteOptions{PropagationPolicy: &propagation}))
	}
}

// Now implements User.
func (s *Store) Now() metav1.Time { return s.now() }

// RollOut is one step of the Deployment controller, or of a rival. It reports whether it changed anything.
func (s *Store) RollOut(name string) bool {
	before := s.version
	if deployment, ok := s.Get(Deployments, name).(*appsv1.Deployment); ok {
		s.rollOutOne(deployment)
	}
	return s.version != before
}

// store gives the object a new version, keeps a copy, and tells of it. A watch tells of a deleted object as it was
// stored: without the change that removed its last finalizer.
func (s *Store) store(o *objects, kind watch.EventType, object Object) {
	s.version++
	o.version++
	object.SetResourceVersion(strconv.FormatInt(o.version, 10))
	stored := copyOf(object)
	if s.share != nil {
		stored = s.share(stored)
	}
	if kind == watch.Deleted {
		delete(o.present, object.GetName())
	} else {
		o.present[object.GetName()] = stored
	}
	s.stored(o.GroupResource.Resource, Event{kind, stored})
}

// State returns the present state. The caller must not change the objects.
func (s *Store) State() State {
	state := State{Foos: map[string]*v1alpha1.Foo{}, Deployments: map[string]*appsv1.Deployment{}}
	for name, foo := range s.of(Foos).present {
		state.Foos[name] = foo.(*v1alpha1.Foo)
	}
	for name, deployment := range s.of(Deployments).present {
		state.Deployments[name] = deployment.(*appsv1.Deployment)
	}
	return state
}

func (s *Store) must(err error) {
	if err != nil {
		panic(err)
	}
}

func copyOf[T Object](object T) T {
	return object.DeepCopyObject().(T)
}
