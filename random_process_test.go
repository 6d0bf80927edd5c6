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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	foofake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"

	"example.com/sample-controller/pkg/controller"
)

// simProcess is one life of the controller: clients, caches and workers. Once it
// is dead none of its requests comes through.
type simProcess struct {
	cluster    *simCluster
	dead       bool
	controller *Controller
	kube       kubeinformers.SharedInformerFactory
	foo        fooinformers.SharedInformerFactory
	cancel     context.CancelFunc
	ended      chan struct{}
}

// start starts a process. It is the only one until it was stopped.
func (c *simCluster) start(resync time.Duration) {
	p := &simProcess{cluster: c, ended: make(chan struct{})}
	kube, foo := &kubefake.Clientset{}, &foofake.Clientset{}
	kube.AddReactor("*", "*", p.react)
	kube.AddWatchReactor("*", p.reactWatch)
	foo.AddReactor("*", "*", p.react)
	foo.AddWatchReactor("*", p.reactWatch)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	p.kube = kubeinformers.NewSharedInformerFactoryWithOptions(kube, resync, kubeinformers.WithTransform(newStripper().strip))
	p.foo = fooinformers.NewSharedInformerFactoryWithOptions(foo, resync, fooinformers.WithTransform(newStripper().strip))
	var err error
	p.controller, err = NewController(ctx, ControllerOptions{
		KubeClient:  kube,
		FooClient:   foo,
		Deployments: p.kube.Apps().V1().Deployments(),
		Foos:        p.foo.Samplecontroller().V1alpha1().Foos(),
		Options: controller.Options{
			Recorder:    p,
			Clock:       clock.RealClock{},
			Metrics:     controller.NewMetrics(metrics.NewKubeRegistry()),
			Workers:     c.sequence.Workers,
			GracePeriod: testGracePeriod,
			Resync:      resync > 0,
		},
	})
	if err != nil {
		panic(err)
	}

	c.mu.Lock()
	c.process = p
	for _, t := range []*simTable{c.foos, c.deployments} {
		t.stream = nil
		for _, event := range t.events {
			event.shown = time.Time{}
		}
	}
	c.mu.Unlock()
	p.kube.StartWithContext(ctx)
	p.foo.StartWithContext(ctx)
	go func() {
		defer close(p.ended)
		// It may end before its caches are filled, which is no matter.
		_ = p.controller.Run(ctx)
	}()
}

// stop ends the process. It is not told what becomes of its requests.
func (p *simProcess) stop() {
	p.cluster.mu.Lock()
	p.dead = true
	p.cluster.mu.Unlock()
	p.cancel()
	<-p.ended
	p.kube.Shutdown()
	p.foo.Shutdown()
}

// kill ends the present process at once, and starts another one a little later.
// The caller holds the lock.
func (c *simCluster) kill() {
	p := c.process
	if p.dead {
		return
	}
	p.dead = true
	c.restarts.Go(func() {
		p.stop()
		time.Sleep(restartTakes)
		c.start(0)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.logf("# The controller runs again.")
	})
}

// forget drops what the process remembers between syncs.
func (p *simProcess) forget() {
	p.controller.Gate.Lose()
}

// Event implements record.EventRecorder, as the methods below.
func (p *simProcess) Event(runtime.Object, string, string, string) { p.countEvent() }

// Eventf implements record.EventRecorder.
func (p *simProcess) Eventf(runtime.Object, string, string, string, ...any) { p.countEvent() }

// AnnotatedEventf implements record.EventRecorder.
func (p *simProcess) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
	p.countEvent()
}

func (p *simProcess) countEvent() {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	p.cluster.events++
}
