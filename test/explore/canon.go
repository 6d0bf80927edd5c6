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
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// horizon is longer than every duration that a controller compares: what is older counts as the same.
const horizon = 15 * time.Minute

// tokens are a text in which resource versions, UIDs and times are left open. Two states are the same if they
// differ only in these, but not in their order: resource versions become ranks, UIDs the numbers of their first
// occurrence, times what is left of now.
type tokens struct {
	text  []byte
	holes []hole
	// known has the tokens of objects, which never change.
	known map[Object]*tokens
}

type hole struct {
	// at is the place in the text.
	at      int
	version int64
	uid     types.UID
	time    time.Time
}

func (t *tokens) string(s string) {
	t.int(int64(len(s)))
	t.text = append(t.text, s...)
}

func (t *tokens) int(i int64) { t.text = binary.AppendVarint(t.text, i) }

func (t *tokens) bool(b bool) {
	if b {
		t.text = append(t.text, 1)
	} else {
		t.text = append(t.text, 0)
	}
}

// version adds a resource version, of which "" is one.
func (t *tokens) version(version string) {
	if v, err := strconv.ParseInt(version, 10, 64); err == nil {
		t.holes = append(t.holes, hole{at: len(t.text), version: v})
	} else {
		t.string(version)
	}
}

func (t *tokens) uid(uid types.UID) {
	if uid == "" {
		t.bool(false)
		return
	}
	t.holes = append(t.holes, hole{at: len(t.text), uid: uid})
}

func (t *tokens) time(at time.Time) {
	if t.bool(at.IsZero()); !at.IsZero() {
		t.holes = append(t.holes, hole{at: len(t.text), time: at})
	}
}

// leaf adds a value of a basic type. The field, as package.Type.field, says if it is a resource version.
func (t *tokens) leaf(v reflect.Value, field string) {
	switch {
	case v.Type() == reflect.TypeFor[types.UID]():
		t.uid(types.UID(v.String()))
	case v.Kind() == reflect.String && (field == "v1.ObjectMeta.ResourceVersion" || field == "controller.write.version" || field == "controller.Owners.present"):
		t.version(v.String())
	case v.Kind() == reflect.String:
		t.string(v.String())
	case field == "workqueue.TypedItemExponentialFailureRateLimiter.failures":
		// The delay grows no more.
		t.int(min(v.Int(), 20))
	case v.Kind() == reflect.Bool:
		t.bool(v.Bool())
	case v.CanInt():
		t.int(v.Int())
	case v.CanUint():
		t.int(int64(v.Uint()))
	default:
		t.string(fmt.Sprint(v.Interface()))
	}
}

// object adds an object of the API. It never changes, so that its tokens are computed once.
func (t *tokens) object(object Object) {
	known, ok := t.known[object]
	if !ok {
		known = &tokens{}
		known.any(reflect.ValueOf(object), "")
		t.known[object] = known
	}
	t.append(known)
}

// isCompared reports whether a controller compares the time in that field. Times of transitions are compared with
// nothing; of creations only the order counts, which the UIDs have.
func isCompared(field string) bool {
	switch field {
	case "v1.ObjectMeta.DeletionTimestamp", "v1.ManagedFieldsEntry.Time", "v1.ObservedSchedule.Since", "v1.JobStatus.CompletionTime", "v1.JobCondition.LastTransitionTime":
		return true
	}
	return strings.HasPrefix(field, "v1.CronTabStatus.")
}

// any adds the exported fields of an object.
func (t *tokens) any(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if t.bool(v.IsNil()); !v.IsNil() {
			t.any(v.Elem(), field)
		}
	case reflect.Struct:
		if at, ok := v.Interface().(metav1.Time); ok {
			if isCompared(field) {
				t.time(at.Time)
			}
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				t.any(v.Field(i), v.Type().String()+"."+f.Name)
			}
		}
	case reflect.Slice, reflect.Array:
		t.int(int64(v.Len()))
		for i := range v.Len() {
			t.any(v.Index(i), field)
		}
	case reflect.Map:
		t.int(int64(v.Len()))
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return compare(a.String(), b.String()) })
		for _, key := range keys {
			t.leaf(key, "")
			t.any(v.MapIndex(key), field)
		}
	default:
		t.leaf(v, field)
	}
}

func compare[T string | int64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (t *tokens) name(name cache.ObjectName) { t.string(name.Name) }

// append adds the other's tokens.
func (t *tokens) append(other *tokens) {
	for _, h := range other.holes {
		h.at += len(t.text)
		t.holes = append(t.holes, h)
	}
	t.text = append(t.text, other.text...)
}

// hash returns the hash of the canonical form.
func (t *tokens) hash(seed maphash.Seed, now time.Time) uint64 {
	ranks := map[int64]int{}
	for _, h := range t.holes {
		if h.version != 0 {
			ranks[h.version] = 0
		}
	}
	for rank, version := range slices.Sorted(maps.Keys(ranks)) {
		ranks[version] = rank
	}
	numbers := map[types.UID]int{}
	var h maphash.Hash
	h.SetSeed(seed)
	var word [9]byte
	from := 0
	for _, hole := range t.holes {
		_, _ = h.Write(t.text[from:hole.at])
		from = hole.at
		switch {
		case hole.version != 0:
			word[0] = 'v'
			binary.LittleEndian.PutUint64(word[1:], uint64(ranks[hole.version]))
		case hole.uid != "":
			number, ok := numbers[hole.uid]
			if !ok {
				number = len(numbers)
				numbers[hole.uid] = number
			}
			word[0] = 'u'
			binary.LittleEndian.PutUint64(word[1:], uint64(number))
		default:
			word[0] = 't'
			binary.LittleEndian.PutUint64(word[1:], uint64(min(max(hole.time.Sub(now), -horizon), horizon)))
		}
		_, _ = h.Write(word[:])
	}
	_, _ = h.Write(t.text[from:])
	return h.Sum64()
}
