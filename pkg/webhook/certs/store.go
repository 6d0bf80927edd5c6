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
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// Fields of the Secret, beside those of the type kubernetes.io/tls, which are of the certificate that is
// served.
const (
	// authorityCertificates has the trusted authorities, the newest first.
	authorityCertificates = "ca.crt"
	// nextCertificate and nextKey are served once the API server trusts them.
	nextCertificate = "next.crt"
	nextKey         = "next.key"
	// lastStep is when the last step of a rotation was taken.
	lastStep = "last-step"
)

// clockSkew is how long before its creation client-go makes a certificate valid.
const clockSkew = time.Hour

// store is the content of the Secret.
type store struct {
	data map[string][]byte
	// trusted are the authorities, the newest first. Nobody has their keys.
	trusted []*x509.Certificate
	serving *tls.Certificate
	// lastStep is zero if that is unknown, as in the Secrets of earlier versions.
	lastStep time.Time
}

// parse decodes the data of a Secret. It returns an error if a field is invalid or the
// fields do not fit together.
func parse(data map[string][]byte) (*store, error) {
	s := &store{data: data}
	var err error
	if s.trusted, err = cert.ParseCertsPEM(data[authorityCertificates]); err != nil {
		return nil, fmt.Errorf("%s: %w", authorityCertificates, err)
	}
	if s.serving, err = s.pair(corev1.TLSCertKey, corev1.TLSPrivateKeyKey); err != nil {
		return nil, err
	}
	if s.hasNext() {
		if _, err := s.pair(nextCertificate, nextKey); err != nil {
			return nil, err
		}
	}
	s.lastStep, _ = time.Parse(time.RFC3339Nano, string(data[lastStep]))
	return s, nil
}

// pair decodes a certificate, which a trusted authority must have signed, and its key.
func (s *store) pair(certificate, key string) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(s.data[certificate], s.data[key])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certificate, key, err)
	}
	if !slices.ContainsFunc(s.trusted, func(authority *x509.Certificate) bool { return pair.Leaf.CheckSignatureFrom(authority) == nil }) {
		return nil, fmt.Errorf("%s: not signed by an authority in %s", certificate, authorityCertificates)
	}
	return &pair, nil
}

// hasNext reports whether there is a certificate that is not served yet.
func (s *store) hasNext() bool {
	return s.data[nextCertificate] != nil
}

// newPair returns a new certificate for these hosts with its key, and its authority, whose key is gone.
func newPair(hosts []string, lifetime time.Duration) (certificate, key []byte, authority *x509.Certificate, err error) {
	options := cert.SelfSignedCertKeyOptions{Host: hosts[0], MaxAge: clockSkew + lifetime}
	for _, host := range hosts[1:] {
		if address := net.ParseIP(host); address != nil {
			options.AlternateIPs = append(options.AlternateIPs, address)
		} else {
			options.AlternateDNS = append(options.AlternateDNS, host)
		}
	}
	if certificate, key, err = cert.GenerateSelfSignedCertKeyWithOptions(options); err != nil {
		return nil, nil, nil, fmt.Errorf("making a certificate: %w", err)
	}
	// The authority follows the certificate.
	chain, err := cert.ParseCertsPEM(certificate)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("decoding the new certificate: %w", err)
	}
	return certificate, key, chain[len(chain)-1], nil
}
