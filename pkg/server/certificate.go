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

package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// NewTLSConfig returns a configuration that serves the certificate in the files, and
// reloads it when the files change. If both names are "" it serves a self-signed
// certificate for the machine's name, which clients cannot verify. It accepts TLS 1.2 and
// later.
func NewTLSConfig(ctx context.Context, certFile, keyFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if certFile == "" {
		pair, err := selfSigned()
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{*pair}
		return config, nil
	}
	current, err := reloaded("the certificate "+certFile+" with the key "+keyFile, func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		return &pair, err
	})
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current(ctx), nil }
	return config, err
}

// NewClientVerifier returns a function that returns an error unless the client of the request has
// shown a certificate of one of the authorities in the file, in PEM. It reloads the file when that
// changes. The tls.Config of the server must ask for a certificate (tls.RequestClientCert).
func NewClientVerifier(file string) (func(*http.Request) error, error) {
	current, err := reloaded("the authorities of clients", func() (*x509.CertPool, error) { return cert.NewPool(file) })
	return func(r *http.Request) error {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return errors.New("a client certificate is required")
		}
		options := x509.VerifyOptions{Roots: current(r.Context()), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		for _, intermediate := range r.TLS.PeerCertificates[1:] {
			options.Intermediates.AddCert(intermediate)
		}
		if _, err := r.TLS.PeerCertificates[0].Verify(options); err != nil {
			return fmt.Errorf("verifying the client certificate: %w", err)
		}
		return nil
	}, err
}

func selfSigned() (*tls.Certificate, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("getting the host name for the certificate: %w", err)
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, nil, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("parsing the self-signed certificate: %w", err)
	}
	return &pair, nil
}

// reloaded returns a function that reads what files hold, which another program renews. If they
// cannot be read, for example because only one of them is replaced so far, the function returns
// what they held before; the first time there is an error.
func reloaded[T any](what string, read func() (*T, error)) (func(context.Context) *T, error) {
	var latest atomic.Pointer[T]
	first, err := read()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	latest.Store(first)
	return func(ctx context.Context) *T {
		if next, err := read(); err == nil {
			latest.Store(next)
		} else {
			klog.FromContext(ctx).Error(err, "Failed to reload "+what+", using the old contents")
		}
		return latest.Load()
	}, nil
}
