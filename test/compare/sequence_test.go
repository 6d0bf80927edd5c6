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
	// first is the version before the first request.
	first string
	// sent describes the requests.
	sent []string
}

// now is the time in the store.
func now() metav1.Time { return metav1.Unix(1_800_000_000, 0) }

// newSequence returns sequence number i, which is the same in each run.
func newSequence(t *testing.T, server *server, table *table, i int) *sequence {
	s := &sequence{
		T: t, server: server, table: table, random: rand.New(rand.NewPCG(1, uint64(i))), policy: policies[i%len(policies)],
		watches: map[string]watch.Interface{}, present: map[string]sim.Object{}, former: map[string]sim.Object{},
		real: map[string]string{}, simulated: map[string]string{},
	}
	s.store = sim.NewStore(sim.FooResources(), now, func(resource string, e sim.Event) {
		s.history = append(s.history, event{resource: resource, Event: e})
	})
	s.first = s.store.VersionOf(sim.Foos)
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
		s.bind(s.first, version)
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
	end := s.random.IntN(sequenceLength)
	for i := range sequenceLength {
		if s.policy == terminating && i == end {
			s.store.Terminating = true
			s.must(s.server.kube.CoreV1().Namespaces().Delete(s.Context(), s.namespace, metav1.DeleteOptions{}))
			s.sent = append(s.sent, namespaceDeleted)
		}
		switch chance := s.random.IntN(100); {
		case chance < 46:
			s.request()
		case chance < 80:
			s.operate(s.drawOperation())
		case chance < 93:
			s.controlPlane()
		default:
			s.list(draw(s.random, sim.Foos, sim.Deployments), draw(s.random, "", "0", "Exact"))
		}
	}
	for _, resource := range []string{sim.Foos, sim.Deployments} {
		s.list(resource, "")
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
	if c = s.inForce(c); s.policy == refuse && r.Resource == sim.Deployments && s.chance(80) {
		as, c.policy = refusedName, refuse
		s.store.Refused = sim.Deployments
	}
	want, wantErr := s.store.Serve(r)
	s.store.Refused = ""
	got, gotErr := s.server.send(s.Context(), as, s.namespace, s.translate(r))
	text := answer(gotErr)
	if text != answer(wantErr) {
		s.differ("the API server answered %q, the simulated one %q", text, answer(wantErr))
	}
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
	version, present := object.GetResourceVersion(), s.present[sim.Deployments+"/"+object.GetName()]
	if s.simulated[version] != "" {
		return false
	}
	if s.policy != rewrite || present == nil {
		s.differ("the API server stored %+v, the simulated one did not", object)
	}
	s.bind(present.GetResourceVersion(), version)
	s.compareObjects("an event", present, s.next(sim.Deployments, watch.Modified))
	return true
}

// next returns the object of the next event of the API server.
func (s *sequence) next(resource string, kind watch.EventType) sim.Object {
	s.Helper()
	var got watch.Event
	select {
	case got = <-s.watches[resource].ResultChan():
	case <-time.After(waitTimeout):
	}
	object, ok := got.Object.(sim.Object)
	if !ok || got.Type != kind {
		s.differ("the API server sent an event %s of %+v, the simulated one %s of %s", got.Type, got.Object, kind, resource)
	}
	return object
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

// settle compares the events of both watches up to the store's version.
func (s *sequence) settle() {
	s.Helper()
	for ; s.settled < len(s.history); s.settled++ {
		want := s.history[s.settled]
		object := s.next(want.resource, want.Type)
		if want.Type == watch.Added {
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

// list compares a list of "", of "0", or of exactly a version that is drawn.
func (s *sequence) list(resource, of string) {
	want, version := map[string]sim.Object{}, "0"
	for _, e := range s.history {
		if e.resource == resource {
			if want[e.Object.GetName()] = e.Object; e.Type == watch.Deleted {
				delete(want, e.Object.GetName())
			}
		}
		// The cache that answers a list of "0" has what its watch has shown.
		if e.resource == resource || of != "0" {
			version = e.version
		}
		if of == "Exact" && s.random.IntN(len(s.history)) == 0 {
			break
		}
	}
	options := metav1.ListOptions{ResourceVersion: of}
	if of == "Exact" {
		options.ResourceVersion, options.ResourceVersionMatch = version, metav1.ResourceVersionMatchExact
	}
	if version == "0" {
		return
	}
	got, err := s.server.list(s.namespace, resource, options).Do(s.Context()).Get()
	s.must(err)
	order, err := resourceversion.CompareResourceVersion(got.(metav1.ListInterface).GetResourceVersion(), version)
	s.must(err)
	items, err := meta.ExtractList(got)
	s.must(err)
	if order < 0 || order > 0 && of == "Exact" || len(items) != len(want) {
		s.differ("a list of %q at %s is %+v, want %+v", of, version, got, want)
	}
	for _, item := range items {
		object := item.(sim.Object)
		if want[object.GetName()] == nil {
			s.differ("a list of %q has %s", of, object.GetName())
		}
		s.compareObjects("a list", want[object.GetName()], object)
	}
	s.table.add(cell{resource: resource, verb: fmt.Sprintf("list of %q", of), precondition: none}, "done")
}
