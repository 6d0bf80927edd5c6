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
	"testing"

	"k8s.io/client-go/util/cert"
)

// TestCertificateIsReloaded replaces the files of the certificate as another program may.
func TestCertificateIsReloaded(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	replace := func(host string) error {
		certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		return errors.Join(err, os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600))
	}
	if err := replace("first"); err != nil {
		t.Fatal(err)
	}
	config, err := NewTLSConfig(t.Context(), certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		sentence string
		do       func() error
		host     string
	}{
		{"while certificate and key do not fit together", func() error { return os.WriteFile(keyFile, nil, 0o600) }, "first"},
		{"after their replacement", func() error { return replace("second") }, "second"},
		{"without its file", func() error { return os.Remove(certFile) }, "second"},
		{"after they are replaced again", func() error { return replace("third") }, "third"},
	} {
		err := step.do()
		served, serveErr := config.GetCertificate(&tls.ClientHelloInfo{})
		if err = errors.Join(err, serveErr); err != nil {
			t.Fatal(err)
		}
		if got := served.Leaf.DNSNames; got[0] != step.host {
			t.Errorf("%s the certificate is for %q, want %s", step.sentence, got, step.host)
		}
	}
}

// TestClientVerifier verifies the certificates of clients, which are their own authorities, also
// after the authorities were replaced.
func TestClientVerifier(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	client, clientErr := cert.NewSelfSignedCACert(cert.Config{CommonName: "client"}, key)
	other, otherErr := cert.NewSelfSignedCACert(cert.Config{CommonName: "other"}, key)
	servingPEM, _, servingErr := cert.GenerateSelfSignedCertKey("serving", nil, nil)
	serving, parseErr := cert.ParseCertsPEM(servingPEM)
	if err = errors.Join(err, clientErr, otherErr, servingErr, parseErr); err != nil {
		t.Fatal(err)
	}
	trust := func(of *x509.Certificate) error {
		return os.WriteFile(file, append(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: of.Raw}), servingPEM...), 0o600)
	}
	err = trust(client)
	verifyRequest, newErr := NewClientVerifier(file)
	if err = errors.Join(err, newErr); err != nil {
		t.Fatal(err)
	}
	verify := func(shown ...*x509.Certificate) error {
		return verifyRequest(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: shown}})
	}
	if err := verify(client); err != nil {
		t.Error(err)
	}
	for sentence, err := range map[string]error{
		"no TLS": verifyRequest(&http.Request{}), "no certificate": verify(), "one of another authority": verify(other),
		"one for servers": verify(serving...),
	} {
		if err == nil {
			t.Errorf("%s is accepted", sentence)
		}
	}
	if err := errors.Join(trust(other), verify(other)); err != nil || verify(client) == nil {
		t.Errorf("the new authorities are not used, error %v", err)
	}
}
