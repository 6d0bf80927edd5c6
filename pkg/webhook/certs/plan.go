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
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// Lifetimes say how long certificates are valid. They are renewed after two thirds of
// that.
type Lifetimes struct {
	// Serving is the lifetime of a certificate and of its authority.
	Serving time.Duration
	// Settle is how long a rotation waits for all API servers and replicas to read what
	// the last step has changed.
	Settle time.Duration
}

// NewLifetimes returns the lifetimes that go with the given one of the certificate.
func NewLifetimes(serving time.Duration) Lifetimes {
	return Lifetimes{Serving: serving, Settle: min(time.Minute, serving/12)}
}

// state is what a sync decides from.
type state struct {
	// store is the content of the Secret, nil if it is missing or invalid.
	store *store
	// published are the authorities that all targets have.
	published []*x509.Certificate
	hosts     []string
	now       time.Time
}

// step is a step of a rotation. A sync takes one; the event of its write enqueues the
// next. The text is logged.
type step string

const (
	// create makes a certificate and serves it. Authorities that are published stay
	// trusted for now, because other replicas may still serve a certificate of theirs.
	create step = "Created the certificate"
	// addNext makes a certificate, whose authority is published beside the old one.
	addNext step = "Added a certificate and its authority"
	// serveNext serves that certificate.
	serveNext step = "Changed over to the new certificate"
	// dropAuthorities keeps only the newest authority.
	dropAuthorities step = "Dropped the old certificate authority"
	noStep          step = ""
)

// plan returns the next step and, for noStep, when to look again.
func (l Lifetimes) plan(current state) (next step, requeueAfter time.Duration) {
	s := current.store
	if s == nil || !current.now.Before(s.serving.Leaf.NotAfter) {
		return create, 0
	}
	renewAt := due(s.serving.Leaf)
	settled := s.lastStep.Add(l.Settle)
	switch {
	case current.now.Before(settled):
		return noStep, settled.Sub(current.now)
	case s.hasNext() && slices.ContainsFunc(current.published, s.trusted[0].Equal):
		return serveNext, 0
	case s.hasNext():
		// That the authority is published is an event.
		return noStep, max(l.Settle/4, time.Second)
	case len(s.trusted) > 1:
		return dropAuthorities, 0
	case !current.now.Before(renewAt) || !servesHosts(s.serving.Leaf, current.hosts):
		return addNext, 0
	}
	return noStep, renewAt.Sub(current.now)
}

// take returns a store after the step; it does not change the current one.
func (l Lifetimes) take(step step, current state) (*store, error) {
	data, trusted := map[string][]byte{}, slices.Clone(current.published)
	if step == create {
		trusted = slices.DeleteFunc(trusted, func(c *x509.Certificate) bool { return !current.now.Before(c.NotAfter) })
	} else {
		trusted = current.store.trusted
		for _, field := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey, nextCertificate, nextKey} {
			if text, ok := current.store.data[field]; ok {
				data[field] = text
			}
		}
	}
	if step == create || step == addNext {
		certificate, key, authority, err := newPair(current.hosts, l.Serving)
		if err != nil {
			return nil, err
		}
		data[nextCertificate], data[nextKey], trusted = certificate, key, append([]*x509.Certificate{authority}, trusted...)
	}
	if step == create || step == serveNext {
		data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = data[nextCertificate], data[nextKey]
		delete(data, nextCertificate)
		delete(data, nextKey)
	}
	if step == dropAuthorities {
		trusted = trusted[:1]
	}
	bundle, err := cert.EncodeCertificates(trusted...)
	if err != nil {
		return nil, fmt.Errorf("encoding the authorities: %w", err)
	}
	data[authorityCertificates], data[lastStep] = bundle, []byte(current.now.Format(time.RFC3339Nano))
	return parse(data)
}

// due returns when two thirds of the lifetime of a certificate have passed.
func due(c *x509.Certificate) time.Time {
	created := c.NotBefore.Add(clockSkew)
	return created.Add(c.NotAfter.Sub(created) * 2 / 3)
}

func servesHosts(c *x509.Certificate, hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(host string) bool { return c.VerifyHostname(host) != nil })
}
