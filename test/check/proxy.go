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
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// answer is given in place of that of the API server.
	answer *apierrors.StatusError
	// A request that is withheld does not get to the API server. One that is lost gets no answer, nor does a withheld one.
	// Then kills kills the process.
	withheld, lost, kills bool
	// takesLease gives the lease to another process for as long as it lasts. replaces makes a user delete and create the
	// object that the request deletes, just before it does.
	takesLease, replaces bool
	// rare is injected once into each class of request, also if not only a part is.
	rare bool
	// wait is for how long a request is held back, or how late an event is. The others are about watches: the events of one
	// resource after the operation began. times is into how many of them the fault is injected, 0 for all; what follows a
	// late one is late until then. cuts cuts the event in its middle. expires ends the watch with 410, after wait: as the
	// next answer or, with inStream, as an event. then is what the next request gets: 410, or a list that is cut.
	wait                    time.Duration
	times                   int
	cuts, expires, inStream bool
	then                    string
}

var errInjected = errors.New("injected by check")

func requestFaults() []*fault {
	none, internal := schema.GroupResource{}, apierrors.NewInternalError(errInjected)
	return []*fault{
		{name: "crash-before", kills: true, withheld: true},
		{name: "crash-after", kills: true, lost: true},
		{name: "answer-lost", lost: true},
		{name: "409", answer: apierrors.NewConflict(none, "", errInjected)},
		{name: "429", answer: apierrors.NewTooManyRequests(errInjected.Error(), 1)},
		{name: "500", answer: internal},
		{name: "403", answer: apierrors.NewForbidden(none, "", errInjected)},
		{name: "hang-60s", wait: time.Minute, withheld: true, rare: true},
		{name: "lease-taken", takesLease: true, answer: internal, rare: true},
		{name: "replaced", replaces: true},
	}
}

// longHold is longer than the 30 seconds for which a controller may wait for a watch.
const longHold = 33 * time.Second

func watchFaults() []*fault {
	return []*fault{
		{name: "late-0.3s", wait: 300 * time.Millisecond},
		{name: "late-1.5s", wait: 1500 * time.Millisecond},
		{name: "held-4s", wait: 4 * time.Second, times: 1},
		{name: "held-33s", wait: longHold, times: 1},
		{name: "cut", cuts: true, times: 3},
		{name: "410-answer", expires: true, then: "410", times: 1},
		{name: "410-event", expires: true, inStream: true, times: 1},
		{name: "skipped-4s", wait: 4 * time.Second, expires: true, inStream: true, times: 1},
		{name: "cut-list", expires: true, inStream: true, then: "cut", times: 1},
	}
}

// appliesTo reports whether a correct API server can answer the request so. Without a precondition it has no reason for
// a conflict, except of a patch, which it retries five times on its own.
func (f *fault) appliesTo(r *trace.Request) bool {
	switch {
	case f.replaces:
		return r.Verb == http.MethodDelete && r.Name != ""
	case f.takesLease:
		return r.IsWrite()
	case f.answer != nil && apierrors.IsConflict(f.answer):
		return r.Verb == http.MethodPatch || r.Precondition != ""
	}
	return r.IsWrite() || !f.kills || f.withheld
}

// point is where a fault is injected: the nth request of that class, or the step of a user.
type point struct {
	class string
	nth   int
}

func (p point) String() string { return p.class + " #" + strconv.Itoa(p.nth) }

// recordedPoint is a point and the request there, nil for a step of the user.
type recordedPoint struct {
	point

	request *trace.Request
}

// ServeHTTP implements http.Handler. It is the API server of the controller.
func (r *run) ServeHTTP(w http.ResponseWriter, incoming *http.Request) {
	// The upstream has its own credentials. Without any, kubectl would ask for them.
	incoming.Header.Del("Authorization")
	to, ok := trace.ParsePath(incoming.URL.Path)
	isRead, query := incoming.Method == http.MethodGet, incoming.URL.Query()
	isCache := ok && isRead && to.Name == ""
	if isCache && to.Namespace == "" && r.check.cluster.namespaced[to.GroupResource()] {
		to.Namespace = r.namespace
		incoming.URL.Path = path.Join(path.Dir(incoming.URL.Path), "namespaces", r.namespace, to.Resource)
		incoming.URL.RawPath = ""
	}
	isOurs := to.Namespace == r.namespace && to.Resource != "events" && to.Resource != "leases"
	switch {
	case isCache && (query.Get("watch") == "true" || query.Get("watch") == "1"):
		r.serveWatch(w, incoming, to.Resource)
	case isCache:
		r.serveList(w, incoming, to.Resource)
	case ok && !isRead && to.Namespace != r.namespace && !strings.HasSuffix(to.Resource, "reviews"):
		r.find("isolation", "%s %s: a write outside the namespace of the run", incoming.Method, incoming.URL.Path)
		trace.Respond(w, apierrors.NewForbidden(to.GroupResource(), to.Name, errInjected))
	case ok && isOurs:
		r.serveRequest(w, incoming, to)
	default:
		_, body := trace.ReadRequest(incoming, to)
		r.check.cluster.Forward(incoming, body).Write(w)
	}
}

