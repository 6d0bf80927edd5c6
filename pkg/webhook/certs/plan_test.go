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
	"crypto"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// newStore returns a store that was created at that time.
func newStore(t *testing.T, made time.Time) *store {
	t.Helper()
	s, err := lifetimes.take(create, state{hosts: []string{host}, now: made})
	must(t, err)
	return s
}

// next returns the store after a step.
func next(t *testing.T, s *store, step step, now time.Time) *store {
	t.Helper()
	after, err := lifetimes.take(step, state{store: s, hosts: []string{host}, now: now})
	must(t, err)
	return after
}

// TestPlan checks that each step waits for the one before it, and no longer than needed.
func TestPlan(t *testing.T) {
	made := time.Unix(1_000_000, 0)
	settle, renew := lifetimes.Settle, lifetimes.Serving*2/3
	addAt := lifetimes.Authority * 2 / 3
	fresh := newStore(t, made)
	added := next(t, fresh, addAuthority, made.Add(addAt))
	renewed := next(t, added, renewServing, made.Add(addAt+settle))
	for name, c := range map[string]struct {
		store       *store
		unpublished bool
		hosts       []string
		after       time.Duration
		step        step
		wait        time.Duration
	}{
		"no Secret":              {step: create},
		"a new Secret":           {store: fresh, wait: renew},
		"the certificate is due": {store: fresh, after: renew, step: renewServing},
		"it is due, and its authority is not published":          {store: fresh, after: renew, unpublished: true, wait: settle / 4},
		"other hosts, and the authority is new":                  {store: fresh, hosts: []string{"other"}, wait: settle},
		"other hosts":                                            {store: fresh, hosts: []string{"other"}, after: settle, step: renewServing},
		"the authority is due":                                   {store: fresh, after: addAt, step: addAuthority},
		"the authority is no longer valid":                       {store: fresh, after: lifetimes.Authority, step: create},
		"the new authority has yet to settle":                    {store: added, after: addAt, wait: settle},
		"the new authority has settled":                          {store: added, after: addAt + settle, step: renewServing},
		"the new authority was never published":                  {store: added, after: 2 * addAt, unpublished: true, wait: settle / 4},
		"the certificate of the new authority has yet to settle": {store: renewed, after: addAt + settle, wait: settle},
		"the old authority is no longer needed":                  {store: renewed, after: addAt + 2*settle, step: dropAuthorities},
	} {
		t.Run(name, func(t *testing.T) {
			current := state{store: c.store, hosts: c.hosts, now: made.Add(c.after)}
			if c.store != nil && !c.unpublished {
				current.published = c.store.trusted
			}
			if step, wait := lifetimes.plan(current); step != c.step || wait != c.wait {
				t.Errorf("%q, wait %v; want %q, %v", step, wait, c.step, c.wait)
			}
		})
	}
}

// TestTake checks what a step does not change.
func TestTake(t *testing.T) {
	made := time.Unix(1_000_000, 0)
	old, now := newStore(t, made), made.Add(lifetimes.Authority)
	valid := newStore(t, made.Add(time.Second))
	published := []*x509.Certificate{old.trusted[0], valid.trusted[0]}
	again, err := lifetimes.take(create, state{published: published, hosts: []string{host}, now: now})
	must(t, err)
	if len(again.trusted) != 2 || !again.trusted[1].Equal(valid.trusted[0]) {
		t.Errorf("%d are trusted, want the new one and the valid one", len(again.trusted))
	}
	if same := next(t, again, noStep, now); len(same.trusted) != 2 || same.serving != again.serving {
		t.Error("noStep changes the store")
	}
	if dropped := next(t, again, dropAuthorities, now); len(dropped.trusted) != 1 || len(again.trusted) != 2 {
		t.Errorf("%d are left, and %d before", len(dropped.trusted), len(again.trusted))
	}
	// A certificate must not outlive its authority.
	if late := next(t, old, renewServing, now.Add(-time.Second)); !late.serving.NotAfter.Equal(old.trusted[0].NotAfter) {
		t.Errorf("it is valid until %v, and its authority until %v", late.serving.NotAfter, old.trusted[0].NotAfter)
	}
}

