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

// Package client builds the configurations of the clients of the API server, asks it what it serves, and trims what
// caches keep of its objects.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Unlimited turns client-side rate limiting off; API Priority and Fairness limits the
// requests.
const Unlimited = -1

// Rate limits of their own for requests that must not delay others, or be delayed.
const (
	// Events would otherwise slow down the other writes or flood the API server.
	eventQPS   = 20
	eventBurst = 20
	// Renewals of the lease must not wait; a few a second never reach this limit.
	leaseQPS   = 10
	leaseBurst = 20
	// Any client of the metrics port, or of the webhooks, can cause reviews.
	reviewQPS   = 10
	reviewBurst = 20
)

// Options select the API server and limit the requests to it.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file, "" for the defaults of NewConfig.
	Kubeconfig string
	// Master is the address of the API server; it overrides the kubeconfig's.
	Master string
	// QPS is the number of requests a second, or Unlimited.
	QPS float32
	// Burst is the number of requests that may exceed QPS at once.
	Burst int
}

// NewConfig returns a client configuration. With neither kubeconfig nor master it uses the
// first that exists of: the files in KUBECONFIG, the service account of the Pod,
// $HOME/.kube/config. With only a master it uses no credentials. The error names the file
// or address that was tried.
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
		// The credentials in the default files are for another server.
		rules.Precedence = nil
	}
	// Do not copy an old $HOME/.kube/.kubeconfig to a missing default file: kubectl does, but
	// this program must not write files.
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

// ForBuiltin returns a copy of config for clients of built-in types, which are encoded as
// protobuf: it costs less than JSON.
func ForBuiltin(config *rest.Config) *rest.Config {
	builtin := rest.CopyConfig(config)
	builtin.ContentType = runtime.ContentTypeProtobuf
	builtin.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return builtin
}

// ForEvents returns a copy of config with its own rate limit.
func ForEvents(config *rest.Config) *rest.Config {
	return withLimit(config, eventQPS, eventBurst)
}

// ForLease returns a copy of config with its own rate limit, and a timeout that allows a
// second try within renewDeadline.
func ForLease(config *rest.Config, renewDeadline time.Duration) *rest.Config {
	limited := withLimit(config, leaseQPS, leaseBurst)
	limited.Timeout = renewDeadline / 2
	return limited
}

// ForReviews returns a copy of config with its own rate limit, for TokenReviews and
// SubjectAccessReviews.
func ForReviews(config *rest.Config) *rest.Config {
	return withLimit(config, reviewQPS, reviewBurst)
}

func withLimit(config *rest.Config, qps float32, burst int) *rest.Config {
	limited := ForBuiltin(config)
	limited.QPS, limited.Burst = qps, burst
	return limited
}

// contactTimeout limits IsServed, so that a user who starts the program with a wrong address
// soon gets an error.
const contactTimeout = 4 * time.Second

// IsServed reports whether the API server serves the resource, by the discovery API, which
// RBAC allows to every authenticated user. The error names the address.
func IsServed(ctx context.Context, client rest.Interface, resource schema.GroupVersionResource) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	list, code := &metav1.APIResourceList{}, 0
	err := client.Get().AbsPath("/apis", resource.Group, resource.Version).Do(ctx).StatusCode(&code).Into(list)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case code >= http.StatusBadRequest:
		// A proxy may refuse the request with an empty body.
		err = fmt.Errorf("%d %s: %w", code, http.StatusText(code), err)
	}
	if err != nil {
		return false, fmt.Errorf("contacting the API server at %s: %w", client.Get().URL().Host, err)
	}
	return slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool { return served.Name == resource.Resource }), nil
}