func (r *run) serveList(w http.ResponseWriter, incoming *http.Request, resource string) {
	trace.AsJSON(incoming.Header)
	response, list := r.check.cluster.Forward(incoming, nil), &unstructured.UnstructuredList{}
	if response != nil && response.Code == http.StatusOK && list.UnmarshalJSON(response.Body) == nil {
		for i := range list.Items {
			r.show(resource, &list.Items[i])
		}
		if len(list.Items) > 0 && r.isNext("cut", resource) {
			response.Body = response.Body[:len(response.Body)/2]
			defer panic(http.ErrAbortHandler)
		}
	}
	response.Write(w)
}

// show notes that the process gets the object.
func (r *run) show(resource string, object *unstructured.Unstructured) {
	r.locked(func() { r.shown[resource+"/"+object.GetName()] = string(object.GetUID()) })
}

// serveRequest records a request and injects the fault that is due.
func (r *run) serveRequest(w http.ResponseWriter, incoming *http.Request, to trace.Target) {
	request, body := trace.ReadRequest(incoming, to)
	ctx := incoming.Context()
	trace.Pause(ctx, r.delay(false))
	if r.writesWithoutLease(ctx, request) {
		trace.Respond(w, apierrors.NewInternalError(errInjected))
		return
	}
	f := r.record(request)
	switch {
	case f.replaces:
		r.recreate(ctx, request)
	case f.takesLease:
		r.takeLease(ctx)
	case f.wait > 0:
		r.hold(ctx, f.wait)
	}
	if f.answer != nil {
		trace.Respond(w, f.answer)
		return
	}
	if f.lost && !f.kills {
		// A client whose answer is lost shall not learn of its write at once.
		r.locked(func() { r.lagsUntil = trace.Now().Add(time.Second) })
	}
	send := func() *trace.Response { return r.check.cluster.Forward(incoming, body) }
	var response *trace.Response
	if !f.withheld {
		response = send()
		r.answered(request, response, send)
	}
	if f.kills {
		r.restart(context.WithoutCancel(ctx), func() {})
	}
	if f.lost {
		response = nil
	}
	response.Write(w)
}

// record records the request and returns the fault to inject into it.
func (r *run) record(request *trace.Request) *fault {
	r.Lock()
	defer r.Unlock()
	request.At, request.Shown = trace.Now(), r.shown[request.Resource+"/"+request.Name]
	r.requests = append(r.requests, request)
	if request.IsWrite() {
		r.active = later(r.active, request.At)
	}
	if !r.armed {
		return &fault{}
	}
	f := r.count(request.Class(r.aliases.of), request)
	request.Fault = f.name
	return f
}

// count counts a point of the operation and returns the fault to inject there. The caller holds the lock.
func (r *run) count(class string, request *trace.Request) *fault {
	if !r.armed {
		return &fault{}
	}
	r.counts[class]++
	here := point{class, r.counts[class]}
	r.points = append(r.points, recordedPoint{here, request})
	if r.injected || here != r.at {
		return &fault{}
	}
	r.injected = true
	return r.fault
}

// answered records the answer of the API server, and how to send a request again that has created an object.
func (r *run) answered(request *trace.Request, response *trace.Response, again func() *trace.Response) {
	r.Lock()
	defer r.Unlock()
	if object := request.Answered(response); object != nil && object.GetKind() != "Status" {
		key := request.Resource + "/" + request.Made
		r.shown[key] = string(object.GetUID())
		if request.Applied() && request.Body != nil && request.Subresource == "" {
			r.creations[key] = again
		}
	}
}

// recreate deletes the object that the request is about to delete, and creates it as the controller did.
func (r *run) recreate(ctx context.Context, of *trace.Request) {
	var create func() *trace.Response
	r.locked(func() { create = r.creations[of.Resource+"/"+of.Name] })
	if create == nil {
		return
	}
	client := r.check.cluster.client.Resource(of.GroupVersionResource).Namespace(r.namespace)
	options := metav1.NewDeleteOptions(0)
	options.PropagationPolicy = ptr.To(metav1.DeletePropagationBackground)
	err := client.Delete(ctx, of.Name, *options)
	if apierrors.IsNotFound(err) {
		// Another client has deleted it just now: the fault found no occasion after all.
		r.locked(func() { r.injected = false })
		return
	}
	if err == nil {
		err = trace.Poll(ctx, stepTimeout, func(context.Context) error {
			if response := create(); response == nil || response.Code >= http.StatusBadRequest {
				return errors.New("it is not created again")
			}
			return nil
		})
	}
	if err != nil {
		r.find("run", "replacing %s: %v", of.Name, err)
	}
}

