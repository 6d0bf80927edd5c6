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

package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/sample-controller/pkg/client/trim"
)

func TestIsCurrent(t *testing.T) {
	cached := &metav1.ObjectMeta{UID: "a", Generation: 2}
	for sentence, test := range map[string]struct {
		live metav1.ObjectMeta
		want bool
	}{
		"rule 3: the same":                {metav1.ObjectMeta{UID: "a", Generation: 2}, true},
		"rule 3: one that is terminating": {metav1.ObjectMeta{UID: "a", Generation: 2, DeletionTimestamp: &metav1.Time{}}, false},
		"rule 3: one that was made anew":  {metav1.ObjectMeta{UID: "b", Generation: 2}, false},
		"rule 22: one with a newer spec":  {metav1.ObjectMeta{UID: "a", Generation: 3}, false},
	} {
		if got := isCurrent(&test.live, cached); got != test.want {
			t.Errorf("%s: is current: %t", sentence, got)
		}
	}
}

func TestTrimOwners(t *testing.T) {
	owner := func(name, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: name, UID: types.UID(uid)}
	}
	ours, listed := owner("ours", "uid-ours"), []metav1.OwnerReference(nil)
	ours.Controller, ours.BlockOwnerDeletion = ptr.To(true), ptr.To(true)
	for i := range 20 {
		listed = append(listed, owner("x", fmt.Sprint(i)))
	}
	longest := owner(strings.Repeat("é", 1024), strings.Repeat("u", 1024))
	for sentence, test := range map[string]struct{ owners, want []metav1.OwnerReference }{
		"rule 24: no owner": {nil, nil},
		"rule 24: 1024 characters are kept, however many bytes":  {[]metav1.OwnerReference{longest}, []metav1.OwnerReference{longest}},
		"rule 24: of many owners the controller is kept":         {append(listed[:20:20], ours), []metav1.OwnerReference{ours}},
		"rule 24: of many owners without a controller a few are": {listed, listed[:8]},
		"rule 24: names and UIDs that no object can have are cut off": {
			[]metav1.OwnerReference{owner(longest.Name+"é", string(longest.UID)+"u")}, []metav1.OwnerReference{owner(longest.Name+"…", string(longest.UID)+"…")}},
	} {
		kept, again := &metav1.ObjectMeta{}, &metav1.ObjectMeta{}
		trim.SetIdentity(kept, &metav1.ObjectMeta{OwnerReferences: test.owners})
		trim.SetIdentity(again, kept)
		if diff := cmp.Diff(test.want, kept.OwnerReferences) + cmp.Diff(test.want, again.OwnerReferences); diff != "" {
			t.Errorf("%s, also if it is trimmed twice (-want +got):\n%s", sentence, diff)
		}
	}
}

// size is the encoded size of an object.
type size int

func (s size) Size() int { return int(s) }

func TestMarkLarge(t *testing.T) {
	for whole, want := range map[size]bool{32 << 10: false, 32<<10 + 1: true} {
		shared := map[string]string{"a": "b"}
		trimmed := &metav1.ObjectMeta{Annotations: shared}
		MarkLarge(trimmed, whole)
		if got := isLarge(trimmed); got != want || trimmed.Annotations["a"] != "b" || len(shared) != 1 {
			t.Errorf("rule 24: of %d bytes: large %v, want %v; annotations %v", whole, got, want, trimmed.Annotations)
		}
	}
}

func TestTrimMap(t *testing.T) {
	kept := trim.Map(map[string]string{"d": "", "c": "", "a": strings.Repeat("x", 2000), "b": ""}, 2)
	if keys := slices.Sorted(maps.Keys(kept)); strings.Join(keys, "") != "abc" || len(kept["a"]) > 1030 {
		t.Errorf("rule 24: of four entries, where two are wanted, the cache keeps %q, and %d bytes of the first", keys, len(kept["a"]))
	}
}

// container returns the path of a field of a container.
func container(name string, path ...any) []any {
	return append([]any{"spec", "template", "spec", "containers", fieldpath.KeyByFields("name", name)}, path...)
}

func TestPatch(t *testing.T) {
	patch := NewPatch(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "10"}})
	patch.Set("x", "image", "a", "x", container("first", "image")...)
	patch.Set(nil, "args", "[]", "none", container("first", "args")...)
	patch.Set("y", "image", "b", "y", container("second", "image")...)
	patch.Set(&corev1.Container{Name: "third", Image: "z"}, "container third", "was removed", "", container("third")...)
	patch.Set(nil, "args", "[]", "none", container("second", "args")...)
	patch.Set(nil, "annotation a", "", "", "metadata", "annotations", "a")
	patch.Set("none", "restartPolicy", strings.Repeat("é", 2000), "none", "spec", "template", "spec", "restartPolicy")
	patch.AddMissingLabel(&metav1.ObjectMeta{Labels: map[string]string{"a": "theirs"}}, "a", "ours")
	patch.AddMissingLabel(&metav1.ObjectMeta{}, "b", "ours")
	const want = `{"metadata":{"annotations":{"a":null},"labels":{"b":"ours"},"resourceVersion":"10"},"spec":{"template":{"spec":{` +
		`"containers":[{"args":null,"image":"x","name":"first"},{"args":null,"image":"y","name":"second"},{"name":"third","image":"z","resources":{}}],"restartPolicy":"none"}}}}`
	// Rule 24: a message has a bounded part of a value.
	described := `image from a to x, args from [] to none, image from b to y, container third was removed, args from [] to none, annotation a, restartPolicy from ` +
		strings.Repeat("é", 1024) + `… to none, label b from none to "ours"`
	if text, got := string(patch.JSON()), patch.String(); text != want || got != described {
		t.Errorf("rule 4: patch %s of %s,\nwant %s of %s", text, got, want, described)
	}
	if _, accepted := patch.split([]Change{{Field: "cpu", From: "a", To: "x"}}); len(accepted) > 0 {
		t.Errorf("rule 4: what is accepted of another field counts for %v", accepted)
	}
}

