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
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
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

const host = "webhook.system.svc"

var (
	crds     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	mutating = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	// Long lifetimes would slow the tests: the mutation detectors of the caches run every
	// second of the bubble.
	lifetimes = NewLifetimes(time.Hour)
)

// fixture is a manager with fake clients. It must be used in a synctest bubble.
type fixture struct {
	*Manager

	kube    *kubefake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	// registry has the metrics of the newest replica.
	registry metrics.KubeRegistry
	// version is the resourceVersion of the last write.
	version atomic.Int64
}

func object(gvr schema.GroupVersionResource, kind, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range fields {
		o.Object[field] = value
	}
	o.SetAPIVersion(gvr.GroupVersion().String())
	o.SetKind(kind)
	o.SetName(name)
	o.SetResourceVersion("1")
	return o
}

// newCRD returns a CRD with a conversion webhook.
func newCRD() *unstructured.Unstructured {
	return object(crds, "CustomResourceDefinition", "foos", map[string]any{"spec": map[string]any{"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{"clientConfig": map[string]any{"service": map[string]any{"name": "webhook"}}}}}})
}

// newConfiguration returns a configuration of two webhooks.
func newConfiguration() *unstructured.Unstructured {
	return object(mutating, "MutatingWebhookConfiguration", "foos", map[string]any{"webhooks": []any{map[string]any{"clientConfig": map[string]any{}}, map[string]any{"clientConfig": map[string]any{"caBundle": "garbage"}}}})
}

func newFixture(t *testing.T, objects ...runtime.Object) (context.Context, *fixture) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	f := &fixture{
		kube: kubefake.NewClientset(),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			crds: "CustomResourceDefinitionList", mutating: "MutatingWebhookConfigurationList",
		}, objects...),
	}
	// A fake clientset sets no resourceVersion.
	f.version.Store(10)
	stamp := func(action clienttesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
			write.GetObject().(metav1.Object).SetResourceVersion(strconv.FormatInt(f.version.Add(1), 10))
		}
		return false, nil, nil
	}
	f.kube.PrependReactor("*", "*", stamp)
	f.dynamic.PrependReactor("*", "*", stamp)
	f.kube.PrependReactor("list", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, err := f.kube.Tracker().List(corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithKind("Secret"), action.GetNamespace())
		if err == nil {
			list.(*corev1.SecretList).ResourceVersion = strconv.FormatInt(f.version.Load(), 10)
		}
		return true, list, err
	})
	// Its watch misses writes between the list and the watch.
	f.kube.PrependWatchReactor("secrets", func(action clienttesting.Action) (bool, watch.Interface, error) {
		secrets := corev1.SchemeGroupVersion.WithResource("secrets")
		events, err := f.kube.Tracker().Watch(secrets, action.GetNamespace())
		if secret, missing := f.kube.Tracker().Get(secrets, "system", "webhook"); missing == nil {
			events.(*watch.RaceFreeFakeWatcher).Add(secret)
		}
		return true, events, err
	})
	f.Manager = f.replica(host, "127.0.0.1")
	return ctx, f
}

// replica returns another manager with the same clients.
func (f *fixture) replica(hosts ...string) *Manager {
	f.registry = metrics.NewKubeRegistry()
	return New(Options{
		Client: f.kube, Dynamic: f.dynamic, Secret: cache.NewObjectName("system", "webhook"), Hosts: hosts, Lifetimes: lifetimes,
		Targets: []Target{{crds, "foos"}, {mutating, "foos"}},
		Worker:  controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: controller.NewMetrics(f.registry), GracePeriod: time.Second},
	})
}

// start runs the manager until the returned function is called.
func (f *fixture) start(ctx context.Context, t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// bundles returns the caBundle of each clientConfig.
func (f *fixture) bundles(t *testing.T) [][]byte {
	t.Helper()
	var all [][]byte
	for _, target := range f.targets {
		object, err := f.dynamic.Resource(target.Resource).Get(t.Context(), target.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, config := range clientConfigs(object.Object) {
			all = append(all, caBundle(config))
		}
	}
	return all
}

func (f *fixture) served(t *testing.T) *x509.Certificate {
	t.Helper()
	pair, err := f.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// trusts returns nil if a client with that bundle accepts the certificate now.
func trusts(bundle []byte, served *x509.Certificate) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, name := range []string{host, "127.0.0.1"} {
		if _, err := served.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fixture) mustBeTrusted(t *testing.T) {
	t.Helper()
	bundles := f.bundles(t)
	if len(bundles) != 3 {
		t.Fatalf("%d bundles", len(bundles))
	}
	for i, bundle := range bundles {
		if err := trusts(bundle, f.served(t)); err != nil {
			t.Errorf("bundle %d: %v", i, err)
		}
	}
}

// writes counts the writes since the last call, by resource.
func (f *fixture) writes() map[string]int {
	counts := map[string]int{}
	for _, action := range append(f.kube.Actions(), f.dynamic.Actions()...) {
		switch action.GetVerb() {
		case "create", "update", "patch", "delete":
			counts[action.GetResource().Resource]++
		}
	}
	f.kube.ClearActions()
	f.dynamic.ClearActions()
	return counts
}
