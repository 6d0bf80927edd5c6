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
	"crypto/rand"
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
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"

	"example.com/sample-controller/pkg/controller"
)

// TestRotations checks over many rotations that the certificate is trusted at every moment, also by an API
// server or from a replica that is late, and that each rotation needs few writes.
func TestRotations(t *testing.T) {
	// With certificates of one day 64 lifetimes are two months.
	for replicas, rotations := range map[int]int{1: 12, 2: 3 * 64} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, crd, configuration)
			other := f.Manager
			if replicas == 2 {
				other = f.replica(newRotation())
				defer f.start(other)()
			}
			defer f.start(f.Manager)()
			f.follow(f.Manager, time.Duration(rotations)*lifetime/3+2*settle)
			// The first certificate is its own successor. Each other one is published beside its two
			// predecessors, and then beside one. A replica whose cache is late may set a target back.
			for resource, writes := range f.writes {
				if writes != 2*rotations && (replicas == 1 || resource == secrets.Resource) {
					t.Errorf("%d replicas: %d writes of %s in %d rotations", replicas, writes, resource, rotations)
				}
			}
			if !served(t, other).Equal(served(t, f.Manager)) {
				t.Error("the replicas serve different certificates")
			}
		})
	}
}

// TestSchedule: a process that finds the Secret of another one, in which there is a second certificate after 20
// minutes, takes each step when it is due, and no request fails.
func TestSchedule(t *testing.T) {
	other, longer := newRotation("other.example.com"), newRotation()
	longer.lifetime = 9 * lifetime
	const expired = "tls.crt: is valid only from 1999-12-31 23:55:00 +0000 UTC to 2000-01-01 01:00:00 +0000 UTC, "
	for name, c := range map[string]struct {
		rotation rotation
		// The other process stopped half an hour after it made a certificate, at once if that is new.
		isNew bool
		// down is how long no process runs.
		down    time.Duration
		prepare func(secretData)
		steps   string
	}{
		"it is new":        {isNew: true, steps: "20 Rotated"},
		"none is due":      {steps: "40 Rotated, 41 Dropped, 60 Rotated, 61 Dropped"},
		"the next is due":  {down: lifetime / 4, steps: "45 Rotated, 46 Dropped, 60 Rotated, 61 Dropped"},
		"it has expired":   {down: lifetime / 2, steps: expired + "60 Created, 61 Dropped, 80 Rotated"},
		"new, other hosts": {isNew: true, rotation: other, steps: "1 Renewed, 2 Rotated, 3 Dropped, 22 Rotated, 23 Dropped"},
		"other hosts":      {rotation: other, steps: "30 Renewed, 31 Dropped, 31 Rotated, 32 Dropped, 51 Rotated, 52 Dropped"},
		"a longer life":    {rotation: longer, steps: "40 Rotated, 41 Dropped, 60 Rotated, 61 Dropped"},
		"a next one that has expired is never served": {prepare: func(data secretData) {
			short, key, err := rotation{hosts: newRotation().hosts, lifetime: 1}.issue(time.Now())
			must(t, err)
			data[trustedCertificates], data[nextKey] = append(short, data[trustedCertificates]...), key
		}, steps: "31 Dropped, 31 Renewed, 32 Dropped, 40 Rotated, 41 Dropped, 60 Rotated, 61 Dropped"},
		"a replica has just replaced the one that is served": {prepare: func(data secretData) {
			other := newState(t, newRotation(), time.Now()).data
			data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = other[corev1.TLSCertKey], other[corev1.TLSPrivateKeyKey]
			data[trustedCertificates] = append(data[trustedCertificates], other[corev1.TLSCertKey]...)
		}, steps: "31 Dropped, 40 Rotated, 41 Dropped, 60 Rotated, 61 Dropped"},
		"one of an authority": {prepare: func(data secretData) {
			maps.Copy(data, earlierData(t))
		}, steps: "31 Renewed, 51 Rotated, 52 Dropped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, crd, configuration)
				stop := f.start(f.Manager)
				if !c.isNew {
					pass(lifetime / 2)
				}
				stop()
				if c.prepare != nil {
					f.change(c.prepare)
				}
				time.Sleep(c.down)
				if c.rotation.hosts == nil {
					c.rotation = newRotation()
				}
				before, again := len(f.steps()), f.replica(c.rotation)
				defer f.start(again)()
				f.follow(again, lifetime/2+2*settle)
				if got := strings.Join(f.steps()[before:], ", "); got != c.steps {
					t.Errorf("%s, want %s", got, c.steps)
				}
				if !again.serves(served(t, again)) {
					t.Error("it does not serve all hosts")
				}
			})
		})
	}
	if got := (rotation{lifetime: 12 * time.Second}).settle(); got != time.Second {
		t.Errorf("certificates of 12 s settle in %v", got)
	}
	first := newState(t, newRotation(), time.Unix(0, 0))
	if step, wait := newRotation().plan(first, [][]byte{nil}, time.Unix(1200, 0)); step != noStep || wait != 2*lifetime/3 {
		t.Errorf("a next one that is due and not published: %q, look again after %v", step, wait)
	}
}

