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
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"

	"example.com/sample-controller/pkg/controller"
)

// TestRotations checks over many rotations that the certificate is trusted at every moment, also by an API
// server or from a replica that is late, and that each rotation needs few writes.
func TestRotations(t *testing.T) {
	for name, replicas := range map[string]int{"one replica": 1, "two replicas": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newCRD(), newConfiguration())
				other := f.Manager
				if replicas == 2 {
					other = f.replica()
					defer f.start(other)()
				}
				defer f.start(f.Manager)()
				rotations := 12
				if replicas == 2 && !testing.Short() {
					// With certificates of one day these are two months.
					rotations = 3 * 64
				}
				certificates, bundles := f.follow(f.Manager, time.Duration(rotations)*lifetime/3+2*settle)
				// The first certificate is its own successor. Each other one is published beside its two
				// predecessors, and then beside one.
				if len(certificates) != rotations || len(bundles) != 2*rotations {
					t.Errorf("%d certificates and %d bundles after %d rotations", len(certificates), len(bundles), rotations)
				}
				// A replica whose cache is late may set a target back, for as long as it is late.
				for resource, writes := range f.writes {
					if writes != len(bundles) && (replicas == 1 || resource == secrets.Resource) {
						t.Errorf("%d writes of %s for %d bundles", writes, resource, len(bundles))
					}
				}
				if !served(t, other).Equal(served(t, f.Manager)) {
					t.Error("the replicas serve different certificates")
				}
			})
		})
	}
}

// TestFirstSync serves the certificate of the replica that was faster, and counts the writes.
func TestFirstSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newCRD(), newConfiguration())
		faster, tries := newData(t), 0
		f.client.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if tries++; tries == 1 {
				secret := action.(clienttesting.CreateAction).GetObject().DeepCopyObject().(*unstructured.Unstructured)
				setData(secret, faster)
				secret.SetResourceVersion("1")
				must(t, f.client.Tracker().Create(secrets, secret, "system"))
			}
			return false, nil, nil
		})
		if _, err := f.sync(t.Context(), f.secret.name); !apierrors.IsConflict(err) {
			t.Errorf("the other replica was faster: %v", err)
		}
		defer f.start(f.Manager)()
		f.mustBeTrusted(served(t, f.Manager))
		if got := encode(served(t, f.Manager)); string(got) != string(faster[corev1.TLSCertKey]) {
			t.Error("it serves a certificate of its own")
		}
		must(t, f.secret.client.Delete(t.Context(), "webhook", metav1.DeleteOptions{}))
		synctest.Wait()
		const want = `# HELP sample_controller_writes_total [ALPHA] Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.
# TYPE sample_controller_writes_total counter
sample_controller_writes_total{controller="certificate",resource="customresourcedefinitions",verb="update"} 2
sample_controller_writes_total{controller="certificate",resource="mutatingwebhookconfigurations",verb="update"} 2
sample_controller_writes_total{controller="certificate",resource="secrets",verb="create"} 1
`
		if err := testutil.GatherAndCompare(f.registry, strings.NewReader(want), "sample_controller_writes_total"); err != nil {
			t.Error(err)
		}
	})
}

// TestRepair replaces the Secret at once, and keeps trusting the certificate that replicas serve until they
// read the new one.
func TestRepair(t *testing.T) {
	for name, damage := range map[string]func(data map[string][]byte){
		"the Secret is deleted":         nil,
		"the Secret is emptied":         func(data map[string][]byte) { clear(data) },
		"the certificate is invalid":    func(data map[string][]byte) { data[corev1.TLSCertKey] = []byte("x") },
		"the next one's key is missing": func(data map[string][]byte) { delete(data, nextKey) },
		"another one is trusted": func(data map[string][]byte) {
			other := newData(t)
			data[trustedCertificates], data[nextKey] = other[trustedCertificates], other[nextKey]
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newCRD(), newConfiguration())
				defer f.start(f.Manager)()
				before := served(t, f.Manager)
				if damage == nil {
					must(t, f.secret.client.Delete(t.Context(), "webhook", metav1.DeleteOptions{}))
				} else {
					f.change(damage)
				}
				synctest.Wait()
				f.mustBeTrusted(served(t, f.Manager))
				if served(t, f.Manager).Equal(before) {
					t.Error("the old certificate is served")
				}
				// Other replicas serve the old one.
				f.mustBeTrusted(before)
				pass(settle)
				f.mustBeTrusted(served(t, f.Manager))
				for _, bundle := range f.bundles() {
					if err := trusts(bundle, before); err == nil {
						t.Error("the lost certificate is still trusted")
					}
				}
				clear(f.writes)
				pass(lifetime / 4)
				if len(f.writes) != 0 {
					t.Errorf("writes while nothing changes: %v", f.writes)
				}
			})
		})
	}
}

