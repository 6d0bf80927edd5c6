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

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/server"
	"example.com/sample-controller/pkg/webhook"
	"example.com/sample-controller/pkg/webhook/certs"
)

// webhooks answer the API server about Foos. Every replica does, whoever leads, and from
// before its caches are filled: the API server may need the conversion to fill them.
type webhooks struct {
	server  *server.Server
	handler http.Handler
	tls     *tls.Config
	// manager makes the certificate, nil if somebody else does.
	manager *certs.Manager
}

// newWebhooks returns the webhooks as the options have them, nil if there are to be none.
// Their port is taken, but nothing is served yet.
func newWebhooks(ctx context.Context, options *webhookOptions, clients *clients, informers *informers, fleet *fleet, common controller.Options) (*webhooks, error) {
	if options.address == "" {
		return nil, nil
	}
	w := &webhooks{
		handler: webhook.NewHandler(webhook.Options{Lookups: webhookLookups(informers, fleet), Metrics: webhook.NewMetrics(legacyRegistry{}), Clock: common.Clock}),
	}
	var err error
	if options.certFile != "" {
		if w.tls, err = server.NewTLSConfig(ctx, options.certFile, options.keyFile); err != nil {
			return nil, fmt.Errorf("--webhook-tls-cert-file: %w", err)
		}
	} else {
		if w.manager, err = newCertificateManager(ctx, options, clients, common); err != nil {
			return nil, err
		}
		w.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: w.manager.GetCertificate}
	}
	if w.server, err = server.Listen(ctx, "webhooks", "webhook-bind-address", options.address); err != nil {
		return nil, err
	}
	return w, nil
}

func newCertificateManager(ctx context.Context, options *webhookOptions, clients *clients, common controller.Options) (*certs.Manager, error) {
	client, err := dynamic.NewForConfig(clients.config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return certs.New(ctx, certs.Options{
		Client: clients.kube, Dynamic: client, Secret: cache.NewObjectName(options.namespace, options.secret), Hosts: options.hosts,
		Lifetimes: certs.NewLifetimes(options.lifetime),
		Targets: []certs.Target{
			{Resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, Name: "foos." + v1alpha1.GroupName},
			{Resource: admission.WithResource("mutatingwebhookconfigurations"), Name: options.configuration},
			{Resource: admission.WithResource("validatingwebhookconfigurations"), Name: options.configuration},
		},
		Options: common,
	})
}

// webhookLookups returns the lookups of the webhooks in the caches of the Foo controller.
func webhookLookups(informers *informers, fleet *fleet) webhook.Lookups {
	return webhook.Lookups{
		HasSynced: func() bool { return fleet.filled("foo") },
		Claimants: func(namespace, deploymentName string) []*v1alpha1.Foo {
			return controller.LookUp(informers.foos.TypedInformer().GetTypedIndexer(), byName, cache.NewObjectName(namespace, deploymentName).String())
		},
		Deployment: func(namespace, name string) *appsv1.Deployment {
			// A lister of a cache returns no error but NotFound.
			deployment, _ := informers.deployments.Lister().Deployments(namespace).Get(name)
			return deployment
		},
	}
}

// checks returns what has to be so for a replica to be ready.
func (w *webhooks) checks() []server.Check {
	if w == nil || w.manager == nil {
		return nil
	}
	return []server.Check{server.NewCheck("webhook-certificate", w.manager.Check)}
}

// manage looks after the certificate until ctx ends.
func (w *webhooks) manage(ctx context.Context) {
	if w.manager == nil {
		return
	}
	if err := w.manager.Run(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The certificate of the webhooks is renewed no more")
	}
}

// close gives up the port of webhooks that never served.
func (w *webhooks) close() {
	if w != nil {
		w.server.Close()
	}
}
