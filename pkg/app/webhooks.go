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
	"fmt"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/server"
	"example.com/sample-controller/pkg/webhook/certs"
)

// Webhooks are the webhooks of the API of one controller.
type Webhooks struct {
	// Controller is the name of that controller. The webhooks read its caches, and its
	// CustomResourceDefinition calls them for the conversion.
	Controller string
	// NewHandler returns the handler that serves all webhooks.
	NewHandler func(WebhookContext) http.Handler
}

// WebhookContext is what the handler of webhooks is built from.
type WebhookContext struct {
	// HasSynced reports whether the caches of the controller are filled. Do not read
	// them before.
	HasSynced func() bool
	// Namespace returns the informers of that namespace, or nil if the process does not
	// work in it.
	Namespace func(namespace string) *ControllerContext
	// MayGet reports whether the API server allows the user to get an object, false if it does not
	// answer.
	MayGet func(ctx context.Context, user authenticationv1.UserInfo, object authorizationv1.ResourceAttributes) bool
	// VerifyClient returns an error unless the request comes from a client with a certificate of the
	// authorities in --webhook-client-ca-file. It is nil without that flag.
	VerifyClient func(*http.Request) error
	Metrics      controller.MetricsRegistry
	Clock        clock.PassiveClock
}

// addWebhooks adds the port of the webhooks. Every replica serves them, also one that does
// not lead, and before its caches are filled: the API server may need the conversion to
// answer the lists that fill them.
func (s *servers) addWebhooks(ctx context.Context, options *Options, clients *clients, controllers *controllers) (err error) {
	webhooks, flags := options.program.Webhooks, &options.webhook
	of := controllers.find(webhooks.Controller)
	var verifyClient func(*http.Request) error
	if flags.clientCAFile != "" {
		if verifyClient, err = server.NewClientVerifier(flags.clientCAFile); err != nil {
			return fmt.Errorf("--webhook-client-ca-file: %w", err)
		}
	}
	handler := webhooks.NewHandler(WebhookContext{
		HasSynced: of.hasSynced,
		Namespace: of.inNamespace,
		MayGet: func(ctx context.Context, user authenticationv1.UserInfo, object authorizationv1.ResourceAttributes) bool {
			allowed, err := server.IsAllowed(ctx, clients.lookups, user, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &object})
			if err != nil {
				klog.FromContext(ctx).Error(err, "Failed to review the access of a user", "resource", object.Resource, "object", klog.KRef(object.Namespace, object.Name))
			}
			return allowed
		},
		VerifyClient: verifyClient,
		Metrics:      controllers.worker.Metrics.Registry,
		Clock:        controllers.worker.Clock,
	})
	var config *tls.Config
	if flags.certFile != "" {
		if config, err = server.NewTLSConfig(ctx, flags.certFile, flags.keyFile); err != nil {
			return fmt.Errorf("--webhook-tls-cert-file: %w", err)
		}
	} else {
		s.webhookCertificates = newCertificates(options, clients, controllers)
		config = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.webhookCertificates.GetCertificate}
	}
	if verifyClient != nil {
		config.ClientAuth = tls.RequestClientCert
	}
	return s.listen(ctx, "webhooks", "webhook-bind-address", flags.address, handler, config)
}

// newCertificates returns what makes the certificate of the webhooks, and publishes it where the API server
// looks it up: in the CustomResourceDefinition and the webhook configurations.
func newCertificates(options *Options, clients *clients, controllers *controllers) *certs.Manager {
	of := slices.IndexFunc(options.program.Controllers, func(d ControllerDescriptor) bool { return d.Name == options.program.Webhooks.Controller })
	crd := options.program.Controllers[of].Resource.GroupResource().String()
	flags, admission := &options.webhook, schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return certs.New(certs.Options{
		Client: clients.certificates, Secret: cache.NewObjectName(options.process.leaderElection.ResourceNamespace, flags.secret), Hosts: flags.hosts, Lifetime: flags.lifetime,
		Targets: []certs.Target{
			{Resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, Name: crd},
			{Resource: admission.WithResource("mutatingwebhookconfigurations"), Name: flags.configuration},
			{Resource: admission.WithResource("validatingwebhookconfigurations"), Name: flags.configuration},
		},
		Worker: controllers.worker,
	})
}
