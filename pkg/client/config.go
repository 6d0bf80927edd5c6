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

// Package client builds the configurations of the clients that talk to the API
// server.
package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/flowcontrol"
)

// Unlimited turns client-side rate limiting off: the API server's Priority and
// Fairness is the limiter.
const Unlimited = -1

// The events' own budget, so that they neither slow the writes that matter nor
// flood the API server.
const (
	eventQPS   = 20
	eventBurst = 20
)

// The lease's own budget, which its few requests a second never use up, and that of
// the questions who may read metrics, which strangers can cause.
const (
	leaseQPS    = 10
	leaseBurst  = 20
	reviewQPS   = 10
	reviewBurst = 20
)

// Options say which API server to talk to, and how fast.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file, "" for the default places.
	Kubeconfig string
	// Master is the address of the API server; it overrides the kubeconfig's.
	Master string
	// QPS is the number of requests a second, or Unlimited.
	QPS float32
	// Burst is the number of requests that may exceed QPS for a moment.
	Burst int
}

// NewConfig returns the client configuration that the options ask for. A master
// alone is contacted without credentials. With neither kubeconfig nor master given
// it takes the first that there is of: the files that KUBECONFIG names, the
// service account of the Pod that the program runs in, $HOME/.kube/config. The
// error says which of them was tried and what to do.
func NewConfig(options Options) (*rest.Config, error) {
	config, err := load(options)
	if err != nil {
		return nil, err
	}
	config.QPS = options.QPS
	config.Burst = options.Burst
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	config.Wrap(returnRetryAfter)
	return config, nil
}

func load(options Options) (*rest.Config, error) {
	if options.Kubeconfig == "" && options.Master == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		config, err := rest.InClusterConfig()
		if !errors.Is(err, rest.ErrNotInCluster) {
			if err != nil {
				return nil, fmt.Errorf("loading the in-cluster configuration: %w", err)
			}
			return config, nil
		}
	}

	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = options.Kubeconfig
	if options.Kubeconfig == "" && options.Master != "" {
		// The credentials of whatever cluster those files are about are not for
		// this server.
		rules.Precedence = nil
	}
	// Without this a missing default file would be migrated from a place that
	// nobody has used for ten years.
	rules.MigrationRules = nil
	overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: options.Master}}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && options.Kubeconfig != "":
		return nil, fmt.Errorf("loading -kubeconfig %s: it names no cluster", options.Kubeconfig)
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no configuration found: not running in a Pod, and there is no kubeconfig; set -kubeconfig or KUBECONFIG to its path")
	case err != nil && options.Kubeconfig != "":
		return nil, fmt.Errorf("loading -kubeconfig %s: %w", options.Kubeconfig, err)
	case err != nil:
		return nil, fmt.Errorf("loading the kubeconfig from %v: %w", rules.GetLoadingPrecedence(), err)
	}
	return config, nil
}

// ForBuiltin returns a copy of config for clients of built-in types, which the
// API server also speaks in the cheaper protobuf.
func ForBuiltin(config *rest.Config) *rest.Config {
	builtin := rest.CopyConfig(config)
	builtin.ContentType = runtime.ContentTypeProtobuf
	builtin.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return builtin
}

// ForEvents returns a copy of config with a rate limit of its own, and what lifts that:
// who is about to end has no time to be modest.
func ForEvents(config *rest.Config) (limited *rest.Config, lift func()) {
	limited = ForBuiltin(config)
	limiter := &liftableLimiter{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(eventQPS, eventBurst)}
	limited.RateLimiter = limiter
	return limited, func() { limiter.lifted.Store(true) }
}

// liftableLimiter limits until it is lifted.
type liftableLimiter struct {
	flowcontrol.RateLimiter

	lifted atomic.Bool
}

// TryAccept implements flowcontrol.RateLimiter.
func (l *liftableLimiter) TryAccept() bool {
	return l.lifted.Load() || l.RateLimiter.TryAccept()
}

// Accept implements flowcontrol.RateLimiter.
func (l *liftableLimiter) Accept() {
	if !l.lifted.Load() {
		l.RateLimiter.Accept()
	}
}

// Wait implements flowcontrol.RateLimiter.
func (l *liftableLimiter) Wait(ctx context.Context) error {
	if l.lifted.Load() {
		return nil
	}
	return l.RateLimiter.Wait(ctx)
}

// ForLease returns a copy of config with a rate limit of its own, and a timeout that
// leaves room for a second try within renewDeadline.
func ForLease(config *rest.Config, renewDeadline time.Duration) *rest.Config {
	limited := ForBuiltin(config)
	limited.QPS, limited.Burst = leaseQPS, leaseBurst
	limited.Timeout = renewDeadline / 2
	return limited
}

// ForReviews returns a copy of config with a rate limit of its own, for questions
// about who may do what.
func ForReviews(config *rest.Config) *rest.Config {
	limited := ForBuiltin(config)
	limited.QPS, limited.Burst = reviewQPS, reviewBurst
	return limited
}
