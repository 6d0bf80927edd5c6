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

package explore

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/test/sim"
)

// judge has the invariants of all kinds, and what of the past they and those of the kind speak of. It uses no clock:
// what a process knows is what its caches had when the sync began, or what that sync has read live.
type judge struct {
	kind Judge
	// own are the versions that the API server has answered to this process, by owner, resource and name. What was
	// written for one owner another one learns from the cache.
	own map[string]int64
	// encoded is its form, nil before it was needed.
	encoded *form
}

func (j *judge) encode(c *canon) *form {
	if j.encoded == nil {
		t := c.tokens()
		for _, name := range slices.Sorted(maps.Keys(j.own)) {
			t.string(name)
			t.version(strconv.FormatInt(j.own[name], 10))
		}
		t.any(reflect.ValueOf(j.kind), "")
		j.encoded = t.form()
	}
	return j.encoded
}

// refused judges a write that the API server has refused because the object is another one than the cache had: the
// process knew that by the answer to a write of its own.
func (j *judge) refused(key cache.ObjectName, w *Write) (violations []string) {
	own := j.own[ownName(key, w.Request)]
	if (apierrors.IsConflict(w.Err) || apierrors.IsAlreadyExists(w.Err)) && w.Before != nil && own != 0 && w.Before.GetResourceVersion() == strconv.FormatInt(own, 10) {
		return []string{fmt.Sprintf("rule 14: the request %s does not know the process's own write of version %d", w.Request, own)}
	}
	return nil
}

// answered returns the judge after the process has got the answer to a write.
func (j *judge) answered(key cache.ObjectName, r *sim.Request, a answer) *judge {
	if a.err != nil || r.Verb == "get" || r.DryRun {
		return j
	}
	next := &judge{j.kind, maps.Clone(j.own), nil}
	if next.own == nil {
		next.own = map[string]int64{}
	}
	delete(next.own, ownName(key, r))
	if a.object != nil {
		next.own[ownName(key, r)], _ = strconv.ParseInt(a.object.GetResourceVersion(), 10, 64)
	}
	return next
}

func ownName(key cache.ObjectName, r *sim.Request) string {
	return key.Name + "/" + r.Resource + "/" + r.Name
}

// precondition checks the part of S5 that concerns writes which arrive late.
func precondition(r *sim.Request) (violations []string) {
	switch {
	case r.Resource == Items:
	case r.Verb == "delete":
		if p := r.Options.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil {
			violations = append(violations, fmt.Sprintf("S5: a delete of %s without preconditions", r.Name))
		}
	case r.Verb == "patch":
		var sent metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Patch, &sent); err != nil || sent.ResourceVersion == "" {
			violations = append(violations, fmt.Sprintf("S5: a patch of %s without a resourceVersion: %s", r.Name, r.Patch))
		}
	}
	return violations
}
