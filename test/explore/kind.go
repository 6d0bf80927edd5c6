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

package explore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/test/sim"
)

// Kind is what a kind gives to be explored.
type Kind struct {
	// Build builds the controller under test.
	Build func(ctx context.Context, env Env) Controller
	// Resources are those in the cluster, that of the owners first. The first ones have informers.
	Resources []sim.Resource
	// Around are the controllers of the cluster beside the garbage collector.
	Around []Around
	// IsCoarse says that an event and its handlers are one step, to bound the states of a kind with many informers.
	IsCoarse bool
	// Calendar is up to when it matters what time it is, and not only how long ago something was, zero for never.
	Calendar time.Time
	// Judge is that of an empty cluster.
	Judge Judge
	// MayBe reports whether a status may have that condition at rest, nil for any.
	MayBe func(condition string) bool
}

// Operation is what a user does.
type Operation struct {
	// Story tells it.
	Story string
	Do    func(*sim.Store)
}

// Around is a controller of the cluster that is not under test.
type Around struct {
	Name, Resource string
	// Step is one step about one object of the resource.
	Step func(store *sim.Store, name string)
}

// Judge has the invariants of a kind, and what of the past they speak of. A Judge never changes. Its exported fields
// are a part of the state.
type Judge interface {
	// Note returns the judge after a step that has changed the cluster.
	Note(c *ClusterState) Judge
	// Write returns the judge after a request to write, and the invariants that it violates. before is the judge
	// before the request.
	Write(before Judge, w *Write) (Judge, []string)
	// Rest returns what is wrong with a cluster in which nothing is left to do but to wait.
	Rest(c *ClusterState) []string
}

// JudgeOfProcess is a Judge that tells what the present process did from what former ones did.
type JudgeOfProcess interface{ NewProcess() Judge }

// Write is a request to write that the API server has answered.
type Write struct {
	*ClusterState

	Request *sim.Request
	// Before and After are the object, nil if there is none.
	Before, After sim.Object
	Err           error
	// Acting is the owner that the sync acts for, as its cache has it, and Reads are what the sync has read live. Both
	// are nil for a request that was detached.
	Acting sim.Object
	Reads  []sim.Object
}

// Read returns what the sync has read of that type and name last, nil if nothing.
func Read[T sim.Object](w *Write, name string) (last T) {
	for _, object := range w.Reads {
		if object, ok := object.(T); ok && object.GetName() == name {
			last = object
		}
	}
	return last
}

// ClusterState is the cluster in one state.
type ClusterState struct {
	Store *sim.Store
	// Deviates says that a deviation has happened.
	Deviates bool

	state     *state
	resources []string
}

// versions returns the objects of a resource that a cache of the process may show, or has shown to a sync in progress:
// the cached ones, those that are not delivered yet, and the present ones.
func (c *ClusterState) versions(resource string) []sim.Object {
	s, i := c.state, slices.Index(c.resources, resource)
	var all []sim.Object
	add := func(event sim.Event) {
		if event.Object != nil && event.Type != watch.Deleted {
			all = append(all, event.Object)
		}
	}
	for _, object := range s.process.base.caches[i].objects {
		all = append(all, object.(sim.Object))
	}
	for _, e := range s.process.log {
		if e.at == i {
			add(e.event)
		}
	}
	for _, event := range s.logs[i] {
		add(event)
	}
	return append(all, c.Store.Objects(resource)...)
}

// Past is what happened to one owner.
type Past struct {
	// Names are those of what it has asked for, in order.
	Names string
	// Applied is the last generation that a write has applied.
	Applied int64
	// Generation is the present one. Shown says that an object has shown what it asks for, or waits to, and Complete that
	// one was complete.
	Generation      int64
	Shown, Complete bool
}