// TestRepair replaces the Secret at once, and keeps trusting the certificate that replicas serve until they
// read the new one. The log names the invalid field.
func TestRepair(t *testing.T) {
	for says, damage := range map[string]func(data, other secretData){
		"": nil,
		"tls.crt and tls.key: tls: failed to find any PEM data in certificate": func(data, _ secretData) { clear(data) },
		"tls.crt and tls.key: tls: private key does not match": func(data, other secretData) {
			data[corev1.TLSPrivateKeyKey] = other[nextKey]
		},
		"ca.crt and ca.key: tls: failed to find any PEM data in key": func(data, _ secretData) { delete(data, nextKey) },
		"ca.crt: x509": func(data, _ secretData) {
			data[trustedCertificates] = append(data[trustedCertificates], encode(&x509.Certificate{Raw: []byte("x")})...)
		},
		"tls.crt: not signed by a certificate in ca.crt": func(data, other secretData) {
			data[trustedCertificates], data[nextKey] = other[trustedCertificates], other[nextKey]
		},
		"tls.crt: is valid only from 1999": func(data, _ secretData) {
			maps.Copy(data, newState(t, newRotation(), time.Now().Add(-lifetime)).data)
		},
		"tls.crt: is valid only from 2000": func(data, _ secretData) {
			// The clock of another replica is ahead.
			maps.Copy(data, newState(t, newRotation(), time.Now().Add(lifetime)).data)
		},
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, crd, configuration)
				defer f.start(f.Manager)()
				before := served(t, f.Manager)
				if damage == nil {
					must(t, f.secret.client.Delete(t.Context(), "webhook", metav1.DeleteOptions{}))
				} else {
					f.change(func(data secretData) { damage(data, newState(t, newRotation(), time.Now()).data) })
				}
				synctest.Wait()
				// Other replicas serve the old one.
				f.mustBeTrusted(before)
				if n := bytes.Count(f.bundles()[0], []byte("BEGIN")); n > 2 {
					t.Errorf("there are %d certificates in a bundle, want those of the old Secret and of the new one", n)
				}
				if served(t, f.Manager).Equal(before) {
					t.Error("the old certificate is served")
				}
				f.follow(f.Manager, settle)
				for _, bundle := range f.bundles() {
					if err := trusts(bundle, before); err == nil {
						t.Error("the lost certificate is still trusted")
					}
				}
				got := strings.Join(f.steps(), ", ")
				if !strings.HasPrefix(got, "0 Created, "+says) || !strings.HasSuffix(got, "0 Created, 1 Dropped") {
					t.Errorf("%s, want %q and a new certificate", got, says)
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

// TestFirstSync serves the certificate of the replica that was faster, which counts the writes. Until it has read
// that the process is not ready. The error names the object.
func TestFirstSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, crd, configuration)
		faster := f.replica(newRotation())
		defer f.start(faster)()
		const object = "writing the certificate to secrets system/webhook: "
		if _, err := f.sync(t.Context(), f.secret.name); !apierrors.IsConflict(err) || !strings.HasPrefix(err.Error(), object) {
			t.Errorf("the other replica was faster: %v", err)
		}
		if err := f.Check(); err == nil || err.Error() != "there is no certificate yet" {
			t.Errorf("ready: %v", err)
		}
		defer f.start(f.Manager)()
		f.mustBeTrusted(served(t, f.Manager))
		if !served(t, f.Manager).Equal(served(t, faster)) {
			t.Error("it serves a certificate of its own")
		}
		const want = `# HELP sample_controller_writes_total [ALPHA] Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.
# TYPE sample_controller_writes_total counter
sample_controller_writes_total{controller="certificate",resource="customresourcedefinitions",verb="update"} 1
sample_controller_writes_total{controller="certificate",resource="mutatingwebhookconfigurations",verb="update"} 1
sample_controller_writes_total{controller="certificate",resource="secrets",verb="create"} 1
`
		must(t, testutil.GatherAndCompare(f.registry, strings.NewReader(want), "sample_controller_writes_total"))
		// The clock of a virtual machine that was suspended steps, which timers do not notice.
		pass(settle)
		if wait, err := faster.sync(t.Context(), f.secret.name); wait != time.Minute || err != nil {
			t.Errorf("at rest the next sync is %v later, error %v", wait, err)
		}
		if usages := served(t, faster).ExtKeyUsage; !slices.Equal(usages, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
			t.Errorf("the certificate is of use for %v", usages)
		}
	})
}

