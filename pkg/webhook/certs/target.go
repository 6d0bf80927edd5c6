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
	"encoding/base64"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller"
)

// Target is an object whose caBundle fields name the authorities that the API server
// trusts when it calls a webhook: a CustomResourceDefinition with a conversion webhook, or
// a configuration of admission webhooks.
type Target struct {
	Resource schema.GroupVersionResource
	Name     string
}

// target is a Target and its cache.
type target struct {
	Target

	client   dynamic.Interface
	informer cache.SharedIndexInformer
	metrics  controller.Counters
	// written is the cached resourceVersion that the last update replaced. It needs no
	// lock: there is one worker.
	written string
}

func newTarget(client dynamic.Interface, of Target, metrics controller.Counters) *target {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, of.Resource, metav1.NamespaceNone, 0, cache.Indexers{}, selectName(of.Name)).Informer()
	return &target{Target: of, client: client, informer: informer, metrics: metrics}
}

// selectName restricts a list or watch to the object of that name: RBAC by resourceNames
// allows no other.
func selectName(name string) func(*metav1.ListOptions) {
	return func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}

// clientConfigs returns the clientConfig fields of an object, as parts of it that may be
// written to. It adds none: an object without a webhook is left without.
func clientConfigs(object map[string]any) []map[string]any {
	var configs []map[string]any
	if strategy, _, _ := unstructured.NestedString(object, "spec", "conversion", "strategy"); strategy == "Webhook" {
		configs = append(configs, nestedMap(object, "spec", "conversion", "webhook", "clientConfig"))
	}
	webhooks, _ := object["webhooks"].([]any)
	for i := range webhooks {
		configs = append(configs, nestedMap(webhooks[i], "clientConfig"))
	}
	return slices.DeleteFunc(configs, func(config map[string]any) bool { return config == nil })
}

// nestedMap returns the map at that path, nil if there is none. unstructured.NestedMap
// would return a copy.
func nestedMap(value any, path ...string) map[string]any {
	for _, field := range path {
		outer, _ := value.(map[string]any)
		value = outer[field]
	}
	nested, _ := value.(map[string]any)
	return nested
}

// caBundle returns the authorities of a clientConfig as PEM, nil if it has none.
func caBundle(config map[string]any) []byte {
	text, _, _ := unstructured.NestedString(config, "caBundle")
	bundle, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return bundle
}

// cached returns the object in the cache, nil if there is none.
func (t *target) cached() *unstructured.Unstructured {
	object, _, _ := t.informer.GetStore().GetByKey(t.Name)
	found, _ := object.(*unstructured.Unstructured)
	return found
}

// publish writes the bundle to every clientConfig that has another one, in one update. It
// returns a conflict if the object has changed meanwhile.
func (t *target) publish(ctx context.Context, bundle []byte) (wrote bool, err error) {
	object := t.cached()
	// If the cache does not show the last update yet, its event will cause another sync.
	if object == nil || object.GetResourceVersion() == t.written {
		return false, nil
	}
	updated := object.DeepCopy()
	for _, config := range clientConfigs(updated.Object) {
		if !bytes.Equal(caBundle(config), bundle) {
			config["caBundle"] = base64.StdEncoding.EncodeToString(bundle)
			wrote = true
		}
	}
	if !wrote {
		return false, nil
	}
	if _, err := t.client.Resource(t.Resource).Update(ctx, updated, metav1.UpdateOptions{FieldManager: controller.FieldManager}); err != nil {
		return false, fmt.Errorf("publishing the authorities in %s %s: %w", t.Resource.Resource, t.Name, err)
	}
	t.written = object.GetResourceVersion()
	t.metrics.Wrote(t.Resource.Resource, "update")
	return true, nil
}