// TestPublishing publishes again after a reset, in targets that are created later, and in no object without
// a webhook.
func TestPublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newConfiguration())
		defer f.start(f.Manager)()
		if got := f.bundles(); len(got) != 2 || trusts(got[0], served(t, f.Manager)) != nil {
			t.Fatalf("before there is a CRD: %q", got)
		}
		_, err := f.targets[0].client.Create(t.Context(), newCRD(), metav1.CreateOptions{})
		must(t, err)
		synctest.Wait()
		f.mustBeTrusted(served(t, f.Manager))
		for _, target := range f.targets {
			object, err := target.client.Get(t.Context(), "foos", metav1.GetOptions{})
			must(t, err)
			clientConfigs(object)[0]["caBundle"] = "eA=="
			_, err = target.client.Update(t.Context(), object, metav1.UpdateOptions{})
			must(t, err)
			synctest.Wait()
			f.mustBeTrusted(served(t, f.Manager))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newObject("CustomResourceDefinition", `"apiVersion":"apiextensions.k8s.io/v1","spec":{"conversion":{"strategy":"None"}}`),
			newObject("MutatingWebhookConfiguration", `"apiVersion":"admissionregistration.k8s.io/v1","webhooks":[{},"x"]`))
		defer f.start(f.Manager)()
		pass(2 * lifetime)
		if len(f.writes) != 1 || f.writes["secrets"] < 6 {
			t.Errorf("writes: %v", f.writes)
		}
	})
}

// TestRefused serves what is stored while the API server refuses an update. A certificate that is not
// published in each target is not served until the present one has expired.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newCRD(), newConfiguration())
		f.refuse("update", crds)
		defer f.start(f.Manager)()
		first := served(t, f.Manager)
		if got := f.bundles(); len(got[0]) != 0 || trusts(got[1], first) != nil || trusts(got[2], first) != nil {
			t.Errorf("bundles %q", got)
		}
		pass(lifetime - time.Second)
		if _, data := f.stored(); !served(t, f.Manager).Equal(first) || string(data[trustedCertificates]) != string(encode(first)) {
			t.Error("there is another certificate, although some API servers do not trust the first one yet")
		}
		pass(time.Second)
		if served(t, f.Manager).Equal(first) {
			t.Error("it serves a certificate that has expired")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newCRD(), newConfiguration())
		f.start(f.Manager)()
		f.refuse("update", secrets)
		time.Sleep(lifetime / 2)
		again := f.replica()
		defer f.start(again)()
		f.mustBeTrusted(served(t, again))
		time.Sleep(lifetime / 2)
		expired := f.replica()
		defer f.start(expired)()
		if expired.Check() == nil {
			t.Error("a new process serves a certificate that has expired")
		}
	})
}

// TestRestart starts a process with the Secret of another one, half a lifetime after that was created. No
// request fails.
func TestRestart(t *testing.T) {
	for name, c := range map[string]struct {
		// down is how long no process runs.
		down    time.Duration
		hosts   []string
		prepare func(data map[string][]byte)
		// replaced says that the stored certificate is not served again.
		replaced bool
	}{
		"a certificate that is not due is served":    {},
		"the next one takes the place of one due":    {down: lifetime / 3, replaced: true},
		"one that has expired is replaced":           {down: lifetime / 2, replaced: true},
		"other hosts are served once they are known": {down: settle, hosts: []string{"other.example.com"}},
		"a next one that has expired is never served": {down: settle, prepare: func(data map[string][]byte) {
			short, key, err := rotation{hosts: newRotation().hosts, lifetime: 1}.issue(time.Now())
			must(t, err)
			data[trustedCertificates], data[nextKey] = append(short, data[trustedCertificates]...), key
		}},
		"one of an authority is served until the next one is trusted": {down: settle, prepare: func(data map[string][]byte) {
			maps.Copy(data, earlierData(t))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, newCRD(), newConfiguration())
				stop := f.start(f.Manager)
				pass(lifetime / 2)
				stop()
				if c.prepare != nil {
					f.change(c.prepare)
				}
				_, before := f.stored()
				time.Sleep(c.down)
				again := f.replica(c.hosts...)
				defer f.start(again)()
				if replaced := !bytes.Equal(encode(served(t, again)), before[corev1.TLSCertKey]); replaced != c.replaced {
					t.Errorf("the certificate is replaced: %v", replaced)
				}
				f.follow(again, lifetime)
				if !again.serves(served(t, again)) {
					t.Error("it does not serve all hosts")
				}
			})
		})
	}
}

