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

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
)

// cluster is the API server behind the proxies.
type cluster struct {
	clock clock.Clock
	// server is its address, and transport connects to it as the user of the kubeconfig.
	server    *url.URL
	transport http.RoundTripper
	client    dynamic.Interface
	mapper    meta.RESTMapper
	// namespaced has the namespaced resources, and recorded those whose objects the recorder keeps.
	namespaced map[schema.GroupResource]bool
	recorded   []schema.GroupVersionResource
}

// unrecorded are the resources of which controllers and the cluster write objects at any time.
var unrecorded = []string{"events", "leases", "endpoints", "endpointslices", "podmetrics"}

// newCluster connects to the cluster of the kubeconfig, and creates the CRDs that it does not have.
func newCluster(ctx context.Context, kubeconfig string, crds []string) (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	c := &cluster{clock: clock.RealClock{}, namespaced: map[schema.GroupResource]bool{}}
	if c.server, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, err
	}
	if c.transport, err = rest.TransportFor(config); err != nil {
		return nil, err
	}
	if c.client, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	for _, file := range crds {
		if err := c.install(ctx, file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return c, c.discover(d)
}

// install creates the CRDs in the file that do not exist, and waits until they are served.
func (c *cluster) install(ctx context.Context, file string) error {
	objects, err := readObjects(file)
	if err != nil {
		return err
	}
	client := c.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, object := range objects {
		if err := createIfAbsent(ctx, client, object); err != nil {
			return err
		}
		err := poll(ctx, time.Minute, func(ctx context.Context) error {
			crd, err := client.Get(ctx, object.GetName(), getOptions)
			if err == nil && find(`{.status.conditions[?(@.type=="Established")].status}`, crd.Object) != "True" {
				err = fmt.Errorf("%s is not established", object.GetName())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) discover(d *discovery.DiscoveryClient) error {
	all, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		return err
	}
	c.mapper = restmapper.NewDiscoveryRESTMapper(all)
	for _, group := range all {
		for version, resources := range group.VersionedResources {
			for i := range resources {
				r := &resources[i]
				gvr := schema.GroupVersionResource{Group: group.Group.Name, Version: version, Resource: r.Name}
				if !r.Namespaced || strings.Contains(r.Name, "/") {
					continue
				}
				c.namespaced[gvr.GroupResource()] = true
				if version == group.Group.PreferredVersion.Version && slices.Contains(r.Verbs, "watch") && !slices.Contains(unrecorded, r.Name) {
					c.recorded = append(c.recorded, gvr)
				}
			}
		}
	}
	return nil
}

// resource returns the resource of a kind.
func (c *cluster) resource(apiVersion, kind string) (schema.GroupVersionResource, error) {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return mapping.Resource, nil
}

// at returns a client for objects of that kind in the namespace.
func (c *cluster) at(namespace, apiVersion, kind string) (dynamic.ResourceInterface, error) {
	gvr, err := c.resource(apiVersion, kind)
	if err != nil {
		return nil, err
	}
	return c.client.Resource(gvr).Namespace(namespace), nil
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// createNamespace returns the name of a new namespace, once Pods are admitted there.
func (c *cluster) createNamespace(ctx context.Context) (string, error) {
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"generateName": "check-"},
	}}
	created, err := c.client.Resource(namespaces).Create(ctx, namespace, createOptions)
	if err != nil {
		return "", err
	}
	accounts := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"})
	return created.GetName(), poll(ctx, time.Minute, func(ctx context.Context) error {
		_, err := accounts.Namespace(created.GetName()).Get(ctx, "default", getOptions)
		return err
	})
}

// writeKubeconfig writes the kubeconfig of a controller, whose only cluster is the proxy.
func writeKubeconfig(dir, server string, ca []byte, namespace string) (string, error) {
	file := filepath.Join(dir, namespace+".kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: check\n"+
		"clusters: [{name: check, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"contexts: [{name: check, context: {cluster: check, user: check, namespace: %s}}]\n"+
		"users: [{name: check, user: {token: check}}]\n", server, encode64(ca), namespace)
	return file, os.WriteFile(file, []byte(text), 0o600)
}
