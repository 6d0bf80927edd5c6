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

// Command sample-controller turns each Foo into the Deployment that its spec
// names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/events"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooscheme "example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/pkg/server"
)

const (
	crdManifest = "artifacts/examples/crd.yaml"
	// deployManifests grant the rights in the cluster, namespacedManifests those in
	// one namespace.
	deployManifests     = "artifacts/deploy/base"
	namespacedManifests = "artifacts/deploy/namespaced"
	// eventFlushTimeout bounds the sending of the last events at shutdown.
	eventFlushTimeout = 5 * time.Second
)

func main() {
	os.Exit(command(os.Args[1:]))
}

// command runs the program and returns its exit code.
func command(arguments []string) int {
	options, err := parseOptions(arguments, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		// One line, however many mistakes: it may end up in another program's log.
		fmt.Fprintf(os.Stderr, "%s: %s; see '%s -help'\n", controllerName, strings.ReplaceAll(err.Error(), "\n", "; "), controllerName)
		return 2
	case options.version:
		fmt.Println(versionString())
		return 0
	}
	if err := options.applyLogging(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: setting up the log: %v\n", controllerName, err)
		return 2
	}
	defer klog.Flush()

	ctx := signalContext(context.Background(), os.Exit)
	if err := run(ctx, options); err != nil {
		klog.FromContext(ctx).Error(err, "The controller stopped")
		return 1
	}
	return 0
}

// signalContext returns a context that ends with the first SIGINT or SIGTERM.
// The second one calls exit with the code that a shell gives a program killed by
// that signal.
func signalContext(parent context.Context, exit func(int)) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		first := <-signals
		klog.FromContext(ctx).Info("Shutting down; a second signal exits at once", "signal", first.String())
		cancel(fmt.Errorf("received %s: %w", first, context.Canceled))
		if second, ok := (<-signals).(syscall.Signal); ok {
			exit(128 + int(second))
		}
	}()
	return ctx
}

// clients are the ways to the API server.
type clients struct {
	kube kubernetes.Interface
	foo  clientset.Interface
	// events, lease and reviews have rate limits of their own: neither keeps
	// another waiting.
	events  kubernetes.Interface
	lease   kubernetes.Interface
	reviews kubernetes.Interface
	// config says where the API server is, and who asks.
	config *rest.Config
}

// newClients returns the clients that the options ask for.
func newClients(options *options) (*clients, error) {
	config, err := client.NewConfig(client.Options{
		Kubeconfig: options.kubeconfig,
		Master:     options.master,
		QPS:        float32(options.qps),
		Burst:      options.burst,
	})
	if err != nil {
		return nil, err
	}
	c := &clients{config: config}
	if c.foo, err = clientset.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("building the client for Foos: %w", err)
	}
	for _, builtin := range []struct {
		client *kubernetes.Interface
		config *rest.Config
	}{
		{&c.kube, client.ForBuiltin(config)},
		{&c.events, client.ForEvents(config)},
		{&c.lease, client.ForLease(config, options.process.leaderElection.RenewDeadline.Duration)},
		{&c.reviews, client.ForReviews(config)},
	} {
		if *builtin.client, err = kubernetes.NewForConfig(builtin.config); err != nil {
			return nil, fmt.Errorf("building a client: %w", err)
		}
	}
	return c, nil
}