// TestPublishing publishes again after a reset, in targets that are created later, and in no object without
// a webhook.
func TestPublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, configuration)
		defer f.start(f.Manager)()
		if got := f.bundles(); len(got) != 2 || trusts(got[0], served(t, f.Manager)) != nil {
			t.Fatalf("before there is a CRD: %q", got)
		}
		_, err := f.targets[0].client.Create(t.Context(), newObject(t, crd), metav1.CreateOptions{})
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
		f := newFixture(t, strings.ReplaceAll(crd, "clientConfig", "none"), strings.ReplaceAll(configuration, "clientConfig", "none"))
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
		f := newFixture(t, crd, configuration)
		f.client.PrependReactor("update", crds.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(crds.GroupResource(), "foos", errors.New("no"))
		})
		defer f.start(f.Manager)()
		first := served(t, f.Manager)
		if got := f.bundles(); len(got[0]) != 0 || trusts(got[1], first) != nil || trusts(got[2], first) != nil {
			t.Errorf("bundles %q", got)
		}
		pass(lifetime - time.Second)
		if got := f.steps(); !served(t, f.Manager).Equal(first) || len(got) != 1 {
			t.Errorf("%s, although some API servers do not trust the first certificate yet", got)
		}
		pass(time.Second)
		if served(t, f.Manager).Equal(first) {
			t.Error("it serves a certificate that has expired")
		}
	})
}

// earlierData returns the content of a Secret of an earlier version, whose certificate is signed by an
// authority without hosts.
func earlierData(t *testing.T) secretData {
	t.Helper()
	authority, signed := newState(t, rotation{lifetime: 4 * lifetime}, time.Now()), newState(t, newRotation(), time.Now())
	by, template, data := authority.serving, signed.serving.Leaf, authority.data
	template.Subject.CommonName = host
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, template.PublicKey, by.PrivateKey)
	must(t, err)
	data[corev1.TLSCertKey] = encode(&x509.Certificate{Raw: der})
	data[corev1.TLSPrivateKeyKey] = signed.data[corev1.TLSPrivateKeyKey]
	return data
}

// TestStaleCache waits until a cache shows the last write, and does not serve or publish what is older.
func TestStaleCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, crd, configuration)
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
		f, unblock, stopped := newFixture(t), make(chan struct{}), make(chan struct{}, 1)
		_, err := f.secret.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-unblock }})
		must(t, err)
		stop := f.start(f.Manager)
		go func() { stop(); stopped <- struct{}{} }()
		synctest.Wait()
		if len(stopped) != 0 {
			t.Error("Run returned before the informers")
		}
		close(unblock)
		<-stopped
	})
}
