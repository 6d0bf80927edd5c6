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

// Package certs makes and rotates the certificate of the webhooks, and publishes it to the API server.
//
// Everything is in one Secret, which every replica reads and writes. A leader cannot do it alone: it
// needs filled caches, and where stored objects have to be converted the API server can only list them
// once this certificate works. If two replicas take the same step, the API server refuses the second
// write because of its resourceVersion.
//
// rotation.go decides what the Secret holds next, manager.go reads and writes.
package certs

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/controller"
)

// kind names the manager in logs and metrics.
const kind = "Certificate"

// RBAC cannot limit the right to create an object to a name.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=sample-controller-system,roleName=sample-controller-webhook
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=sample-controller-webhook,verbs=list;watch;update,namespace=sample-controller-system,roleName=sample-controller-webhook
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=foos.samplecontroller.k8s.io,verbs=list;watch;update,roleName=sample-controller-webhook
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=sample-controller-webhook,verbs=list;watch;update,roleName=sample-controller-webhook

// Manager maintains the Secret with the webhooks' certificate, and publishes which certificates are
// trusted in the objects that tell the API server how to call the webhooks.
//
// It has one key: the Secret. Events of the Secret and of those objects enqueue it, and each sync
// enqueues it again for when the next step of a rotation is due.
type Manager struct {
	*controller.Worker
	rotation

	secret  *object
	targets []*object
	clock   clock.PassiveClock
	metrics *controller.Metrics
	writes  *controller.Writes
	// current is the certificate that is served, nil before the first sync.
	current atomic.Pointer[tls.Certificate]
}

// Options are the dependencies of a Manager. All are required.
type Options struct {
	Client dynamic.Interface
	// Secret is the name of the Secret that holds the certificate.
	Secret cache.ObjectName
	// Hosts are the names and addresses by which the API server reaches the webhooks.
	Hosts []string
	// Lifetime is how long each certificate is valid.
	Lifetime time.Duration
	// Targets are the objects in which the certificates are published. The manager waits for those that
	// do not exist.
	Targets []Target

	Worker controller.WorkerOptions
}

// Target is an object whose caBundle fields name the certificates that the API server trusts when it
// calls a webhook: a CustomResourceDefinition with a conversion webhook, or a configuration of admission
// webhooks.
type Target struct {
	Resource schema.GroupVersionResource
	Name     string
}

// New returns a Manager that is ready to Run.
func New(options Options) *Manager {
	// There is only one key.
	options.Worker.Workers = 1
	m := &Manager{
		Worker: controller.NewWorker(kind, options.Worker), rotation: rotation{hosts: options.Hosts, lifetime: options.Lifetime},
		clock: options.Worker.Clock, metrics: options.Worker.Metrics, writes: controller.NewWrites(options.Worker.Clock),
	}
	m.Handle(metav1.NamespaceAll, m.sync)
	m.secret = m.watch(options.Client, corev1.SchemeGroupVersion.WithResource("secrets"), options.Secret)
	for _, of := range options.Targets {
		m.targets = append(m.targets, m.watch(options.Client, of.Resource, cache.NewObjectName(metav1.NamespaceNone, of.Name)))
	}
	return m
}

// object is an object that the manager reads and writes.
type object struct {
	resource schema.GroupResource
	name     cache.ObjectName
	client   dynamic.ResourceInterface
	informer cache.SharedIndexInformer
}

// watch returns the object of that name, whose events enqueue the one key.
func (m *Manager) watch(client dynamic.Interface, resource schema.GroupVersionResource, name cache.ObjectName) *object {
	// RBAC by resourceNames allows to list and watch no other.
	selectName := func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, name.Namespace, 0, cache.Indexers{}, selectName).Informer()
	typed := cache.NewTypedSharedIndexInformer[*unstructured.Unstructured](informer)
	enqueue := func(*unstructured.Unstructured) { m.Queue.Add(m.secret.name) }
	controller.AddEventHandler(m.Worker, resource.Resource, typed, cache.TypedResourceEventHandlerFuncs[*unstructured.Unstructured]{
		AddFunc:    enqueue,
		UpdateFunc: func(_, updated *unstructured.Unstructured) { enqueue(updated) },
		DeleteFunc: func(cache.DeletedObject[*unstructured.Unstructured]) { enqueue(nil) },
	})
	return &object{resource: resource.GroupResource(), name: name, client: client.Resource(resource).Namespace(name.Namespace), informer: informer}
}

// cached returns a copy of the object in the cache, nil if there is none.
func (o *object) cached() *unstructured.Unstructured {
	cached, _, _ := o.informer.GetStore().GetByKey(o.name.String())
	found, ok := cached.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	return found.DeepCopy()
}

// Run syncs until ctx ends. It starts the informers, and returns after they have stopped.
func (m *Manager) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, o := range append(m.targets, m.secret) {
		running.Go(func() { o.informer.RunWithContext(ctx) })
	}
	defer client.AwaitInformers(ctx, running.Wait)
	// A Secret that does not exist causes no event.
	m.Queue.Add(m.secret.name)
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

