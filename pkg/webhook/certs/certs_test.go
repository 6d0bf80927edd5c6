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
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
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
)

// TestRotations checks over many rotations that the certificate is trusted at every moment,
// also by an API server or replica that is late, and that each rotation needs few writes.
func TestRotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, newCRD(), newConfiguration())
		defer f.start(ctx, t)()
		f.mustBeTrusted(t)
		if got := f.writes(); got["secrets"] != 1 || got[crds.Resource] != 1 || got[mutating.Resource] != 1 {
			t.Errorf("writes at the start: %v", got)
		}
		const lag = 40 * time.Second
		type moment struct {
			bundles [][]byte
			served  *x509.Certificate
		}
		before, changed := moment{f.bundles(t), f.served(t)}, time.Now()
		serials, bundles, rotations := map[string]bool{}, map[string]bool{}, 12
		if testing.Short() {
			rotations = 2
		}
		for end := time.Now().Add(time.Duration(rotations) * lifetimes.Serving * 2 / 3); time.Now().Before(end); {
			// Check often from shortly before a change until long after it.
			pause := max(lag, time.Until(f.nextChange(t))-lag/2)
			if time.Since(changed) < 4*lifetimes.Settle {
				pause = lag
			}
			time.Sleep(pause)
			synctest.Wait()
			now := moment{f.bundles(t), f.served(t)}
			serials[now.served.SerialNumber.String()] = true
			bundles[string(now.bundles[0])] = true
			if !now.served.Equal(before.served) || !bytes.Equal(now.bundles[0], before.bundles[0]) {
				changed = time.Now()
			}
			for i := range now.bundles {
				if err := trusts(now.bundles[i], before.served); pause == lag && err != nil {
					t.Fatalf("%s: a replica is late: %v", time.Now(), err)
				}
				if err := trusts(before.bundles[i], now.served); pause == lag && err != nil {
					t.Fatalf("%s: the API server is late: %v", time.Now(), err)
				}
			}
			f.mustBeTrusted(t)
			before = now
		}
		// Each rotation takes two bundles, with the previous authority and without, and three steps.
		if len(serials) < rotations-2 || len(serials) > rotations+1 || len(bundles) < 2*rotations-4 || len(bundles) > 2*rotations+1 {
			t.Errorf("%d certificates and %d bundles", len(serials), len(bundles))
		}
		if got := f.writes(); got["secrets"] > 3*(rotations+1) || got[crds.Resource] >= len(bundles) || got[mutating.Resource] >= len(bundles) {
			t.Errorf("writes: %v with %d certificates and %d bundles", got, len(serials), len(bundles))
		}
	})
}

// nextChange returns when the next step is due, outside of a rotation.
func (f *fixture) nextChange(t *testing.T) time.Time {
	t.Helper()
	secret, err := f.kube.CoreV1().Secrets("system").Get(t.Context(), "webhook", metav1.GetOptions{})
	must(t, err)
	s, err := parse(secret.Data)
	must(t, err)
	return due(s.serving.Leaf)
}

// TestRepair repairs the Secret at once, and keeps trusting the certificate that replicas
// serve until they read the new one.
func TestRepair(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, *fixture){
		"the Secret is deleted": func(t *testing.T, f *fixture) {
			must(t, f.kube.CoreV1().Secrets("system").Delete(t.Context(), "webhook", metav1.DeleteOptions{}))
		},
		"the Secret is emptied":      changeData(func(data map[string][]byte) { clear(data) }),
		"the certificate is invalid": changeData(func(data map[string][]byte) { data[corev1.TLSCertKey] = []byte("x") }),
		"the key is invalid":         changeData(func(data map[string][]byte) { data[corev1.TLSPrivateKeyKey] = []byte("x") }),
		"the key is another's": changeData(func(data map[string][]byte) {
			data[corev1.TLSPrivateKeyKey] = newStore(t).data[corev1.TLSPrivateKeyKey]
		}),
		"the authority is gone":    changeData(func(data map[string][]byte) { delete(data, authorityCertificates) }),
		"the authority is another": changeData(func(data map[string][]byte) { data[authorityCertificates] = newStore(t).data[authorityCertificates] }),
		"the certificate is the authority": changeData(func(data map[string][]byte) {
			data[authorityCertificates] = data[corev1.TLSCertKey]
			data[corev1.TLSCertKey] = nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, newCRD(), newConfiguration())
				defer f.start(ctx, t)()
				before := f.served(t)
				damage(t, f)
				synctest.Wait()
				f.mustBeTrusted(t)
				if f.served(t).Equal(before) {
					t.Error("the old certificate is served")
				}
				for _, bundle := range f.bundles(t) {
					if err := trusts(bundle, before); err != nil {
						t.Errorf("a replica with the old certificate: %v", err)
					}
				}
				// Eventually the lost authority is no longer trusted.
				time.Sleep(4 * lifetimes.Settle)
				synctest.Wait()
				for _, bundle := range f.bundles(t) {
					if err := trusts(bundle, before); err == nil {
						t.Error("the lost authority is still trusted")
					}
				}
				f.mustBeTrusted(t)
				f.writes()
				time.Sleep(lifetimes.Serving / 2)
				synctest.Wait()
				if got := f.writes(); len(got) != 0 {
					t.Errorf("writes while nothing changes: %v", got)
				}
			})
		})
	}
}

