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
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// writeCertificate writes a new certificate for that host into files with that
// modification time.
func writeCertificate(t *testing.T, dir, host string, at time.Time) (certFile, keyFile string) {
	t.Helper()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, data := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		// The modification times of a file system may have a resolution of seconds.
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// servedHost returns the host of the served certificate.
func servedHost(t *testing.T, config *tls.Config) string {
	t.Helper()
	served, err := config.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(served.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(parsed.DNSNames, " ")
}

func TestCertificateIsReloaded(t *testing.T) {
	dir, start := t.TempDir(), time.Unix(1_000_000, 0)
	certFile, keyFile := writeCertificate(t, dir, "first", start)
	config, err := NewTLSConfig(t.Context(), certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := servedHost(t, config); got != "first" {
		t.Errorf("the certificate is for %q", got)
	}
	writeCertificate(t, dir, "second", start.Add(time.Hour))
	if got := servedHost(t, config); got != "second" {
		t.Errorf("after its replacement the certificate is for %q", got)
	}

	// While the files are being replaced, certificate and key may not fit together.
	if err := os.WriteFile(keyFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := servedHost(t, config); got != "second" {
		t.Errorf("with a broken key the certificate is for %q", got)
	}
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	if got := servedHost(t, config); got != "second" {
		t.Errorf("without its file the certificate is for %q", got)
	}
	writeCertificate(t, dir, "third", start.Add(2*time.Hour))
	if got := servedHost(t, config); got != "third" {
		t.Errorf("after both files are replaced the certificate is for %q", got)
	}
}

func TestTLSConfig(t *testing.T) {
	if _, err := NewTLSConfig(t.Context(), filepath.Join(t.TempDir(), "none"), "none"); err == nil {
		t.Error("no error for missing files")
	}
	own, err := NewTLSConfig(t.Context(), "", "")
	if err != nil || len(own.Certificates) != 1 {
		t.Errorf("without files there are %d certificates, error %v", len(own.Certificates), err)
	}
	if own.MinVersion != tls.VersionTLS12 {
		t.Errorf("minimum version %x", own.MinVersion)
	}
}

// newClientCertificate returns a certificate for that use, and the authority that signed it, in PEM.
func newClientCertificate(t *testing.T, usage x509.ExtKeyUsage) (certificate *x509.Certificate, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "authority"}, key)
	if err != nil {
		t.Fatal(err)
	}
	data, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: signer.NotBefore, NotAfter: signer.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, signer, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if certificate, err = x509.ParseCertificate(data); err != nil {
		t.Fatal(err)
	}
	return certificate, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: signer.Raw})
}

// TestClientAuthorities verifies the certificates of clients, also with authorities that were
// replaced.
func TestClientAuthorities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(authority []byte, at time.Time) {
		t.Helper()
		if err := os.WriteFile(file, authority, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewClientAuthorities(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("without a file: %v", err)
	}
	client, authority := newClientCertificate(t, x509.ExtKeyUsageClientAuth)
	serving, authorityOfServing := newClientCertificate(t, x509.ExtKeyUsageServerAuth)
	write(append(authority, authorityOfServing...), time.Unix(1, 0))
	authorities, err := NewClientAuthorities(file)
	if err != nil {
		t.Fatal(err)
	}
	other, authorityOfOther := newClientCertificate(t, x509.ExtKeyUsageClientAuth)
	verify := func(shown ...*x509.Certificate) error {
		return authorities.Verify(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: shown}})
	}
	if err := verify(client); err != nil {
		t.Error(err)
	}
	for sentence, err := range map[string]error{
		"no TLS": authorities.Verify(&http.Request{}), "no certificate": verify(), "one of another authority": verify(other), "one for servers": verify(serving),
	} {
		if err == nil {
			t.Errorf("%s is accepted", sentence)
		}
	}
	write(authorityOfOther, time.Unix(2, 0))
	if verify(other) != nil || verify(client) == nil {
		t.Error("the new authorities are not used")
	}
	write(nil, time.Unix(3, 0))
	if err := verify(other); err != nil {
		t.Errorf("a file that cannot be read ends the use of what it held: %v", err)
	}
}
