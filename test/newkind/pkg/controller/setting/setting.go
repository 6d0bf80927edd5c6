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

package setting

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/sample-controller/pkg/client/trim"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/newkind/pkg/apis/tuning/v1alpha1"
)

// This file decides, from values alone, and trims objects for the caches.

const (
	settingKind = "Setting"
	// maxKeys is how many keys the CRD allows in spec.data.
	maxKeys = 16
)

func settingGVK() schema.GroupVersionKind {
	return schema.GroupVersion(v1alpha1.GroupVersion).WithKind(settingKind)
}

// owns reports whether this very Setting, by UID, controls the ConfigMap.
func owns(setting *v1alpha1.Setting, configMap *corev1.ConfigMap) bool {
	return controller.IsControlledBy(configMap, setting, settingGVK().GroupKind())
}

// validateSpec returns what is wrong with the spec and how to correct it, "" if it is valid.
func validateSpec(setting *v1alpha1.Setting) string {
	for _, key := range slices.Sorted(maps.Keys(setting.Spec.Data)) {
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			return fmt.Sprintf("spec.data has the key %q, which no ConfigMap can have: %s", trim.Bounded(key), strings.Join(problems, "; "))
		}
	}
	return ""
}

// newConfigMap returns the ConfigMap that the Setting asks for.
func newConfigMap(setting *v1alpha1.Setting) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            setting.Name,
			Namespace:       setting.Namespace,
			Labels:          map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(setting, settingGVK())},
		},
		Data: maps.Clone(setting.Spec.Data),
	}
}

// diffConfigMap compares the fields that this controller enforces, and no others: the data, and whether there is
// a managed-by label. It returns the patch that repairs them. The owner reference is not among them: the admission
// plugin OwnerReferencesPermissionEnforcement requires the right to delete for that.
// TrimConfigMap must keep each of these fields.
func diffConfigMap(_ *v1alpha1.Setting, desired, current *corev1.ConfigMap) controller.Patch {
	patch := controller.NewPatch(current)
	patch.ReplaceMap(current.Data, desired.Data, "data", "data")
	patch.AddMissingLabel(current, controller.ManagedByLabel, controller.ManagedByValue)
	return patch
}

// hadConfigMap reports whether the status of this generation tells of a ConfigMap of the Setting's own.
func hadConfigMap(setting *v1alpha1.Setting) bool {
	ready := controller.GetReady(setting.Status.Conditions)
	has := []string{v1alpha1.ReasonConfigMapReady, v1alpha1.ReasonConfigMapProgressing, v1alpha1.ReasonConfigMapContested}
	return ready.ObservedGeneration == setting.Generation && slices.Contains(has, ready.Reason)
}

// findings are what the status is computed from, beside the Setting.
type findings struct {
	// configMap is the one of the Setting's name, nil if there is none.
	configMap *corev1.ConfigMap
	// refused is why the API server refused a write, nil if it did not.
	refused error
	// writes is what became of the writes to the ConfigMap.
	writes controller.Report
}

// newStatus returns the status that follows from the findings. now becomes lastTransitionTime if the status of
// Ready changes. Conditions of other types are kept.
func newStatus(setting *v1alpha1.Setting, f findings, now metav1.Time) v1alpha1.SettingStatus {
	status := *setting.Status.DeepCopy()
	status.ObservedGeneration = setting.Generation
	controller.SetReady(&status.Conditions, readyCondition(setting, f), setting.Generation, now)
	return status
}

// readyCondition returns status, reason and message of the Ready condition. The first that applies decides: what
// the user has to correct comes before what the controller is about to do.
func readyCondition(setting *v1alpha1.Setting, f findings) metav1.Condition {
	name := fmt.Sprintf("ConfigMap %q ", setting.Name)
	ready := metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigMapReady, Message: name + "is as the spec asks"}
	switch invalid := validateSpec(setting); {
	case invalid != "":
		return controller.NotReady(v1alpha1.ReasonInvalidSpec, invalid)
	case f.refused != nil:
		return controller.NotReady(v1alpha1.ReasonConfigMapRejected, controller.DescribeRefusal(settingKind, f.refused))
	case f.configMap != nil && !owns(setting, f.configMap):
		return controller.NotReady(v1alpha1.ReasonConfigMapNotOwned, controller.DescribeNotOwned(f.configMap, "ConfigMap", setting, settingGVK(), controller.NotOwnedHints{
			Freed: "is deleted", OtherName: "create this Setting under another name",
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

// TrimSetting trims a Setting. The CRD bounds spec and status.
func TrimSetting(setting *v1alpha1.Setting) *v1alpha1.Setting {
	trim.Metadata(setting)
	trim.Conditions(setting.Status.Conditions)
	return setting
}

// TrimConfigMap returns what is read of a ConfigMap that a Setting controls, nil for any other ConfigMap.
func TrimConfigMap(configMap *corev1.ConfigMap) *corev1.ConfigMap {
	if controller.ControllerOf(configMap, settingGVK().GroupKind()) == nil {
		return nil
	}
	trimmed := &corev1.ConfigMap{Data: trim.Map(configMap.Data, maxKeys)}
	controller.SetOwned(trimmed, configMap)
	controller.MarkLarge(trimmed, configMap)
	return trimmed
}
