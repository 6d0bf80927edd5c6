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

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	_ "net/http/pprof" // Registers Go's profiles in http.DefaultServeMux.
	"sync"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/klog/v2"

	// The metrics of client-go: requests, queues, caches, the lease; and the version of this program.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"example.com/sample-controller/pkg/server"
	"example.com/sample-controller/pkg/webhook/certs"
)

// servers are the lease and the ports of the process.
type servers struct {
	// lease is nil without leader election.
	lease *server.Lease
	ports []*server.Server
	// +drop:webhooks
	// webhookCertificates makes the certificate of the webhooks. It is nil without these, and with one from files.
	webhookCertificates *certs.Manager
	// webhooksOnly keeps this process from ever leading.
	webhooksOnly bool
	// +drop:end
}

// newServers returns the servers that the options ask for. They have their ports, but serve nothing yet.
func newServers(ctx context.Context, options *Options, clients *clients, controllers *controllers) (_ *servers, err error) {
	s := &servers{}
	s.webhooksOnly = options.webhook.only // +drop:webhooks
	live := []healthz.HealthChecker{healthz.PingHealthz}
	ready := []healthz.HealthChecker{healthz.PingHealthz, newCheck("crd", controllers.checkServed), newCheck("caches", controllers.checkCaches)}
	// +drop:webhooks
	if options.webhook.address != "" {
		if err := s.addWebhooks(ctx, options, clients, controllers); err != nil {
			return nil, err
		}
		if s.webhookCertificates != nil {
			ready = append(ready, newCheck("webhook-certificate", s.webhookCertificates.Check))
		}
	}
	// +drop:end
	process := &options.process
	if process.leaderElection.LeaderElect {
		if s.lease, err = server.NewLease(ctx, &process.leaderElection, clients.lease.CoordinationV1(), clients.fence); err != nil {
			return nil, err
		}
		live = append(live, s.lease.Health())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", legacyregistry.Handler())
	slis.SLIMetrics{}.Install(mux) // The handlers of /livez and /readyz count the results of their checks.
	if process.profiling {
		mux.Handle("/debug/pprof/", http.DefaultServeMux)
	}
	metricsHandler, metricsTLS := http.Handler(mux), (*tls.Config)(nil)
	if process.metricsAddress != "" && process.metricsSecure {
		metricsHandler = server.Authorized(clients.reviews, mux)
		if metricsTLS, err = server.NewTLSConfig(ctx, process.certFile, process.keyFile); err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
	}
	health := http.NewServeMux()
	healthz.InstallLivezHandler(health, live...)
	// Readiness does not depend on leadership: a standby must pass, or rollouts hang.
	healthz.InstallReadyzHandler(health, ready...)
	if err := s.listen(ctx, "health", "health-probe-bind-address", process.healthAddress, health, nil); err != nil {
		return nil, err
	}
	return s, s.listen(ctx, "metrics", "metrics-bind-address", process.metricsAddress, metricsHandler, metricsTLS)
}

// newCheck returns a check that fails while check returns an error.
func newCheck(name string, check func() error) healthz.HealthChecker {
	return healthz.NamedCheck(name, func(*http.Request) error { return check() })
}

// listen adds a port that is to serve the handler, unless the address is "".
func (s *servers) listen(ctx context.Context, what, flag, address string, handler http.Handler, tlsConfig *tls.Config) error {
	if address == "" {
		return nil
	}
	listening, err := server.Listen(ctx, what, flag, address, handler, tlsConfig)
	if err == nil {
		s.ports = append(s.ports, listening)
	}
	return err
}

// whileServing serves all ports while run runs, and returns its error. It goes on when ctx has ended, so that
// probes and metrics show the shutdown as well. If the lease is lost it does not wait for the ports to close:
// requests to them, which may take long, would delay the end of the process.
func (s *servers) whileServing(ctx context.Context, run func() error) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var running sync.WaitGroup
	serve := func(what string, serve func(context.Context) error) {
		running.Go(func() {
			if err := serve(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, what+" stopped")
			}
		})
	}
	for _, p := range s.ports {
		serve("Server", p.Serve)
	}
	// +drop:webhooks
	if s.webhookCertificates != nil {
		serve("Renewal of the webhook certificate", s.webhookCertificates.Run)
	}
	// +drop:end
	err := run()
	if !errors.Is(err, server.ErrLeaseLost) {
		cancel()
		running.Wait()
	}
	return err
}

// lead calls work while this process is the leader, or at once without leader election.
func (s *servers) lead(ctx context.Context, work func(context.Context) error) error {
	// +drop:webhooks
	if s.webhooksOnly {
		<-ctx.Done()
		return nil
	}
	// +drop:end
	if s.lease == nil {
		return work(ctx)
	}
	return s.lease.Lead(ctx, work)
}
