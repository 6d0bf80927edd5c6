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

// Package tenant is the controller of Tenants: it keeps an item in an external service for each, and a ConfigMap of
// the same name that tells where the item is. docs/tenant.md is its contract.
package tenant

import (
	"context"
	"errors"
	"flag"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
	"example.com/sample-controller/test/newkind/pkg/app"
)

// Controller turns each Tenant into an item in an external service and a ConfigMap.
//
// An event of a Tenant or of a ConfigMap enqueues the key of the Tenant that it concerns. A worker takes the
// key and calls syncHandler, which reads the caches, decides (tenant.go), makes at most one write to the
// external service (service.go) and one to the ConfigMap, and writes the Tenant's status if it changed. The watch
// events of these writes enqueue the Tenant again, and that sync finds nothing to do. No event tells of a change
// in the external service, so each Tenant is synced every 10 minutes. A sync that fails is retried with backoff.
type Controller struct {
	// tenants reads Tenants and writes their status, configMaps reads and writes what they own. Both make
	// each write with all that belongs to it: a precondition, so that nothing is overwritten, a line in the
	// log, an event, a metric, and a note that makes the next sync wait until the cache shows the write.
	tenants    *controller.Owners[*v1alpha1.Tenant]
	configMaps *controller.Dependents[*v1alpha1.Tenant, *corev1.ConfigMap]

	// service is the external service, nil if none is configured.
	service *Service

	controller.Options
}

// New returns a Controller whose syncHandler and event handlers are registered with the Worker. It adds an
// index to the ConfigMap informer, and returns an error if that fails. service may be nil.
func New(in *app.ControllerContext, service *Service) (*Controller, error) {
	c := &Controller{service: service, Options: in.Options}
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
// +kubebuilder:rbac:groups=tenancy.example.org,resources=tenants,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=tenancy.example.org,resources=tenants/status,verbs=patch
// +kubebuilder:rbac:groups=tenancy.example.org,resources=tenants/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch

// syncHandler brings the cluster one step closer to what the Tenant of that name asks for. It returns after
// which time to sync again at the latest, 0 for only after an event, or the error for which to retry with
// backoff. It may be called at any time, and for any reason: it compares what is with what should be, and
// does not know which event has led to the call.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read from the caches. Until they show what the last sync wrote Seen returns an error: a sync that acts on
	// an old cache repeats its writes.
	if err := c.tenants.Seen(key); err != nil {
		return 0, err
	}
	if tenant, exists := c.tenants.Cached(key); exists && tenant.DeletionTimestamp != nil && hasFinalizer(tenant) {
		// The API server keeps the Tenant until the finalizer is removed.
		return c.finalize(ctx, tenant)
	}
	tenant, exists, err := c.tenants.Get(key)
	if err != nil || !exists {
		// The garbage collector deletes the ConfigMap of a Tenant that is gone.
		return 0, err
	}
	f := findings{configMap: c.configMaps.Get(key.Namespace, key.Name)}

	// 2. Decide what the item and the ConfigMap should be, from values alone: tenant.go has no client and no clock.
	item, desired, isValid := newItem(tenant), newConfigMap(tenant), validateSpec(tenant) == ""

	// 3. Act: the finalizer comes before the item, and the item before the ConfigMap that tells of it.
	switch {
	case !isValid:
		// The controller cannot act upon this spec. All stays as it is, and the status says what is wrong.
	case c.service == nil:
		f.item = errNoService
	case !hasFinalizer(tenant):
		// Without it a Tenant that is deleted meanwhile would leave its item behind. The sync after the event of
		// this write goes on.
		if err = c.setFinalizer(ctx, tenant, true); !controller.IsRefusal(err) {
			return 0, err
		}
	default:
		if f.item, err = c.syncItem(ctx, tenant, item); f.item == nil && err == nil {
			f.itemID = string(tenant.UID)
		}
	}
	switch {
	case !isValid || f.item != nil || err != nil:
		// The ConfigMap tells of no item that is not there.
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
	return delay, errors.Join(err, retryable(f.item), statusErr)
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
		v1alpha1.ReasonConfigMapNotOwned, v1alpha1.ReasonConfigMapRejected, v1alpha1.ReasonConfigMapContested, v1alpha1.ReasonInvalidSpec,
		v1alpha1.ReasonItemFailed, v1alpha1.ReasonItemDeletionFailed)
	delayed, err := c.tenants.UpdateStatus(ctx, tenant, &status, isProgress, ready, event)
	return controller.Earliest(now, delayed, f.writes.Next, now.Add(itemCheckPeriod)), err
}

// NewDescriptor returns the descriptor of the controller of Tenants.
func NewDescriptor() app.ControllerDescriptor {
	resource, endpoint := schema.GroupVersion(v1alpha1.GroupVersion).WithResource("tenants"), ""
	return app.ControllerDescriptor{
		Name: "tenant", Kind: tenantKind, Resource: resource, CRDManifest: "artifacts/examples/tenant-crd.yaml",
		// The caches keep what the functions of Trim return. One that kept whole objects could be filled by a user.
		Informers: []app.Informer{
			{Resource: resource, Trim: app.TypedTrim(TrimTenant)},
			{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Trim: app.TypedTrim(TrimConfigMap)},
		},
		AddFlags: func(flags *flag.FlagSet) {
			flags.Func(endpointFlag, "URL below which the external service has the item of each Tenant. Without it no Tenant becomes Ready", func(value string) error {
				endpoint = value
				return validateEndpoint(value)
			})
		},
		New: func(_ context.Context, in *app.ControllerContext) error {
			_, err := New(in, newService(endpoint, in.WrapTransport))
			return err
		},
	}
}