func changeData(change func(map[string][]byte)) func(*testing.T, *fixture) {
	return func(t *testing.T, f *fixture) {
		t.Helper()
		secret, err := f.kube.CoreV1().Secrets("system").Get(t.Context(), "webhook", metav1.GetOptions{})
		must(t, err)
		change(secret.Data)
		_, err = f.kube.CoreV1().Secrets("system").Update(t.Context(), secret, metav1.UpdateOptions{})
		must(t, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPublishing publishes the authorities again after a reset, publishes them in targets
// that are created later, and is not stopped by a target that cannot be updated.
func TestPublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, newConfiguration())
		defer f.start(ctx, t)()
		if len(f.bundles(t)) != 2 {
			t.Fatal("the CRD exists already")
		}
		_, err := f.dynamic.Resource(crds).Create(t.Context(), newCRD(), metav1.CreateOptions{})
		must(t, err)
		synctest.Wait()
		f.mustBeTrusted(t)

		reset := newConfiguration()
		_, err = f.dynamic.Resource(mutating).Update(t.Context(), reset, metav1.UpdateOptions{})
		must(t, err)
		synctest.Wait()
		f.mustBeTrusted(t)

		// A CRD without a webhook is not updated.
		plain := object(crds, "CustomResourceDefinition", "foos", map[string]any{"spec": map[string]any{"conversion": map[string]any{"strategy": "None"}}})
		f.writes()
		_, err = f.dynamic.Resource(crds).Update(t.Context(), plain, metav1.UpdateOptions{})
		must(t, err)
		synctest.Wait()
		if got := f.writes(); got[crds.Resource] != 1 {
			t.Errorf("writes: %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, newCRD(), newConfiguration())
		f.dynamic.PrependReactor("update", crds.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(crds.GroupResource(), "foos", errors.New("no"))
		})
		defer f.start(ctx, t)()
		bundles := f.bundles(t)
		if len(bundles[0]) != 0 || trusts(bundles[1], f.served(t)) != nil || trusts(bundles[2], f.served(t)) != nil {
			t.Errorf("bundles %q", bundles)
		}
		// An authority that is not published in all targets signs nothing.
		served := f.served(t)
		time.Sleep(lifetimes.Serving * 3 / 4)
		synctest.Wait()
		if got := f.served(t); !got.Equal(served) {
			t.Error("it serves a certificate that some API servers cannot verify")
		}
	})
}

// TestHosts renews the certificate for other hosts.
func TestHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, newCRD(), newConfiguration())
		stop := f.start(ctx, t)
		stop()
		time.Sleep(lifetimes.Settle)
		again := &fixture{kube: f.kube, dynamic: f.dynamic, Manager: f.replica(host, "127.0.0.1", "other.example.com")}
		defer again.start(ctx, t)()
		time.Sleep(3 * lifetimes.Settle)
		synctest.Wait()
		if err := again.served(t).VerifyHostname("other.example.com"); err != nil {
			t.Error(err)
		}
		again.mustBeTrusted(t)
	})
}

// TestNoTargets makes and renews the certificate without targets and without events.
func TestNoTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t)
		defer f.start(ctx, t)()
		first := f.served(t)
		time.Sleep(lifetimes.Serving*2/3 + lifetimes.Settle + time.Second)
		synctest.Wait()
		if f.served(t).Equal(first) {
			t.Error("it is not renewed")
		}
		if got := f.writes(); got["secrets"] != 3 || len(got) != 1 {
			t.Errorf("writes: %v", got)
		}
	})
}

// TestRunWaitsForInformers returns only after the event handlers have returned.
func TestRunWaitsForInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t)
		ctx, cancel := context.WithCancel(ctx)
		unblock := make(chan struct{})
		_, err := f.secret.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-unblock }})
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

// TestNoCertificateYet fails handshakes and the readiness check before the first sync.
func TestNoCertificateYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := newFixture(t)
		defer f.Queue.ShutDown()
		if f.Check() == nil {
			t.Error("it is ready")
		}
		if _, err := f.GetCertificate(&tls.ClientHelloInfo{}); err == nil || !strings.Contains(err.Error(), "no certificate yet") {
			t.Errorf("%v", err)
		}
	})
}

// TestTwoReplicas serves the certificate of the replica that wrote first.
func TestTwoReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, newCRD(), newConfiguration())
		tries := 0
		f.kube.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
			tries++
			switch {
			case tries == 1:
				// The watch of a fake clientset would miss a write of the first sync.
				return true, nil, apierrors.NewInternalError(errors.New("not yet"))
			case tries > 2:
				return false, nil, nil
			}
			// The other replica is faster.
			s, err := lifetimes.take(create, state{hosts: []string{host, "127.0.0.1"}, now: time.Now()})
			must(t, err)
			secret := action.(clienttesting.CreateAction).GetObject().DeepCopyObject().(*corev1.Secret)
			secret.Data = s.data
			must(t, f.kube.Tracker().Add(secret))
			return true, nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), "webhook")
		})
		defer f.start(ctx, t)()
		time.Sleep(time.Second)
		synctest.Wait()
		f.mustBeTrusted(t)
		if got := f.writes(); got["secrets"] != 2 {
			t.Errorf("writes: %v", got)
		}
	})
}

// TestCABundle returns nothing if the text is not base64.
func TestCABundle(t *testing.T) {
	for text, want := range map[string]string{"": "", "!": "", base64.StdEncoding.EncodeToString([]byte("x")): "x", "eHh4!": ""} {
		if got := caBundle(map[string]any{"caBundle": text}); string(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
