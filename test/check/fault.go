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

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/test/check/trace"
)

// fault is one way in which a request, the process that sent it, or a watch can fail.
type fault struct {
	name string
	// code and reason are what is answered in place of the API server.
	code   int
	reason metav1.StatusReason
	// kills kills the process, before the API server gets the request or, if executes is set, before the process gets the
	// answer. With executes alone only the answer is lost.
	kills, executes bool
	// hangs gives no answer for wait. takesLease gives the lease to another process, and answers this and the following
	// writes with 500 for as long as the lease lasts. replaces makes a user delete and create the object that the request
	// deletes, just before it does.
	hangs, takesLease, replaces bool
	// rare is injected once into each class of request, also if not only a part is.
	rare bool
	// The others are about watches: the events of one resource after the operation began. wait is how late each event is
	// or, with once, the first one, and those after it until then. cuts is how many events are cut in their middle.
	// expires ends the watch with 410, after wait: as the next answer or, with inStream, as an event. cutsList also cuts
	// the list after it.
	wait              time.Duration
	once              bool
	cuts              int
	expires, inStream bool
	cutsList          bool
}

func requestFaults() []*fault {
	return []*fault{
		{name: "crash-before", kills: true},
		{name: "crash-after", kills: true, executes: true},
		{name: "answer-lost", executes: true},
		{name: "409", code: http.StatusConflict, reason: metav1.StatusReasonConflict},
		{name: "429", code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests},
		{name: "500", code: http.StatusInternalServerError, reason: metav1.StatusReasonInternalError},
		{name: "403", code: http.StatusForbidden, reason: metav1.StatusReasonForbidden},
		{name: "hang-60s", hangs: true, wait: time.Minute, rare: true},
		{name: "lease-taken", takesLease: true, rare: true},
		{name: "replaced", replaces: true, executes: true},
	}
}

// longHold is longer than the 30 seconds for which a controller may wait for a watch.
const longHold = 33 * time.Second

func watchFaults() []*fault {
	return []*fault{
		{name: "late-0.3s", wait: 300 * time.Millisecond},
		{name: "late-1.5s", wait: 1500 * time.Millisecond},
		{name: "held-4s", wait: 4 * time.Second, once: true},
		{name: "held-33s", wait: longHold, once: true},
		{name: "cut", cuts: 3},
		{name: "410-answer", expires: true},
		{name: "410-event", expires: true, inStream: true},
		{name: "skipped-4s", wait: 4 * time.Second, once: true, expires: true, inStream: true},
		{name: "cut-list", expires: true, inStream: true, cutsList: true},
	}
}

func (f *fault) isOfWatch() bool { return f.wait > 0 && !f.hangs || f.cuts > 0 || f.expires }

// appliesTo reports whether a correct API server can answer the request so. Without a precondition it has no reason for
// a conflict, except of a patch, which it retries five times on its own.
func (f *fault) appliesTo(r *trace.Request) bool {
	switch {
	case f.replaces:
		return r.Verb == http.MethodDelete && r.Name != ""
	case f.takesLease:
		return r.IsWrite()
	case f.code == http.StatusConflict:
		return r.Verb == http.MethodPatch || r.Precondition != ""
	case !r.IsWrite():
		return !f.kills || !f.executes
	}
	return true
}

func (r *run) leases() dynamic.ResourceInterface {
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	return r.check.cluster.client.Resource(leases).Namespace(r.namespace)
}

// thief is the holder of a lease that was taken.
const thief = "check"

