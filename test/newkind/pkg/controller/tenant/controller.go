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

// Package tenant is the controller of Tenants: it keeps a ConfigMap of the same name for each. docs/tenant.md is its
// contract.
// +external:begin
//
// It also keeps an item in an external service, of which the ConfigMap tells.
// +external:end
package tenant

import (
	"context"
	"errors"
	"flag" // +external
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
	"example.com/sample-controller/test/newkind/pkg/app"
)

// Controller turns each Tenant into a ConfigMap of its name.
//
// An event of a Tenant or of a ConfigMap enqueues the key of the Tenant that it concerns. A worker takes the
// key and calls syncHandler, which reads the caches, decides (tenant.go), makes at most one write to the
// ConfigMap, and writes the Tenant's status if it changed. The watch events of these writes enqueue the Tenant
// again, and that sync finds nothing to do. A sync that fails is retried with backoff.
// +external:begin
//
// Before the ConfigMap it makes at most one write to the external service (service.go). No event tells of a change
// there, so each Tenant is synced every 10 minutes.
// +external:end
type Controller struct {
	// tenants reads Tenants and writes their status, configMaps reads and writes what they own. Both make
	// each write with all that belongs to it: a precondition, so that nothing is overwritten, a line in the
	// log, an event, a metric, and a note that makes the next sync wait until the cache shows the write.
	tenants    *controller.Owners[*v1alpha1.Tenant]
	configMaps *controller.Dependents[*v1alpha1.Tenant, *corev1.ConfigMap]
	// +external:begin
	// service is the external service, nil if none is configured.
	service *Service
	// +external:end

	controller.Options
}

// New returns a Controller whose syncHandler and event handlers are registered with the Worker. It adds an
// index to the ConfigMap informer, and returns an error if that fails.
func New(in *app.ControllerContext) (*Controller, error) {
	c := &Controller{Options: in.Options}
	tenants := in.Informers.Tenancy().V1alpha1().Tenants().TypedInformer()
	c.tenants = controller.NewOwners(controller.OwnersOptions[*v1alpha1.Tenant]{
		Options: c.Options, Kind: tenantGVK(), Resource: v1alpha1.Resource("tenants"), Informer: tenants,
		Client: func(namespace string) controller.OwnerClient[*v1alpha1.Tenant] {
			return in.Client.TenancyV1alpha1().Tenants(namespace)
		},
		LatestVersion: func(ctx context.Context) (string, error) {
			list, err := in.Client.TenancyV1alpha1().Tenants(c.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
			return list.ResourceVersion, err
		},
		Status: func(tenant *v1alpha1.Tenant) any { return &tenant.Status },
	})
	var err error
	configMaps := in.KubeInformers.Core().V1().ConfigMaps().TypedInformer()
	c.configMaps, err = controller.NewDependents(c.tenants, controller.DependentsOptions[*v1alpha1.Tenant, *corev1.ConfigMap]{
		Kind: "ConfigMap", Resource: corev1.Resource("configmaps"), Informer: configMaps,
		Client: func(namespace string) controller.DependentClient[*corev1.ConfigMap] {
			return in.KubeClient.CoreV1().ConfigMaps(namespace)
		},
		Diff: diffConfigMap, Trim: TrimConfigMap, Existed: hadConfigMap, Advice: "and change the Tenant instead",
	})
	if err != nil {
		return nil, err
	}
	controller.AddEventHandler(c.Worker, tenantKind, tenants, c.tenants.EventHandler())
	controller.AddEventHandler(c.Worker, "ConfigMap", configMaps, c.configMaps.EventHandler(c.tenants.Enqueue))
	c.Worker.Handle(c.Namespace, c.syncHandler)
	c.Metrics.CountByReady("Tenants", tenants.GetStore())
	return c, nil
}

// The admission plugin OwnerReferencesPermissionEnforcement requires update on tenants/finalizers to set blockOwnerDeletion.
// +kubebuilder:rbac:groups=tenancy.example.org,resources=tenants,verbs=get;list;watch
// +external:begin
// +kubebuilder:rbac:groups=tenancy.example.org,resources=tenants,verbs=patch
// +external:end
// +kubebuilder:rbac:groups=tenancy.example.org,resources=tenants/status,verbs=patch
// +kubebuilder:rbac:groups=tenancy.example.org,resources=tenants/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch

// syncHandler brings the cluster one step closer to what the Tenant of that name asks for. It returns after
// which time to sync again at the latest, 0 for only after an event, or the error for which to retry with
// backoff. It may be called at any time, and for any reason: it compares what is with what should be, and
// does not know which event has led to the call.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read from the caches. Until they show what the last sync wrote Get returns an error: a sync that acts on an
	// old cache repeats its writes.
	// +external:begin
	if err := c.tenants.Seen(key); err != nil {
		return 0, err
	}
	if tenant, exists := c.tenants.Cached(key); exists && tenant.DeletionTimestamp != nil && hasFinalizer(tenant) {
		// The API server keeps the Tenant until the finalizer is removed.
		return c.finalize(ctx, tenant)
	}
	// +external:end
	tenant, exists, err := c.tenants.Get(key)
	if err != nil || !exists {
		// The garbage collector deletes the ConfigMap of a Tenant that is gone.
		return 0, err
	}
	f := findings{configMap: c.configMaps.Get(key.Namespace, key.Name)}

	// 2. Decide what the ConfigMap should be, from values alone: tenant.go has no client and no clock.
	desired, acts := newConfigMap(tenant), validateSpec(tenant) == ""

	// 3. Act.
	// +external:begin
	if acts {
		// The finalizer comes before the item, and the item before the ConfigMap that tells of it.
		var ends bool
		if ends, err = c.syncItem(ctx, tenant, &f); ends {
			return 0, err
		}
		acts = f.item == nil && err == nil
	}
	// +external:end
	switch {
	case !acts:
		// The controller cannot act upon this spec. All stays as it is, and the status says what is wrong.
	case f.configMap == nil:
		f.configMap, err = c.configMaps.Create(ctx, tenant, desired)
	default:
		// This writes the fields that differ, and nothing if none does or the ConfigMap is another owner's.
		f.configMap, err = c.configMaps.Patch(ctx, tenant, f.configMap, desired)
	}
	if err != nil && !controller.IsRefusal(err) {
		// The Worker retries after a failure. A refusal lasts until the object, a policy or a quota changes, so
		// the status reports it.
		return 0, err
	}

	// 4. Report: write the status if it differs, and record an event if there is news.
	f.refused, f.writes = err, c.configMaps.Report(tenant, f.configMap, desired)
	delay, statusErr := c.updateTenantStatus(ctx, tenant, f)
	err = errors.Join(err, retryable(f.item)) // +external
	return delay, errors.Join(err, statusErr)
}

