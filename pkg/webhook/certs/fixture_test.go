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
	"os"
	"strconv"
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
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/controller"
)

func TestMain(m *testing.M) {
	// The second handler sleeps after an error.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

const (
	host = "webhook.system.svc"
	// A long lifetime would slow the tests: the mutation detectors of the caches run every second of the
	// bubble.
	lifetime = time.Hour
	settle   = time.Minute
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
	client   *dynamicfake.FakeDynamicClient
	registry metrics.KubeRegistry
	// writes counts the writes that were accepted, by resource, and version is the resourceVersion of the
	// last one. The lock of the client guards both.
	writes  map[string]int
	version int
}

func newObject(kind, fields string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	text := `{"kind":"` + kind + `","metadata":{"name":"foos","resourceVersion":"1"},` + fields + `}`
	utilruntime.Must(o.UnmarshalJSON([]byte(text)))
	return o
}

// newCRD returns a CRD with a conversion webhook.
func newCRD() *unstructured.Unstructured {
	return newObject("CustomResourceDefinition", `"apiVersion":"apiextensions.k8s.io/v1",
		"spec":{"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"x"}}}}`)
}

// newConfiguration returns a configuration of two webhooks.
func newConfiguration() *unstructured.Unstructured {
	return newObject("MutatingWebhookConfiguration", `"apiVersion":"admissionregistration.k8s.io/v1",
		"webhooks":[{"clientConfig":{}},{"clientConfig":{"caBundle":"garbage"}}]`)
}

// newData returns the content of another Secret.
func newData(t *testing.T) map[string][]byte {
	t.Helper()
	data, err := newRotation().take(create, nil, nil, time.Now())
	must(t, err)
	return data
}

func newRotation(more ...string) rotation {
	return rotation{hosts: append([]string{host, "127.0.0.1"}, more...), lifetime: lifetime}
}

// newFixture returns a manager whose client refuses an outdated resourceVersion, as the API server does.
func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		secrets: "SecretList", crds: "CustomResourceDefinitionList", mutating: "MutatingWebhookConfigurationList",
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	f := &fixture{t: t, client: client, writes: map[string]int{}, version: 1}
	f.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		write, ok := action.(interface{ GetObject() runtime.Object })
		if !ok {
			return false, nil, nil
		}
		object := write.GetObject().(*unstructured.Unstructured)
		stored, missing := f.client.Tracker().Get(action.GetResource(), action.GetNamespace(), object.GetName())
		switch {
		case missing == nil && action.GetVerb() == "create":
			return false, nil, nil
		case missing == nil && object.GetResourceVersion() != stored.(*unstructured.Unstructured).GetResourceVersion():
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), object.GetName(), errors.New("outdated"))
		}
		f.version++
		object.SetResourceVersion(strconv.Itoa(f.version))
		f.writes[action.GetResource().Resource]++
		return false, nil, nil
	})
	// The fake watch would miss writes between the list and the watch, and ignores the name.
	f.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		events, err := f.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		restrictions := action.(clienttesting.WatchAction).GetWatchRestrictions()
		name, named := restrictions.Fields.RequiresExactMatch(metav1.ObjectNameField)
		if !named {
			t.Errorf("RBAC does not allow to watch all %s", action.GetResource().Resource)
		}
		if object, missing := f.client.Tracker().Get(action.GetResource(), action.GetNamespace(), name); missing == nil {
			events.(*watch.RaceFreeFakeWatcher).Add(object)
		}
		return true, events, err
	})
	f.Manager = f.replica()
	return f
}

// replica returns another manager with the same client.
func (f *fixture) replica(moreHosts ...string) *Manager {
	f.registry = metrics.NewKubeRegistry()
	return New(Options{
		Client: f.client, Secret: cache.NewObjectName("system", "webhook"), Hosts: newRotation(moreHosts...).hosts, Lifetime: lifetime,
		Targets: []Target{{crds, "foos"}, {mutating, "foos"}},
		Worker:  controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: controller.NewMetrics(f.registry), GracePeriod: time.Second},
	})
}

// start runs a manager until the returned function is called.
func (f *fixture) start(m *Manager) (stop func()) {
	f.t.Helper()
	_, ctx := ktesting.NewTestContext(f.t)
	ctx, cancel := context.WithCancel(ctx)
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

// pass lets time pass, and waits for the syncs.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) refuse(verb string, resource schema.GroupVersionResource) {
	f.client.PrependReactor(verb, resource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(resource.GroupResource(), "x", errors.New("no"))
	})
}

// stored returns the Secret and its data.
func (f *fixture) stored() (*unstructured.Unstructured, map[string][]byte) {
	f.t.Helper()
	secret, err := f.secret.client.Get(f.t.Context(), "webhook", metav1.GetOptions{})
	must(f.t, err)
	return secret, dataOf(secret)
}

// change changes the data of the Secret.
func (f *fixture) change(change func(data map[string][]byte)) {
	f.t.Helper()
	secret, data := f.stored()
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

// trusts returns nil if a client with that bundle accepts the certificate now.
func trusts(bundle []byte, served *x509.Certificate) error {
	// A server is what Verify checks by default.
	options := x509.VerifyOptions{DNSName: host, Roots: x509.NewCertPool(), CurrentTime: time.Now()}
	options.Roots.AppendCertsFromPEM(bundle)
	_, err := served.Verify(options)
	return errors.Join(err, served.VerifyHostname("127.0.0.1"))
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

// follow lets time pass and returns which certificates were served and which bundles were published. It
// fails if an API server or a replica that is 40 s late would have caused a failed request.
func (f *fixture) follow(m *Manager, d time.Duration) (certificates, bundles map[string]bool) {
	f.t.Helper()
	certificates, bundles = map[string]bool{}, map[string]bool{}
	lateBundles, lateServed := f.bundles(), served(f.t, m)
	f.mustBeTrusted(lateServed)
	for end := time.Now().Add(d); time.Now().Before(end); {
		pass(40 * time.Second)
		nowBundles, nowServed := f.bundles(), served(f.t, m)
		certificates[string(nowServed.Raw)], bundles[string(nowBundles[0])] = true, true
		if nowServed.Equal(lateServed) && bytes.Equal(nowBundles[0], lateBundles[0]) {
			continue
		}
		f.mustBeTrusted(nowServed)
		for i := range nowBundles {
			if err := trusts(nowBundles[i], lateServed); err != nil {
				f.t.Fatalf("%s: a replica is late: %v", time.Now(), err)
			}
			if err := trusts(lateBundles[i], nowServed); err != nil {
				f.t.Fatalf("%s: the API server is late: %v", time.Now(), err)
			}
		}
		lateBundles, lateServed = nowBundles, nowServed
	}
	f.mustBeTrusted(lateServed)
	return certificates, bundles
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
