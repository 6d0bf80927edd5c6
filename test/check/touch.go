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
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/test/check/trace"
)

// touched is the annotation with which check makes the controller sync each owner again.
const touched = "check-touched"

// settle makes the controller sync each owner again, and returns its writes from there on that changed nothing.
func (r *run) settle(ctx context.Context, differs func([]trace.Version) []string) ([]trace.Request, error) {
	known := map[string]bool{}
	client := r.check.cluster.client.Resource(r.check.owners).Namespace(r.namespace)
	owners, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	versions, _ := r.history.All()
	for _, v := range versions {
		known[v.Object.GetResourceVersion()] = true
	}
	// Later, so that none of the requests from here on has led to one of these versions.
	before := len(r.proxy.recorded(0))
	for i := range owners.Items {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, touched)
		object, err := client.Patch(ctx, owners.Items[i].GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if err := r.awaitRecorded(ctx, object, false, err); err != nil {
			return nil, fmt.Errorf("touching an owner: %w", err)
		}
		known[object.GetResourceVersion()] = true
	}
	if err := r.rest(ctx, differs); err != nil {
		return nil, err
	}
	var noops []trace.Request
	for _, request := range r.proxy.recorded(before) {
		if request.Applied() && known[request.Revision] {
			noops = append(noops, request)
		}
	}
	return noops, nil
}

// wroteAfterTouch reports whether the controller wrote to the resource of the line of a state after the touch. Other
// controllers, such as the garbage collector, may be late.
func (o *outcome) wroteAfterTouch(key string) bool {
	return slices.ContainsFunc(o.requests[o.touched:], func(r trace.Request) bool { return r.Applied() && strings.HasPrefix(key, r.Resource+" ") })
}

// judgeTouch returns a finding if each run had work left at rest, which only a touch of its owner made it do. lines are
// what each touch led to. Faults do not tell them again.
func (r *reference) judgeTouch(runs []*outcome, lines []string) []finding {
	slices.Sort(lines)
	var left []string
	for i := len(runs) - 1; i < len(lines); i++ {
		if key, _, _ := strings.Cut(lines[i][2:], ": "); lines[i] == lines[i-len(runs)+1] && !r.masked[key] {
			left, r.masked[key] = append(left, lines[i]), true
		}
	}
	if left == nil {
		return nil
	}
	return []finding{{Judge: "settled", Message: "it had work left, which a touch of its owner made it do:\n" + strings.Join(left, "\n")}}
}