func TestManagerOf(t *testing.T) {
	type entries = []metav1.ManagedFieldsEntry
	// managed is an entry of managed fields, without a time if at is negative.
	managed := func(manager, fields string, at time.Duration) metav1.ManagedFieldsEntry {
		entry := metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
		if at >= 0 {
			entry.Time = ptr.To(metav1.NewTime(time.Unix(0, 0).Add(at)))
		}
		return entry
	}
	var patch Patch
	patch.Set(2, "replicas", "1", "2", "spec", "replicas")
	patch.Set("x", "image", "a", "x", container("nginx", "image")...)
	patch.Set(nil, "container nginx", "was removed", "", container("nginx")...)
	replicasOf, image, whole := patch.Changes[0], patch.Changes[1], patch.Changes[2]
	const (
		replicas   = `{"f:spec":{"f:replicas":{}}}`
		containers = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"%s\"}":{".":{},"f:image":{}}}}}}}`
		unknown    = "a writer that is not on record"
	)
	for sentence, test := range map[string]struct {
		change  Change
		entries entries
		want    string
	}{
		"the image of our container":                  {image, entries{managed("kubectl", fmt.Sprintf(containers, "nginx"), 0)}, "kubectl"},
		"another container's image is not compared":   {image, entries{managed("kubectl", fmt.Sprintf(containers, "other"), 0)}, unknown},
		"a container that was removed and added":      {whole, entries{managed("kubectl", fmt.Sprintf(containers, "nginx"), 0)}, "kubectl"},
		"the latest writer counts, in any order":      {replicasOf, entries{managed("a", replicas, 0), managed("b", replicas, 2), managed("c", replicas, 1)}, "b"},
		"a writer without a time is better than none": {replicasOf, entries{managed("timeless", replicas, -1)}, "timeless"},
		"this controller does not count":              {replicasOf, entries{managed(FieldManager, replicas, 0)}, unknown},
		"others after this controller do":             {replicasOf, entries{managed(FieldManager, replicas, 0), managed("a", replicas, 0)}, "a"},
		"entries that cannot be read do not count":    {replicasOf, entries{managed("half", replicas+"x", 0), {Manager: "empty"}}, unknown},
	} {
		if got := managerOf(test.change, &metav1.ObjectMeta{ManagedFields: test.entries}); got != test.want {
			t.Errorf("rule 21: %s: got %q, want %q", sentence, got, test.want)
		}
	}
}

func TestIsRefusal(t *testing.T) {
	refused := errors.New("dial tcp: connection refused")
	for sentence, test := range map[string]struct {
		err  error
		want bool
	}{
		"rule 11: 422 invalid":                                   {apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "web", nil), true},
		"rule 11: 403 forbidden":                                 {errQuota(), true},
		"rule 11: 400, a webhook's refusal":                      {apierrors.NewBadRequest("no"), true},
		"rule 11: 413":                                           {apierrors.NewRequestEntityTooLargeError("big"), true},
		"rule 11: a terminating namespace":                       {errTerminating(), false},
		"rule 12: a refusal and a failure, which is over sooner": {errors.Join(errQuota(), refused), false},
		"rule 11: two refusals":                                  {fmt.Errorf("syncing: %w", errors.Join(errQuota(), ErrOverridden)), true},
	} {
		if got := IsRefusal(test.err); got != test.want {
			t.Errorf("%s: IsRefusal(%v) = %v, want %v", sentence, test.err, got, test.want)
		}
	}
}

func TestRefusalMessage(t *testing.T) {
	long := strings.Repeat("a", 4095)
	for sentence, test := range map[string]struct{ message, want string }{
		"rule 11: the usage of a quota is left out": {
			"web is forbidden: exceeded quota: one, requested: pods=1, used: pods=9,cpu=1, limited: pods=9,cpu=2", "web is forbidden: exceeded quota: one, requested: pods=1, limited: pods=9,cpu=2"},
		"rule 24: a message of 4096 characters is kept":   {long + "é", long + "é"},
		"rule 24: a longer one is cut between characters": {long + "éa", long + "é…"},
	} {
		if got := RefusalMessage(errors.New(test.message)); got != test.want {
			t.Errorf("%s: got %q, want %q", sentence, got, test.want)
		}
	}
}
