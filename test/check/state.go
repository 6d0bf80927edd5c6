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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// state has the scalars of objects by "resource name path".
type state map[string]string

// stateOf returns the state after the versions: of the resources in tracked, and of their status where
// tracked has resource/status, because another controller may write it.
func (c *checker) stateOf(versions []version, tracked map[string]bool, names *aliases) state {
	words := []string{names.namespace, "NAMESPACE"}
	for i := range versions {
		// In order, because an alias may be a number.
		v := &versions[i]
		words = append(words, string(v.object.GetUID()), v.resource+"/"+names.of(v.resource, v.object.GetName()))
	}
	replace := strings.NewReplacer(words...)
	s := state{}
	for _, v := range latest(versions) {
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
		_, wanted := want[object+".kind"]
		_, exists := got[object+".kind"]
		switch {
		case ignored(key) || inWant == inGot && a == b:
		case wanted != exists && !strings.HasSuffix(key, " .kind"):
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

// rest waits until nothing changes, and the state differs in nothing that matters; differs may be nil. A finding
// is what it waited for in vain.
func (r *run) rest(ctx context.Context, differs func([]version) []string) error {
	quiet := r.check.suite.Quiet.Duration
	if differs == nil {
		quiet = quiet * 3 / 2
	}
	var last error = &finding{judge: "settled", message: "the controller never stops writing"}
	err := poll(ctx, restTimeout, func(context.Context) error {
		versions, changed := r.history.all()
		since := r.check.cluster.clock.Now().Sub(r.proxy.wroteAfter(changed))
		if since < quiet || !r.watches() || r.proxy.holding.Load() > 0 {
			return errors.New("not at rest")
		}
		if differs == nil {
			last = nil
			return nil
		}
		if lines := differs(versions); len(lines) > 0 {
			last = &finding{judge: "end", message: strings.Join(lines, "\n")}
		} else {
			last = nil
		}
		if since > r.check.suite.Patience.Duration {
			return nil
		}
		return last
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	return last
}

// touched is the annotation with which check makes the controller sync each owner again.
const touched = "check-touched"

// settle makes the controller sync each owner again, and returns its writes from there on that changed nothing.
func (r *run) settle(ctx context.Context, differs func([]version) []string) ([]request, error) {
	before, known := len(r.proxy.recorded(0)), map[string]bool{}
	client := r.check.cluster.client.Resource(r.check.owners).Namespace(r.namespace)
	owners, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	versions, _ := r.history.all()
	for _, v := range versions {
		known[v.object.GetResourceVersion()] = true
	}
	for i := range owners.Items {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, touched)
		object, err := client.Patch(ctx, owners.Items[i].GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			err = r.awaitRecorded(ctx, object, false)
		}
		if err != nil {
			return nil, fmt.Errorf("touching an owner: %w", err)
		}
		known[object.GetResourceVersion()] = true
	}
	if err := r.rest(ctx, differs); err != nil {
		return nil, err
	}
	var noops []request
	for _, request := range r.proxy.recorded(before) {
		if request.applied() && known[request.revision] {
			noops = append(noops, request)
		}
	}
	return noops, nil
}

// owned returns the last version of each existing object that the example owns.
func (c *checker) owned(versions []version) []version {
	last, owned := latest(versions), []version(nil)
	for _, v := range last {
		ours := slices.ContainsFunc(v.object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
			owner, ok := last[o.UID]
			return ok && owner.resource == c.owners.Resource && owner.object.GetName() == c.suite.example.GetName()
		})
		if ours && !v.deleted {
			owned = append(owned, v)
		}
	}
	return owned
}