// sync serves and publishes what the Secret holds, takes at most one step of a rotation, and returns when
// to sync again.
func (m *Manager) sync(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read the caches, once they show what the last sync wrote.
	if err := m.writes.Seen(key); err != nil {
		return 0, err
	}
	now, secret := m.clock.Now(), m.secret.cached()
	var current *state
	if secret != nil {
		var err error
		if current, err = parse(dataOf(secret), now); err != nil {
			klog.FromContext(ctx).Error(err, "Replacing an invalid certificate of the webhooks", "secret", key)
		}
	}
	var bundles [][]byte
	for _, target := range m.targets {
		for _, config := range clientConfigs(target.cached()) {
			bundles = append(bundles, decode(config["caBundle"]))
		}
	}

	// 2. Serve and publish. An error of one target does not keep it from the others, nor from the step.
	var errs []error
	if current != nil {
		m.current.Store(&current.serving)
		for _, target := range m.targets {
			errs = append(errs, m.publish(ctx, target, encode(current.trusted...)))
		}
	}

	// 3. Take the next step. Its event leads to the sync that serves and publishes it.
	step, requeueAfter := m.plan(current, bundles, now)
	if step != noStep {
		data, err := m.take(step, current, bundles, now)
		if err == nil {
			err = m.writeSecret(ctx, secret, data, string(step))
		}
		errs = append(errs, err)
	}
	// Timers do not notice a step of the wall clock.
	return min(requeueAfter, time.Minute), errors.Join(errs...)
}

// publish writes the bundle to every clientConfig of the target that has another one, in one update.
func (m *Manager) publish(ctx context.Context, target *object, bundle []byte) error {
	updated, text, differs := target.cached(), base64.StdEncoding.EncodeToString(bundle), false
	for _, config := range clientConfigs(updated) {
		differs = differs || config["caBundle"] != text
		config["caBundle"] = text
	}
	if !differs {
		return nil
	}
	return m.write(ctx, target, updated, "Published the certificate authorities")
}

// writeSecret creates the Secret with that data, or updates it if there is one.
func (m *Manager) writeSecret(ctx context.Context, secret *unstructured.Unstructured, data map[string][]byte, message string) error {
	if secret == nil {
		secret = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": string(corev1.SecretTypeTLS)}}
		secret.SetNamespace(m.secret.name.Namespace)
		secret.SetName(m.secret.name.Name)
		secret.SetLabels(map[string]string{controller.ManagedByLabel: controller.ManagedByValue})
	}
	setData(secret, data)
	return m.write(ctx, m.secret, secret, message)
}

// write creates or updates an object. It returns a conflict if another replica was faster.
func (m *Manager) write(ctx context.Context, to *object, content *unstructured.Unstructured, message string) error {
	var written *unstructured.Unstructured
	var err error
	verb := "update"
	if content.GetResourceVersion() == "" {
		verb = "create"
		written, err = to.client.Create(ctx, content, metav1.CreateOptions{FieldManager: controller.FieldManager})
		if apierrors.IsAlreadyExists(err) {
			err = controller.NewConflict(to.resource, to.name.Name)
		}
	} else {
		written, err = to.client.Update(ctx, content, metav1.UpdateOptions{FieldManager: controller.FieldManager})
	}
	if err != nil {
		return fmt.Errorf("writing the certificate to %s %s: %w", to.resource.Resource, to.name, err)
	}
	m.metrics.Wrote(kind, to.resource.Resource, verb)
	owner := &metav1.ObjectMeta{Namespace: m.secret.name.Namespace, Name: m.secret.name.Name}
	m.writes.Await(owner, to.informer.GetStore(), written.GetResourceVersion())
	klog.FromContext(ctx).Info(message, "resource", to.resource.Resource, "name", to.name)
	return nil
}

// clientConfigs returns the clientConfig of each webhook of an object, as parts of it that may be written
// to. It adds none: an object without a webhook is left without.
func clientConfigs(o *unstructured.Unstructured) (configs []map[string]any) {
	if o == nil {
		return nil
	}
	conversion, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "conversion", "webhook")
	admission, _ := o.Object["webhooks"].([]any)
	for _, webhook := range append([]any{conversion}, admission...) {
		fields, _ := webhook.(map[string]any)
		if config, ok := fields["clientConfig"].(map[string]any); ok {
			configs = append(configs, config)
		}
	}
	return configs
}

// dataOf returns the data of a Secret.
func dataOf(secret *unstructured.Unstructured) map[string][]byte {
	data := map[string][]byte{}
	encoded, _, _ := unstructured.NestedMap(secret.Object, "data")
	for field, value := range encoded {
		data[field] = decode(value)
	}
	return data
}

// setData replaces the data of a Secret.
func setData(secret *unstructured.Unstructured, data map[string][]byte) {
	encoded := map[string]any{}
	for field, value := range data {
		encoded[field] = base64.StdEncoding.EncodeToString(value)
	}
	secret.Object["data"] = encoded
}

// decode decodes a field of bytes. The API server stores no invalid one.
func decode(encoded any) []byte {
	text, _ := encoded.(string)
	decoded, _ := base64.StdEncoding.DecodeString(text)
	return decoded
}