// run works until ctx ends. It returns nil after an orderly shutdown.
func run(ctx context.Context, options *options) error {
	logger := klog.FromContext(ctx)
	clients, err := newClients(options)
	if err != nil {
		return err
	}
	logger.Info("Starting", "version", versionString(), "server", clients.config.Host, "namespace", options.namespace)

	metrics := NewMetrics(legacyRegistry{})
	recorder := events.New(ctx, clients.events.CoreV1(), fooscheme.Scheme, controllerName, metrics.EventFailed)
	informers, err := newInformers(clients, options)
	if err != nil {
		return err
	}
	controller, err := NewController(ctx, ControllerOptions{
		KubeClient:  clients.kube,
		FooClient:   clients.foo,
		Deployments: informers.kube.Apps().V1().Deployments(),
		Foos:        informers.foo.Samplecontroller().V1alpha1().Foos(),
		Recorder:    recorder,
		Clock:       clock.RealClock{},
		Metrics:     metrics,
		Workers:     options.workers,
		GracePeriod: options.gracePeriod,
		Resync:      options.resyncPeriod > 0,
	})
	if err != nil {
		return err
	}
	process, err := newProcess(ctx, &options.process, clients, controller)
	if err != nil {
		return err
	}
	defer process.serve(ctx)()

	foos := schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos")
	if err := client.WaitUntilServed(ctx, clients.foo.SamplecontrollerV1alpha1().RESTClient(), foos, "kubectl apply -f "+crdManifest); err != nil {
		return unlessStopped(ctx, client.ExplainUnauthorized(err, clients.config, clock.RealClock{}.Now()))
	}
	process.served.Reach()
	// A candidate with empty caches would lead and do nothing.
	if err := informers.fill(ctx, controller.WaitForCaches); err != nil {
		return unlessStopped(ctx, grantRights(err, options.namespace))
	}

	err = process.lead(ctx, func(ctx context.Context) error {
		err := controller.Run(ctx)
		flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventFlushTimeout)
		defer cancel()
		recorder.Shutdown(flushCtx)
		return err
	})
	switch {
	case errors.Is(err, server.ErrLeaseLost):
		// At once: what still runs here may work against the new leader.
		return err
	case apierrors.IsForbidden(err):
		// No work was begun, and nobody has told the informers to stop.
		return grantRights(err, options.namespace)
	}
	informers.shutdown()
	logger.Info("Shut down")
	return unlessStopped(ctx, err)
}

// informers fill the caches.
type informers struct {
	kube kubeinformers.SharedInformerFactory
	foo  fooinformers.SharedInformerFactory
}

func newInformers(clients *clients, options *options) (*informers, error) {
	// The name is in the metrics of the caches.
	name, err := cache.NewInformerName(controllerName)
	if err != nil {
		return nil, fmt.Errorf("naming the informers: %w", err)
	}
	return &informers{
		kube: kubeinformers.NewSharedInformerFactoryWithOptions(clients.kube, options.resyncPeriod, kubeinformers.WithInformerName(name),
			kubeinformers.WithNamespace(options.namespace), kubeinformers.WithTransform(dropManagedFields)),
		foo: fooinformers.NewSharedInformerFactoryWithOptions(clients.foo, options.resyncPeriod, fooinformers.WithInformerName(name),
			fooinformers.WithNamespace(options.namespace), fooinformers.WithTransform(dropManagedFields)),
	}, nil
}

// fill starts the informers and waits for their caches. It fails if the API server
// forbids it to fill them; later that would be no reason to stop.
func (i *informers) fill(ctx context.Context, wait func(context.Context) error) error {
	filling, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	var filled atomic.Bool
	handler := func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) && !filled.Load() {
			refuse(err)
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
	for _, informer := range []cache.SharedIndexInformer{
		i.kube.Apps().V1().Deployments().Informer(), i.foo.Samplecontroller().V1alpha1().Foos().Informer(),
	} {
		if err := informer.SetWatchErrorHandlerWithContext(handler); err != nil {
			return fmt.Errorf("preparing an informer: %w", err)
		}
	}
	i.kube.StartWithContext(ctx)
	i.foo.StartWithContext(ctx)
	if err := wait(filling); err != nil {
		return err
	}
	filled.Store(true)
	return nil
}

// shutdown returns when the informers have, whose context has ended.
func (i *informers) shutdown() {
	i.kube.Shutdown()
	i.foo.Shutdown()
}

// grantRights adds to an error that tells of a missing right how to get it.
func grantRights(err error, namespace string) error {
	switch {
	case !apierrors.IsForbidden(err):
		return err
	case namespace != "":
		return fmt.Errorf("%w; grant the rights with kubectl apply -k %s", err, namespacedManifests)
	}
	return fmt.Errorf("%w; grant the rights with kubectl apply -k %s, or work with --namespace where only those of a namespace are granted", err, deployManifests)
}

// unlessStopped returns nil if ctx has ended: being told to stop is no failure,
// wherever the program was.
func unlessStopped(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// dropManagedFields is a cache transform. Managed fields are a good part of an
// object's size, and a sync never reads them from the cache.
func dropManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
