//go:build compare

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

package compare

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/sample-controller/test/sim"
)

// event is one version of an object.
type event struct {
	resource string
	sim.Event
	// version is that of the API server.
	version string
}

// name returns the key of an object in the maps of a sequence.
func (e event) name() string { return e.resource + "/" + e.Object.GetName() }

// sequence is what one client sends to both API servers, in a namespace of its own.
type sequence struct {
	*testing.T

	server            *server
	table             *table
	random            *rand.Rand
	namespace, policy string
	watches           map[string]watch.Interface

	store *sim.Store
	// history has all events of the store, of which settle has compared the first ones.
	history []event
	settled int
	// present has the objects of the store as of the events that were compared, former the last one that is gone.
	present, former map[string]sim.Object
	// real maps UIDs and versions of the store to those of the API server, simulated the reverse.
	real, simulated map[string]string
	// sent describes the requests.
	sent []string
}

// now is the time in the store.
func now() metav1.Time { return metav1.Unix(1_800_000_000, 0) }

// newSequence returns sequence number i, which is the same in each run.
func newSequence(t *testing.T, server *server, table *table, i int) *sequence {
	s := &sequence{
		T: t, server: server, table: table, random: rand.New(rand.NewPCG(1, uint64(i))),
		policy: policies[i%len(policies)], watches: map[string]watch.Interface{},
		present: map[string]sim.Object{}, former: map[string]sim.Object{}, real: map[string]string{}, simulated: map[string]string{},
	}
	s.store = sim.NewStore(sim.FooResources(), now, func(resource string, e sim.Event) { s.history = append(s.history, event{resource: resource, Event: e}) })
	var err error
	s.namespace, err = server.createNamespace(t.Context(), s.policy)
	s.must(err)
	for _, resource := range []string{sim.Foos, sim.Deployments} {
		list, err := server.list(s.namespace, resource, metav1.ListOptions{}).Do(t.Context()).Get()
		s.must(err)
		version := list.(metav1.ListInterface).GetResourceVersion()
		s.watches[resource], err = server.list(s.namespace, resource, metav1.ListOptions{Watch: true, ResourceVersion: version}).Watch(t.Context())
		s.must(err)
		t.Cleanup(s.watches[resource].Stop)
		s.bind(s.store.Version(), version)
	}
	if s.policy == rewrite {
		s.store.Do(sim.Op{Verb: sim.Rewrite})
	}
	return s
}

func (s *sequence) must(err error) {
	s.Helper()
	if err != nil {
		s.differ("%v", err)
	}
}

// differ ends the sequence.
func (s *sequence) differ(format string, args ...any) {
	s.Helper()
	s.Fatalf("%s\nAfter these requests:\n%s", fmt.Sprintf(format, args...), strings.Join(s.sent, "\n"))
}

func (s *sequence) bind(simulated, real string) {
	s.real[simulated], s.simulated[real] = real, simulated
}

// run sends the requests of the sequence.
func (s *sequence) run() {
	for i := range sequenceLength {
		if s.policy == terminating && i == sequenceLength/2 {
			s.store.Do(sim.Op{Verb: sim.DeleteNamespace})
			s.must(s.server.kube.CoreV1().Namespaces().Delete(s.Context(), s.namespace, metav1.DeleteOptions{}))
			s.sent = append(s.sent, namespaceDeleted)
		}
		switch chance := s.random.IntN(100); {
		case chance < 42:
			s.request()
		case chance < 76:
			s.operate(s.drawOperation())
		case chance < 94:
			s.controlPlane()
		default:
			s.list(sim.Foos)
			s.list(sim.Deployments)
		}
	}
	for _, w := range s.watches {
		select {
		case e := <-w.ResultChan():
			s.differ("the API server sent an event that the simulated one did not: %s %+v", e.Type, e.Object)
		default:
		}
	}
}

// both sends a request to both API servers. The one for the real one is translated.
func (s *sequence) both(c cell, r *sim.Request) {
	c.verb, c.resource, c.state = strings.TrimSpace(r.Verb+" "+r.Subresource), r.Resource, s.state(r.Resource, r.Name)
	if r.DryRun {
		c.verb = dryRun
	}
	s.sent = append(s.sent, fmt.Sprintf("%s %s: %s, %s", r, encode(r.Options), c.precondition, c.state))
	as := controllerName
	if c = s.inForce(c); s.policy == refuse && s.chance(50) {
		as, c.policy = refusedName, refuse
		s.store.Do(sim.Op{Verb: sim.Refuse, Count: 1})
	}
	want, wantErr := s.store.Serve(r)
	s.store.Do(sim.Op{Verb: sim.Refuse})
	got, gotErr := s.server.send(s.Context(), as, s.namespace, s.translate(r))
	s.compareAnswers(answer(wantErr), answer(gotErr))
	text := answer(gotErr)
	if s.settle(); wantErr == nil && r.Verb != "delete" {
		if r.DryRun {
			// The UID is that of no object.
			want.SetUID("")
			got.SetUID("")
		} else if s.isReordered(got) {
			text = reordered
		}
		s.compareObjects("the answer to "+r.String(), want, got)
	}
	s.table.add(c, text)
}

// isReordered reports whether the API server has stored a Deployment anew that is the same in the store. If a policy
// undoes the change of a field, the writer still becomes the latest manager, and managers are sorted by time.
func (s *sequence) isReordered(object sim.Object) bool {
	s.Helper()
	version := object.GetResourceVersion()
	if _, isDeployment := object.(*appsv1.Deployment); !isDeployment || s.policy != rewrite || s.simulated[version] != "" {
		return false
	}
	present := s.present[sim.Deployments+"/"+object.GetName()]
	s.bind(present.GetResourceVersion(), version)
	got := s.next(sim.Deployments)
	if got.Type != watch.Modified {
		s.differ("the API server sent an event %s of %+v, the simulated one none", got.Type, got.Object)
	}
	s.compareObjects("an event", present, got.Object.(sim.Object))
	return true
}