// TestTakeFails returns an error if a certificate cannot be signed.
func TestTakeFails(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		step    step
		current state
	}{
		"a new authority with a negative serial number":   {create, state{hosts: []string{host}, now: time.Unix(-1, 0)}},
		"another authority with a negative serial number": {addAuthority, state{store: newStore(t, now), now: time.Unix(-1, 0)}},
		"a host that is not a DNS name":                   {renewServing, state{store: newStore(t, now), hosts: []string{"\u00fc"}, now: now}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := lifetimes.take(c.step, c.current); err == nil || !strings.HasPrefix(err.Error(), "signing a certificate: ") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestUsages checks that a key cannot be used for another purpose.
func TestUsages(t *testing.T) {
	s := newStore(t, time.Now())
	if authority := s.trusted[0]; authority.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature || !authority.IsCA {
		t.Errorf("the authority's usage is %b", authority.KeyUsage)
	}
	if s.serving.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(s.serving.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) || s.serving.IsCA {
		t.Errorf("the certificate's usage is %b, %v", s.serving.KeyUsage, s.serving.ExtKeyUsage)
	}
}

// unknownKey is of a type that cannot be encoded.
type unknownKey struct{ crypto.Signer }

// TestKeys writes every key that can be read; otherwise a certificate with a key of the
// user could not be renewed.
func TestKeys(t *testing.T) {
	s := newStore(t, time.Now())
	public, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template(host, time.Now(), time.Now().Add(time.Hour)), s.trusted[0], public, s.key)
	must(t, err)
	s.serving, err = x509.ParseCertificate(der)
	must(t, err)
	s.servingKey = key
	data, err := s.data()
	must(t, err)
	read, err := parse(data)
	must(t, err)
	if !key.Equal(read.servingKey) || !read.serving.Equal(s.serving) {
		t.Error("it reads another certificate or key")
	}
	s.servingKey = unknownKey{key}
	if data, err := s.data(); err == nil || data != nil {
		t.Errorf("%q, %v", data, err)
	}
}

// TestParseFails names the invalid field of a Secret.
func TestParseFails(t *testing.T) {
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(agreement)
	must(t, err)
	other, err := newStore(t, time.Now()).data()
	must(t, err)
	for name, c := range map[string]struct {
		change map[string][]byte
		says   string
	}{
		"no authority":           {map[string][]byte{authorityCertificates: nil}, "ca.crt: data does not contain any valid"},
		"no key":                 {map[string][]byte{authorityKey: nil}, "ca.key: data does not contain a valid"},
		"a key that cannot sign": {map[string][]byte{corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}, "tls.key: *ecdh.PrivateKey cannot sign"},
		"another's key":          {map[string][]byte{corev1.TLSPrivateKeyKey: other[corev1.TLSPrivateKeyKey]}, "tls.key: not the key of the certificate"},
		"another's authority":    {map[string][]byte{authorityCertificates: other[authorityCertificates], authorityKey: other[authorityKey]}, "tls.crt: not signed by an authority in ca.crt"},
		"an invalid certificate": {map[string][]byte{corev1.TLSCertKey: []byte("x")}, "tls.crt: data does not contain any valid"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := newStore(t, time.Now()).data()
			must(t, err)
			for field, text := range c.change {
				data[field] = text
			}
			if s, err := parse(data); s != nil || err == nil || !strings.HasPrefix(err.Error(), c.says) {
				t.Errorf("%v, want %s", err, c.says)
			}
		})
	}
	if _, err := parseKey(other[authorityKey], &x509.Certificate{}); err == nil {
		t.Error("a key fits a certificate without a public key")
	}
}
