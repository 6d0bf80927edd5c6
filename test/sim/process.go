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
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	foofake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
)

// Controller is the controller under test in one process.
type Controller interface {
	// Run runs informers and workers until ctx is done, and returns when they have ended.
	Run(ctx context.Context)
	// Forget drops what the process remembers between syncs of these Foos. Contention over a
	// field, own writes and status updates that wait belong to that; the caches do not.
	Forget(foos []cache.ObjectName)
}

// Env is what the controller under test gets from the simulated cluster.
type Env struct {
	KubeClient kubernetes.Interface
	FooClient  clientset.Interface
	Recorder   record.EventRecorder
	Workers    int
	// Resync is the resync period of the informers, 0 for none.
	Resync time.Duration
}

// NewController returns a controller with empty caches. It is called for each start of a
// process.
type NewController func(ctx context.Context, env Env) Controller

// process is a running process of the controller. Once it is dead its requests fail.
type process struct {
	cluster    *simCluster
	dead       bool
	controller Controller
	cancel     context.CancelFunc
	ended      chan struct{}
}

// start starts the process. The one before must have been stopped.
func (c *simCluster) start(resync time.Duration) {
	p := &process{cluster: c, ended: make(chan struct{})}
	kube, foo := &kubefake.Clientset{}, &foofake.Clientset{}
	kube.AddReactor("*", "*", p.react)
	kube.AddWatchReactor("*", p.reactWatch)
	foo.AddReactor("*", "*", p.react)
	foo.AddWatchReactor("*", p.reactWatch)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	p.controller = c.newController(ctx, Env{KubeClient: kube, FooClient: foo, Recorder: p, Workers: c.sequence.Workers, Resync: resync})

	c.mu.Lock()
	c.process = p
	for _, t := range []*table{c.foos, c.deployments} {
		t.watcher = nil
		for _, event := range t.events {
			event.delivered = time.Time{}
		}
	}
	c.mu.Unlock()
	go func() {
		defer close(p.ended)
		p.controller.Run(ctx)
	}()
}

// stop ends the process. Its pending requests fail.
func (p *process) stop() {
	p.cluster.mu.Lock()
	p.dead = true
	p.cluster.mu.Unlock()
	p.cancel()
	<-p.ended
}

// kill ends the present process without a shutdown and starts another one after
// restartDelay. The caller holds the lock.
func (c *simCluster) kill() {
	p := c.process
	if p.dead {
		return
	}
	p.dead = true
	c.restarts.Go(func() {
		p.stop()
		c.clock.Sleep(restartDelay)
		c.start(0)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.logf("# The controller runs again.")
	})
}

// forget drops all that the process remembers between syncs. The caller holds the lock.
func (p *process) forget() {
	var foos []cache.ObjectName
	for _, event := range p.cluster.foos.events {
		foos = append(foos, cache.MetaObjectToName(event.object))
	}
	p.controller.Forget(foos)
}

// Event implements record.EventRecorder.
func (p *process) Event(runtime.Object, string, string, string) { p.countEvent() }

// Eventf implements record.EventRecorder.
func (p *process) Eventf(runtime.Object, string, string, string, ...any) { p.countEvent() }

// AnnotatedEventf implements record.EventRecorder.
func (p *process) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
	p.countEvent()
}

func (p *process) countEvent() {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	p.cluster.events++
}
