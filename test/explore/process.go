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
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/sim"
)

// process is the controller under test, which takes one step at a time. Its workers run in
// goroutines of their own that wait whenever the explorer goes on: for a key, or for an answer.
type process struct {
	worker    *controller.Worker
	resources []sim.Resource
	informers []*informer
	fakes     []*clienttesting.Fake
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
	// computed counts the steps that were not known.
	computed int
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
type Env struct {
	Clock    clock.WithTickerAndDelayedExecution
	Recorder Recorder

	process *process
}

// Controller is what the controller under test remembers.
type Controller struct {
	// Memory has pointers to all that the process remembers, Ignored the fields among that which are no memory, with
	// the reasons: those that are not in the table of all kinds.
	Memory  []any
	Ignored map[string]string
}

// Options returns what every controller needs, with a Worker for that kind.
func (e Env) Options(kind string) controller.Options {
	registered := controller.NewMetrics(metrics.NewKubeRegistry())
	e.process.worker = controller.NewWorker(kind, controller.WorkerOptions{Clock: e.Clock, Metrics: registered, Workers: maxWorkers, GracePeriod: time.Second})
	return controller.Options{Worker: e.process.worker, Namespace: metav1.NamespaceAll, Recorder: e.Recorder, Clock: e.Clock, Metrics: registered}
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

// BuiltIn returns a fake clientset of the built-in kinds, and a factory of their informers. It makes that, and own, the
// fake of the controller's own kinds, send their requests to the explorer's API server. A fake holds a lock while it
// waits: there can be only one sync at once.
func (e Env) BuiltIn(scheme *runtime.Scheme, own *clienttesting.Fake, informers []app.Informer) (kubernetes.Interface, kubeinformers.SharedInformerFactory) {
	kube := &kubefake.Clientset{}
	e.process.fakes = []*clienttesting.Fake{&kube.Fake, own}
	for _, fake := range e.process.fakes {
		fake.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) { return e.react(scheme, action) })
	}
	factory := kubeinformers.NewSharedInformerFactory(kube, 0)
	Inform(e, informers, factory)
	return kube, factory
}

func (e Env) react(scheme *runtime.Scheme, action clienttesting.Action) (bool, runtime.Object, error) {
	r := &sim.Request{Verb: action.GetVerb(), Resource: action.GetResource().Resource, Subresource: action.GetSubresource()}
	switch action := action.(type) {
	case clienttesting.ListActionImpl:
		kind := action.GetKind()
		kind.Kind += "List"
		list, err := scheme.New(kind)
		if err == nil {
			list.(metav1.ListInterface).SetResourceVersion(e.process.present)
		}
		return true, list, err
	case clienttesting.CreateActionImpl:
		r.Object, _ = action.GetObject().(sim.Object)
		r.Name, r.DryRun = r.Object.GetName(), len(action.GetCreateOptions().DryRun) > 0
	case clienttesting.PatchActionImpl:
		r.Name, r.Patch, r.PatchType = action.GetName(), action.GetPatch(), action.GetPatchType()
	case clienttesting.DeleteActionImpl:
		r.Name, r.Options = action.GetName(), action.GetDeleteOptions()
	case clienttesting.GetActionImpl:
		r.Name = action.GetName()
	default:
		panic(fmt.Sprintf("unexpected request: %s %s", r.Verb, r.Resource))
	}
	object, err := e.Send(r)
	if object == nil {
		return true, nil, err
	}
	return true, object, err
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
	c := kind.Build(ctx, Env{Clock: p.clock, process: p})
	p.worker.Queue.ShutDown()
	p.queue = &fakeQueue{process: p, clock: p.clock}
	ignored := maps.Clone(c.Ignored)
	if ignored == nil {
		ignored = map[string]string{}
	}
	maps.Copy(ignored, noMemory())
	p.memory = &memory{roots: c.Memory, ignored: ignored, now: p.clock.Now, identities: map[any]int{}, fields: map[reflect.Type][]field{}, canon: newCanon()}
	p.takeOver()
	go func() { _ = p.worker.Run(ctx) }()
	for range maxWorkers {
		<-p.turns
		p.answers = append(p.answers, make(chan answer))
	}
	return p
}

// takeOver puts the explorer's queue in place of the Worker's, and leaves the read of the present version to a step.
func (p *process) takeOver() {
	field := func(name string) reflect.Value { return accessible(reflect.ValueOf(p.worker).Elem().FieldByName(name)) }
	p.buckets = accessible(field("backoff").Elem().FieldByName("buckets")).Interface().(*lru.Cache)
	p.queue.limiter = field("backoff").Interface().(workqueue.TypedRateLimiter[cache.ObjectName])
	p.readNow = field("atStart").Interface().([]func(context.Context))[0]
	field("atStart").SetZero()
	p.worker.Queue.TypedRateLimitingInterface = p.queue
}

// sync begins the sync of a key and returns its first request, nil if it ends without one.
func (p *process) sync(number int, key cache.ObjectName) *sim.Request {
	p.queue.keys = slices.DeleteFunc(slices.Clone(p.queue.keys), func(other cache.ObjectName) bool { return other == key })
	for _, fake := range p.fakes {
		fake.ClearActions()
	}
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

// ResourceClient has the requests that controllers make. Any other one panics.
type ResourceClient[T sim.Object] struct {
	Env      Env
	Resource string
}

func (c ResourceClient[T]) do(r *sim.Request) (none T, err error) {
	r.Resource = c.Resource
	if object, err := c.Env.Send(r); object != nil || err != nil {
		object, _ := object.(T)
		return object, err
	}
	return none, nil
}

// Send waits until the explorer lets the request be answered.
func (e Env) Send(r *sim.Request) (sim.Object, error) {
	p := e.process
	number := p.running
	p.turns <- r
	a := <-p.answers[number]
	if a.err != nil || a.object == nil {
		return nil, a.err
	}
	return a.object.DeepCopyObject().(sim.Object), nil
}

// Get implements the typed client.
func (c ResourceClient[T]) Get(_ context.Context, name string, _ metav1.GetOptions) (T, error) {
	return c.do(&sim.Request{Verb: "get", Name: name})
}

// Create implements the typed client.
func (c ResourceClient[T]) Create(_ context.Context, object T, options metav1.CreateOptions) (T, error) {
	return c.do(&sim.Request{Verb: "create", Name: object.GetName(), Object: object, DryRun: len(options.DryRun) > 0})
}

// Patch implements the typed client.
func (c ResourceClient[T]) Patch(_ context.Context, name string, kind types.PatchType, patch []byte, _ metav1.PatchOptions, subresources ...string) (T, error) {
	return c.do(&sim.Request{Verb: "patch", Name: name, Patch: patch, PatchType: kind, Subresource: strings.Join(subresources, "/")})
}

// Delete implements the typed client.
func (c ResourceClient[T]) Delete(_ context.Context, name string, options metav1.DeleteOptions) error {
	_, err := c.do(&sim.Request{Verb: "delete", Name: name, Options: options})
	return err
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
	return synced{}, nil
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
type synced struct{}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (synced) HasSynced() bool { return true }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (synced) HasSyncedChecker() cache.DoneChecker { return synced{} }

// Name implements cache.DoneChecker.
func (synced) Name() string { return "synced" }

// Done implements cache.DoneChecker.
func (synced) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

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
		due = earlier(due, q.clock.timers[i].due)
		q.clock.timers = slices.Delete(slices.Clone(q.clock.timers), i, i+1)
	}
	q.clock.add(timer{due: due, key: key})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
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

// Present is the resource version of a consistent list.
func (e Env) Present() string { return e.process.present }
