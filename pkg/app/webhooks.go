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
	"flag"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/server"
	"example.com/sample-controller/pkg/webhook/certs"
)

const (
	// webhookName is the name of the Service, the Secret and the configurations of the
	// webhooks in the manifests.
	webhookName = name + "-webhook"
	// defaultCertificateLifetime is cert-manager's default.
	defaultCertificateLifetime = 90 * 24 * time.Hour
	// minCertificateLifetime keeps the renewals from following each other at once.
	minCertificateLifetime = 12 * time.Second
)

// webhookOptions say how admission and conversion are served.
type webhookOptions struct {
	address  string
	certFile string
	keyFile  string
	// clientCAFile has the authorities of the API server's certificate as a client, "" if any client may
	// ask for admission.
	clientCAFile string
	// only says that the process runs no controller and takes no lease.
	only bool
	// The following are for the certificate that the program makes itself where neither
	// file is given.
	secret        string
	configuration string
	hosts         []string
	lifetime      time.Duration
}

func (o *webhookOptions) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.address, "webhook-bind-address", "", "Address on which admission and conversion of Foos are served to the API server, such as :9443. Without it, or with 0: nowhere.")
	flags.StringVar(&o.certFile, "webhook-tls-cert-file", "", "File with the certificate of the webhooks, and intermediate ones after it; it may be replaced at any time. Without it the program makes one, keeps it in a Secret, renews it and tells the API server.")
	flags.StringVar(&o.keyFile, "webhook-tls-private-key-file", "", "File with the private key of --webhook-tls-cert-file.")
	flags.StringVar(&o.clientCAFile, "webhook-client-ca-file", "", "File with the CA certificates that verify the client certificate of the API server in requests for admission; it may be replaced at any time. Without it admission requests of any client are accepted. The API server presents no client certificate for conversions.")
	flags.BoolVar(&o.only, "webhooks-only", false, "Serve the webhooks and nothing else: run no controller and take no lease.")
	flags.StringVar(&o.secret, "webhook-secret", webhookName, "Name of the Secret that the program keeps the certificate in, in the namespace of its Pod or of --leader-elect-resource-namespace.")
	flags.StringVar(&o.configuration, "webhook-configuration", webhookName, "Name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration whose caBundle fields the program sets.")
	flags.Var(cliflag.NewStringSlice(&o.hosts), "webhook-hosts", "Names and IP addresses that the API server reaches the webhooks by. Without it: that of the Service "+webhookName+" in the namespace of the Secret.")
	flags.DurationVar(&o.lifetime, "webhook-certificate-lifetime", defaultCertificateLifetime, "Validity of the certificates that the program makes. Each is trusted for a third of it before it is served, and served for a third.")
}

// validate refuses values that are wrong and flags that lack another one. The namespace is that of the Secret.
func (o *webhookOptions) validate(refuse refuseFunc, namespace string) {
	refuse.address("--webhook-bind-address", o.address)
	refuse.pair("--webhook-tls-cert-file", o.certFile, "--webhook-tls-private-key-file", o.keyFile)
	if o.address == "" {
		const missing = "is for the webhooks; give --webhook-bind-address"
		refuse(o.certFile != "", "--webhook-tls-cert-file", missing)
		refuse(o.clientCAFile != "", "--webhook-client-ca-file", missing)
		refuse(o.only, "--webhooks-only", missing)
	}
	if o.address == "" || o.certFile != "" {
		return
	}
	refuse(namespace == "", "--webhook-bind-address", "needs a namespace for the Secret where the program does not run in a Pod; "+
		"give --leader-elect-resource-namespace, or --webhook-tls-cert-file")
	refuse.name("--webhook-secret", o.secret, "is not a name", validation.IsDNS1123Subdomain(o.secret))
	refuse.name("--webhook-configuration", o.configuration, "is not a name", validation.IsDNS1123Subdomain(o.configuration))
	for _, host := range o.hosts {
		if net.ParseIP(host) == nil {
			refuse.name("--webhook-hosts", host, "is neither an IP address nor a DNS name", validation.IsDNS1123Subdomain(host))
		}
	}
	refuse(o.lifetime < minCertificateLifetime, "--webhook-certificate-lifetime", "must be at least %v, got %v", minCertificateLifetime, o.lifetime)
}

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
	Metrics      metrics.KubeRegistry
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
