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
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	// What client-go and component-base count: requests, queues, caches, the lease,
	// and which version this is.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"example.com/sample-controller/pkg/server"
)

// process is what goes on around the controllers: who leads, and what is shown to
// the outside.
type process struct {
	lease   *server.Lease
	health  *server.Server
	metrics *server.Server
	// webhooks are nil if there are to be none.
	webhooks *webhooks
	// tls is the configuration of the metrics, nil for plain HTTP.
	tls *tls.Config

	healthHandler  http.Handler
	metricsHandler http.Handler
}

// newProcess returns a process as the options have it. Its ports are taken, but
// nothing is served yet.
func newProcess(ctx context.Context, options *processOptions, clients *clients, fleet *fleet, webhooks *webhooks) (_ *process, err error) {
	p := &process{webhooks: webhooks}
	live := []server.Check{server.NewCheck("workers", fleet.checkWorkers)}
	if options.leaderElection.LeaderElect {
		if p.lease, err = server.NewLease(ctx, &options.leaderElection, clients.lease.CoordinationV1()); err != nil {
			return nil, err
		}
		live = append(live, p.lease.Health())
	}
	// Whoever stands by is ready: it could lead.
	p.healthHandler = server.NewHealthHandler(live, append([]server.Check{server.NewCheck("crd", fleet.checkServed), server.NewCheck("caches", fleet.checkCaches)}, webhooks.checks()...))
	p.metricsHandler = server.NewMetricsHandler(legacyregistry.Handler(), options.profiling)

	if options.metricsAddress != "" && options.metricsSecure {
		p.metricsHandler = server.Authorized(clients.reviews, p.metricsHandler)
		if p.tls, err = server.NewTLSConfig(ctx, options.certFile, options.keyFile); err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
	}
	if options.healthAddress != "" {
		if p.health, err = server.Listen(ctx, "health", "health-probe-bind-address", options.healthAddress); err != nil {
			return nil, err
		}
	}
	if options.metricsAddress != "" {
		if p.metrics, err = server.Listen(ctx, "metrics", "metrics-bind-address", options.metricsAddress); err != nil {
			if p.health != nil {
				p.health.Close()
			}
			return nil, err
		}
	}
	return p, nil
}

// serve answers on all ports, for longer than ctx lasts: how a process ends is to
// be seen as well. It returns how to end that.
func (p *process) serve(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var servers sync.WaitGroup
	serve := func(s *server.Server, handler http.Handler, tls *tls.Config) {
		if s == nil {
			return
		}
		servers.Go(func() {
			if err := s.Serve(ctx, handler, tls); err != nil {
				klog.FromContext(ctx).Error(err, "A port is served no more")
			}
		})
	}
	serve(p.health, p.healthHandler, nil)
	serve(p.metrics, p.metricsHandler, p.tls)
	if p.webhooks != nil {
		serve(p.webhooks.server, p.webhooks.handler, p.webhooks.tls)
		servers.Go(func() { p.webhooks.manage(ctx) })
	}
	return func() {
		cancel()
		servers.Wait()
	}
}

// lead calls work when it is this process's turn.
func (p *process) lead(ctx context.Context, work func(context.Context) error) error {
	if p.lease == nil {
		return work(ctx)
	}
	return p.lease.Lead(ctx, work)
}

// legacyRegistry is the registry in which everything in Kubernetes counts.
type legacyRegistry struct{}

// MustRegister implements controller.MetricsRegistry.
func (legacyRegistry) MustRegister(all ...metrics.Registerable) {
	legacyregistry.MustRegister(all...)
}

// CustomMustRegister implements controller.MetricsRegistry.
func (legacyRegistry) CustomMustRegister(all ...metrics.StableCollector) {
	legacyregistry.CustomMustRegister(all...)
}
