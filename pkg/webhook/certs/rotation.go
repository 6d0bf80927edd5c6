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

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
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
	// trustedCertificates has the certificates that the API server trusts. The first one is the next to
	// be served.
	trustedCertificates = "ca.crt"
	nextKey             = "ca.key"
)

// clockSkew is how long before its creation a certificate becomes valid, because the clocks of two
// machines differ.
const clockSkew = 5 * time.Minute

// state is the content of the Secret.
type state struct {
	data    map[string][]byte
	serving tls.Certificate
	trusted []*x509.Certificate
}

// parse decodes the Secret. It returns an error if a field is invalid, if the fields do not fit together,
// or if the certificate has expired or is not valid yet.
func parse(data map[string][]byte, now time.Time) (*state, error) {
	serving, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	if _, err := tls.X509KeyPair(data[trustedCertificates], data[nextKey]); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", trustedCertificates, nextKey, err)
	}
	trusted, err := cert.ParseCertsPEM(data[trustedCertificates])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", trustedCertificates, err)
	}
	s := &state{data: data, serving: serving, trusted: trusted}
	switch {
	case !slices.ContainsFunc(trusted, s.verifiesServing):
		return nil, fmt.Errorf("%s: not signed by a certificate in %s", corev1.TLSCertKey, trustedCertificates)
	case now.Before(serving.Leaf.NotBefore) || !now.Before(serving.Leaf.NotAfter):
		return nil, fmt.Errorf("%s: is valid only from %s to %s", corev1.TLSCertKey, serving.Leaf.NotBefore, serving.Leaf.NotAfter)
	}
	return s, nil
}

// verifiesServing reports whether a client that trusts the certificate trusts the served one: it is that
// one, or the authority that an earlier version of this program made.
func (s *state) verifiesServing(trusted *x509.Certificate) bool {
	return s.serving.Leaf.CheckSignatureFrom(trusted) == nil
}

// needed returns the trusted certificates without those that are no longer served.
func (s *state) needed() []*x509.Certificate {
	needed := s.trusted[:1:1]
	for _, c := range s.trusted[1:] {
		if s.verifiesServing(c) {
			needed = append(needed, c)
		}
	}
	return needed
}

// step is a step of a rotation. A sync takes one; the event of its write enqueues the next. The text is
// logged.
type step string

const (
	noStep step = ""
	// create makes a certificate that is served at once. What the API server trusts stays trusted for
	// now, because other replicas may still serve a certificate of the former Secret.
	create step = "Created a certificate"
	// rotate serves the next certificate, which the API server trusts already, and makes another one.
	rotate step = "Rotated the certificate"
	// renewNext makes another next certificate, because the one there is cannot be served.
	renewNext step = "Renewed the next certificate"
	// drop ends the trust in certificates that are no longer served.
	drop step = "Dropped the old certificates"
)

// rotation decides which certificates are made, and when.
type rotation struct {
	hosts    []string
	lifetime time.Duration
}

// settle is how long after a new certificate all API servers and replicas have read it. Nothing else
// happens until then, so that no step has to know what the one before it was.
func (r rotation) settle() time.Duration {
	return min(time.Minute, r.lifetime/12)
}

// plan returns the next step and, for noStep, when to look again. bundles are the caBundle of all
// webhooks.
func (r rotation) plan(s *state, bundles [][]byte, now time.Time) (next step, requeueAfter time.Duration) {
	if s == nil {
		return create, 0
	}
	newest, serving := s.trusted[0], s.serving.Leaf
	settledAt := slices.MaxFunc([]time.Time{created(newest), created(serving)}, time.Time.Compare).Add(r.settle())
	dueAt := slices.MinFunc([]time.Time{thirds(newest, 1), thirds(serving, 2)}, time.Time.Compare)
	switch {
	case now.Before(settledAt):
		return noStep, settledAt.Sub(now)
	case len(s.needed()) < len(s.trusted):
		return drop, 0
	case !r.serves(newest) || !now.Before(newest.NotAfter):
		return renewNext, 0
	case now.Before(dueAt) && r.serves(serving):
		return noStep, dueAt.Sub(now)
	case !inAll(bundles, newest):
		// Its publication is an event. Without it a new certificate is made when this one has expired.
		return noStep, serving.NotAfter.Sub(now)
	}
	return rotate, 0
}

// take returns the content of the Secret after the step.
func (r rotation) take(step step, s *state, bundles [][]byte, now time.Time) (map[string][]byte, error) {
	if step == drop {
		data := maps.Clone(s.data)
		data[trustedCertificates] = encode(s.needed()...)
		return data, nil
	}
	certificate, key, err := r.issue(now)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	data, trusted := map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}, common(bundles)
	if s != nil {
		data, trusted = maps.Clone(s.data), s.trusted
	}
	if step == rotate {
		data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = encode(trusted[0]), data[nextKey]
	}
	data[trustedCertificates], data[nextKey] = slices.Concat(certificate, encode(trusted...)), key
	return data, nil
}

// issue returns a certificate that signs itself, and its key, as PEM.
func (r rotation) issue(now time.Time) (certificate, privateKey []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "sample-controller-webhook"},
		NotBefore:    now.Add(-clockSkew), NotAfter: now.Add(r.lifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	for _, host := range r.hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	privateKey, err = keyutil.MarshalPrivateKeyToPEM(key)
	return encode(&x509.Certificate{Raw: der}), privateKey, err
}

// serves reports whether the certificate has all hosts.
func (r rotation) serves(c *x509.Certificate) bool {
	return !slices.ContainsFunc(r.hosts, func(host string) bool { return c.VerifyHostname(host) != nil })
}

func created(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(clockSkew)
}

// thirds returns when so many thirds of the lifetime of a certificate have passed.
func thirds(c *x509.Certificate, count time.Duration) time.Time {
	return created(c).Add(c.NotAfter.Sub(created(c)) * count / 3)
}

// inAll reports whether each bundle has the certificate.
func inAll(bundles [][]byte, c *x509.Certificate) bool {
	return !slices.ContainsFunc(bundles, func(bundle []byte) bool { return !bytes.Contains(bundle, encode(c)) })
}

// common returns the certificates that each bundle has, none if there is no bundle.
func common(bundles [][]byte) []*x509.Certificate {
	// An invalid bundle has no certificates.
	first, _ := cert.ParseCertsPEM(bytes.Join(bundles[:min(1, len(bundles))], nil))
	return slices.DeleteFunc(first, func(c *x509.Certificate) bool { return !inAll(bundles, c) })
}

func encode(certificates ...*x509.Certificate) (text []byte) {
	for _, c := range certificates {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return text
}
