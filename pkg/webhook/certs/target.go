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

// Target is an object in which the API server reads whom to trust when it calls a
// webhook: a CustomResourceDefinition that is converted by one, or a configuration of
// webhooks.
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
	// written is the cached version that was last written over. One worker syncs.
	written string
}

func newTarget(client dynamic.Interface, of Target, metrics controller.Counters) *target {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, of.Resource, metav1.NamespaceNone, 0, cache.Indexers{}, only(of.Name)).Informer()
	return &target{Target: of, client: client, informer: informer, metrics: metrics}
}

// only selects the one object of that name, so that no right to others is needed.
func only(name string) func(*metav1.ListOptions) {
	return func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}

// callers returns all places of an object that say how to call a webhook: its
// clientConfigs. What is not there is nothing to mend: somebody installs or removes it.
func callers(object map[string]any) []map[string]any {
	var found []map[string]any
	if strategy, _, _ := unstructured.NestedString(object, "spec", "conversion", "strategy"); strategy == "Webhook" {
		found = append(found, configOf(object, "spec", "conversion", "webhook", "clientConfig"))
	}
	webhooks, _ := object["webhooks"].([]any)
	for i := range webhooks {
		found = append(found, configOf(webhooks[i], "clientConfig"))
	}
	return slices.DeleteFunc(found, func(config map[string]any) bool { return config == nil })
}

// configOf returns the map at the end of the path, itself and no copy, nil if there is
// none.
func configOf(value any, path ...string) map[string]any {
	for _, field := range path {
		parent, _ := value.(map[string]any)
		value = parent[field]
	}
	config, _ := value.(map[string]any)
	return config
}

// bundleOf returns the authorities that a clientConfig has, nil if it has none.
func bundleOf(config map[string]any) []byte {
	text, _, _ := unstructured.NestedString(config, "caBundle")
	bundle, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return bundle
}

// cached returns the object as the cache has it, nil if there is none.
func (t *target) cached() *unstructured.Unstructured {
	object, _, _ := t.informer.GetStore().GetByKey(t.Name)
	found, _ := object.(*unstructured.Unstructured)
	return found
}

// publish has the API server trust the bundle, by one write if it does not. It fails if
// the object has changed meanwhile.
func (t *target) publish(ctx context.Context, bundle []byte) (wrote bool, err error) {
	object := t.cached()
	if object == nil || object.GetResourceVersion() == t.written {
		// Without an object there is nothing to do, and after a write of ours its event is
		// on the way.
		return false, nil
	}
	updated := object.DeepCopy()
	for _, config := range callers(updated.Object) {
		if !bytes.Equal(bundleOf(config), bundle) {
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
