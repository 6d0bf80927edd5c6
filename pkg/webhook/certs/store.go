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

// Package certs makes and renews the certificate of the webhooks, and publishes its
// certificate authorities to the API server.
//
// Everything is in one Secret, which every replica reads and writes. A leader cannot do
// it alone: it needs filled caches, and where stored objects have to be converted the API
// server can only list them once this certificate works. If two replicas take the same
// step, the API server refuses the second write because of its resourceVersion.
//
// store.go encodes and decodes the Secret, plan.go decides the next step, manager.go
// reads and writes, target.go publishes.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Fields of the Secret, beside those of the type kubernetes.io/tls.
const (
	// authorityCertificates has the trusted authorities, the newest first.
	authorityCertificates = "ca.crt"
	// authorityKey has the key of the newest authority.
	authorityKey = "ca.key"
)

// clockSkew is how long before its creation a certificate becomes valid, because the
// clocks of two machines differ.
const clockSkew = 5 * time.Minute

// store is the content of the Secret.
type store struct {
	// trusted are the authorities, the newest first.
	trusted []*x509.Certificate
	key     crypto.Signer
	// serving is the webhooks' certificate.
	serving    *x509.Certificate
	servingKey crypto.Signer
}

// parse decodes the data of a Secret. It returns an error if a field is invalid or the
// fields do not fit together.
func parse(data map[string][]byte) (*store, error) {
	trusted, err := cert.ParseCertsPEM(data[authorityCertificates])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", authorityCertificates, err)
	}
	key, err := parseKey(data[authorityKey], trusted[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", authorityKey, err)
	}
	serving, err := cert.ParseCertsPEM(data[corev1.TLSCertKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", corev1.TLSCertKey, err)
	}
	servingKey, err := parseKey(data[corev1.TLSPrivateKeyKey], serving[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", corev1.TLSPrivateKeyKey, err)
	}
	s := &store{trusted: trusted, key: key, serving: serving[0], servingKey: servingKey}
	if !slices.ContainsFunc(trusted, func(authority *x509.Certificate) bool { return serving[0].CheckSignatureFrom(authority) == nil }) {
		return nil, fmt.Errorf("%s: not signed by an authority in %s", corev1.TLSCertKey, authorityCertificates)
	}
	return s, nil
}

// parseKey decodes the private key of a certificate.
func parseKey(text []byte, of *x509.Certificate) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%T cannot sign", key)
	}
	public, ok := of.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(signer.Public()) {
		return nil, errors.New("not the key of the certificate")
	}
	return signer, nil
}

// data encodes the data of the Secret.
func (s *store) data() (map[string][]byte, error) {
	data := map[string][]byte{authorityCertificates: s.bundle(), corev1.TLSCertKey: encode(s.serving)}
	for name, key := range map[string]crypto.Signer{authorityKey: s.key, corev1.TLSPrivateKeyKey: s.servingKey} {
		// PKCS #8 can hold every key that parse accepts, also one that a user put there.
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encoding a key: %w", err)
		}
		data[name] = pem.EncodeToMemory(&pem.Block{Type: keyutil.PrivateKeyBlockType, Bytes: der})
	}
	return data, nil
}

// bundle returns the trusted authorities as PEM, for a caBundle.
func (s *store) bundle() []byte {
	return encode(s.trusted...)
}

func encode(certificates ...*x509.Certificate) (text []byte) {
	for _, c := range certificates {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return text
}

// pair returns the certificate and its key for a TLS server.
func (s *store) pair() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{s.serving.Raw}, PrivateKey: s.servingKey, Leaf: s.serving}
}

// newAuthority adds an authority, which signs from now on.
func (s *store) newAuthority(now time.Time, lifetime time.Duration) error {
	template := template("sample-controller-webhook-ca", now, now.Add(lifetime))
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid, template.IsCA = true, true
	authority, key, err := issue(template, nil, nil)
	if err != nil {
		return err
	}
	s.key, s.trusted = key, append([]*x509.Certificate{authority}, s.trusted...)
	return nil
}

// newServing replaces the serving certificate by one for these hosts, signed by the
// newest authority and valid for no longer than that.
func (s *store) newServing(now time.Time, lifetime time.Duration, hosts []string) error {
	end := earlier(now.Add(lifetime), s.trusted[0].NotAfter)
	template := template(hosts[0], now, end)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = namesAndAddresses(hosts)
	serving, key, err := issue(template, s.trusted[0], s.key)
	if err != nil {
		return err
	}
	s.serving, s.servingKey = serving, key
	return nil
}

func template(name string, now, end time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		// RFC 5280 limits a common name to 64 characters. Clients do not read it.
		Subject:   pkix.Name{CommonName: name[:min(len(name), 64)]},
		NotBefore: now.Add(-clockSkew).UTC(), NotAfter: end.UTC(),
	}
}

// issue returns a new key and its certificate, signed by the authority, or self-signed if
// that is nil.
func issue(template, authority *x509.Certificate, authorityKey crypto.Signer) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	if authority == nil {
		authority, authorityKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	issued, err := x509.ParseCertificate(der)
	return issued, key, err
}

func namesAndAddresses(hosts []string) (names []string, addresses []net.IP) {
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			addresses = append(addresses, address)
		} else {
			names = append(names, host)
		}
	}
	return names, addresses
}