// updateTenantStatus writes the Tenant's status if it differs from the cached one, with an event if there is news.
// It returns after which time to sync again.
func (c *Controller) updateTenantStatus(ctx context.Context, tenant *v1alpha1.Tenant, f findings) (time.Duration, error) {
	now := c.Clock.Now()
	status := newStatus(tenant, f, metav1.NewTime(now))
	was, ready := controller.GetReady(tenant.Status.Conditions), controller.GetReady(status.Conditions)
	// A report of progress may wait. That a Tenant is no longer Ready, although its spec did not change, may not.
	isProgress := ready.Reason == v1alpha1.ReasonConfigMapProgressing && !controller.LostReady(was, ready, tenant.Generation)
	event := controller.ReadyEvent(tenantKind, was, ready,
		v1alpha1.ReasonItemFailed, v1alpha1.ReasonItemDeletionFailed, // +external
		v1alpha1.ReasonConfigMapNotOwned, v1alpha1.ReasonConfigMapRejected, v1alpha1.ReasonConfigMapContested, v1alpha1.ReasonInvalidSpec)
	delayed, err := c.tenants.UpdateStatus(ctx, tenant, &status, isProgress, ready, event)
	return controller.Earliest(now,
		now.Add(itemCheckPeriod), // +external
		delayed, f.writes.Next), err
}

// NewDescriptor returns the descriptor of the controller of Tenants.
func NewDescriptor() app.ControllerDescriptor {
	resource := schema.GroupVersion(v1alpha1.GroupVersion).WithResource("tenants")
	endpoint := "" // +external
	return app.ControllerDescriptor{
		Name: "tenant", Kind: tenantKind, Resource: resource, CRDManifest: "artifacts/examples/tenant-crd.yaml",
		// The caches keep what the functions of Trim return. One that kept whole objects could be filled by a user.
		Informers: []app.Informer{
			{Resource: resource, Trim: app.TypedTrim(TrimTenant)},
			{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Trim: app.TypedTrim(TrimConfigMap)},
		},
		// +external:begin
		AddFlags: func(flags *flag.FlagSet) {
			flags.Func(endpointFlag, "URL below which the external service has the item of each Tenant. Without it no Tenant becomes Ready", func(value string) error {
				endpoint = value
				return validateEndpoint(value)
			})
		},
		// +external:end
		New: func(_ context.Context, in *app.ControllerContext) error {
			// +external:begin
			c, err := New(in)
			if err == nil {
				c.service = newService(endpoint, in.WrapTransport)
			}
			// +external:end
			// +plain _, err := New(in)
			return err
		},
	}
}
