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

package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
)

// This file writes the finalizer and the item. The UID of the Tenant is the ID of the item: a request that is
// repeated because its answer was lost finds the item of the first one, and a Tenant that is created anew under the
// same name has another item.

const (
	// itemTimeout bounds the requests of one sync to the external service.
	itemTimeout = 10 * time.Second
	// itemCheckPeriod is how often the item of a Tenant at rest is read.
	itemCheckPeriod = 10 * time.Minute
)

// syncItem makes the external service have the item, with at most one write. failed is why the service does not
// have it, err is an error of the API server.
func (c *Controller) syncItem(ctx context.Context, tenant *v1alpha1.Tenant, item Item) (failed, err error) {
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	id := string(tenant.UID)
	got, err := c.service.Get(ctx, id)
	switch {
	case err == nil && got == item:
		return nil, nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return fmt.Errorf("reading the item %q: %w", id, err), nil
	}
	// A former leader may have deleted the item together with the Tenant, and this cache may not show that yet: an
	// item that is written now would stay for ever.
	if err := c.tenants.CheckLive(ctx, tenant); err != nil {
		return nil, err
	}
	if err := c.service.Put(ctx, id, item); err != nil {
		return fmt.Errorf("writing the item %q: %w", id, err), nil
	}
	klog.FromContext(ctx).V(2).Info("Wrote item", "id", id)
	return nil, nil
}

// finalize deletes the item of a terminating Tenant, and then lets the Tenant go. If the external service does not
// delete the item, or the API server refuses to let the Tenant go, the condition says so and the sync is retried.
func (c *Controller) finalize(ctx context.Context, tenant *v1alpha1.Tenant) (time.Duration, error) {
	failed := c.deleteItem(ctx, tenant)
	if failed == nil {
		if failed = c.setFinalizer(ctx, tenant, false); !controller.IsRefusal(failed) {
			return 0, failed
		}
	}
	delay, err := c.updateTenantStatus(ctx, tenant, findings{deletion: failed})
	return delay, errors.Join(retryable(failed), err)
}

// deleteItem returns nil once the external service does not have the item any more.
func (c *Controller) deleteItem(ctx context.Context, tenant *v1alpha1.Tenant) error {
	if c.service == nil {
		return errNoService
	}
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	id := string(tenant.UID)
	if err := c.service.Delete(ctx, id); err != nil {
		return fmt.Errorf("deleting the item %q: %w", id, err)
	}
	// A service that answers 202 has not deleted it yet, and may fail to.
	switch _, err := c.service.Get(ctx, id); {
	case err == nil:
		return fmt.Errorf("deleting the item %q: %w", id, errNotDeleted)
	case !errors.Is(err, ErrNotFound):
		return fmt.Errorf("reading the item %q: %w", id, err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted item", "id", id)
	return nil
}

// setFinalizer adds the finalizer or removes it. The patch replaces the whole list, of which the cache does not
// hold the finalizers of others, so it is read live, and the patch has the version that was read.
func (c *Controller) setFinalizer(ctx context.Context, tenant *v1alpha1.Tenant, wanted bool) error {
	live, err := c.tenants.Live(ctx, tenant)
	if err != nil {
		return err
	}
	finalizers := slices.DeleteFunc(slices.Clone(live.Finalizers), func(name string) bool { return name == finalizer })
	if wanted {
		finalizers = append(finalizers, finalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": live.ResourceVersion, "finalizers": finalizers}})
	if err != nil {
		return fmt.Errorf("encoding finalizers: %w", err)
	}
	patched, err := c.tenants.Client(live.Namespace).Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return fmt.Errorf("updating the finalizers of Tenant: %w", err)
	}
	c.Metrics.Wrote(tenantKind, "tenants", "patch")
	c.tenants.Wrote(tenant, c.tenants.Informer.GetIndexer(), patched.ResourceVersion)
	return nil
}
