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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/sim"
)

// process is the controller under test, which takes one step at a time. Its workers run in
// goroutines of their own that wait whenever the explorer goes on: for a key, or for an answer.
type process struct {
	worker    *controller.Worker
	resources []sim.Resource
	informers []*informer
	memory    *memory
	clock     *fakeClock
	queue     *fakeQueue
	// buckets has the tokens of refusals. A hundred of a namespace are free, so that each step begins without any used.
	buckets *lru.Cache

	// turns has what the running worker waits for, nil for a key, keys and answers what it gets. The others wait already.
	turns   chan *sim.Request
	keys    chan cache.ObjectName
	answers []chan answer
	// running is the number of the sync whose worker runs.
	running int
	// moments and lists have the one of each content.
	moments map[sum]*moment
	lists   map[sum]*cached
	// known and shared count the steps and moments that were, alike and new those of states. zeal is how many times more
	// of them are tried than usual.
	known, shared, alike, new, zeal int
	twins                           []twin
	// unsound says what falsifies the exploration.
	unsound []string
	ctx     context.Context
	// ended is closed with the test.
	ended <-chan struct{}
	// pending has, by informer, what the handlers have not been told yet.
	pending [][]notification
	// present is what a list of the owners answers, when readNow asks for one.
	present string
	readNow func(context.Context)
}

// maxWorkers is how many syncs may be in progress at once.
const maxWorkers = 2

type answer struct {
	object sim.Object
	err    error
}

// Env is what the controller under test gets.
type Env struct{ process *process }

// Controller is what the controller under test remembers.
type Controller struct {
	// Memory has pointers to all that the process remembers, Ignored the fields among that which are no memory, with
	// the reasons: those that are not in the table of all kinds.
	Memory  []any
	Ignored map[string]string
}

// Options returns what every controller needs, with a Worker for that kind.
func (e Env) Options(kind string) controller.Options {
	registered, clock := controller.NewMetrics(metrics.NewKubeRegistry()), e.process.clock
	e.process.worker = controller.NewWorker(kind, controller.WorkerOptions{Clock: clock, Metrics: registered, Workers: maxWorkers, GracePeriod: time.Second})
	// No decision depends on events, which this recorder drops.
	return controller.Options{Worker: e.process.worker, Namespace: metav1.NamespaceAll, Recorder: &record.FakeRecorder{}, Clock: clock, Metrics: registered}
}

