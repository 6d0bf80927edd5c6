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
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// newIdle returns a manager that does not run, with the objects in its caches, and its
// log.
func newIdle(t *testing.T) (context.Context, *fixture, ktesting.Buffer) {
	t.Helper()
	_, f := newFixture(t, newCRD(), newConfiguration())
	t.Cleanup(f.Queue.ShutDown)
	must(t, f.targets[0].informer.GetStore().Add(newCRD()))
	must(t, f.targets[1].informer.GetStore().Add(newConfiguration()))
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	return klog.NewContext(t.Context(), logger), f, logger.GetSink().(ktesting.Underlier).GetBuffer()
}

// syncOnce syncs and returns the messages that it logs.
func (f *fixture) syncOnce(ctx context.Context, log ktesting.Buffer) (time.Duration, []string, error) {
	before := len(log.Data())
	wait, err := f.sync(ctx, f.name)
	var messages []string
	for _, entry := range log.Data()[before:] {
		messages = append(messages, entry.Message)
	}
	return wait, messages, err
}

// TestSync does everything in the first sync, and nothing in the next one.
func TestSync(t *testing.T) {
	ctx, f, log := newIdle(t)
	const published = "Published the certificate authorities"
	wait, messages, err := f.syncOnce(ctx, log)
	if wait != 0 || err != nil {
		t.Errorf("wait %v, %v", wait, err)
	}
	if diff := cmp.Diff([]string{string(create), published, published}, messages); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	f.mustBeTrusted(t)
	secret, err := f.kube.CoreV1().Secrets("system").Get(ctx, "webhook", metav1.GetOptions{})
	must(t, err)
	must(t, f.secret.GetIndexer().Add(secret))
	if wait, messages, err := f.syncOnce(ctx, log); wait == 0 || err != nil || messages != nil {
		t.Errorf("the second sync: wait %v, %v, log %q", wait, err, messages)
	}
	secret = secret.DeepCopy()
	secret.Data[corev1.TLSPrivateKeyKey] = nil
	must(t, f.secret.GetIndexer().Update(secret))
	_, messages, err = f.syncOnce(ctx, log)
	if diff := cmp.Diff([]string{"Replacing an invalid certificate of the webhooks", string(create)}, messages); diff != "" || err != nil {
		t.Errorf("%v, log (-want +got):\n%s", err, diff)
	}
	const want = `# HELP sample_controller_writes_total [ALPHA] Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.
# TYPE sample_controller_writes_total counter
sample_controller_writes_total{controller="certificate",resource="customresourcedefinitions",verb="update"} 1
sample_controller_writes_total{controller="certificate",resource="mutatingwebhookconfigurations",verb="update"} 1
sample_controller_writes_total{controller="certificate",resource="secrets",verb="create"} 1
sample_controller_writes_total{controller="certificate",resource="secrets",verb="update"} 1
`
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(want), "sample_controller_writes_total"); err != nil {
		t.Error(err)
	}
}

// TestSyncFails returns the error, and does not serve a certificate that is not stored.
func TestSyncFails(t *testing.T) {
	refused := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "x", errors.New("no"))
	}
	for name, c := range map[string]struct {
		verb, resource string
		err            error
		is             func(error) bool
		serves         bool
		published      int
	}{
		"the Secret cannot be created": {verb: "create", resource: "secrets", err: refused("secrets"), is: apierrors.IsForbidden},
		"another replica was faster": {verb: "create", resource: "secrets", err: apierrors.NewAlreadyExists(corev1.Resource("secrets"), "webhook"),
			is: apierrors.IsConflict},
		"one target cannot be updated": {verb: "update", resource: crds.Resource, err: refused(crds.Resource), is: apierrors.IsForbidden, serves: true, published: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, f, log := newIdle(t)
			fail := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err }
			f.kube.PrependReactor(c.verb, c.resource, fail)
			f.dynamic.PrependReactor(c.verb, c.resource, fail)
			_, messages, err := f.syncOnce(ctx, log)
			if !c.is(err) {
				t.Errorf("%v", err)
			}
			published := 0
			for _, message := range messages {
				if strings.HasPrefix(message, "Published") {
					published++
				}
			}
			if serves := f.Check() == nil; serves != c.serves || published != c.published {
				t.Errorf("serves: %v, published in %d targets", serves, published)
			}
		})
	}
}

// TestRenewalFails: a new process serves the certificate that is stored, although its renewal,
// which is due, is refused.
func TestRenewalFails(t *testing.T) {
	synctest.Test(t, testRenewalFails)
}

