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

// Package app is the process around the controllers: options, clients, informers, the start of each
// controller when its CustomResourceDefinition is installed, the lease, the ports and the shutdown. It
// imports no controller: main hands them in as descriptors.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/events"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/pkg/server"
)

const (
	// name names the program, the lease, the informers in metrics, and the source of events.
	name = controller.FieldManager

	// memoryLimitVariable is the environment variable in which the manifests pass the memory
	// limit of the container, in bytes.
	memoryLimitVariable = "MEMORY_LIMIT"
	// goMemoryPercent is how much of that Go may use. The rest is for memory that the Go
	// runtime does not count, such as the pages of the program file.
	goMemoryPercent = 90
)

// Run runs the program and returns its exit code.
func Run(program *Program, arguments []string) int {
	options, err := parseOptions(program, arguments, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		// All mistakes in one line, which stays one entry in another program's log.
		return refuse("%s; see '%s -help'", strings.ReplaceAll(err.Error(), "\n", "; "), name)
	case options.version:
		fmt.Println(versionString())
		return 0
	}
	if err := logsapi.ValidateAndApply(options.logging, nil); err != nil {
		return refuse("setting up the log: %v", err)
	}
	if len(options.klogFlags) > 0 {
		// Only klog's own backend obeys klog's own flags.
		klog.ClearLogger()
	}
	defer klog.Flush()
	if err := applyMemoryLimit(); err != nil {
		return refuse("setting the memory limit: %v", err)
	}

	ctx := signalContext(context.Background(), os.Exit)
	// All of Kubernetes registers its metrics in this registry.
	if err := run(ctx, options, legacyregistry.DefaultGatherer.(metrics.KubeRegistry)); err != nil {
		klog.FromContext(ctx).Error(err, "The controller stopped")
		return 1
	}
	return 0
}

// refuse tells why the program does not start, and returns its exit code.
func refuse(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, name+": "+format+"\n", args...)
	return 2
}

// signalContext returns a context that ends with the first SIGINT or SIGTERM. The second
// one calls exit with the code that a shell gives a program killed by that signal.
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

// run works until ctx ends. It returns nil after an orderly shutdown.
func run(ctx context.Context, options *Options, registry metrics.KubeRegistry) error {
	clients, err := newClients(options)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Starting", "version", versionString(), "server", clients.host, "namespace", strings.Join(options.namespaces, ","))
	if !clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO) {
		klog.FromContext(ctx).Info("Caches do not tell their version: no sync waits until they show its last writes, and each write "+
			"to a dependent reads its owner live; remove the environment variable, or set it to true", "variable", "KUBE_FEATURE_"+clientfeatures.AtomicFIFO)
	}
	registered := controller.NewMetrics(registry)
	recorder, stopEvents := events.New(ctx, clients.events.CoreV1(), scheme.Scheme, name, registered.EventFailed)
	defer stopEvents()
	controllers, err := newControllers(ctx, clients, options, recorder, registered)
	if err != nil {
		return err
	}
	servers, err := newServers(ctx, options, clients, controllers)
	if err != nil {
		return err
	}
	err = servers.whileServing(ctx, func() error { return runControllers(ctx, controllers, servers.lead, stopEvents) })
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; %s", err, grantRemedy(options.namespaces))
	}
	return err
}

// runControllers starts the controllers, and runs them in the function that lead calls while
// this process holds the lease. It calls stopEvents before the lease is released, so that no
// event is left that the fence would refuse.
func runControllers(ctx context.Context, controllers *controllers, lead func(context.Context, func(context.Context) error) error, stopEvents func()) error {
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	err := controllers.start(starting)
	if err == nil {
		err = lead(starting, func(ctx context.Context) error {
			defer stopEvents()
			return controllers.run(ctx)
		})
	}
	if errors.Is(err, server.ErrLeaseLost) {
		// At once, without waiting for anything: what still runs here may work against the new leader.
		return err
	}
	cancel()
	controllers.shutdown(ctx)
	if ctx.Err() != nil {
		// The errors that follow from a stop on request are no failures.
		err = nil
	}
	if err == nil {
		klog.FromContext(ctx).Info("Shut down")
	}
	return err
}