// Inform makes a factory return the explorer's informers. informers are those of the controller's descriptor.
func Inform[C any, F ~func(C, time.Duration) cache.SharedIndexInformer](env Env, informers []app.Informer, factory interface {
	InformerFor(example runtime.Object, new F) cache.SharedIndexInformer
}) {
	if len(informers) > len(env.process.resources) {
		panic(fmt.Sprintf("the controller has %d informers: add theirs to the Resources of the scopes, in the same order", len(informers)))
	}
	for i, resource := range env.process.resources[:len(informers)] {
		if i == len(env.process.informers) {
			shared := cache.NewSharedIndexInformer(nil, resource.New(), 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			env.process.informers = append(env.process.informers, &informer{SharedIndexInformer: shared, transform: informers[i].Transform})
		}
		factory.InformerFor(resource.New(), func(C, time.Duration) cache.SharedIndexInformer { return env.process.informers[i] })
	}
}

// start starts a process of the controller with empty caches.
func start(ctx context.Context, kind Kind, at time.Time) *process {
	p := &process{
		// The queue that the explorer's replaces has a ticker.
		clock: &fakeClock{WithTickerAndDelayedExecution: clock.RealClock{}}, turns: make(chan *sim.Request), keys: make(chan cache.ObjectName),
		ended: ctx.Done(), resources: kind.Resources, moments: map[sum]*moment{}, lists: map[sum]*cached{}, ctx: ctx,
	}
	p.clock.set(at)
	ctx = klog.NewContext(ctx, logr.Discard())
	c := kind.Build(ctx, Env{p})
	p.worker.Queue.ShutDown()
	p.queue = &fakeQueue{process: p, clock: p.clock}
	ignored := maps.Clone(c.Ignored)
	if ignored == nil {
		ignored = map[string]string{}
	}
	maps.Copy(ignored, noMemory())
	p.memory = &memory{roots: c.Memory, now: p.clock.Now, identities: map[any]int{}, canon: newCanon(ignored)}
	p.takeOver()
	go func() { _ = p.worker.Run(ctx) }()
	for range maxWorkers {
		<-p.turns
		p.answers = append(p.answers, make(chan answer))
	}
	return p
}

// takeOver puts the explorer's queue in place of the Worker's, and leaves the read of the present version to a step. No
// sync waits until another one has no large object in memory.
func (p *process) takeOver() {
	field := func(name string) reflect.Value { return accessible(reflect.ValueOf(p.worker).Elem().FieldByName(name)) }
	p.buckets = accessible(field("backoff").Elem().FieldByName("buckets")).Interface().(*lru.Cache)
	p.queue.limiter = field("backoff").Interface().(workqueue.TypedRateLimiter[cache.ObjectName])
	p.readNow = field("atStart").Interface().([]func(context.Context))[0]
	field("atStart").SetZero()
	field("large").Set(reflect.ValueOf(semaphore.NewWeighted(maxWorkers)))
	p.worker.Queue.TypedRateLimitingInterface = p.queue
}

// sync begins the sync of a key and returns its first request, nil if it ends without one.
func (p *process) sync(number int, key cache.ObjectName) *sim.Request {
	p.queue.keys = slices.DeleteFunc(slices.Clone(p.queue.keys), func(other cache.ObjectName) bool { return other == key })
	p.running = number
	p.keys <- key
	return <-p.turns
}

// answer answers the request of a sync, and returns the next one, nil if the sync ends.
func (p *process) answer(number int, a answer) *sim.Request {
	p.running = number
	p.answers[number] <- a
	return <-p.turns
}

// abandon ends a sync whose state has been recorded: its requests fail.
func (p *process) abandon(number int) {
	for p.answer(number, answer{err: errors.New("abandoned")}) != nil {
	}
}

// Config returns what clients need whose requests the explorer answers.
func (e Env) Config() *rest.Config {
	return &rest.Config{Host: "http://explored", Transport: e, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
}

// RoundTrip implements http.RoundTripper. It waits until the explorer lets the request be answered.
func (e Env) RoundTrip(incoming *http.Request) (*http.Response, error) {
	r := e.read(incoming)
	if r.Name == "" {
		return respond(http.StatusOK, &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: e.process.present}}), nil
	}
	number := e.process.running
	e.process.turns <- r
	a := <-e.process.answers[number]
	if item, ok := a.object.(*corev1.ConfigMap); ok && r.Resource == Items {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(item.Data[""]))}, nil
	}
	var refused apierrors.APIStatus
	switch {
	case errors.As(a.err, &refused):
		status := refused.Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		return respond(int(status.Code), &status), nil
	case a.err != nil:
		return nil, a.err
	case a.object == nil:
		return respond(http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess}), nil
	}
	return respond(http.StatusOK, a.object), nil
}

// read reads a request, without a name for a list. It panics at a request that the explorer does not answer.
func (e Env) read(incoming *http.Request) *sim.Request {
	var body []byte
	var err error
	if incoming.Body != nil {
		body, err = io.ReadAll(incoming.Body)
		fixture.Must(err)
	}
	r, verbs := &sim.Request{}, map[string]string{"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "put", "DELETE": "delete"}
	r.Verb, r.DryRun = verbs[incoming.Method], incoming.URL.Query().Has("dryRun")
	switch path := strings.Split(incoming.URL.Path, "/"); slices.Index(path, "namespaces") {
	case -1:
		// A list in all namespaces, or an item of an external service.
		if r.Resource = Items; path[len(path)-2] == Items {
			r.Name = path[len(path)-1]
		}
	default:
		path = append(path[slices.Index(path, "namespaces")+2:], "", "")
		r.Resource, r.Name, r.Subresource = path[0], path[1], path[2]
	}
	isList := r.Verb == "get" && !incoming.URL.Query().Has("watch")
	if r.Verb == "" || r.Name == "" && r.Verb != "create" && !isList || r.Verb == "put" && r.Resource != Items {
		panic(fmt.Sprintf("unexpected request: %s %s", incoming.Method, incoming.URL))
	}
	switch r.Verb {
	case "create":
		i := slices.IndexFunc(e.process.resources, func(resource sim.Resource) bool { return resource.Resource == r.Resource })
		r.Object = e.process.resources[i].New()
		fixture.Must(json.Unmarshal(body, r.Object))
		r.Name = r.Object.GetName()
	case "put":
		r.Object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: r.Name}, Data: map[string]string{"": string(body)}}
	case "patch":
		r.Patch, r.PatchType = body, types.PatchType(incoming.Header.Get("Content-Type"))
	case "delete":
		if len(body) > 0 {
			fixture.Must(json.Unmarshal(body, &r.Options))
		}
	}
	return r
}

func respond(code int, object any) *http.Response {
	text, err := json.Marshal(object)
	fixture.Must(err)
	return &http.Response{StatusCode: code, Body: io.NopCloser(bytes.NewReader(text)), Header: http.Header{"Content-Type": {"application/json"}}}
}