// takeLease makes another process the holder of the leases, and returns how long the longest one lasts.
func (r *run) takeLease(ctx context.Context) (longest time.Duration) {
	list, err := r.leases().List(ctx, metav1.ListOptions{})
	if err != nil {
		r.proxy.find("run", err.Error())
		return 0
	}
	for i := range list.Items {
		seconds, _, _ := unstructured.NestedInt64(list.Items[i].Object, "spec", "leaseDurationSeconds")
		longest = max(longest, time.Duration(seconds)*time.Second)
		now, name := trace.Now().UTC().Format(metav1.RFC3339Micro), list.Items[i].GetName()
		patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q,"renewTime":%q}}`, thief, now)
		if _, err := r.leases().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			r.proxy.find("run", err.Error())
		}
	}
	return longest
}

// leaseTaken reports whether a lease has that holder still.
func (r *run) leaseTaken(ctx context.Context) bool {
	list, err := r.leases().List(ctx, metav1.ListOptions{})
	return err == nil && slices.ContainsFunc(list.Items, func(lease unstructured.Unstructured) bool {
		holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
		return holder == thief
	})
}

// recreate deletes the object that the request is about to delete, and creates it as the controller did.
func (r *run) recreate(ctx context.Context, of *trace.Request) {
	client := r.check.cluster.client.Resource(of.GroupVersionResource).Namespace(r.namespace)
	for _, sent := range slices.Backward(r.proxy.recorded(0)) {
		if sent.Resource != of.Resource || sent.Made != of.Name || sent.Body == nil {
			continue
		}
		live, err := client.Get(ctx, of.Name, metav1.GetOptions{})
		if err == nil {
			err = client.Delete(ctx, of.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		}
		if err == nil {
			// The controller may leave alone what another manager has made. Others write the status.
			managers := slices.DeleteFunc(live.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Subresource != "" })
			err = trace.Poll(ctx, stepTimeout, func(ctx context.Context) error {
				_, err := client.Create(ctx, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(sent.Body)}, metav1.CreateOptions{FieldManager: managers[0].Manager})
				return err
			})
		}
		switch {
		case apierrors.IsNotFound(err):
			// Another client has deleted it just now.
			r.proxy.miss()
		case err != nil:
			r.proxy.find("run", "replacing "+of.Name+": "+err.Error())
		}
		return
	}
}

// watchStream is one connection of a watch.
type watchStream struct {
	*proxy

	resource string
	writer   http.ResponseWriter
	// inInitialList is set until the bookmark after the initial list.
	inInitialList bool
}

func watchClass(resource string) string { return "WATCH " + resource }

func (p *proxy) serveWatch(w http.ResponseWriter, incoming *http.Request, resource string) {
	listing := incoming.URL.Query().Get("sendInitialEvents") == "true"
	if !listing && p.take(&p.expireNext, resource) {
		trace.Respond(w, http.StatusGone, metav1.StatusReasonExpired, "injected by check")
		return
	}
	s := &watchStream{p, resource, w, listing}
	p.Watch(w, incoming, func(code int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watched[resource] = p.watched[resource] || code == http.StatusOK
	}, func(e *trace.Event) bool { return s.handle(incoming.Context(), e) })
}

// take reports whether what is due next is due for this resource, and then it is not any more.
func (p *proxy) take(next *bool, resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := *next && p.target.class == watchClass(resource)
	*next = *next && !is
	return is
}

// due returns the fault to inject into an event of this watch, or nil, and counts it.
func (s *watchStream) due() *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fault
	if !s.armed || f == nil || s.target.class != watchClass(s.resource) || s.injected && (f.once || f.expires) || f.cuts > 0 && s.cuts == f.cuts {
		return nil
	}
	s.injected = true
	s.cuts++
	s.expireNext, s.cutNext = f.expires && !f.inStream, f.cutsList
	return f
}

// handle delivers an event or injects the fault. It reports whether the watch continues.
func (s *watchStream) handle(ctx context.Context, e *trace.Event) bool {
	object := &unstructured.Unstructured{}
	if e.Type == watch.Error || object.UnmarshalJSON(e.Object) != nil {
		trace.Send(s.writer, trace.MustEncode(e))
		return true
	}
	if s.inInitialList && e.Type != watch.Bookmark && s.take(&s.cutNext, s.resource) {
		s.cut(e)
	}
	if !s.inInitialList && e.Type != watch.Bookmark && !s.inject(ctx, e) {
		return false
	}
	if ctx.Err() != nil {
		return false
	}
	if e.Type == watch.Bookmark {
		s.inInitialList = s.inInitialList && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true"
	} else {
		s.show(s.resource, object)
	}
	trace.Send(s.writer, trace.MustEncode(e))
	return true
}

// inject injects the fault that is due, and reports whether the watch continues with the event.
func (s *watchStream) inject(ctx context.Context, e *trace.Event) bool {
	trace.Pause(ctx, s.delay(true))
	f := s.due()
	if f == nil {
		return true
	}
	if f.wait > 0 {
		s.hold(ctx, e.ReceivedAt.Add(f.wait).Sub(trace.Now()))
	}
	if f.cuts > 0 {
		s.cut(e)
	}
	if f.inStream {
		trace.Send(s.writer, trace.MustEncode(&trace.Event{Type: watch.Error, Object: trace.NewStatus(http.StatusGone, metav1.StatusReasonExpired, "injected by check")}))
	}
	return !f.expires
}

// cut breaks the connection in the middle of the event.
func (s *watchStream) cut(e *trace.Event) {
	data := trace.MustEncode(e)
	trace.Send(s.writer, data[:len(data)/2])
	panic(http.ErrAbortHandler)
}

// point is where a fault is injected: the nth request of that class, or the step of a user.
type point struct {
	class string
	nth   int
}

func (p point) String() string { return p.class + " #" + strconv.Itoa(p.nth) }

// aliases give objects whose names differ from run to run a name that does not.
type aliases struct {
	namespace string
	// stable are the names that all runs have; nil for all names. RESOURCE/* is false if its names always differ.
	stable map[string]bool
	given  map[string]string
	counts map[string]int
}

func newAliases(namespace string, stable map[string]bool) *aliases {
	return &aliases{namespace, stable, map[string]string{}, map[string]int{}}
}

// of returns the alias of an object.
func (a *aliases) of(resource, name string) string {
	name = strings.ReplaceAll(name, a.namespace, "NAMESPACE")
	if same, known := a.stable[resource+"/*"]; a.stable == nil || a.stable[name] && (same || !known) || name == "" {
		return cmp.Or(name, "*")
	}
	key := resource + "/" + name
	if a.given[key] == "" {
		a.counts[resource]++
		a.given[key] = "#" + strconv.Itoa(a.counts[resource])
	}
	return a.given[key]
}

// repoint counts points again, with names that all runs have.
func repoint(points []recordedPoint, names *aliases) []recordedPoint {
	counts := map[string]int{}
	out := slices.Clone(points)
	for i := range out {
		if out[i].request != nil {
			out[i].class = out[i].request.Class(names.of)
		}
		counts[out[i].class]++
		out[i].nth = counts[out[i].class]
	}
	return out
}

// commonNames returns the names that objects of all runs have.
func commonNames(runs []*outcome) map[string]bool {
	counts := map[string]int{}
	for _, o := range runs {
		names := map[string]bool{}
		for _, v := range o.versions {
			names[strings.ReplaceAll(v.Object.GetName(), o.namespace, "NAMESPACE")] = true
		}
		for i := range o.requests {
			names[strings.ReplaceAll(o.requests[i].Name, o.namespace, "NAMESPACE")] = true
		}
		for name := range names {
			counts[name]++
		}
	}
	stable := map[string]bool{}
	for name, n := range counts {
		stable[name] = n == len(runs)
	}
	return stable
}

// track adds the resource of a write.
func track(tracked map[string]bool, r *trace.Request) {
	if r.Applied() {
		tracked[r.Resource] = true
		if r.Subresource == "status" {
			tracked[r.Resource+"/status"] = true
		}
	}
}

// describe returns one line for each point.
func describe(points []recordedPoint) []string {
	lines := make([]string, len(points))
	for i, p := range points {
		lines[i] = p.class
		if p.request != nil {
			lines[i] += fmt.Sprintf(" -> %d %s", p.request.Code, p.request.Fault)
		}
	}
	return lines
}
