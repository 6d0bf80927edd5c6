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
// names, and each Memcached into a Deployment of its own name.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/events"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooscheme "example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/pkg/server"
)

const (
	// deployManifests grant the rights in the cluster, namespacedManifests those in
	// one namespace, and severalNamespaces tells how to grant them in more.
	deployManifests     = "artifacts/deploy/base"
	namespacedManifests = "artifacts/deploy/namespaced"
	severalNamespaces   = "docs/scale.md"
	// eventFlushTimeout bounds the sending of the last events at shutdown. Who leads
	// next waits for it.
	eventFlushTimeout = time.Second
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
	// liftEvents ends the limit of events.
	liftEvents func()
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
	forEvents, liftEvents := client.ForEvents(config)
	c.liftEvents = liftEvents
	for _, builtin := range []struct {
		client *kubernetes.Interface
		config *rest.Config
	}{
		{&c.kube, client.ForBuiltin(config)},
		{&c.events, forEvents},
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
	logger.Info("Starting", "version", versionString(), "server", clients.config.Host, "namespace", strings.Join(options.namespaces, ","))

	metrics := controller.NewMetrics(legacyRegistry{})
	recorder := events.New(ctx, clients.events.CoreV1(), fooscheme.Scheme, controllerName, metrics.EventFailed)
	informers, err := newInformers(clients, options)
	if err != nil {
		return err
	}
	common := controller.Options{
		Recorder:    recorder,
		Clock:       clock.RealClock{},
		Metrics:     metrics,
		Workers:     options.workers,
		GracePeriod: options.gracePeriod,
		Resync:      options.resyncPeriod > 0,
	}
	fleet := newFleet(options.enabled(), informers, unitsOf(clients, informers, common))
	webhooks, err := newWebhooks(ctx, &options.webhook, clients, informers, fleet, common)
	if err != nil {
		return err
	}
	process, err := newProcess(ctx, &options.process, clients, fleet, webhooks)
	if err != nil {
		webhooks.close()
		return err
	}
	defer process.serve(ctx)()

	// A candidate with empty caches would lead and do nothing.
	if err := fleet.prepare(ctx); err != nil {
		err = client.ExplainUnauthorized(err, clients.config, clock.RealClock{}.Now())
		return unlessStopped(ctx, grantRights(err, options.namespaces))
	}

	err = process.lead(ctx, func(ctx context.Context) error {
		err := fleet.work(ctx)
		flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventFlushTimeout)
		defer cancel()
		clients.liftEvents()
		recorder.Shutdown(flushCtx)
		return err
	})
	switch {
	case errors.Is(err, server.ErrLeaseLost):
		// At once: what still runs here may work against the new leader.
		return err
	case apierrors.IsForbidden(err):
		// No work was begun, and nobody has told the informers to stop.
		return grantRights(err, options.namespaces)
	}
	fleet.shutdown(ctx)
	logger.Info("Shut down")
	return unlessStopped(ctx, err)
}

// grantRights adds to an error that tells of a missing right how to get it.
func grantRights(err error, namespaces []string) error {
	switch {
	case !apierrors.IsForbidden(err):
		return err
	case len(namespaces) == 1:
		return fmt.Errorf("%w; grant the rights with kubectl apply -k %s", err, namespacedManifests)
	case len(namespaces) > 1:
		return fmt.Errorf("%w; grant the rights in that namespace as %s says", err, severalNamespaces)
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