func testRenewalFails(t *testing.T) {
	ctx, f, log := newIdle(t)
	data := newStore(t).data
	must(t, f.secret.GetIndexer().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "webhook", ResourceVersion: "5"}, Data: data}))
	_, _, err := f.syncOnce(ctx, log)
	must(t, err)
	time.Sleep(lifetimes.Serving * 3 / 4)
	for i, resource := range []schema.GroupVersionResource{crds, mutating} {
		published, err := f.dynamic.Resource(resource).Get(ctx, "foos", metav1.GetOptions{})
		must(t, err)
		must(t, f.targets[i].informer.GetStore().Update(published))
	}
	f.current.Store(nil)
	f.kube.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "webhook", errors.New("no"))
	})
	if _, _, err := f.syncOnce(ctx, log); !apierrors.IsForbidden(err) {
		t.Errorf("the renewal: %v", err)
	}
	if err := f.Check(); err != nil {
		t.Errorf("the stored certificate is not served: %v", err)
	}
}

// TestPublish reports whether the target was updated.
func TestPublish(t *testing.T) {
	ctx, f, _ := newIdle(t)
	existing, missing := f.targets[0], newTarget(f.dynamic, Target{crds, "bars"}, f.metrics)
	for i, c := range []struct {
		target *target
		wrote  bool
	}{{missing, false}, {existing, true}, {existing, false}} {
		if wrote, err := c.target.publish(ctx, []byte("x")); wrote != c.wrote || err != nil {
			t.Errorf("%d: %v, %v", i, wrote, err)
		}
	}
	updated, err := f.dynamic.Resource(crds).Get(ctx, "foos", metav1.GetOptions{})
	must(t, err)
	must(t, existing.informer.GetStore().Update(updated))
	if wrote, err := existing.publish(ctx, []byte("x")); wrote || err != nil {
		t.Errorf("an unchanged bundle: %v, %v", wrote, err)
	}
	f.dynamic.PrependReactor("update", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
	if wrote, err := existing.publish(ctx, []byte("y")); wrote || err == nil {
		t.Errorf("a failed update: %v, %v", wrote, err)
	}
}

// TestInAllBundles returns the authorities that every bundle has.
func TestInAllBundles(t *testing.T) {
	a, b := newStore(t), newStore(t)
	encode := func(authorities ...*x509.Certificate) []byte {
		text, err := cert.EncodeCertificates(authorities...)
		must(t, err)
		return text
	}
	both, onlyB := encode(a.trusted[0], b.trusted[0]), encode(b.trusted...)
	for name, c := range map[string]struct {
		bundles [][]byte
		store   *store
		want    []*x509.Certificate
	}{
		"no bundle and no store": {},
		"no bundle":              {store: a, want: a.trusted},
		"an empty bundle":        {store: a, bundles: [][]byte{nil}},
		"one bundle":             {bundles: [][]byte{both}, want: []*x509.Certificate{a.trusted[0], b.trusted[0]}},
		"common authorities":     {bundles: [][]byte{both, onlyB}, want: b.trusted},
		"common authorities, the other way round": {bundles: [][]byte{onlyB, both}, want: b.trusted},
		"an invalid bundle":                       {bundles: [][]byte{both, []byte("x")}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inAllBundles(c.bundles, c.store); string(encode(got...)) != string(encode(c.want...)) {
				t.Errorf("%d, want %d", len(got), len(c.want))
			}
		})
	}
}

// TestClientConfigs returns parts of the object, not copies, because they are written to.
func TestClientConfigs(t *testing.T) {
	config := map[string]any{"url": "x"}
	conversion := func(strategy string) map[string]any {
		return map[string]any{"spec": map[string]any{"conversion": map[string]any{"strategy": strategy, "webhook": map[string]any{"clientConfig": config}}}}
	}
	for name, c := range map[string]struct {
		object map[string]any
		want   []map[string]any
	}{
		"a CRD with a conversion webhook": {conversion("Webhook"), []map[string]any{config}},
		"a CRD without conversion":        {conversion("None"), nil},
		"an admission webhook":            {map[string]any{"webhooks": []any{map[string]any{"clientConfig": config}}}, []map[string]any{config}},
		"webhooks without a clientConfig": {map[string]any{"webhooks": []any{map[string]any{}, "x"}}, nil},
		"a strategy without a webhook":    {map[string]any{"spec": map[string]any{"conversion": map[string]any{"strategy": "Webhook"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, clientConfigs(c.object), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSelectName selects only the object that RBAC allows to read.
func TestSelectName(t *testing.T) {
	options := &metav1.ListOptions{}
	if selectName("foos")(options); options.FieldSelector != "metadata.name=foos" {
		t.Errorf("%q", options.FieldSelector)
	}
}
