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
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// caller is a place in an object that says how to call a webhook.
type caller struct {
	// path leads to its clientConfig (RFC 6901).
	path   string
	bundle []byte
}

// callers returns all such places. What is not there is nothing to mend: somebody
// installs or removes it.
func callers(object *unstructured.Unstructured) []caller {
	var found []caller
	if strategy, _, _ := unstructured.NestedString(object.Object, "spec", "conversion", "strategy"); strategy == "Webhook" {
		config, _, _ := unstructured.NestedMap(object.Object, "spec", "conversion", "webhook", "clientConfig")
		found = append(found, caller{"/spec/conversion/webhook/clientConfig", bundleOf(config)})
	}
	webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	for i := range webhooks {
		webhook, _ := webhooks[i].(map[string]any)
		config, _, _ := unstructured.NestedMap(webhook, "clientConfig")
		found = append(found, caller{fmt.Sprintf("/webhooks/%d/clientConfig", i), bundleOf(config)})
	}
	return found
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
	object, exists, err := t.informer.GetStore().GetByKey(t.Name)
	if err != nil || !exists {
		return nil
	}
	found, _ := object.(*unstructured.Unstructured)
	return found
}

// publish has the API server trust the bundle, by one write if it does not. It fails if
// the object has changed meanwhile.
func (t *target) publish(ctx context.Context, bundle []byte) (wrote bool, err error) {
	object := t.cached()
	if object == nil {
		return false, nil
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{{"test", "/metadata/resourceVersion", object.GetResourceVersion()}}
	for _, c := range callers(object) {
		if !bytes.Equal(c.bundle, bundle) {
			patch = append(patch, operation{"add", c.path + "/caBundle", bundle})
		}
	}
	if len(patch) == 1 {
		return false, nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return false, fmt.Errorf("encoding a patch: %w", err)
	}
	if _, err := t.client.Resource(t.Resource).Patch(ctx, t.Name, types.JSONPatchType, text, metav1.PatchOptions{FieldManager: controller.FieldManager}); err != nil {
		return false, fmt.Errorf("publishing the authorities in %s %s: %w", t.Resource.Resource, t.Name, err)
	}
	t.metrics.Wrote(t.Resource.Resource, "patch")
	return true, nil
}
