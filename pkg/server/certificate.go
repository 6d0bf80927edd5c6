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
	"slices"
	"sync"
	"time"

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
	files := &reloaded[*tls.Certificate]{what: "the certificate", names: []string{certFile, keyFile}, parse: func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate %s with the key %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}}
	if err := files.load(); err != nil {
		return nil, err
	}
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return files.get(ctx), nil }
	return config, nil
}

// ClientAuthorities verify the certificates of clients. Create them with NewClientAuthorities.
type ClientAuthorities struct {
	files *reloaded[*x509.CertPool]
}

// NewClientAuthorities returns the authorities whose certificates are in the file, in PEM. It reloads
// the file when that changes.
func NewClientAuthorities(file string) (*ClientAuthorities, error) {
	a := &ClientAuthorities{files: &reloaded[*x509.CertPool]{what: "the authorities of clients", names: []string{file}, parse: func() (*x509.CertPool, error) {
		pool, err := cert.NewPool(file)
		if err != nil {
			return nil, fmt.Errorf("reading the authorities of clients in %s: %w", file, err)
		}
		return pool, nil
	}}}
	return a, a.files.load()
}

// Verify returns an error unless the client of the request has shown a certificate of one of the
// authorities. The tls.Config of the server must ask for it (tls.RequestClientCert).
func (a *ClientAuthorities) Verify(r *http.Request) error {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return errors.New("a client certificate is required")
	}
	options := x509.VerifyOptions{Roots: a.files.get(r.Context()), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, intermediate := range r.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	if _, err := r.TLS.PeerCertificates[0].Verify(options); err != nil {
		return fmt.Errorf("verifying the client certificate: %w", err)
	}
	return nil
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

// reloaded is what files hold that another program renews.
type reloaded[T any] struct {
	what  string
	names []string
	parse func() (T, error)

	mu      sync.Mutex
	current T
	// modified are the modification times of the files when current was loaded.
	modified []time.Time
}

// get returns what the files hold. If they cannot be loaded, for example because only one of them
// is replaced so far, it returns what they held before.
func (r *reloaded[T]) get(ctx context.Context) T {
	if err := r.load(); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to reload "+r.what+", using the old contents")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// load reads the files if they have changed.
func (r *reloaded[T]) load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var modified []time.Time
	for _, name := range r.names {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("checking %s: %w", r.what, err)
		}
		modified = append(modified, info.ModTime())
	}
	if slices.Equal(modified, r.modified) {
		return nil
	}
	current, err := r.parse()
	if err != nil {
		return err
	}
	r.current, r.modified = current, modified
	return nil
}