// grantRemedy tells how to grant the program its rights in the namespaces, or in all.
func grantRemedy(namespaces []string) string {
	switch len(namespaces) {
	case 0:
		return "grant the rights with kubectl apply -k artifacts/deploy/base, or work with --namespace where only those of a namespace are granted"
	case 1:
		return "grant the rights with kubectl apply -k artifacts/deploy/namespaced"
	}
	return "grant the rights in that namespace as docs/scale.md says"
}

// applyMemoryLimit makes Go collect garbage more often before the memory of the container is
// used up: without a limit the heap grows to twice the live objects, whatever they are. It
// leaves Go's own limit where the user has set GOMEMLIMIT, or the container has none.
func applyMemoryLimit() error {
	container := os.Getenv(memoryLimitVariable)
	if os.Getenv("GOMEMLIMIT") != "" || container == "" {
		return nil
	}
	bytes, err := strconv.ParseInt(container, 10, 64)
	if err != nil || bytes <= 0 {
		return fmt.Errorf("the environment variable %s is %q; give the memory limit of the container in bytes, as the manifests do, or leave it out", memoryLimitVariable, container)
	}
	debug.SetMemoryLimit(bytes / 100 * goMemoryPercent)
	return nil
}

// clients are the clients of the API server.
type clients struct {
	// fence is what the writes of kube, own and events pass. It is nil without leader election.
	fence *client.Fence
	kube  kubernetes.Interface
	own   clientset.Interface
	// discovery asks which resources the API server serves.
	discovery rest.Interface
	// events, lease and reviews, which authorizes the readers of metrics, have rate limits of their own, so
	// that none of them delays another.
	events  kubernetes.Interface
	lease   kubernetes.Interface
	reviews kubernetes.Interface
	host    string
	// +drop:webhooks
	// lookups is for the webhooks, with a limit of its own too, and certificates for their certificate, which
	// every replica writes, guarded by the resourceVersion: its writes pass no fence.
	lookups      kubernetes.Interface
	certificates dynamic.Interface
	// +drop:end
}

func newClients(options *Options) (*clients, error) {
	config, err := client.NewConfig(client.Options{Kubeconfig: options.kubeconfig, Master: options.master, QPS: float32(options.qps), Burst: options.burst})
	if err != nil {
		return nil, err
	}
	c := &clients{host: config.Host}
	election, fenced := &options.process.leaderElection, rest.CopyConfig(config)
	if election.LeaderElect {
		c.fence = client.NewFence(clock.RealClock{}, clock.RealClock{}, election.RenewDeadline.Duration, election.LeaseDuration.Duration)
	}
	fenced.Wrap(c.fence.Wrap)
	own, err := clientset.NewForConfig(fenced)
	if err != nil {
		return nil, fmt.Errorf("building the client for custom resources: %w", err)
	}
	c.own, c.discovery = own, own.Discovery().RESTClient()
	// +drop:webhooks
	if c.certificates, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("building the client for certificates: %w", err)
	}
	// +drop:end
	for _, builtin := range []struct {
		client *kubernetes.Interface
		config *rest.Config
	}{
		{&c.kube, client.ForBuiltin(fenced)},
		{&c.events, client.ForEvents(fenced)},
		{&c.lease, client.ForLease(config, election.RenewDeadline.Duration)},
		{&c.reviews, client.ForReviews(config)},
		{&c.lookups, client.ForReviews(config)}, // +drop:webhooks
	} {
		if *builtin.client, err = kubernetes.NewForConfig(builtin.config); err != nil {
			return nil, fmt.Errorf("building a client: %w", err)
		}
	}
	return c, nil
}