// notification is what an event handler is told, after the store has it.
type notification struct {
	old, new sim.Object
	initial  bool
	// unknown says that the final state of a deleted object was missed.
	unknown bool
}

// informer is an informer that is never started. The explorer calls its store and its handler apart from each other.
type informer struct {
	cache.SharedIndexInformer

	transform cache.TransformFunc
	handler   cache.ResourceEventHandler
}

// AddEventHandlerWithOptions implements cache.SharedIndexInformer.
func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	done := make(chan struct{})
	close(done)
	return synced{done: done}, nil
}

func (i *informer) handle(n notification) {
	switch {
	case n.old == nil:
		i.handler.OnAdd(n.new, n.initial)
	case n.new != nil:
		i.handler.OnUpdate(n.old, n.new)
	case n.unknown:
		i.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: cache.MetaObjectToName(n.old).String(), Obj: n.old})
	default:
		i.handler.OnDelete(n.old)
	}
}

// synced is a registration whose handler has received the initial list.
type synced struct {
	cache.ResourceEventHandlerRegistration
	cache.DoneChecker

	done chan struct{}
}

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (s synced) HasSyncedChecker() cache.DoneChecker { return s }

// Done implements cache.DoneChecker.
func (s synced) Done() <-chan struct{} { return s.done }

// fakeQueue is the set of the keys that wait, in no order: whatever priorities and turns say, the
// explorer takes any of them next.
type fakeQueue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]

	process *process
	clock   *fakeClock
	limiter workqueue.TypedRateLimiter[cache.ObjectName]
	keys    []cache.ObjectName
}

// Add implements workqueue.TypedInterface.
func (q *fakeQueue) Add(key cache.ObjectName) {
	if !slices.Contains(q.keys, key) {
		q.keys = append(slices.Clone(q.keys), key)
		slices.SortFunc(q.keys, func(a, b cache.ObjectName) int { return strings.Compare(a.Name, b.Name) })
	}
}

// AddAfter implements workqueue.TypedDelayingInterface: of two times for a key the earlier one counts.
func (q *fakeQueue) AddAfter(key cache.ObjectName, delay time.Duration) {
	if delay <= 0 {
		q.Add(key)
		return
	}
	due := q.clock.Now().Add(delay)
	if i := slices.IndexFunc(q.clock.timers, func(t timer) bool { return t.call == nil && t.key == key }); i >= 0 {
		if q.clock.timers[i].due.Before(due) {
			due = q.clock.timers[i].due
		}
		q.clock.timers = slices.Delete(slices.Clone(q.clock.timers), i, i+1)
	}
	q.clock.add(timer{due: due, key: key})
}

// Get implements workqueue.TypedInterface.
func (q *fakeQueue) Get() (cache.ObjectName, bool) {
	select {
	case q.process.turns <- nil:
	case <-q.process.ended:
		return cache.ObjectName{}, true
	}
	select {
	case key := <-q.process.keys:
		return key, false
	case <-q.process.ended:
		return cache.ObjectName{}, true
	}
}

// Done implements workqueue.TypedInterface.
func (q *fakeQueue) Done(cache.ObjectName) {}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *fakeQueue) Forget(key cache.ObjectName) { q.limiter.Forget(key) }

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q *fakeQueue) NumRequeues(key cache.ObjectName) int { return q.limiter.NumRequeues(key) }

// ShutDown implements workqueue.TypedInterface.
func (q *fakeQueue) ShutDown() {}

// fakeClock stands still until the explorer moves it.
type fakeClock struct {
	clock.WithTickerAndDelayedExecution

	// nanoseconds is the time since 1970. A goroutine of the queue that the explorer's replaces reads it once.
	nanoseconds atomic.Int64
	timers      []timer
}

func (c *fakeClock) set(now time.Time) { c.nanoseconds.Store(now.UnixNano()) }

// timer calls a function, or adds a key to the queue.
type timer struct {
	due  time.Time
	key  cache.ObjectName
	call func()
}

func (c *fakeClock) add(t timer) {
	c.timers = append(slices.Clone(c.timers), t)
	slices.SortStableFunc(c.timers, func(a, b timer) int { return a.due.Compare(b.due) })
}

// Now implements clock.PassiveClock.
func (c *fakeClock) Now() time.Time { return time.Unix(0, c.nanoseconds.Load()).UTC() }

// Since implements clock.PassiveClock.
func (c *fakeClock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }

// AfterFunc implements clock.WithDelayedExecution.
func (c *fakeClock) AfterFunc(delay time.Duration, call func()) clock.Timer {
	c.add(timer{due: c.Now().Add(delay), call: call})
	return nil
}
