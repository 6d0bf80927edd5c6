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
	"flag"
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
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

func newWebhookOptions() webhookOptions {
	return webhookOptions{secret: webhookName, configuration: webhookName, lifetime: defaultCertificateLifetime}
}

// complete fills in the default that depends on the namespace in which the program runs.
func (o *webhookOptions) complete(namespace string) {
	if len(o.hosts) == 0 && namespace != "" {
		o.hosts = []string{fmt.Sprintf("%s.%s.svc", webhookName, namespace)}
	}
}

func (o *webhookOptions) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.address, "webhook-bind-address", "", "Address on which admission and conversion of Foos are served to the API server, such as :9443. Without it, or with 0: nowhere.")
	flags.StringVar(&o.certFile, "webhook-tls-cert-file", "", "File with the certificate of the webhooks, and intermediate ones after it; it may be replaced at any time. Without it the program makes one, keeps it in a Secret, renews it and tells the API server.")
	flags.StringVar(&o.keyFile, "webhook-tls-private-key-file", "", "File with the private key of --webhook-tls-cert-file.")
	flags.StringVar(&o.clientCAFile, "webhook-client-ca-file", "", "File with the CA certificates that verify the client certificate of the API server in requests for admission; it may be replaced at any time. Without it admission requests of any client are accepted. The API server presents no client certificate for conversions.")
	flags.BoolVar(&o.only, "webhooks-only", false, "Serve the webhooks and nothing else: run no controller and take no lease.")
	flags.StringVar(&o.secret, "webhook-secret", o.secret, "Name of the Secret that the program keeps the certificate in, in the namespace of its Pod or of --leader-elect-resource-namespace.")
	flags.StringVar(&o.configuration, "webhook-configuration", o.configuration, "Name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration whose caBundle fields the program sets.")
	flags.Func("webhook-hosts", "Names and IP addresses that the API server reaches the webhooks by. Without it: that of the Service "+webhookName+" in the namespace of the Secret.", appendTo(&o.hosts))
	flags.DurationVar(&o.lifetime, "webhook-certificate-lifetime", o.lifetime, "Validity of the certificates that the program makes. Each is trusted for a third of it before it is served, and served for a third.")
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
