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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/controller"
)

// kind names the manager in logs and metrics.
const kind = "Certificate"

func secretsResource() schema.GroupResource {
	return schema.GroupResource{Resource: "secrets"}
}

// RBAC cannot limit the right to create an object to a name.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=sample-controller-system,roleName=sample-controller-webhook
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=sample-controller-webhook,verbs=list;watch;update,namespace=sample-controller-system,roleName=sample-controller-webhook
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=foos.samplecontroller.k8s.io,verbs=list;watch;update,roleName=sample-controller-webhook
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=sample-controller-webhook,verbs=list;watch;update,roleName=sample-controller-webhook

// Manager keeps the Secret with the webhooks' certificate, and publishes the certificate
// authorities in the objects that tell the API server how to call the webhooks.
//
// It has one key: the Secret. Events of the Secret and of those objects enqueue it, and
// each sync enqueues it again for when the next certificate is due. A sync serves the
// certificate of the Secret, takes at most one step of a rotation, which updates the
// Secret, and publishes the authorities where they differ.
type Manager struct {
	*controller.Worker

	client    kubernetes.Interface
	secret    cache.SharedIndexInformer
	secrets   corelisters.SecretLister
	targets   []*target
	name      cache.ObjectName
	hosts     []string
	lifetimes Lifetimes
	clock     clock.PassiveClock
	metrics   controller.Counters

	writes *controller.Writes
	// current is the certificate that is served, nil before the first sync.
	current atomic.Pointer[tls.Certificate]
}

// Options are the dependencies of a Manager. All are required.
type Options struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Secret is the name of the Secret that holds the certificate.
	Secret cache.ObjectName
	// Hosts are the names and addresses by which the API server reaches the webhooks.
	Hosts     []string
	Lifetimes Lifetimes
	// Targets are the objects in which the authorities are published. The manager waits
	// for those that do not exist.
	Targets []Target

	Worker controller.WorkerOptions
}

// New returns a Manager that is ready to Run.
func New(options Options) *Manager {
	secret := coreinformers.NewFilteredSecretInformer(options.Client, options.Secret.Namespace, 0, cache.Indexers{}, selectName(options.Secret.Name))
	typed := cache.NewTypedSharedIndexInformer[*corev1.Secret](secret)
	m := &Manager{
		client: options.Client, secret: secret, secrets: corelisters.NewSecretLister(secret.GetIndexer()),
		name: options.Secret, hosts: options.Hosts, lifetimes: options.Lifetimes, clock: options.Worker.Clock, metrics: options.Worker.Metrics.Of(kind),
	}
	// There is only one key.
	options.Worker.Workers = 1
	m.Worker = controller.NewWorker(kind, options.Worker)
	m.Handle(metav1.NamespaceAll, m.sync)
	m.writes = controller.NewWrites(options.Worker.Clock)
	controller.AddEventHandler(m.Worker, "Secret", typed, handlers[*corev1.Secret](m))
	for _, of := range options.Targets {
		t := newTarget(options.Dynamic, of, m.metrics)
		m.targets = append(m.targets, t)
		informer := cache.NewTypedSharedIndexInformer[*unstructured.Unstructured](t.informer)
		controller.AddEventHandler(m.Worker, of.Resource.Resource, informer, handlers[*unstructured.Unstructured](m))
	}
	return m
}

// handlers enqueue the one key for every event.
func handlers[T cache.Object](m *Manager) cache.TypedResourceEventHandlerFuncs[T] {
	return cache.TypedResourceEventHandlerFuncs[T]{
		AddFunc:    func(T) { m.Queue.Add(m.name) },
		UpdateFunc: func(_, _ T) { m.Queue.Add(m.name) },
		DeleteFunc: func(cache.DeletedObject[T]) { m.Queue.Add(m.name) },
	}
}

