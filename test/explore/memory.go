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
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/test/sim"
)

// memory reads, saves and restores what a process remembers: everything that is reachable from its roots, unexported
// fields included, except what the table of ignored fields names. It works in place, so that closures and
// method values stay valid: restoring writes the saved contents to the addresses that they had.
type memory struct {
	roots []any
	now   func() time.Time
	// identities numbers what ignored fields point to.
	identities map[any]int
	canon      *canon
}

// field is one of a struct. Its name is package.Type.field, the type without parameters.
type field struct {
	name                string
	isIgnored, isPublic bool
}

// fieldsOf returns the fields of a struct.
func (c *canon) fieldsOf(t reflect.Type) []field {
	fields, ok := c.fields[t]
	if !ok {
		of, _, _ := strings.Cut(t.String(), "[")
		for i := range t.NumField() {
			name := of + "." + t.Field(i).Name
			_, isIgnored := c.ignored[name]
			fields = append(fields, field{name, isIgnored, t.Field(i).IsExported()})
		}
		c.fields[t] = fields
	}
	return fields
}

// noMemory are the fields of pkg/controller that are no memory, with the reasons.
func noMemory() map[string]string {
	const isCache, isFixed, isTheirs = "a cache, which the explorer keeps", "it never changes", "the explorer's"
	const isCount = "no decision depends on it"
	return map[string]string{
		"controller.Owners.store":                 isCache,
		"controller.Dependents.store":             isCache,
		"controller.write.store":                  isCache,
		"controller.Owners.OwnersOptions":         isFixed,
		"controller.Dependents.DependentsOptions": isFixed,
		"controller.Worker.options":               isFixed,
		"controller.Worker.syncs":                 isFixed,
		"controller.Worker.handlers":              isFixed,
		"controller.Options.Recorder":             isCount,
		"controller.Options.Metrics":              isCount,
		"controller.Options.Clock":                isTheirs,
		"controller.Writes.clock":                 isTheirs,
		"controller.backoff.clock":                isTheirs,
		"controller.StatusDebouncer.clock":        isTheirs,
		"controller.Worker.Queue":                 isTheirs,
		"controller.backoff.buckets":              "each namespace has a hundred refusals before one waits",
		"controller.Worker.large":                 isTheirs,
	}
}

// image is a copy of the contents of a memory. It is valid for the process that it was taken of.
type image struct{ redo []func() }

func (i *image) restore() {
	for _, redo := range i.redo {
		redo()
	}
}

// walk is one pass through a memory, or through the exported fields of what is none: then memory is nil.
type walk struct {
	*tokens

	memory *memory
	image  *image
	seen   map[place]bool
}

type place struct {
	at unsafe.Pointer
	of reflect.Type
}

// read returns a copy of the present contents, and their canonical form.
func (m *memory) read() (*image, *tokens) {
	w := &walk{memory: m, image: &image{}, tokens: m.canon.tokens(), seen: map[place]bool{}}
	for _, root := range m.roots {
		w.value(reflect.ValueOf(root), "")
	}
	return w.image, w.tokens
}

// exported adds the exported fields of an object.
func (t *tokens) exported(object any) { (&walk{tokens: t}).value(reflect.ValueOf(object), "") }

// keep saves the content of a variable of a memory.
func (w *walk) keep(v reflect.Value) {
	if w.memory != nil && v.CanAddr() {
		content := reflect.New(v.Type()).Elem()
		content.Set(v)
		w.image.redo = append(w.image.redo, func() { v.Set(content) })
	}
}

// public adds a time of an object, if it matters, and reports whether the value is one.
func (w *walk) public(v reflect.Value, field string) bool {
	if v.Type() != reflect.TypeFor[metav1.Time]() {
		return false
	}
	if at := v.Interface().(metav1.Time); isCompared(field) {
		w.time(at.Time)
	} else if field == "v1.ObjectMeta.CreationTimestamp" {
		w.hole(isCreation, at.Unix())
	}
	return true
}

