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
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/clock"
)

// cluster is the API server behind the proxies, and what it tells of each namespace.
type cluster struct {
	clock clock.Clock
	// transport connects to the server as the user of the kubeconfig.
	server    *url.URL
	transport http.RoundTripper
	client    dynamic.Interface
	mapper    meta.RESTMapper
	// namespaced has the namespaced resources, and recorded those of which histories are kept.
	namespaced map[schema.GroupResource]bool
	recorded   []schema.GroupVersionResource

	mu        sync.Mutex
	histories map[string]*history
}

// unrecorded are the resources of which controllers and the cluster write objects at any time.
var unrecorded = []string{"events", "leases", "endpoints", "endpointslices", "podmetrics"}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// newCluster connects to the cluster of the kubeconfig, by default that of kubectl.
func newCluster(kubeconfig string) (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	c := &cluster{clock: clock.RealClock{}, namespaced: map[schema.GroupResource]bool{}, histories: map[string]*history{}}
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
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))
	lists, err := d.ServerPreferredNamespacedResources()
	for _, list := range lists {
		for _, r := range list.APIResources {
			gvr := schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind).GroupVersion().WithResource(r.Name)
			c.namespaced[gvr.GroupResource()] = true
			if slices.Contains(r.Verbs, "watch") && !slices.Contains(unrecorded, r.Name) {
				c.recorded = append(c.recorded, gvr)
			}
		}
	}
	return c, err
}

// at returns a client for objects of that kind in the namespace, and their resource.
func (c *cluster) at(namespace, apiVersion, kind string) (dynamic.ResourceInterface, string, error) {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, "", err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	return c.client.Resource(mapping.Resource).Namespace(namespace), mapping.Resource.Resource, nil
}

// createNamespace returns the name of a new namespace, once Pods are admitted there.
func (c *cluster) createNamespace(ctx context.Context) (string, error) {
	created, err := c.client.Resource(namespaces).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"generateName": "check-"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	accounts := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"})
	return created.GetName(), poll(ctx, stepTimeout, func(ctx context.Context) error {
		_, err := accounts.Namespace(created.GetName()).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// writeKubeconfig writes the kubeconfig of a controller, whose only cluster is the proxy.
func writeKubeconfig(dir, server string, ca []byte, namespace string) (string, error) {
	file := filepath.Join(dir, namespace+".kubeconfig")
	return file, os.WriteFile(file, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: check\n"+
		"clusters: [{name: check, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"contexts: [{name: check, context: {cluster: check, user: check, namespace: %s}}]\n"+
		"users: [{name: check, user: {token: check}}]\n",
		server, base64.StdEncoding.EncodeToString(ca), namespace), 0o600)
}

// version is one version of an object. Revisions order the versions of all objects of a cluster.
type version struct {
	resource string
	object   *unstructured.Unstructured
	revision int64
	deleted  bool
}

// isLive reports whether the object exists and nobody has deleted it.
func (v *version) isLive() bool { return !v.deleted && v.object.GetDeletionTimestamp() == nil }

func byRevision(a, b version) int { return cmp.Compare(a.revision, b.revision) }

// history has every version of every recorded object in a namespace.
type history struct {
	mu         sync.Mutex
	versions   []version
	lastChange time.Time
}

// all returns the versions so far, and when the last one came.
func (h *history) all() ([]version, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.versions), h.lastChange
}

// latest returns the last version of each object, deleted ones included.
func latest(versions []version) map[types.UID]version {
	last := map[types.UID]version{}
	for _, v := range versions {
		last[v.object.GetUID()] = v
	}
	return last
}

// record keeps the history of each namespace until ctx ends. With a gap nothing could be judged: then it calls
// failed.
func (c *cluster) record(ctx context.Context, failed func(error)) error {
	for _, gvr := range c.recorded {
		client := c.client.Resource(gvr)
		now, err := client.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
		}
		source := &cache.ListWatch{WatchFuncWithContext: client.Watch}
		events, err := watchtools.NewRetryWatcherWithContext(ctx, now.GetResourceVersion(), source)
		if err != nil {
			return fmt.Errorf("watching %s: %w", gvr.GroupResource(), err)
		}
		go func() {
			for event := range events.ResultChan() {
				object, ok := event.Object.(*unstructured.Unstructured)
				if !ok || event.Type == watch.Error {
					break
				}
				c.add(gvr.Resource, object, event.Type)
			}
			failed(fmt.Errorf("the watch of %s ended", gvr.GroupResource()))
		}()
	}
	return nil
}

