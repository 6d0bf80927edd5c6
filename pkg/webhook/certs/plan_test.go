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
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// newStore returns a store that is created now.
func newStore(t *testing.T) *store {
	t.Helper()
	return next(t, nil, create)
}

// next returns the store after a step.
func next(t *testing.T, s *store, step step) *store {
	t.Helper()
	after, err := lifetimes.take(step, state{store: s, hosts: []string{host}, now: time.Now()})
	must(t, err)
	return after
}

// TestPlan checks that each step waits for the one before it, and no longer than needed.
func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settle, renew := lifetimes.Settle, lifetimes.Serving*2/3
		fresh := newStore(t)
		added := next(t, fresh, addNext)
		served := next(t, added, serveNext)
		earlier := *fresh
		earlier.lastStep = time.Time{}
		for name, c := range map[string]struct {
			store       *store
			unpublished bool
			hosts       []string
			after       time.Duration
			step        step
			wait        time.Duration
		}{
			"no Secret":                             {step: create},
			"a new Secret":                          {store: fresh, wait: settle},
			"a Secret of an earlier version":        {store: &earlier, wait: renew},
			"a certificate that is not due":         {store: fresh, after: settle, wait: renew - settle},
			"the certificate is due":                {store: fresh, after: renew, step: addNext},
			"other hosts":                           {store: fresh, hosts: []string{"other"}, after: settle, step: addNext},
			"the certificate is no longer valid":    {store: fresh, after: lifetimes.Serving, step: create},
			"a new authority has yet to settle":     {store: added, wait: settle},
			"a new authority has settled":           {store: added, after: settle, step: serveNext},
			"a new authority is not published":      {store: added, after: settle, unpublished: true, wait: settle / 4},
			"a new certificate has yet to settle":   {store: served, wait: settle},
			"the old authority is no longer needed": {store: served, after: settle, step: dropAuthorities},
		} {
			current := state{store: c.store, hosts: c.hosts, now: time.Now().Add(c.after)}
			if c.store != nil && !c.unpublished {
				current.published = c.store.trusted
			}
			if step, wait := lifetimes.plan(current); step != c.step || wait != c.wait {
				t.Errorf("%s: %q, wait %v; want %q, %v", name, step, wait, c.step, c.wait)
			}
		}
	})
}

// TestTake checks what a step does not change.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newStore(t)
		time.Sleep(time.Second)
		valid := newStore(t)
		published := []*x509.Certificate{old.trusted[0], valid.trusted[0]}
		time.Sleep(lifetimes.Serving - time.Second)
		again, err := lifetimes.take(create, state{published: published, hosts: []string{host}, now: time.Now()})
		must(t, err)
		if len(again.trusted) != 2 || !again.trusted[1].Equal(valid.trusted[0]) {
			t.Errorf("%d are trusted, want the new one and the valid one", len(again.trusted))
		}
		if dropped := next(t, again, dropAuthorities); len(dropped.trusted) != 1 || len(again.trusted) != 2 || !dropped.serving.Leaf.Equal(again.serving.Leaf) {
			t.Errorf("%d are left, and %d before", len(dropped.trusted), len(again.trusted))
		}
		if added := next(t, again, addNext); !added.serving.Leaf.Equal(again.serving.Leaf) {
			t.Error("the certificate whose authority is new is served at once")
		}
		again.data["ca.key"] = []byte("of an earlier version")
		if _, kept := next(t, again, addNext).data["ca.key"]; kept {
			t.Error("a key of an authority is kept")
		}
	})
}

// TestParseFails names the invalid field of a Secret.
func TestParseFails(t *testing.T) {
	other, valid := newStore(t), next(t, newStore(t), addNext)
	for name, c := range map[string]struct {
		change map[string][]byte
		says   string
	}{
		"no authority":                {map[string][]byte{authorityCertificates: nil}, "ca.crt: data does not contain any valid"},
		"no key":                      {map[string][]byte{corev1.TLSPrivateKeyKey: nil}, "tls.crt and tls.key: tls: failed to find any PEM data in key input"},
		"another's key":               {map[string][]byte{corev1.TLSPrivateKeyKey: other.data[corev1.TLSPrivateKeyKey]}, "tls.crt and tls.key: tls: private key does not match"},
		"another's authority":         {map[string][]byte{authorityCertificates: other.data[authorityCertificates]}, "tls.crt: not signed by an authority in ca.crt"},
		"an invalid certificate":      {map[string][]byte{corev1.TLSCertKey: []byte("x")}, "tls.crt and tls.key: tls: failed to find any PEM data in certificate input"},
		"an invalid next certificate": {map[string][]byte{nextCertificate: []byte("x")}, "next.crt and next.key: "},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{}
			for _, change := range []map[string][]byte{valid.data, c.change} {
				for field, text := range change {
					data[field] = text
				}
			}
			if s, err := parse(data); s != nil || err == nil || !strings.HasPrefix(err.Error(), c.says) {
				t.Errorf("%v, want %s", err, c.says)
			}
		})
	}
}

// TestNewPair serves the hosts, and nothing else.
func TestNewPair(t *testing.T) {
	text, _, authority, err := newPair([]string{"127.0.0.1", "a.example.com", "::1", "b.example.com"}, time.Hour)
	must(t, err)
	chain, err := cert.ParseCertsPEM(text)
	must(t, err)
	leaf := chain[0]
	if leaf.IsCA || !authority.IsCA || leaf.CheckSignatureFrom(authority) != nil || !servesHosts(leaf, []string{"127.0.0.1", "::1", "a.example.com", "b.example.com"}) {
		t.Errorf("it is for %v and %v", leaf.DNSNames, leaf.IPAddresses)
	}
	if !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) || time.Until(leaf.NotAfter).Round(time.Minute) != time.Hour {
		t.Errorf("its usage is %v, until %v", leaf.ExtKeyUsage, leaf.NotAfter)
	}
}