// special treats the types of libraries whose contents are not plain.
func (w *walk) special(v reflect.Value, field string) bool {
	switch {
	case w.memory == nil:
		return w.public(v, field)
	case !v.CanAddr():
		if v.Type() == reflect.TypeFor[time.Time]() {
			w.time(v.Interface().(time.Time))
			return true
		}
		return false
	}
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		w.keep(v)
		w.time(*at)
	case *sync.Mutex, *sync.RWMutex, *sync.Once:
	case *sync.Map:
		entries := map[any]any{}
		at.Range(func(key, value any) bool {
			entries[key] = value
			return true
		})
		w.image.redo = append(w.image.redo, func() {
			at.Clear()
			for key, value := range entries {
				at.Store(key, value)
			}
		})
		w.entries(reflect.ValueOf(entries), "")
	case *atomic.Pointer[string]:
		content := at.Load()
		w.image.redo = append(w.image.redo, func() { at.Store(content) })
		if w.bool(content == nil); content != nil {
			w.version(*content)
		}
	case *rate.Limiter:
		// A limiter cannot be copied by its methods.
		w.keep(v)
		w.int(int64(at.TokensAt(w.memory.now())))
	default:
		return false
	}
	return true
}

// value visits a value. If it is a variable, its content is saved.
func (w *walk) value(v reflect.Value, field string) {
	if w.special(v, field) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i, f := range w.canon.fieldsOf(v.Type()) {
			switch {
			case f.isIgnored:
				w.identity(accessible(v.Field(i)))
			case f.isPublic || w.memory != nil:
				w.value(accessible(v.Field(i)), f.name)
			}
		}
	case reflect.Pointer:
		w.keep(v)
		w.pointer(v, field)
	case reflect.Interface:
		w.keep(v)
		if w.bool(v.IsNil()); !v.IsNil() {
			w.value(v.Elem(), field)
		}
	case reflect.Map:
		w.keep(v)
		w.savedMap(v)
		w.entries(v, field)
	case reflect.Slice, reflect.Array:
		w.keep(v)
		w.int(int64(v.Len()))
		for i := range v.Len() {
			w.value(v.Index(i), field)
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		panic(fmt.Sprintf("%s: a %s cannot be saved; name it in the table of ignored fields, with the reason", cmp.Or(field, "the root"), v.Type()))
	default:
		w.keep(v)
		w.leaf(v, field)
	}
}

// identity adds which object it is that an ignored field points to.
func (w *walk) identity(v reflect.Value) {
	if v.Kind() != reflect.Interface && v.Kind() != reflect.Pointer || v.IsNil() || !v.Comparable() {
		return
	}
	w.keep(v)
	number, ok := w.memory.identities[v.Interface()]
	if !ok {
		number = len(w.memory.identities)
		w.memory.identities[v.Interface()] = number
	}
	w.int(int64(number))
}

// accessible returns the field so that it can be read and written although it is not exported.
func accessible(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	return v
}

func (w *walk) pointer(v reflect.Value, field string) {
	if w.bool(v.IsNil()); v.IsNil() {
		return
	}
	if w.memory == nil {
		w.value(v.Elem(), field)
		return
	}
	if object, ok := v.Interface().(sim.Object); ok {
		w.object(object)
		return
	}
	at := place{v.UnsafePointer(), v.Type()}
	if !w.seen[at] {
		w.seen[at] = true
		w.value(v.Elem(), field)
	}
}

// savedMap restores the entries of a map of a memory later: their number and values.
func (w *walk) savedMap(v reflect.Value) {
	if w.memory == nil || v.IsNil() {
		return
	}
	var keys, values []reflect.Value
	if v.Len() > 0 {
		keys = v.MapKeys()
	}
	for _, key := range keys {
		values = append(values, v.MapIndex(key))
	}
	w.image.redo = append(w.image.redo, func() {
		v.Clear()
		for i, key := range keys {
			v.SetMapIndex(key, values[i])
		}
	})
}

// entries visits the entries of a map in the order of their keys.
func (w *walk) entries(v reflect.Value, field string) {
	w.int(int64(v.Len()))
	if v.Len() == 0 {
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(fmt.Sprint(a.Interface()), fmt.Sprint(b.Interface())) })
	for _, key := range keys {
		w.value(copied(key), field)
		w.value(copied(v.MapIndex(key)), field)
	}
}

// copied returns an addressable copy, so that fields that are not exported can be read.
func copied(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}