// Run syncs until ctx ends. It starts the informers, and returns after they have stopped.
func (m *Manager) Run(ctx context.Context) error {
	informers := []cache.SharedIndexInformer{m.secret}
	for _, t := range m.targets {
		informers = append(informers, t.informer)
	}
	var running sync.WaitGroup
	for _, informer := range informers {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	defer controller.AwaitInformers(ctx, running.Wait)
	// A Secret that does not exist causes no event.
	m.Queue.Add(m.name)
	return m.Worker.Run(ctx)
}

// GetCertificate returns the current certificate, for a tls.Config.
func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := m.current.Load(); current != nil {
		return current, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Check returns an error while there is no certificate.
func (m *Manager) Check() error {
	_, err := m.GetCertificate(nil)
	return err
}

// sync takes at most one step of a rotation and returns when to sync again.
func (m *Manager) sync(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read the caches, once they show what the last sync wrote.
	if err := m.writes.Seen(key); err != nil {
		return 0, err
	}
	// A lister of a cache returns no error but NotFound.
	secret, _ := m.secrets.Secrets(key.Namespace).Get(key.Name)
	current := m.read(ctx, secret)

	// 2. Decide.
	next, requeueAfter := m.lifetimes.plan(current)

	// 3. Act: update the Secret, which all replicas read, before serving from it. What it holds
	// already is served even if the update fails.
	if current.store != nil && m.clock.Now().Before(current.store.serving.Leaf.NotAfter) {
		m.current.Store(current.store.serving)
	}
	if next != noStep {
		var err error
		if current.store, err = m.write(ctx, next, current, secret); err != nil {
			return 0, err
		}
	}
	m.current.Store(current.store.serving)

	// 4. Publish the authorities.
	if err := m.publish(ctx, current.store); err != nil {
		return 0, err
	}
	return requeueAfter, nil
}

// read returns the state that the caches show.
func (m *Manager) read(ctx context.Context, secret *corev1.Secret) state {
	current := state{hosts: m.hosts, now: m.clock.Now()}
	if secret != nil {
		var err error
		if current.store, err = parse(secret.Data); err != nil {
			klog.FromContext(ctx).Error(err, "Replacing an invalid certificate of the webhooks", "secret", m.name)
		}
	}
	var bundles [][]byte
	for _, t := range m.targets {
		if object := t.cached(); object != nil {
			for _, config := range clientConfigs(object.Object) {
				bundles = append(bundles, caBundle(config))
			}
		}
	}
	current.published = inAllBundles(bundles, current.store)
	return current
}

// inAllBundles returns the authorities that are in every bundle. Without a bundle these
// are the authorities of the store: there is nothing to wait for.
func inAllBundles(bundles [][]byte, s *store) []*x509.Certificate {
	if len(bundles) == 0 && s != nil {
		return s.trusted
	}
	var common []*x509.Certificate
	for i, bundle := range bundles {
		// An invalid bundle has no authorities.
		trusted, _ := cert.ParseCertsPEM(bundle)
		if i == 0 {
			common = trusted
			continue
		}
		common = slices.DeleteFunc(common, func(c *x509.Certificate) bool { return !slices.ContainsFunc(trusted, c.Equal) })
	}
	return common
}

// write takes the step and creates or updates the Secret. secret is the cached one, nil if
// there is none.
func (m *Manager) write(ctx context.Context, next step, current state, secret *corev1.Secret) (*store, error) {
	changed, err := m.lifetimes.take(next, current)
	if err != nil {
		return nil, err
	}
	client, verb := m.client.CoreV1().Secrets(m.name.Namespace), "update"
	if secret == nil {
		verb = "create"
		secret, err = client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: m.name.Name, Namespace: m.name.Namespace, Labels: map[string]string{controller.ManagedByLabel: controller.ManagedByValue}},
			Type:       corev1.SecretTypeTLS, Data: changed.data,
		}, metav1.CreateOptions{FieldManager: controller.FieldManager})
		if apierrors.IsAlreadyExists(err) {
			err = controller.NewConflict(secretsResource(), m.name.Name)
		}
	} else {
		updated := secret.DeepCopy()
		updated.Data = changed.data
		secret, err = client.Update(ctx, updated, metav1.UpdateOptions{FieldManager: controller.FieldManager})
	}
	if err != nil {
		return nil, fmt.Errorf("writing the Secret %s: %w", m.name, err)
	}
	m.metrics.Wrote("secrets", verb)
	m.writes.Wrote(secret, m.secret.GetStore(), secret.ResourceVersion)
	klog.FromContext(ctx).Info(string(next), "secret", m.name, "servedUntil", changed.serving.Leaf.NotAfter)
	return changed, nil
}

// publish publishes the authorities in all targets. An error of one target does not keep
// it from the others.
func (m *Manager) publish(ctx context.Context, s *store) error {
	var errs []error
	for _, t := range m.targets {
		wrote, err := t.publish(ctx, s.data[authorityCertificates])
		if wrote {
			klog.FromContext(ctx).Info("Published the certificate authorities", "resource", t.Resource.Resource, "name", t.Name, "count", len(s.trusted))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
