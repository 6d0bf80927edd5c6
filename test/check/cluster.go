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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
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

	"example.com/sample-controller/test/check/trace"
)

// cluster is the API server behind the proxies, and what it tells of each namespace.
type cluster struct {
	// Upstream has the rights of the user of the kubeconfig.
	trace.Upstream

	client dynamic.Interface
	mapper meta.RESTMapper
	// namespaced has the namespaced resources, and recorded those of which histories are kept.
	namespaced map[schema.GroupResource]bool
	recorded   []schema.GroupVersionResource

	// histories are by the namespaces of the runs.
	histories sync.Map
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
	c := &cluster{namespaced: map[schema.GroupResource]bool{}}
	var failed [3]error
	c.URL, _, failed[0] = rest.DefaultServerUrlFor(config)
	c.Transport, failed[1] = rest.TransportFor(config)
	c.client, failed[2] = dynamic.NewForConfig(config)
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err = errors.Join(append(failed[:], err)...); err != nil {
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
func (c *cluster) at(namespace, apiVersion, kind string) (dynamic.ResourceInterface, schema.GroupVersionResource, error) {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, schema.GroupVersionResource{}, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	return c.client.Resource(mapping.Resource).Namespace(namespace), mapping.Resource, nil
}

// createNamespace returns the name of a new namespace, once Pods are admitted there.
func (c *cluster) createNamespace(ctx context.Context) (string, error) {
	object := trace.DecodeObject([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"check-"}}`))
	created, err := c.client.Resource(namespaces).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	accounts := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"})
	return created.GetName(), trace.Poll(ctx, stepTimeout, func(ctx context.Context) error {
		_, err := accounts.Namespace(created.GetName()).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// record keeps the history of each namespace until ctx ends. With a gap nothing could be judged: then it calls failed.
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
				h, isRun := c.histories.Load(object.GetNamespace())
				// kube-controller-manager keeps this ConfigMap in each namespace.
				if isRun && event.Type != watch.Bookmark && object.GetName() != "kube-root-ca.crt" {
					h.(*trace.History).Add(gvr.Resource, object, event.Type == watch.Deleted)
				}
			}
			failed(fmt.Errorf("the watch of %s ended", gvr.GroupResource()))
		}()
	}
	return nil
}

// state has the scalars of objects by "resource name pointer".
type state map[string]string

// unlike matches fields that differ although nothing that matters does: what each object has of its own, how often
// another controller acted, the touch, and the scheduler's choice.
var unlike = regexp.MustCompile("^/(spec/nodeName|metadata/(" +
	"uid|resourceVersion|creationTimestamp|managedFields|namespace|name|generation|" +
	"annotations/(" + touched + "|deployment.kubernetes.io~1revision)))(/|$)")

// stateOf returns the state after the versions: of the resources in tracked, and of their status where tracked has
// resource/status, because another controller may write it.
func stateOf(versions []trace.Version, tracked map[string]bool, names *aliases) state {
	words, last := []string{names.namespace, "NAMESPACE"}, trace.Latest(versions)
	for i := range versions {
		// In order, because an alias may be a number: of the objects that still exist.
		if v := &versions[i]; !last[v.Object.GetUID()].Deleted {
			words = append(words, string(v.Object.GetUID()), v.Resource+"/"+names.of(v.Resource, v.Object.GetName()))
		}
	}
	replace := strings.NewReplacer(words...)
	s := state{}
	for _, v := range last {
		if v.Deleted || !tracked[v.Resource] {
			continue
		}
		object := v.Object.DeepCopy()
		sortConditions(object.Object)
		prefix := v.Resource + " " + names.of(v.Resource, v.Object.GetName()) + " "
		for path, value := range trace.Flatten(object.Object) {
			if unlike.MatchString(path) || !tracked[v.Resource+"/status"] && strings.HasPrefix(path, "/status") {
				continue
			}
			word := replace.Replace(fmt.Sprint(value))
			if _, err := time.Parse(time.RFC3339, word); err == nil {
				word = "<time>"
			} else if strings.HasSuffix(path, "/observedGeneration") && word == strconv.FormatInt(object.GetGeneration(), 10) {
				// The generation of some kinds grows when check touches their annotations.
				word = "<generation>"
			} else if strings.HasPrefix(word, "kube-api-access-") {
				// The volume that the API server adds to a Pod.
				word = "kube-api-access"
			}
			s[prefix+path] = word
		}
	}
	return s
}

// sortConditions sorts conditions by their type: their order has no meaning.
func sortConditions(object map[string]any) {
	list, _, _ := unstructured.NestedFieldNoCopy(object, "status", "conditions")
	conditions, _ := list.([]any)
	slices.SortFunc(conditions, func(a, b any) int {
		x, _ := a.(map[string]any)
		y, _ := b.(map[string]any)
		return strings.Compare(fmt.Sprint(x["type"]), fmt.Sprint(y["type"]))
	})
}

// differences returns the lines in which two states differ, without the ignored ones. An object that one of them lacks
// is one line.
func differences(want, got state, ignored func(string) bool) (lines []string) {
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
		case wanted == exists:
			lines = append(lines, fmt.Sprintf("  %s: %q -> %q", key, a, b))
		case !strings.HasSuffix(key, " /kind"):
		case exists:
			lines = append(lines, "+ "+key+": "+b)
		default:
			lines = append(lines, "- "+key+": "+a)
		}
	}
	return lines
}

// keyOf returns the key in a line of differences.
func keyOf(line string) string {
	key, _, _ := strings.Cut(line[2:], ": ")
	return key
}

// scalars returns the paths of the scalars that begin so, sorted.
func scalars(object map[string]any, prefixes ...string) []string {
	values := trace.Flatten(object)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(values)), func(path string) bool {
		begins := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
		return others(values[path]) == nil || !slices.ContainsFunc(prefixes, begins)
	})
}

// others returns values that users may put in place of that one, nil if it is no scalar.
func others(value any) []any {
	switch v := value.(type) {
	case bool:
		return []any{!v}
	case int64:
		return []any{v + 1, v - 1, v * 2}
	case float64:
		return []any{v + 1, v - 1}
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return []any{strconv.FormatInt(n+1, 10)}
		}
		return []any{v + "2", "other", "1" + v, ""}
	}
	return nil
}

// change returns a JSON patch that gives the scalar at the path one of these values, and the object with it: the first
// one that the API server accepts in a dry run, and keeps.
func change(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured, path string,
	values []any) (json.RawMessage, *unstructured.Unstructured, error) {
	last, dry := errors.New("the object has no scalar there"), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	for _, value := range values {
		patch := trace.MustEncode([]map[string]any{{"op": "replace", "path": path, "value": value}})
		got, err := client.Patch(ctx, object.GetName(), types.JSONPatchType, patch, dry)
		if err == nil && fmt.Sprint(trace.Flatten(got.Object)[path]) != fmt.Sprint(value) {
			err = errors.New("the API server does not keep the change")
		}
		if err != nil {
			last = err
			continue
		}
		// The answer of the API server may have fields that clients may not send.
		changed := &unstructured.Unstructured{}
		decoded, err := jsonpatch.DecodePatch(patch)
		if err == nil {
			patched, failed := decoded.Apply(trace.MustEncode(object))
			err = errors.Join(failed, changed.UnmarshalJSON(patched))
		}
		return patch, changed, err
	}
	return nil, nil, last
}

// aliases give objects whose names differ from run to run a name that does not.
type aliases struct {
	suite     *suite
	namespace string
	// stable are the names that all runs have; nil for all names.
	stable map[string]bool
	given  map[string]string
	counts map[string]int
}

func (c *checker) aliases(namespace string, stable map[string]bool) *aliases {
	return &aliases{c.suite, namespace, stable, map[string]string{}, map[string]int{}}
}

// of returns the alias of an object. Names that are not compared may be the same by chance.
func (a *aliases) of(resource, name string) string {
	name = strings.ReplaceAll(name, a.namespace, "NAMESPACE")
	if a.stable == nil || name == "" || a.stable[name] && !a.suite.ignores(resource+" * /metadata/name") {
		return cmp.Or(name, "*")
	}
	key := resource + "/" + name
	if a.given[key] == "" {
		a.counts[resource]++
		a.given[key] = "#" + strconv.Itoa(a.counts[resource])
	}
	return a.given[key]
}

// repoint counts points again, with names that all runs have.
func repoint(points []recordedPoint, names *aliases) []recordedPoint {
	counts := map[string]int{}
	out := slices.Clone(points)
	for i := range out {
		if out[i].request != nil {
			out[i].class = out[i].request.Class(names.of)
		}
		counts[out[i].class]++
		out[i].nth = counts[out[i].class]
	}
	return out
}

// commonNames returns the names that objects of all runs have.
func commonNames(runs []*run) map[string]bool {
	counts, stable := map[string]int{}, map[string]bool{}
	for _, o := range runs {
		names := map[string]bool{}
		for _, v := range o.versions {
			names[strings.ReplaceAll(v.Object.GetName(), o.namespace, "NAMESPACE")] = true
		}
		for i := range o.sent {
			names[strings.ReplaceAll(o.sent[i].Name, o.namespace, "NAMESPACE")] = true
		}
		for name := range names {
			counts[name]++
			stable[name] = counts[name] == len(runs)
		}
	}
	return stable
}

// track adds the resource of a write.
func track(tracked map[string]bool, r *trace.Request) {
	if r.Applied() {
		tracked[r.Resource] = true
		if r.Subresource == "status" {
			tracked[r.Resource+"/status"] = true
		}
	}
}

// describe returns one line for each point.
func describe(points []recordedPoint) []string {
	lines := make([]string, len(points))
	for i, p := range points {
		lines[i] = p.class
		if p.request != nil {
			lines[i] += fmt.Sprintf(" -> %d %s", p.request.Code, p.request.Fault)
		}
	}
	return lines
}

// owned returns the last version of each existing object that the example owns.
func (c *checker) owned(versions []trace.Version) []trace.Version {
	last := trace.Latest(versions)
	return slices.DeleteFunc(slices.Collect(maps.Values(last)), func(v trace.Version) bool {
		return v.Deleted || !slices.ContainsFunc(v.Object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
			owner, ok := last[o.UID]
			return ok && owner.Resource == c.owners.Resource && owner.Object.GetName() == c.suite.example.GetName()
		})
	})
}
