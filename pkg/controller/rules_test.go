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
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

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
