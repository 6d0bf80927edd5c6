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
	"time"
)

// Lifetimes say how long certificates are valid. They are renewed after two thirds of
// that.
type Lifetimes struct {
	// Serving is the lifetime of the webhooks' certificate.
	Serving time.Duration
	// Authority is the lifetime of the certificate authority.
	Authority time.Duration
	// Settle is how long a rotation waits for all API servers and replicas to read a new
	// certificate.
	Settle time.Duration
}

// NewLifetimes returns the lifetimes that go with the given one of the certificate.
func NewLifetimes(serving time.Duration) Lifetimes {
	return Lifetimes{Serving: serving, Authority: 4 * serving, Settle: min(time.Minute, serving/12)}
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
	// create makes an authority and a certificate. Authorities that are published stay
	// trusted for now, because other replicas may still serve a certificate of theirs.
	create step = "Created the certificate authority"
	// dropAuthorities keeps only the newest authority.
	dropAuthorities step = "Dropped the old certificate authority"
	// addAuthority begins a rotation: it publishes a new authority beside the old one. The
	// new one signs nothing until Settle has passed, so that it is trusted everywhere.
	addAuthority step = "Added a certificate authority"
	// renewServing makes another certificate of the newest authority.
	renewServing step = "Renewed the certificate"
	noStep       step = ""
)

// plan returns the next step and, for noStep, when to look again.
func (l Lifetimes) plan(current state) (next step, requeueAfter time.Duration) {
	s := current.store
	if s == nil || !current.now.Before(s.trusted[0].NotAfter) {
		return create, 0
	}
	authority := s.trusted[0]
	servedByNewest := s.serving.CheckSignatureFrom(authority) == nil
	settled := authority.NotBefore.Add(clockSkew + l.Settle)
	dropAt := s.serving.NotBefore.Add(clockSkew + l.Settle)
	addAt, renewAt := due(authority), due(s.serving)
	outdated := !servedByNewest || !servesHosts(s.serving, current.hosts)
	switch {
	case len(s.trusted) > 1 && servedByNewest && !current.now.Before(dropAt):
		return dropAuthorities, 0
	case len(s.trusted) == 1 && !current.now.Before(addAt):
		return addAuthority, 0
	case (outdated || !current.now.Before(renewAt)) && slices.ContainsFunc(current.published, authority.Equal) && !current.now.Before(settled):
		return renewServing, 0
	}
	nextAt := addAt
	if len(s.trusted) > 1 && servedByNewest {
		nextAt = dropAt
	}
	if outdated {
		nextAt = earlier(nextAt, settled)
	} else {
		nextAt = earlier(nextAt, renewAt)
	}
	// A step that is due already waits until the authority is published, which is an event,
	// or until it has settled.
	return noStep, max(nextAt.Sub(current.now), l.Settle/4, time.Second)
}

// take returns a store after the step; it does not change the current one.
func (l Lifetimes) take(step step, current state) (*store, error) {
	var s store
	if current.store != nil {
		s = *current.store
	}
	switch step {
	case create:
		expired := func(c *x509.Certificate) bool { return !current.now.Before(c.NotAfter) }
		s = store{trusted: slices.DeleteFunc(slices.Clone(current.published), expired)}
		if err := s.newAuthority(current.now, l.Authority); err != nil {
			return nil, err
		}
		return &s, s.newServing(current.now, l.Serving, current.hosts)
	case addAuthority:
		return &s, s.newAuthority(current.now, l.Authority)
	case renewServing:
		return &s, s.newServing(current.now, l.Serving, current.hosts)
	case dropAuthorities:
		s.trusted = s.trusted[:1]
	}
	return &s, nil
}

// due returns when two thirds of the lifetime of a certificate have passed.
func due(c *x509.Certificate) time.Time {
	created := c.NotBefore.Add(clockSkew)
	return created.Add(c.NotAfter.Sub(created) * 2 / 3)
}

func servesHosts(c *x509.Certificate, hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(host string) bool { return c.VerifyHostname(host) != nil })
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
