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
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/controller"
)

const (
	host = "webhook.system.svc"
	// A long lifetime would slow the tests: the mutation detectors of the caches run every second of the
	// bubble.
	lifetime = time.Hour
	settle   = time.Minute

	// A CRD with a conversion webhook, and a configuration of two webhooks.
	crd = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"foos","resourceVersion":"1"},"spec":{"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"x"}}}}}`
	configuration = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration",
		"metadata":{"name":"foos","resourceVersion":"1"},"webhooks":[{"clientConfig":{}},{"clientConfig":{"caBundle":"x"}}]}`
)

var (
	secrets  = corev1.SchemeGroupVersion.WithResource("secrets")
	crds     = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	mutating = admissionv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
)

// fixture is a manager with a fake client. It must be used in a synctest bubble.
type fixture struct {
	*Manager

	t        *testing.T
	began    time.Time
	client   *dynamicfake.FakeDynamicClient
	registry metrics.KubeRegistry
	logger   klog.Logger
	// writes counts the writes that were accepted, by resource, and version is the resourceVersion of the
	// last one. The lock of the client guards both.
	writes  map[string]int
	version int
}

func newObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	must(t, o.UnmarshalJSON([]byte(text)))
	return o
}

func newRotation(more ...string) rotation {
	return rotation{hosts: append([]string{host, "127.0.0.1"}, more...), lifetime: lifetime}
}

type secretData = map[string][]byte

// newState returns the content of another Secret, with one certificate.
func newState(t *testing.T, r rotation, now time.Time) *state {
	t.Helper()
	data, err := r.take(create, nil, nil, now)
	must(t, err)
	s, err := parse(data, now)
	must(t, err)
	return s
}

// newFixture returns a manager whose client refuses an outdated resourceVersion, as the API server does.
func newFixture(t *testing.T, objects ...string) *fixture {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		secrets: "SecretList", crds: "CustomResourceDefinitionList", mutating: "MutatingWebhookConfigurationList",
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	f := &fixture{
		t: t, began: time.Now(), client: client, writes: map[string]int{}, version: 1,
		logger: ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true))),
	}
	for _, text := range objects {
		must(t, client.Tracker().Add(newObject(t, text)))
	}
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource := action.GetResource()
		write, ok := action.(interface{ GetObject() runtime.Object })
		if !ok {
			return false, nil, nil
		}
		object := write.GetObject().(*unstructured.Unstructured)
		stored, missing := client.Tracker().Get(resource, action.GetNamespace(), object.GetName())
		switch {
		case missing == nil && action.GetVerb() == "create":
			return false, nil, nil
		case missing == nil && object.GetResourceVersion() != stored.(*unstructured.Unstructured).GetResourceVersion():
			return true, nil, apierrors.NewConflict(resource.GroupResource(), object.GetName(), errors.New("outdated"))
		}
		f.version++
		object.SetResourceVersion(strconv.Itoa(f.version))
		f.writes[resource.Resource]++
		return false, nil, nil
	})
	f.Manager = f.replica(newRotation())
	return f
}

// replica returns another manager with the same client.
func (f *fixture) replica(r rotation) *Manager {
	f.registry = metrics.NewKubeRegistry()
	return New(Options{
		Client: f.client, Secret: cache.NewObjectName("system", "webhook"), Hosts: r.hosts, Lifetime: r.lifetime,
		Targets: []Target{{crds, "foos"}, {mutating, "foos"}},
		Worker:  controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: controller.NewMetrics(f.registry)},
	})
}

// start runs a manager until the returned function is called.
func (f *fixture) start(m *Manager) (stop func()) {
	ctx, cancel := context.WithCancel(klog.NewContext(f.t.Context(), f.logger))
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("Run: %v", err)
		}
	}
}

// steps returns which steps were taken, with the minute of each, and why a Secret was replaced.
func (f *fixture) steps() (all []string) {
	for _, entry := range f.logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		switch word, _, _ := strings.Cut(entry.Message, " "); word {
		case "Created", "Rotated", "Renewed", "Dropped":
			all = append(all, fmt.Sprint(entry.Timestamp.Sub(f.began).Minutes(), " ", word))
		case "Replacing":
			all = append(all, entry.Err.Error())
		}
	}
	return all
}

// pass lets time pass, and waits for the syncs.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// change changes the data of the Secret.
func (f *fixture) change(change func(secretData)) {
	f.t.Helper()
	secret, err := f.secret.client.Get(f.t.Context(), "webhook", metav1.GetOptions{})
	must(f.t, err)
	data := dataOf(secret)
	change(data)
	must(f.t, f.writeSecret(f.t.Context(), secret, data, "Changed"))
}

// bundles returns the caBundle of each clientConfig.
func (f *fixture) bundles() (all [][]byte) {
	f.t.Helper()
	for _, target := range f.targets {
		// An object that does not exist has none.
		object, _ := target.client.Get(f.t.Context(), target.name.Name, metav1.GetOptions{})
		for _, config := range clientConfigs(object) {
			all = append(all, decode(config["caBundle"]))
		}
	}
	return all
}

func served(t *testing.T, m *Manager) *x509.Certificate {
	t.Helper()
	pair, err := m.GetCertificate(nil)
	must(t, err)
	return pair.Leaf
}

// trusts returns nil if a client with that bundle accepts the certificate now, also if its clock is behind.
func trusts(bundle []byte, served *x509.Certificate) error {
	// A server is what Verify checks by default.
	options := x509.VerifyOptions{DNSName: host, Roots: x509.NewCertPool(), CurrentTime: time.Now()}
	options.Roots.AppendCertsFromPEM(bundle)
	_, err := served.Verify(options)
	options.CurrentTime = time.Now().Add(-clockSkew)
	_, errBehind := served.Verify(options)
	return errors.Join(err, errBehind, served.VerifyHostname("127.0.0.1"))
}

// mustBeTrusted fails unless there are three bundles and each trusts the certificate.
func (f *fixture) mustBeTrusted(served *x509.Certificate) {
	f.t.Helper()
	bundles := f.bundles()
	if len(bundles) != 3 {
		f.t.Fatalf("%d bundles", len(bundles))
	}
	for i, bundle := range bundles {
		if err := trusts(bundle, served); err != nil {
			f.t.Errorf("%s: bundle %d: %v", time.Now(), i, err)
		}
	}
}

// follow lets time pass. It fails if a request would have failed, also with an API server or a replica that is
// 40 s late.
func (f *fixture) follow(m *Manager, d time.Duration) {
	f.t.Helper()
	lateBundles, lateServed := f.bundles(), served(f.t, m)
	f.mustBeTrusted(lateServed)
	for end := time.Now().Add(d); time.Now().Before(end); {
		pass(40 * time.Second)
		nowBundles, nowServed := f.bundles(), served(f.t, m)
		if nowServed.Equal(lateServed) && bytes.Equal(nowBundles[0], lateBundles[0]) {
			continue
		}
		f.mustBeTrusted(nowServed)
		for i := range nowBundles {
			if err := errors.Join(trusts(nowBundles[i], lateServed), trusts(lateBundles[i], nowServed)); err != nil {
				f.t.Fatalf("%s: a replica or the API server is late: %v", time.Now(), err)
			}
		}
		lateBundles, lateServed = nowBundles, nowServed
	}
	f.mustBeTrusted(lateServed)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