// note returns the past after a step that has changed the cluster. of returns the name that an owner asks for, and
// what an object, nil for none, has of it.
func (c *ClusterState) note(past map[types.UID]Past, owners, main string, of func(owner, object sim.Object) (name string, isShown, isComplete bool)) map[types.UID]Past {
	next := map[types.UID]Past{}
	for _, owner := range c.Store.Objects(owners) {
		h := past[owner.GetUID()]
		if name, _, _ := of(owner, nil); !strings.Contains(h.Names, "/"+name+"/") {
			h.Names += "/" + name + "/"
		}
		if h.Generation != owner.GetGeneration() {
			h = Past{Names: h.Names, Applied: h.Applied, Generation: owner.GetGeneration()}
		}
		if !h.Complete {
			for _, object := range c.versions(main) {
				_, isShown, isComplete := of(owner, object)
				h.Shown, h.Complete = h.Shown || isShown, h.Complete || isComplete
			}
		}
		next[owner.GetUID()] = h
	}
	// An owner that is gone may still be in a cache.
	for uid, h := range past {
		if _, ok := next[uid]; !ok {
			next[uid] = Past{Names: h.Names, Applied: h.Applied}
		}
	}
	return next
}

// applied returns the past after a write for an owner.
func applied(past map[types.UID]Past, acting sim.Object, violated func(string, ...any)) map[types.UID]Past {
	past = maps.Clone(past)
	h := past[acting.GetUID()]
	if acting.GetGeneration() < h.Applied {
		violated("S6: generation %d of %s was applied after generation %d", acting.GetGeneration(), acting.GetName(), h.Applied)
	}
	h.Applied = max(h.Applied, acting.GetGeneration())
	past[acting.GetUID()] = h
	return past
}

// judge has the invariants of all kinds, and what of the past they and those of the kind speak of. It uses no clock:
// what a process knows is what its caches had when the sync began, or what that sync has read live.
type judge struct {
	kind Judge
	// own are the versions that the API server has answered to this process, by owner, resource and name. What was
	// written for one owner another one learns from the cache.
	own map[string]int64
	// encoded is its form, nil before it was needed.
	encoded *form
}

func (j *judge) encode(c *canon) *form {
	if j.encoded == nil {
		t := c.tokens()
		for _, name := range slices.Sorted(maps.Keys(j.own)) {
			t.string(name)
			t.version(strconv.FormatInt(j.own[name], 10))
		}
		t.exported(j.kind)
		j.encoded = t.form()
	}
	return j.encoded
}

// refused judges a write that the API server has refused because the object is another one than the cache had: the
// process knew that by the answer to a write of its own.
func (j *judge) refused(key cache.ObjectName, w *Write) (violations []string) {
	own := j.own[ownName(key, w.Request)]
	if (apierrors.IsConflict(w.Err) || apierrors.IsAlreadyExists(w.Err)) && w.Before != nil && own != 0 && w.Before.GetResourceVersion() == strconv.FormatInt(own, 10) {
		return []string{fmt.Sprintf("rule 14: the request %s does not know the process's own write of version %d", w.Request, own)}
	}
	return nil
}

// answered returns the judge after the process has got the answer to a write.
func (j *judge) answered(key cache.ObjectName, r *sim.Request, a answer) *judge {
	if a.err != nil || r.Verb == "get" || r.DryRun {
		return j
	}
	next := &judge{j.kind, maps.Clone(j.own), nil}
	if next.own == nil {
		next.own = map[string]int64{}
	}
	delete(next.own, ownName(key, r))
	if a.object != nil {
		next.own[ownName(key, r)], _ = strconv.ParseInt(a.object.GetResourceVersion(), 10, 64)
	}
	return next
}

func ownName(key cache.ObjectName, r *sim.Request) string {
	return key.Name + "/" + r.Resource + "/" + r.Name
}

// precondition checks the part of S5 that concerns writes which arrive late.
func precondition(r *sim.Request) (violations []string) {
	switch {
	case r.Resource == Items:
	case r.Verb == "delete":
		if p := r.Options.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil {
			violations = append(violations, fmt.Sprintf("S5: a delete of %s without preconditions", r.Name))
		}
	case r.Verb == "patch":
		var sent metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Patch, &sent); err != nil || sent.ResourceVersion == "" {
			violations = append(violations, fmt.Sprintf("S5: a patch of %s without a resourceVersion: %s", r.Name, r.Patch))
		}
	}
	return violations
}