// hold holds a request or an event back. The run is not at rest before the process has it.
func (r *run) hold(ctx context.Context, wait time.Duration) {
	r.locked(func() { r.active = later(r.active, trace.Now().Add(wait)) })
	trace.Pause(ctx, wait)
}

// delay returns by how much a request or an event is delayed at random, or until the lag is over.
func (r *run) delay(isEvent bool) (by time.Duration) {
	r.locked(func() {
		if r.jitter != nil {
			by = time.Duration(r.jitter.Int64N(int64(100 * time.Millisecond)))
		} else if isEvent {
			by = r.lagsUntil.Sub(trace.Now())
		}
	})
	return by
}

func (r *run) leases() dynamic.ResourceInterface {
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	return r.check.cluster.client.Resource(leases).Namespace(r.namespace)
}

// thief is the holder of a lease that was taken.
const thief = "check"

// takeLease makes another process the holder of the leases, for as long as the longest one lasts.
func (r *run) takeLease(ctx context.Context) {
	list, err := r.leases().List(ctx, metav1.ListOptions{})
	for _, lease := range ptr.Deref(list, unstructured.UnstructuredList{}).Items {
		now := trace.Now().UTC()
		patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q,"renewTime":%q}}`, thief, now.Format(metav1.RFC3339Micro))
		_, failed := r.leases().Patch(ctx, lease.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		err = errors.Join(err, failed)
		seconds, _, _ := unstructured.NestedInt64(lease.Object, "spec", "leaseDurationSeconds")
		r.locked(func() { r.lostUntil = later(r.lostUntil, now.Add(time.Duration(seconds)*time.Second)) })
	}
	if err != nil {
		r.find("run", "taking the lease: %v", err)
	}
}

// writesWithoutLease reports whether another process has the lease. For the duration of the lease the process may not
// have learned that.
func (r *run) writesWithoutLease(ctx context.Context, request *trace.Request) bool {
	var until time.Time
	r.locked(func() { until = r.lostUntil })
	if until.IsZero() || !request.IsWrite() {
		return false
	}
	list, err := r.leases().List(ctx, metav1.ListOptions{})
	taken := err == nil && slices.ContainsFunc(list.Items, func(lease unstructured.Unstructured) bool {
		holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
		return holder == thief
	})
	if taken && trace.Now().After(until) {
		r.find("lease", "%s: another process has had the lease for its duration", r.plain(request))
	}
	return taken
}

func watchClass(resource string) string { return "WATCH " + resource }

// isNext reports whether that comes next for this resource, and then it does not any more.
func (r *run) isNext(then, resource string) (is bool) {
	r.locked(func() {
		if is = r.next == then && r.at.class == watchClass(resource); is {
			r.next = ""
		}
	})
	return is
}

// due returns the fault to inject into an event of this resource, and counts it.
func (r *run) due(resource string) *fault {
	r.Lock()
	defer r.Unlock()
	f := r.fault
	if !r.armed || r.at.class != watchClass(resource) || f.times > 0 && r.times == f.times {
		return &fault{}
	}
	r.injected = true
	r.times++
	r.next = f.then
	return f
}

// serveWatch delivers the events of a watch, and injects the fault that is due.
func (r *run) serveWatch(w http.ResponseWriter, incoming *http.Request, resource string) {
	ctx, expired := incoming.Context(), apierrors.NewResourceExpired(errInjected.Error())
	// It is set until the bookmark after the initial list.
	inList := incoming.URL.Query().Get("sendInitialEvents") == "true"
	if !inList && r.isNext("410", resource) {
		trace.Respond(w, expired)
		return
	}
	opened := func(code int) {
		r.locked(func() { r.watched[resource] = r.watched[resource] || code == http.StatusOK })
	}
	r.check.cluster.Watch(w, incoming, opened, func(e *trace.Event) bool {
		object, f, data := &unstructured.Unstructured{}, &fault{}, trace.MustEncode(e)
		if e.Type == watch.Error || object.UnmarshalJSON(e.Object) != nil {
			trace.Send(w, data)
			return true
		}
		isCut := false
		switch {
		case e.Type == watch.Bookmark:
			inList = inList && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true"
		case inList:
			isCut = r.isNext("cut", resource)
		default:
			trace.Pause(ctx, r.delay(true))
			f = r.due(resource)
			isCut = f.cuts
		}
		if f.wait > 0 {
			r.hold(ctx, e.ReceivedAt.Add(f.wait).Sub(trace.Now()))
		}
		if isCut {
			trace.Send(w, data[:len(data)/2])
			panic(http.ErrAbortHandler)
		}
		if f.inStream {
			trace.Send(w, trace.MustEncode(&trace.Event{Type: watch.Error, Object: trace.EncodeStatus(expired)}))
		}
		if f.expires || ctx.Err() != nil {
			return false
		}
		r.show(resource, object)
		trace.Send(w, data)
		return true
	})
}