// next returns the next event of the API server.
func (s *sequence) next(resource string) watch.Event {
	s.Helper()
	select {
	case e := <-s.watches[resource].ResultChan():
		if _, ok := e.Object.(sim.Object); !ok {
			s.differ("the API server sent an event %s of %+v", e.Type, e.Object)
		}
		return e
	case <-time.After(waitTimeout):
		s.differ("the API server sent no event of %s", resource)
	}
	panic("not reached")
}

// answer describes an answer.
func answer(err error) string {
	var status apierrors.APIStatus
	if err == nil {
		return "done"
	}
	if !errors.As(err, &status) {
		return err.Error()
	}
	text := fmt.Sprintf("%d %s", status.Status().Code, status.Status().Reason)
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			text += strings.TrimRight(fmt.Sprintf(" %s %s", cause.Type, cause.Field), " ")
		}
	}
	return text
}

func (s *sequence) compareAnswers(want, got string) {
	s.Helper()
	if want != got {
		s.differ("the API server answered %q, the simulated one %q", got, want)
	}
}

// settle compares the events of both watches up to the store's version.
func (s *sequence) settle() {
	s.Helper()
	for ; s.settled < len(s.history); s.settled++ {
		want := s.history[s.settled]
		got := s.next(want.resource)
		object := got.Object.(sim.Object)
		if got.Type != want.Type {
			s.differ("the API server sent an event %s of %+v, the simulated one %s of %+v", got.Type, object, want.Type, want.Object)
		}
		if got.Type == watch.Added {
			s.bind(string(want.Object.GetUID()), string(object.GetUID()))
		}
		s.history[s.settled].version = object.GetResourceVersion()
		s.bind(want.Object.GetResourceVersion(), object.GetResourceVersion())
		s.compareObjects(fmt.Sprintf("the event %s", want.Type), want.Object, object)
		if want.Type == watch.Deleted {
			delete(s.present, want.name())
			s.former[want.name()] = want.Object
		} else {
			s.present[want.name()] = want.Object
		}
	}
}

// compareObjects compares an object of the store with one of the API server.
func (s *sequence) compareObjects(what string, want, got sim.Object) {
	s.Helper()
	want, got = masked(want), masked(got)
	if d, ok := got.(*appsv1.Deployment); ok {
		sim.NormalizeManagers(d)
	} else {
		got.SetManagedFields(nil)
	}
	got.SetUID(types.UID(s.simulated[string(got.GetUID())]))
	got.SetResourceVersion(s.simulated[got.GetResourceVersion()])
	refs := got.GetOwnerReferences()
	for i := range refs {
		if uid, ok := s.simulated[string(refs[i].UID)]; ok {
			refs[i].UID = types.UID(uid)
		}
	}
	got.SetOwnerReferences(refs)
	if !equality.Semantic.DeepEqual(want, got) {
		s.differ("%s: (-simulated +real)\n%s", what, cmp.Diff(want, got))
	}
}

// masked returns a copy of what is compared.
func masked(o sim.Object) sim.Object {
	o = o.DeepCopyObject().(sim.Object)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	o.SetNamespace("")
	o.SetCreationTimestamp(metav1.Time{})
	if o.GetDeletionTimestamp() != nil {
		at := now()
		o.SetDeletionTimestamp(&at)
	}
	return o
}

// list compares a list of "", of "0", and of an earlier version.
func (s *sequence) list(resource string) {
	options, c := metav1.ListOptions{}, cell{verb: "list", resource: resource}
	switch s.random.IntN(3) {
	case 1:
		options.ResourceVersion, c.precondition = "0", "0"
	case 2:
		options.ResourceVersionMatch, c.precondition = metav1.ResourceVersionMatchExact, "Exact"
	}
	want, version := map[string]sim.Object{}, ""
	for _, e := range s.history {
		if e.resource == resource || c.precondition != "0" {
			// The cache that answers a list of "0" shows what its watch has shown.
			version = e.version
		}
		switch {
		case e.resource == resource && e.Type != watch.Deleted:
			want[e.Object.GetName()] = e.Object
		case e.resource == resource:
			delete(want, e.Object.GetName())
		}
		if c.precondition == "Exact" && s.random.IntN(len(s.history)) == 0 {
			break
		}
	}
	if c.precondition == "Exact" {
		options.ResourceVersion = version
	}
	if version == "" {
		return
	}
	got, err := s.server.list(s.namespace, resource, options).Do(s.Context()).Get()
	s.must(err)
	order, err := resourceversion.CompareResourceVersion(got.(metav1.ListInterface).GetResourceVersion(), version)
	s.must(err)
	if order < 0 || order > 0 && c.precondition == "Exact" {
		s.differ("a list of %+v has version %s", options, got.(metav1.ListInterface).GetResourceVersion())
	}
	items, err := meta.ExtractList(got)
	s.must(err)
	for _, item := range items {
		object := item.(sim.Object)
		if want[object.GetName()] == nil {
			s.differ("a list of %+v has %s", options, object.GetName())
		}
		s.compareObjects("a list", want[object.GetName()], object)
		delete(want, object.GetName())
	}
	if len(want) > 0 {
		s.differ("a list of %+v lacks %v", options, want)
	}
	s.table.add(s.inForce(c), "done")
}
