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
	"fmt"
	"os"
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
	files := &certificateFiles{certFile: certFile, keyFile: keyFile}
	if err := files.load(); err != nil {
		return nil, err
	}
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return files.get(ctx), nil }
	return config, nil
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

// certificateFiles is a certificate in files that another program renews.
type certificateFiles struct {
	certFile, keyFile string

	mu      sync.Mutex
	current *tls.Certificate
	// modified are the modification times of the files when current was loaded.
	modified [2]time.Time
}

// get returns the certificate in the files. If they cannot be loaded, for example because
// only one of them is replaced so far, it returns the last one that could.
func (f *certificateFiles) get(ctx context.Context) *tls.Certificate {
	if err := f.load(); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to reload the certificate, serving the old one")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// load reads the files if they have changed.
func (f *certificateFiles) load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var modified [2]time.Time
	for i, name := range []string{f.certFile, f.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("checking the certificate: %w", err)
		}
		modified[i] = info.ModTime()
	}
	if f.current != nil && modified == f.modified {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return fmt.Errorf("reading the certificate %s with the key %s: %w", f.certFile, f.keyFile, err)
	}
	f.current, f.modified = &pair, modified
	return nil
}
