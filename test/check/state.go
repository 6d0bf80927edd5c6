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
	"k8s.io/client-go/dynamic"
)

// state has the scalars of objects by "resource name path".
type state map[string]string

// stateOf returns the state after the versions: of the resources in tracked, and of their status where
// tracked has resource/status, because another controller may write it.
func (c *checker) stateOf(versions []version, tracked map[string]bool, names *aliases) state {
	existing, uids := map[types.UID]version{}, []string{}
	for _, v := range versions {
		if _, known := existing[v.object.GetUID()]; !known {
			alias := v.resource + "/" + names.of(v.resource, v.object.GetName())
			uids = append(uids, string(v.object.GetUID()), alias)
		}
		existing[v.object.GetUID()] = v
	}
	replace := strings.NewReplacer(append(uids, names.namespace, "NAMESPACE")...)
	s := state{}
	for _, v := range existing {
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

// differences returns the lines in which two states differ, without the ignored ones.
func differences(want, got state, ignored func(string) bool) []string {
	var lines []string
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a, inWant := want[key]
		b, inGot := got[key]
		switch {
		case ignored(key) || inWant == inGot && a == b:
		case !inGot:
			lines = append(lines, fmt.Sprintf("- %s: %s", key, a))
		case !inWant:
			lines = append(lines, fmt.Sprintf("+ %s: %s", key, b))
		default:
			lines = append(lines, fmt.Sprintf("  %s: %s -> %s", key, a, b))
		}
	}
	return lines
}

// restError says why a run is not at rest as it should be.
type restError struct {
	judge string
	lines []string
}

// Error implements error.
func (e *restError) Error() string { return e.judge + ": " + strings.Join(e.lines, "; ") }

// rest waits until nothing changes, and the state differs in nothing that matters. differs may be nil.
func (r *run) rest(ctx context.Context, differs func([]version) []string) error {
	quiet := r.check.suite.Quiet.Duration
	if differs == nil {
		quiet = quiet * 3 / 2
	}
	last := &restError{judge: "settled", lines: []string{"the controller never stops writing"}}
	err := poll(ctx, restTimeout, func(context.Context) error {
		since := r.quietFor()
		if since < quiet || !r.watches() {
			return errors.New("not at rest")
		}
		if differs == nil {
			return nil
		}
		lines := differs(r.history.all())
		if len(lines) == 0 {
			return nil
		}
		last = &restError{judge: "end", lines: lines}
		if since > r.check.suite.Patience.Duration {
			return nil
		}
		return last
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || last.judge == "end" && len(differs(r.history.all())) > 0 {
		return last
	}
	return nil
}

// quietFor returns for how long neither an object changed nor the controller wrote.
func (r *run) quietFor() time.Duration {
	last := r.history.changedAt()
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	for _, request := range slices.Backward(r.proxy.requests) {
		if request.isWrite() {
			if request.at.After(last) {
				last = request.at
			}
			break
		}
	}
	return r.check.cluster.clock.Now().Sub(last)
}

// touched is the annotation with which check makes the controller sync each owner again.
const touched = "check-touched"

// settle makes the controller sync each owner again, and returns its writes from there on that changed nothing.
func (r *run) settle(ctx context.Context, differs func([]version) []string) ([]request, error) {
	r.proxy.disarm()
	before, known := r.proxy.recorded(0), map[string]bool{}
	client := r.check.cluster.client.Resource(r.check.owners).Namespace(r.namespace)
	owners, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, v := range r.history.all() {
		known[v.object.GetResourceVersion()] = true
	}
	for i := range owners.Items {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, touched)
		object, err := client.Patch(ctx, owners.Items[i].GetName(), types.MergePatchType, patch, patchOptions)
		if err := r.awaitRecorded(ctx, object, err); err != nil {
			return nil, fmt.Errorf("touching an owner: %w", err)
		}
		known[object.GetResourceVersion()] = true
	}
	if err := r.rest(ctx, differs); err != nil {
		return nil, err
	}
	var noops []request
	for _, request := range r.proxy.recorded(len(before)) {
		if request.applied() && known[request.revision] {
			noops = append(noops, request)
		}
	}
	return noops, nil
}

// resolve returns a client for the object of a step, and its name.
func (r *run) resolve(to ref) (dynamic.ResourceInterface, string, error) {
	gvr, err := r.check.cluster.resource(to.APIVersion, to.Kind)
	if err != nil || !to.Owned {
		return r.check.cluster.client.Resource(gvr).Namespace(r.namespace), to.Name, err
	}
	var names []string
	for _, v := range r.check.ownedBy(r.history.all(), r.check.suite.example.GetName()) {
		if v.resource == gvr.Resource && v.object.GetDeletionTimestamp() == nil {
			names = append(names, v.object.GetName())
		}
	}
	if len(names) == 0 {
		return nil, "", fmt.Errorf("the example owns no %s", to.Kind)
	}
	return r.check.cluster.client.Resource(gvr).Namespace(r.namespace), slices.Min(names), nil
}

// ownedBy returns the last version of each existing object that an owner of that name owns.
func (c *checker) ownedBy(versions []version, name string) []version {
	existing, owners := map[types.UID]version{}, map[types.UID]bool{}
	for _, v := range versions {
		existing[v.object.GetUID()] = v
		owners[v.object.GetUID()] = owners[v.object.GetUID()] || v.resource == c.owners.Resource && v.object.GetName() == name
	}
	var owned []version
	for _, v := range existing {
		ours := slices.ContainsFunc(v.object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return owners[o.UID] })
		if !v.deleted && ours {
			owned = append(owned, v)
		}
	}
	return owned
}
