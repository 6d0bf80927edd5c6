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
	"cmp" // +external
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/pkg/client/trim"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
)

// This file decides, from values alone, and trims objects for the caches.

const (
	tenantKind = "Tenant"
	// maxKeys is how many keys the ConfigMap has.
	maxKeys = 2
)

func tenantGVK() schema.GroupVersionKind {
	return schema.GroupVersion(v1alpha1.GroupVersion).WithKind(tenantKind)
}

// owns reports whether this very Tenant, by UID, controls the ConfigMap.
func owns(tenant *v1alpha1.Tenant, configMap *corev1.ConfigMap) bool {
	return controller.IsControlledBy(configMap, tenant, tenantGVK().GroupKind())
}

// validateSpec returns what is wrong with the spec and how to correct it, "" if it is valid. The CRD's schema
// refuses such specs, but an object may be older than the schema.
func validateSpec(tenant *v1alpha1.Tenant) string {
	if tenant.Spec.DisplayName == "" {
		return "spec.displayName is not set; set it to a name for people"
	}
	return ""
}

// newConfigMap returns the ConfigMap that the Tenant asks for.
func newConfigMap(tenant *v1alpha1.Tenant) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            tenant.Name,
			Namespace:       tenant.Namespace,
			Labels:          map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(tenant, tenantGVK())},
		},
		Data: map[string]string{"id": string(tenant.UID), "displayName": tenant.Spec.DisplayName},
	}
}

// diffConfigMap compares the fields that this controller enforces, and no others: the data, and whether there is
// a managed-by label. It returns the patch that repairs them. The owner reference is not among them: the admission
// plugin OwnerReferencesPermissionEnforcement requires the right to delete for that.
// TrimConfigMap must keep each of these fields.
func diffConfigMap(_ *v1alpha1.Tenant, desired, current *corev1.ConfigMap) controller.Patch {
	patch := controller.NewPatch(current)
	patch.ReplaceMap(current.Data, desired.Data, "data", "data")
	patch.AddMissingLabel(current, controller.ManagedByLabel, controller.ManagedByValue)
	return patch
}

// hadConfigMap reports whether the status of this generation tells of a ConfigMap of the Tenant's own.
func hadConfigMap(tenant *v1alpha1.Tenant) bool {
	ready := controller.GetReady(tenant.Status.Conditions)
	has := []string{v1alpha1.ReasonConfigMapReady, v1alpha1.ReasonConfigMapProgressing, v1alpha1.ReasonConfigMapContested}
	return ready.ObservedGeneration == tenant.Generation && slices.Contains(has, ready.Reason)
}

// findings are what the status is computed from, beside the Tenant.
type findings struct {
	// configMap is the one of the Tenant's name, nil if there is none.
	configMap *corev1.ConfigMap
	// refused is why the API server refused a write, nil if it did not.
	refused error
	// +external:begin
	// item is why the external service does not have the item, and deletion why it has that of a terminating Tenant,
	// or why the API server does not let the Tenant go. They are nil otherwise.
	item, deletion error
	// itemID is the ID of the item that the external service has, "" if that is not known.
	itemID string
	// +external:end
	// writes is what became of the writes to the ConfigMap.
	writes controller.Report
}

// newStatus returns the status that follows from the findings. now becomes lastTransitionTime if the status of
// Ready changes. Conditions of other types are kept.
func newStatus(tenant *v1alpha1.Tenant, f findings, now metav1.Time) v1alpha1.TenantStatus {
	status := *tenant.Status.DeepCopy()
	status.ObservedGeneration = tenant.Generation
	status.ItemID = cmp.Or(f.itemID, status.ItemID) // +external
	controller.SetReady(&status.Conditions, readyCondition(tenant, f), tenant.Generation, now)
	return status
}

// readyCondition returns status, reason and message of the Ready condition. The first that applies decides: what
// the user has to correct comes before what the controller is about to do.
func readyCondition(tenant *v1alpha1.Tenant, f findings) metav1.Condition {
	name := fmt.Sprintf("ConfigMap %q ", tenant.Name)
	ready := metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigMapReady, Message: name + "is as the spec asks"}
	switch invalid := validateSpec(tenant); {
	// +external:begin
	case f.deletion != nil:
		return controller.NotReady(v1alpha1.ReasonItemDeletionFailed, describeFailure("deleting the item", f.deletion))
	// +external:end
	case invalid != "":
		return controller.NotReady(v1alpha1.ReasonInvalidSpec, invalid)
	case f.refused != nil:
		return controller.NotReady(v1alpha1.ReasonConfigMapRejected, controller.DescribeRefusal(tenantKind, f.refused))
	// +external:begin
	case f.item != nil:
		return controller.NotReady(v1alpha1.ReasonItemFailed, describeFailure("writing the item", f.item))
	// +external:end
	case f.configMap != nil && !owns(tenant, f.configMap):
		return controller.NotReady(v1alpha1.ReasonConfigMapNotOwned, controller.DescribeNotOwned(f.configMap, "ConfigMap", tenant, tenantGVK(), controller.NotOwnedHints{
			Freed: "is deleted", OtherName: "create this Tenant under another name",
		}))
	case f.writes.Contested != "":
		return controller.NotReady(v1alpha1.ReasonConfigMapContested, f.writes.Contested)
	case f.configMap == nil:
		return controller.NotReady(v1alpha1.ReasonConfigMapProgressing, name+"does not exist yet")
	case f.configMap.DeletionTimestamp != nil:
		return controller.NotReady(v1alpha1.ReasonConfigMapProgressing, name+"is being deleted and will be created anew")
	case f.writes.Drift != "":
		return controller.NotReady(v1alpha1.ReasonConfigMapProgressing, name+"was changed by another writer and is about to be repaired: "+f.writes.Drift)
	case f.writes.Accepted != "":
		ready.Message += "; accepted from admission webhooks or policies: " + f.writes.Accepted
	}
	return ready
}

// TrimTenant trims a Tenant. The CRD bounds spec and status.
func TrimTenant(tenant *v1alpha1.Tenant) *v1alpha1.Tenant {
	has := hasFinalizer(tenant) // +external
	trim.Metadata(tenant)
	// +external:begin
	if has {
		// Without it the item of a Tenant that is deleted would stay for ever.
		tenant.Finalizers = []string{finalizer}
	}
	// +external:end
	trim.Conditions(tenant.Status.Conditions)
	return tenant
}

// TrimConfigMap returns what is read of a ConfigMap that a Tenant controls, nil for any other ConfigMap.
func TrimConfigMap(configMap *corev1.ConfigMap) *corev1.ConfigMap {
	if controller.ControllerOf(configMap, tenantGVK().GroupKind()) == nil {
		return nil
	}
	trimmed := &corev1.ConfigMap{Data: trim.Map(configMap.Data, maxKeys)}
	controller.SetOwned(trimmed, configMap)
	controller.MarkLarge(trimmed, configMap)
	return trimmed
}
