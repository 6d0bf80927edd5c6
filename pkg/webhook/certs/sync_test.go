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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/controller"
)

// newStill returns a manager that does not run and has the objects in its caches, and
// what it logs.
func newStill(t *testing.T) (context.Context, *fixture, ktesting.Buffer) {
	t.Helper()
	_, f := newFixture(t, aCRD(), aConfiguration())
	t.Cleanup(f.Queue.ShutDown)
	must(t, f.targets[0].informer.GetStore().Add(aCRD()))
	must(t, f.targets[1].informer.GetStore().Add(aConfiguration()))
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	return klog.NewContext(t.Context(), logger), f, logger.GetSink().(ktesting.Underlier).GetBuffer()
}

// syncOnce syncs and returns the messages of the log.
func (f *fixture) syncOnce(ctx context.Context, log ktesting.Buffer) (time.Duration, []string, error) {
	before := len(log.Data())
	wait, err := f.sync(ctx, f.name)
	var messages []string
	for _, entry := range log.Data()[before:] {
		messages = append(messages, entry.Message)
	}
	return wait, messages, err
}

// TestSync: the first sync does all there is to do, and the next one nothing.
func TestSync(t *testing.T) {
	ctx, f, log := newStill(t)
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
	secret.Data[authorityKey] = nil
	must(t, f.secret.GetIndexer().Update(secret))
	_, messages, err = f.syncOnce(ctx, log)
	if diff := cmp.Diff([]string{"The certificate of the webhooks is of no use, and is made anew", string(create)}, messages); diff != "" || err != nil {
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

// TestSyncFails: a failure is the sync's, and nothing is served that is not stored.
func TestSyncFails(t *testing.T) {
	refused := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "x", errors.New("no"))
	}
	for name, c := range map[string]struct {
		verb, resource string
		err            error
		is             func(error) bool
		serves         bool
		told           int
	}{
		"the Secret cannot be created": {verb: "create", resource: "secrets", err: refused("secrets"), is: apierrors.IsForbidden},
		"another replica was faster": {verb: "create", resource: "secrets", err: apierrors.NewAlreadyExists(corev1.Resource("secrets"), "webhook"),
			is: func(err error) bool { return errors.Is(err, controller.ErrCacheBehind) }},
		"one place cannot be told": {verb: "update", resource: crds.Resource, err: refused(crds.Resource), is: apierrors.IsForbidden, serves: true, told: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, f, log := newStill(t)
			fail := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err }
			f.kube.PrependReactor(c.verb, c.resource, fail)
			f.dynamic.PrependReactor(c.verb, c.resource, fail)
			_, messages, err := f.syncOnce(ctx, log)
			if !c.is(err) {
				t.Errorf("%v", err)
			}
			told := 0
			for _, message := range messages {
				if strings.HasPrefix(message, "Published") {
					told++
				}
			}
			if serves := f.Check() == nil; serves != c.serves || told != c.told {
				t.Errorf("serves: %v, %d are told", serves, told)
			}
		})
	}
}

// TestTakeWritesNothingHalf: what cannot be made or encoded is not written.
func TestTakeWritesNothingHalf(t *testing.T) {
	ctx, f, _ := newStill(t)
	now := time.Now()
	strange := aStore(t, now)
	strange.key = unknownKey{strange.key}
	for name, seen := range map[string]observation{
		"a host in no DNS name": {store: aStore(t, now), hosts: []string{"\u00fc"}, now: now},
		"a strange key":         {store: strange, hosts: []string{host}, now: now},
	} {
		if s, err := f.take(ctx, renewServing, seen, nil); s != nil || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := f.writes(); len(got) != 0 {
		t.Errorf("writes: %v", got)
	}
}

// TestPublish: a target says whether it was written.
func TestPublish(t *testing.T) {
	ctx, f, _ := newStill(t)
	there, missing := f.targets[0], newTarget(f.dynamic, Target{crds, "bars"}, f.metrics)
	for i, c := range []struct {
		target *target
		wrote  bool
	}{{missing, false}, {there, true}, {there, false}} {
		if wrote, err := c.target.publish(ctx, []byte("x")); wrote != c.wrote || err != nil {
			t.Errorf("%d: %v, %v", i, wrote, err)
		}
	}
	told, err := f.dynamic.Resource(crds).Get(ctx, "foos", metav1.GetOptions{})
	must(t, err)
	must(t, there.informer.GetStore().Update(told))
	if wrote, err := there.publish(ctx, []byte("x")); wrote || err != nil {
		t.Errorf("what is there already: %v, %v", wrote, err)
	}
	f.dynamic.PrependReactor("update", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
	if wrote, err := there.publish(ctx, []byte("y")); wrote || err == nil {
		t.Errorf("what fails: %v, %v", wrote, err)
	}
}

// TestEverywhere: trusted is what every bundle has.
func TestEverywhere(t *testing.T) {
	now := time.Now()
	a, b := aStore(t, now), aStore(t, now)
	both := encode(a.trusted[0], b.trusted[0])
	for name, c := range map[string]struct {
		bundles [][]byte
		store   *store
		want    []*x509.Certificate
	}{
		"nobody to tell, and nothing stored": {},
		"nobody to tell":                     {store: a, want: a.trusted},
		"nobody is told":                     {store: a, bundles: [][]byte{nil}},
		"one":                                {bundles: [][]byte{both}, want: []*x509.Certificate{a.trusted[0], b.trusted[0]}},
		"some":                               {bundles: [][]byte{both, b.bundle()}, want: b.trusted},
		"some, the other way round":          {bundles: [][]byte{b.bundle(), both}, want: b.trusted},
		"one is garbage":                     {bundles: [][]byte{both, []byte("x")}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := everywhere(c.bundles, c.store); string(encode(got...)) != string(encode(c.want...)) {
				t.Errorf("%d, want %d", len(got), len(c.want))
			}
		})
	}
}

// TestCallers: what is returned is a part of the object, for it is written to.
func TestCallers(t *testing.T) {
	config := map[string]any{"url": "x"}
	conversion := func(strategy string) map[string]any {
		return map[string]any{"spec": map[string]any{"conversion": map[string]any{"strategy": strategy, "webhook": map[string]any{"clientConfig": config}}}}
	}
	for name, c := range map[string]struct {
		object map[string]any
		want   []map[string]any
	}{
		"a conversion by a webhook":     {conversion("Webhook"), []map[string]any{config}},
		"a conversion by nobody":        {conversion("None"), nil},
		"a webhook":                     {map[string]any{"webhooks": []any{map[string]any{"clientConfig": config}}}, []map[string]any{config}},
		"a webhook without any of it":   {map[string]any{"webhooks": []any{map[string]any{}, "x"}}, nil},
		"a strategy without the others": {map[string]any{"spec": map[string]any{"conversion": map[string]any{"strategy": "Webhook"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, callers(c.object), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestOnly: there is no right to read others.
func TestOnly(t *testing.T) {
	options := &metav1.ListOptions{}
	if only("foos")(options); options.FieldSelector != "metadata.name=foos" {
		t.Errorf("%q", options.FieldSelector)
	}
}
