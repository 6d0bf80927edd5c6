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
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/test/sim"
)

// horizon is longer than every duration that a controller compares: what is older counts as the same.
const horizon = 20 * time.Minute

// tokens are a text in which resource versions, UIDs and times are left open. Two states are the same if they
// differ only in these, but not in their order: resource versions become ranks, UIDs the numbers of their first
// occurrence, times what is left of now.
type tokens struct {
	text  []byte
	holes []hole
	canon *canon
}

// hole is a resource version, a UID by its number, or a time in nanoseconds, at a place in the text.
type hole struct {
	at    int32
	kind  byte
	value int64
}

const (
	isVersion byte = iota
	isUID
	isCreation
	isTime
)

// sum is a hash of 128 bits: with some 10 million states the chance that two different ones have the same is 10^-25.
type sum [16]byte

// form is what tokens are kept as: the hash of the text with the places of its holes, and what is in the holes.
type form struct {
	sum   sum
	holes []hole
}

// canon makes forms. Those of objects and requests, which never change, are made once.
type canon struct {
	seeds    [2]maphash.Seed
	known    map[sim.Object]*form
	requests map[*sim.Request]*form
	uids     map[types.UID]int64
	// shared has the one object of each content.
	shared map[sum]sim.Object
	buffer []byte
	fields map[reflect.Type][]field
	// ignored names fields, as package.Type.field, whose contents are no memory, each with the reason.
	ignored map[string]string
}

func newCanon(ignored map[string]string) *canon {
	return &canon{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, known: map[sim.Object]*form{}, requests: map[*sim.Request]*form{},
		uids: map[types.UID]int64{}, shared: map[sum]sim.Object{}, fields: map[reflect.Type][]field{}, ignored: ignored,
	}
}

func (c *canon) tokens() *tokens { return &tokens{canon: c} }

func (c *canon) hash(text []byte) (s sum) {
	binary.LittleEndian.PutUint64(s[:], maphash.Bytes(c.seeds[0], text))
	binary.LittleEndian.PutUint64(s[8:], maphash.Bytes(c.seeds[1], text))
	return s
}

// form returns the form of the tokens.
func (t *tokens) form() *form {
	text := t.text
	for _, hole := range t.holes {
		text = binary.AppendVarint(append(text, hole.kind), int64(hole.at))
	}
	return &form{t.canon.hash(text), t.holes}
}

// exact returns the hash of all, with what is in the holes.
func (c *canon) exact(f *form) sum {
	c.buffer = append(c.buffer[:0], f.sum[:]...)
	for _, hole := range f.holes {
		c.buffer = binary.LittleEndian.AppendUint64(c.buffer, uint64(hole.value))
	}
	return c.hash(c.buffer)
}

// formOf returns the form of the exported fields of an object.
func (c *canon) formOf(object any) *form {
	t := c.tokens()
	t.exported(object)
	return t.form()
}

// share returns the one object that has the content of this one.
func (c *canon) share(object sim.Object) sim.Object {
	f := c.formOf(object)
	key := c.exact(f)
	if shared, ok := c.shared[key]; ok {
		return shared
	}
	c.shared[key], c.known[object] = object, f
	return object
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

func (t *tokens) hole(kind byte, value int64) {
	t.holes = append(t.holes, hole{int32(len(t.text)), kind, value})
}

// version adds a resource version, of which "" is one.
func (t *tokens) version(version string) {
	if v, err := strconv.ParseInt(version, 10, 64); err == nil {
		t.hole(isVersion, v)
	} else {
		t.string(version)
	}
}

func (t *tokens) uid(uid types.UID) {
	if uid == "" {
		t.bool(false)
		return
	}
	number, ok := t.canon.uids[uid]
	if !ok {
		number = int64(len(t.canon.uids))
		t.canon.uids[uid] = number
	}
	t.hole(isUID, number)
}

func (t *tokens) time(at time.Time) {
	if t.bool(at.IsZero()); !at.IsZero() {
		t.hole(isTime, at.UnixNano())
	}
}

// leaf adds a value of a basic type. The field, as package.Type.field, says if it is a resource version.
func (t *tokens) leaf(v reflect.Value, field string) {
	switch {
	case v.Type() == reflect.TypeFor[types.UID]():
		t.uid(types.UID(v.String()))
	case v.Kind() == reflect.String && (field == "v1.ObjectMeta.ResourceVersion" || field == "controller.write.version" || field == "controller.Owners.startVersion"):
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

// object adds an object of the API.
func (t *tokens) object(object sim.Object) {
	f, ok := t.canon.known[object]
	if !ok {
		f = t.canon.formOf(object)
		t.canon.known[object] = f
	}
	t.add(f)
}

// isCompared reports whether a controller compares the time in that field with now, such as one that a status has. Times
// of transitions are compared with nothing, those of creations only with each other.
func isCompared(field string) bool {
	switch field {
	case "v1.ObjectMeta.DeletionTimestamp", "v1.ManagedFieldsEntry.Time", "v1.ObservedSchedule.Since", "v1.JobCondition.LastTransitionTime":
		return true
	}
	return strings.Contains(field, "Status.")
}

func (t *tokens) name(name cache.ObjectName) { t.string(name.Name) }

// add adds a form.
func (t *tokens) add(f *form) {
	t.text = append(t.text, f.sum[:]...)
	for _, h := range f.holes {
		t.hole(h.kind, h.value)
	}
}

// canonical returns the hash of the canonical form.
func (t *tokens) canonical(now time.Time) sum {
	var versions, creations, uids [64]int64
	ranks, numbers := [2][]int64{versions[:0], creations[:0]}, uids[:0]
	for _, h := range t.holes {
		switch h.kind {
		case isVersion:
			ranks[0] = append(ranks[0], h.value)
		case isCreation:
			ranks[1] = append(ranks[1], h.value)
		}
	}
	for i := range ranks {
		slices.Sort(ranks[i])
		ranks[i] = slices.Compact(ranks[i])
	}
	text, from := t.canon.buffer[:0], int32(0)
	for _, h := range t.holes {
		text = append(append(text, t.text[from:h.at]...), h.kind)
		from = h.at
		value := h.value
		switch h.kind {
		case isVersion, isCreation:
			rank, _ := slices.BinarySearch(ranks[h.kind/isCreation], value)
			value = int64(rank)
		case isUID:
			number := slices.Index(numbers, value)
			if number < 0 {
				number = len(numbers)
				numbers = append(numbers, value)
			}
			value = int64(number)
		default:
			value = int64(min(max(time.Duration(value-now.UnixNano()), -horizon), horizon))
		}
		text = binary.AppendVarint(text, value)
	}
	text = append(text, t.text[from:]...)
	t.canon.buffer = text
	return t.canon.hash(text)
}
