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
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/client"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
)

// clients are the clients of the API server.
type clients struct {
	// fence is what the writes of kube, own and events pass. It is nil without leader election.
	fence *client.Fence
	kube  kubernetes.Interface
	own   clientset.Interface
	// discovery asks which resources the API server serves.
	discovery rest.Interface
	// events, lease, reviews and lookups have rate limits of their own, so that none of them
	// delays another. reviews authorizes the readers of metrics, lookups is for the webhooks.
	events  kubernetes.Interface
	lease   kubernetes.Interface
	reviews kubernetes.Interface
	lookups kubernetes.Interface
	// certificates is for the certificate of the webhooks, which every replica writes, guarded by
	// the resourceVersion: its writes pass no fence.
	certificates dynamic.Interface
	host         string
}

// newClients returns the clients that the options ask for.
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
	if c.certificates, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("building the client for certificates: %w", err)
	}
	for _, builtin := range []struct {
		client *kubernetes.Interface
		config *rest.Config
	}{
		{&c.kube, client.ForBuiltin(fenced)},
		{&c.events, client.ForEvents(fenced)},
		{&c.lease, client.ForLease(config, election.RenewDeadline.Duration)},
		{&c.reviews, client.ForReviews(config)},
		{&c.lookups, client.ForReviews(config)},
	} {
		if *builtin.client, err = kubernetes.NewForConfig(builtin.config); err != nil {
			return nil, fmt.Errorf("building a client: %w", err)
		}
	}
	return c, nil
}