// earlierData returns the content of a Secret of an earlier version, whose certificate is signed by an
// authority without hosts.
func earlierData(t *testing.T) map[string][]byte {
	t.Helper()
	authority, authorityKey, err := rotation{lifetime: 4 * lifetime}.issue(time.Now())
	must(t, err)
	issuer, err := tls.X509KeyPair(authority, authorityKey)
	must(t, err)
	certificate, key, err := newRotation().issue(time.Now())
	must(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	must(t, err)
	pair.Leaf.Subject.CommonName = host
	der, err := x509.CreateCertificate(rand.Reader, pair.Leaf, issuer.Leaf, pair.Leaf.PublicKey, issuer.PrivateKey)
	must(t, err)
	return map[string][]byte{
		corev1.TLSCertKey: encode(&x509.Certificate{Raw: der}), corev1.TLSPrivateKeyKey: key, trustedCertificates: authority, nextKey: authorityKey,
	}
}

// TestStaleCache waits until a cache shows the last write, and does not serve or publish what is older.
func TestStaleCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newCRD(), newConfiguration())
		defer f.start(f.Manager)()
		for _, o := range append(f.targets, f.secret) {
			content := o.cached()
			// The watch does not show the next write yet.
			f.client.PrependReactor("update", o.resource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				content.SetResourceVersion("1000")
				return true, content, nil
			})
			must(t, f.write(t.Context(), o, content.DeepCopy(), "Test"))
			if _, err := f.sync(t.Context(), f.secret.name); !errors.Is(err, controller.ErrStaleCache) {
				t.Errorf("%s: %v", o.resource, err)
			}
			time.Sleep(settle)
		}
	})
}

// TestRunWaitsForInformers returns only after the event handlers have returned.
func TestRunWaitsForInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		unblock := make(chan struct{})
		_, err := f.secret.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-unblock }})
		must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("Run returned before the informers")
		}
		close(unblock)
		must(t, <-ended)
	})
}

// TestNoCertificateYet: the process is not ready and fails handshakes until a certificate is stored. The
// error names the object.
func TestNoCertificateYet(t *testing.T) {
	for host, says := range map[string]string{
		"refused":                `writing the certificate to secrets system/webhook: secrets "x" is forbidden: no`,
		"not a DNS name: \u00fc": "making a certificate: x509: ",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			f.refuse("create", secrets)
			m := f.replica(host)
			defer f.Queue.ShutDown()
			defer m.Queue.ShutDown()
			if _, err := m.sync(t.Context(), m.secret.name); err == nil || !strings.HasPrefix(err.Error(), says) {
				t.Errorf("%v", err)
			}
			if err := m.Check(); err == nil || err.Error() != "there is no certificate yet" {
				t.Errorf("ready: %v", err)
			}
		})
	}
}