// add adds a version to the history of its namespace, if that has a run.
func (c *cluster) add(resource string, object *unstructured.Unstructured, event watch.EventType) {
	c.mu.Lock()
	h := c.histories[object.GetNamespace()]
	c.mu.Unlock()
	// kube-controller-manager keeps this ConfigMap in each namespace.
	if h == nil || event == watch.Bookmark || object.GetName() == "kube-root-ca.crt" {
		return
	}
	// Etcd's revisions are numbers.
	revision, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions = append(h.versions, version{resource, object, revision, event == watch.Deleted})
	h.lastChange = c.clock.Now()
}

// historyOf begins the history of a namespace.
func (c *cluster) historyOf(namespace string) *history {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.histories[namespace] = &history{lastChange: c.clock.Now()}
	return c.histories[namespace]
}

// forget ends the history of a namespace.
func (c *cluster) forget(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.histories, namespace)
}

// state has the scalars of objects by "resource name pointer".
type state map[string]string

// stateOf returns the state after the versions: of the resources in tracked, and of their status where
// tracked has resource/status, because another controller may write it.
func (c *checker) stateOf(versions []version, tracked map[string]bool, names *aliases) state {
	words, last := []string{names.namespace, "NAMESPACE"}, latest(versions)
	for i := range versions {
		// In order, because an alias may be a number: of the objects that still exist.
		if v := &versions[i]; !last[v.object.GetUID()].deleted {
			words = append(words, string(v.object.GetUID()), v.resource+"/"+names.of(v.resource, v.object.GetName()))
		}
	}
	replace := strings.NewReplacer(words...)
	s := state{}
	for _, v := range last {
		if v.deleted || !tracked[v.resource] {
			continue
		}
		object := v.object.DeepCopy().Object
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace", "name"} {
			unstructured.RemoveNestedField(object, "metadata", field)
		}
		// How often another controller acted is no part of the end.
		annotations := v.object.GetAnnotations()
		delete(annotations, touched)
		delete(annotations, "deployment.kubernetes.io/revision")
		if len(annotations) == 0 {
			annotations = nil
		}
		(&unstructured.Unstructured{Object: object}).SetAnnotations(annotations)
		if v.resource != c.owners.Resource {
			unstructured.RemoveNestedField(object, "metadata", "generation")
			unstructured.RemoveNestedField(object, "status", "observedGeneration")
		}
		if !tracked[v.resource+"/status"] {
			delete(object, "status")
		}
		prefix := v.resource + " " + names.of(v.resource, v.object.GetName()) + " "
		for path, value := range flatten(object) {
			word := replace.Replace(fmt.Sprint(value))
			if _, err := time.Parse(time.RFC3339, word); err == nil {
				word = "<time>"
			}
			s[prefix+path] = word
		}
	}
	return s
}

// differences returns the lines in which two states differ, without the ignored ones. An object that one of them
// lacks is one line.
func differences(want, got state, ignored func(string) bool) []string {
	var lines []string
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a, inWant := want[key]
		b, inGot := got[key]
		object := key[:strings.LastIndex(key, " ")+1]
		_, wanted := want[object+"/kind"]
		_, exists := got[object+"/kind"]
		switch {
		case ignored(key) || inWant == inGot && a == b:
		case wanted != exists && !strings.HasSuffix(key, " /kind"):
		case wanted != exists && exists:
			lines = append(lines, "+ "+key+": "+b)
		case wanted != exists:
			lines = append(lines, "- "+key+": "+a)
		default:
			lines = append(lines, fmt.Sprintf("  %s: %q -> %q", key, a, b))
		}
	}
	return lines
}
