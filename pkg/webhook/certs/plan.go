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

// Lifetimes say how long certificates are good for. They are renewed when two thirds of
// that have passed.
type Lifetimes struct {
	// Serving is that of the certificate of the webhooks.
	Serving time.Duration
	// Authority is that of who signs it.
	Authority time.Duration
	// Settle is how long all API servers and replicas may take to learn of a new
	// certificate.
	Settle time.Duration
}

// NewLifetimes returns those that go with that of the certificate.
func NewLifetimes(serving time.Duration) Lifetimes {
	return Lifetimes{Serving: serving, Authority: 4 * serving, Settle: min(time.Minute, serving/12)}
}

// observation is what a sync found.
type observation struct {
	// store is what the Secret holds, nil if it is missing or of no use.
	store *store
	// published are the authorities that the API server is told to trust everywhere.
	published []*x509.Certificate
	hosts     []string
	now       time.Time
}

// step is what to do next. There is one at a time: the others follow by the event of its
// write.
type step string

const (
	// create makes all anew. What the API server trusts already stays trusted for now:
	// other replicas may serve what was lost.
	create step = "Created the certificate authority"
	// dropAuthorities leaves only the newest authority.
	dropAuthorities step = "Dropped the former certificate authority"
	// addAuthority begins a rotation: the new authority is published beside the former
	// one, and signs nothing before that has settled.
	addAuthority step = "Added a certificate authority"
	// renewServing makes another certificate.
	renewServing step = "Renewed the certificate"
	// rest does nothing.
	rest step = ""
)

// plan returns what to do now, and for rest when to look again.
func (l Lifetimes) plan(seen observation) (step, time.Duration) {
	s := seen.store
	if s == nil || !seen.now.Before(s.trusted[0].NotAfter) {
		return create, 0
	}
	authority := s.trusted[0]
	servedByNewest := s.serving.CheckSignatureFrom(authority) == nil
	settled := authority.NotBefore.Add(backdated + l.Settle)
	drop := s.serving.NotBefore.Add(backdated + l.Settle)
	addAt, renewAt := due(authority), due(s.serving)
	outdated := !servedByNewest || !servesHosts(s.serving, seen.hosts)
	switch {
	case len(s.trusted) > 1 && servedByNewest && !seen.now.Before(drop):
		return dropAuthorities, 0
	case len(s.trusted) == 1 && !seen.now.Before(addAt):
		return addAuthority, 0
	case (outdated || !seen.now.Before(renewAt)) && slices.ContainsFunc(seen.published, authority.Equal) && !seen.now.Before(settled):
		return renewServing, 0
	}
	next := addAt
	if len(s.trusted) > 1 && servedByNewest {
		next = drop
	}
	if outdated {
		next = earlier(next, settled)
	} else {
		next = earlier(next, renewAt)
	}
	// What is late waits for the API server to be told, which is an event, or for an
	// authority that has just been published to settle.
	return rest, max(next.Sub(seen.now), l.Settle/4, time.Second)
}

// take does the step on a copy.
func (l Lifetimes) take(step step, seen observation) (*store, error) {
	var s store
	if seen.store != nil {
		s = *seen.store
	}
	switch step {
	case create:
		s = store{trusted: slices.DeleteFunc(slices.Clone(seen.published), func(c *x509.Certificate) bool { return !seen.now.Before(c.NotAfter) })}
		if err := s.newAuthority(seen.now, l.Authority); err != nil {
			return nil, err
		}
		return &s, s.newServing(seen.now, l.Serving, seen.hosts)
	case addAuthority:
		return &s, s.newAuthority(seen.now, l.Authority)
	case renewServing:
		return &s, s.newServing(seen.now, l.Serving, seen.hosts)
	case dropAuthorities:
		s.trusted = s.trusted[:1]
	}
	return &s, nil
}

// due returns when two thirds of a certificate's time have passed.
func due(c *x509.Certificate) time.Time {
	made := c.NotBefore.Add(backdated)
	return made.Add(c.NotAfter.Sub(made) * 2 / 3)
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