// TestPlan checks that each step waits for the one before it, and no longer than needed.
func TestPlan(t *testing.T) {
	made, r, other := time.Unix(1_000_000, 0), newRotation(), newRotation("other")
	short := rotation{hosts: r.hosts, lifetime: 12 * time.Second}
	take := func(r rotation, step step, s *state, after time.Duration) *state {
		t.Helper()
		data, err := r.take(step, s, nil, made.Add(after))
		must(t, err)
		next, err := parse(data, made.Add(after))
		must(t, err)
		return next
	}
	const third = lifetime / 3
	// The first certificate is its own successor.
	first := take(r, create, nil, 0)
	second := take(r, rotate, first, third)
	third2 := take(r, rotate, second, 2*third)
	withOther := take(other, renewNext, first, settle)
	withLonger := take(rotation{hosts: r.hosts, lifetime: 9 * lifetime}, renewNext, first, settle)
	// A replica of an earlier version serves another one with the same successor.
	mixed := take(r, create, nil, 2*third)
	mixed.trusted = slices.Concat(second.trusted, mixed.trusted)
	withShorter := take(rotation{hosts: r.hosts, lifetime: settle}, renewNext, first, 0)
	for name, c := range map[string]struct {
		rotation
		s           *state
		unpublished bool
		after       time.Duration
		step        step
		wait        time.Duration
	}{
		"no Secret":                                      {rotation: r, step: create},
		"a new Secret":                                   {rotation: r, s: first, wait: settle},
		"it has settled":                                 {rotation: r, s: first, after: settle, wait: third - settle},
		"the next certificate is due":                    {rotation: r, s: first, after: third, step: rotate},
		"it is due and not published":                    {rotation: r, s: first, after: third, unpublished: true, wait: 2 * third},
		"the first certificate has a successor":          {rotation: r, s: second, after: third + settle, wait: third - settle},
		"replicas may still serve the old certificate":   {rotation: r, s: third2, after: 2*third + settle - 1, wait: 1},
		"no replica serves the old certificate":          {rotation: r, s: third2, after: 2*third + settle, step: drop},
		"other hosts, and the certificate is new":        {rotation: other, s: first, wait: settle},
		"other hosts":                                    {rotation: other, s: first, after: settle, step: renewNext},
		"the certificate of other hosts is not settled":  {rotation: other, s: withOther, after: settle, wait: settle},
		"the certificate of other hosts has settled":     {rotation: other, s: withOther, after: 2 * settle, step: rotate},
		"two thirds, and the next one has a longer life": {rotation: r, s: withLonger, after: 2 * third, step: rotate},
		"less, and the next one has a longer life":       {rotation: r, s: withLonger, after: 2*third - 1, wait: 1},
		"another replica has just replaced the old one":  {rotation: r, s: mixed, after: 2*third + settle - 1, wait: 1},
		"another replica has replaced the old one":       {rotation: r, s: mixed, after: 2*third + settle, step: drop},
		"a short lifetime":                               {rotation: short, s: take(short, create, nil, 0), wait: time.Second},
		"the next one has expired":                       {rotation: r, s: withShorter, after: settle, step: renewNext},
	} {
		t.Run(name, func(t *testing.T) {
			bundles := [][]byte{nil}
			if c.s != nil && !c.unpublished {
				bundles[0] = encode(c.s.trusted...)
			}
			if step, wait := c.plan(c.s, bundles, made.Add(c.after)); step != c.step || wait != c.wait {
				t.Errorf("%q, wait %v; want %q, %v", step, wait, c.step, c.wait)
			}
		})
	}
}

// TestUsages checks that a certificate is of no use to a client, and valid where a clock is behind.
func TestUsages(t *testing.T) {
	s, err := parse(newData(t), time.Now())
	must(t, err)
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), CurrentTime: created(s.serving.Leaf).Add(-clockSkew)}
	options.Roots.AddCert(s.serving.Leaf)
	if _, err := s.serving.Leaf.Verify(options); err != nil {
		t.Errorf("a server: %v", err)
	}
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := s.serving.Leaf.Verify(options); err == nil {
		t.Error("it is valid for a client")
	}
}

// TestParseFails names the invalid field of a Secret.
func TestParseFails(t *testing.T) {
	now, other := time.Now(), newData(t)
	for says, change := range map[string]func(data map[string][]byte){
		"tls.crt and tls.key: tls: failed to find any PEM data in certificate": func(data map[string][]byte) { clear(data) },
		"tls.crt and tls.key: tls: private key does not match": func(data map[string][]byte) {
			data[corev1.TLSPrivateKeyKey] = other[nextKey]
		},
		"ca.crt and ca.key: tls: failed to find any PEM data in key": func(data map[string][]byte) { data[nextKey] = nil },
		"ca.crt: x509": func(data map[string][]byte) {
			data[trustedCertificates] = append(data[trustedCertificates], encode(&x509.Certificate{Raw: []byte("x")})...)
		},
		"tls.crt: not signed by a certificate in ca.crt": func(data map[string][]byte) {
			data[trustedCertificates], data[nextKey] = other[trustedCertificates], other[nextKey]
		},
		"tls.crt: expired at ": func(data map[string][]byte) {
			expired, err := newRotation().take(create, nil, nil, now.Add(-lifetime))
			must(t, err)
			maps.Copy(data, expired)
		},
	} {
		data := newData(t)
		change(data)
		if s, err := parse(data, now); s != nil || err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// TestCommon returns the certificates that every bundle has.
func TestCommon(t *testing.T) {
	a, b := newData(t)[trustedCertificates], newData(t)[trustedCertificates]
	both := slices.Concat(a, b)
	for name, c := range map[string]struct {
		bundles [][]byte
		want    []byte
	}{
		"no bundle":                   {},
		"an empty bundle":             {bundles: [][]byte{both, nil}},
		"an invalid bundle":           {bundles: [][]byte{[]byte("x"), both}},
		"one bundle":                  {bundles: [][]byte{both}, want: both},
		"bundles with one common":     {bundles: [][]byte{both, b}, want: b},
		"bundles the other way round": {bundles: [][]byte{b, both}, want: b},
	} {
		if got := encode(common(c.bundles)...); !bytes.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
