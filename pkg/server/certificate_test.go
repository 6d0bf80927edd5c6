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
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// write writes a file with that modification time: a file system may have a resolution of seconds.
func write(t *testing.T, name string, data []byte, second int64) {
	t.Helper()
	at := time.Unix(second, 0)
	if err := errors.Join(os.WriteFile(name, data, 0o600), os.Chtimes(name, at, at)); err != nil {
		t.Fatal(err)
	}
}

func TestCertificateIsReloaded(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	second := int64(0)
	replace := func(host string) {
		certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		second++
		write(t, certFile, certPEM, second)
		write(t, keyFile, keyPEM, second)
	}
	if _, err := NewTLSConfig(t.Context(), certFile, keyFile); err == nil {
		t.Error("no error for missing files")
	}
	replace("first")
	config, err := NewTLSConfig(t.Context(), certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		sentence string
		do       func()
		host     string
	}{
		{"from the start", func() {}, "first"},
		{"after its replacement", func() { replace("second") }, "second"},
		{"while certificate and key do not fit together", func() { write(t, keyFile, []byte("half"), 100) }, "second"},
		{"without its file", func() { _ = os.Remove(certFile) }, "second"},
		{"after both files are replaced", func() { replace("third") }, "third"},
	} {
		step.do()
		served, err := config.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		if got := served.Leaf.DNSNames; got[0] != step.host {
			t.Errorf("%s the certificate is for %q, want %s", step.sentence, got, step.host)
		}
	}
}

// TestClientAuthorities verifies the certificates of clients, also with authorities that were
// replaced.
func TestClientAuthorities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, nil, 0)
	if _, err := NewClientAuthorities(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("without authorities in the file: %v", err)
	}
	// Clients with certificates of their own, which are their authorities.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	client, clientErr := cert.NewSelfSignedCACert(cert.Config{CommonName: "client"}, key)
	other, otherErr := cert.NewSelfSignedCACert(cert.Config{CommonName: "other"}, key)
	servingPEM, _, servingErr := cert.GenerateSelfSignedCertKey("serving", nil, nil)
	serving, parseErr := cert.ParseCertsPEM(servingPEM)
	if err = errors.Join(err, clientErr, otherErr, servingErr, parseErr); err != nil {
		t.Fatal(err)
	}
	authorities := func(of *x509.Certificate) []byte {
		return append(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: of.Raw}), servingPEM...)
	}
	write(t, file, authorities(client), 1)
	a, err := NewClientAuthorities(file)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(shown ...*x509.Certificate) error {
		return a.Verify(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: shown}})
	}
	if err := verify(client); err != nil {
		t.Error(err)
	}
	for sentence, err := range map[string]error{
		"no TLS": a.Verify(&http.Request{}), "no certificate": verify(), "one of another authority": verify(other),
		"one for servers": verify(serving...),
	} {
		if err == nil {
			t.Errorf("%s is accepted", sentence)
		}
	}
	write(t, file, authorities(other), 2)
	if verify(other) != nil || verify(client) == nil {
		t.Error("the new authorities are not used")
	}
}
