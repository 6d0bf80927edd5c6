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

	"example.com/sample-controller/test/sim"
)

// memory reads, saves and restores what a process remembers: everything that is reachable from its roots, unexported
// fields included, except what the table of ignored fields names. It works in place, so that closures and
// method values stay valid: restoring writes the saved contents to the addresses that they had.
type memory struct {
	roots []any
	// ignored names fields, as package.Type.field, and types whose contents are no memory, each with the reason.
	ignored map[string]string
	now     func() time.Time
	// identities numbers what ignored fields point to.
	identities map[any]int
	fields     map[reflect.Type][]field
	canon      *canon
}

// field is one of a struct. Its name is package.Type.field.
type field struct {
	name    string
	ignored bool
}

// fieldsOf returns the fields of a struct.
func (m *memory) fieldsOf(t reflect.Type) []field {
	fields, ok := m.fields[t]
	if !ok {
		for i := range t.NumField() {
			name := typeName(t) + "." + t.Field(i).Name
			_, ignored := m.ignored[name]
			fields = append(fields, field{name, ignored})
		}
		m.fields[t] = fields
	}
	return fields
}

// noMemory are the fields of pkg/controller that are no memory, with the reasons.
func noMemory() map[string]string {
	const isCache, isFixed, isTheirs, isCount = "a cache, which the explorer keeps", "it never changes", "the explorer's", "no decision depends on it"
	return map[string]string{
		"controller.Owners.store":                isCache,
		"controller.Dependents.store":            isCache,
		"controller.write.store":                 isCache,
		"controller.OwnersOptions.Informer":      isCache,
		"controller.DependentsOptions.Informer":  isCache,
		"controller.OwnersOptions.Client":        isFixed,
		"controller.OwnersOptions.LatestVersion": isFixed,
		"controller.OwnersOptions.Status":        isFixed,
		"controller.DependentsOptions.Client":    isFixed,
		"controller.DependentsOptions.Diff":      isFixed,
		"controller.DependentsOptions.Replicas":  isFixed,
		"controller.DependentsOptions.Trim":      isFixed,
		"controller.DependentsOptions.Existed":   isFixed,
		"controller.Worker.options":              isFixed,
		"controller.Worker.syncs":                isFixed,
		"controller.Worker.handlers":             isFixed,
		"controller.Options.Recorder":            isCount,
		"controller.Options.Metrics":             isCount,
		"controller.Owners.metrics":              isCount,
		"controller.Worker.metrics":              isCount,
		"controller.Options.Clock":               isTheirs,
		"controller.Writes.clock":                isTheirs,
		"controller.backoff.clock":               isTheirs,
		"controller.StatusDebouncer.clock":       isTheirs,
		"controller.Worker.Queue":                isTheirs,
		"controller.backoff.buckets":             "each namespace has a hundred refusals before one waits",
		"controller.Worker.large":                "held only while a sync runs",
	}
}

// image is a copy of the contents of a memory. It is valid for the process that it was taken of.
type image struct {
	cells []cell
	redo  []func()
}

// cell is the content of one variable.
type cell struct{ variable, content reflect.Value }

func (i *image) restore() {
	for _, cell := range i.cells {
		cell.variable.Set(cell.content)
	}
	for _, redo := range i.redo {
		redo()
	}
}

// walk is one pass through a memory.
type walk struct {
	*memory

	image  *image
	tokens *tokens
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

// keep saves the content of a variable.
func (w *walk) keep(v reflect.Value) {
	if v.CanAddr() {
		content := reflect.New(v.Type()).Elem()
		content.Set(v)
		w.image.cells = append(w.image.cells, cell{v, content})
	}
}

// special treats the types of libraries whose contents are not plain.
func (w *walk) special(v reflect.Value) bool {
	if !v.CanAddr() {
		if v.Type() == reflect.TypeFor[time.Time]() {
			w.tokens.time(v.Interface().(time.Time))
			return true
		}
		return false
	}
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		w.keep(v)
		w.tokens.time(*at)
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
	case *atomic.Value:
		// One that was never set cannot be restored to that: the type that is stored decides.
		if content := at.Load(); content != nil {
			w.image.redo = append(w.image.redo, func() { at.Store(content) })
			w.value(reflect.ValueOf(content), "")
		}
	case *atomic.Pointer[string]:
		content := at.Load()
		w.image.redo = append(w.image.redo, func() { at.Store(content) })
		if w.tokens.bool(content == nil); content != nil {
			w.tokens.version(*content)
		}
	case *rate.Limiter:
		// A limiter cannot be copied by its methods.
		w.keep(v)
		w.tokens.int(int64(at.TokensAt(w.now())))
	default:
		return false
	}
	return true
}

// value visits a value. If it is a variable, its content is saved.
func (w *walk) value(v reflect.Value, field string) {
	if w.special(v) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i, f := range w.fieldsOf(v.Type()) {
			if f.ignored {
				w.identity(accessible(v.Field(i)))
			} else {
				w.value(accessible(v.Field(i)), f.name)
			}
		}
	case reflect.Pointer:
		w.keep(v)
		w.pointer(v, field)
	case reflect.Interface:
		w.keep(v)
		if w.tokens.bool(v.IsNil()); !v.IsNil() {
			w.value(v.Elem(), field)
		}
	case reflect.Map:
		w.keep(v)
		w.savedMap(v, field)
	case reflect.Slice:
		w.keep(v)
		w.tokens.int(int64(v.Len()))
		for i := range v.Len() {
			w.value(v.Index(i), field)
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		panic(fmt.Sprintf("%s: a %s cannot be saved; name it in the table of ignored fields, with the reason", cmp.Or(field, "the root"), v.Type()))
	default:
		w.keep(v)
		w.tokens.leaf(v, field)
	}
}

// typeName returns the name without type parameters.
func typeName(t reflect.Type) string {
	name, _, _ := strings.Cut(t.String(), "[")
	return name
}

// identity adds which object it is that an ignored field points to.
func (w *walk) identity(v reflect.Value) {
	if v.Kind() != reflect.Interface && v.Kind() != reflect.Pointer || v.IsNil() || !v.Comparable() {
		return
	}
	w.keep(v)
	number, ok := w.identities[v.Interface()]
	if !ok {
		number = len(w.identities)
		w.identities[v.Interface()] = number
	}
	w.tokens.int(int64(number))
}

// accessible returns the field so that it can be read and written although it is not exported.
func accessible(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	return v
}

func (w *walk) pointer(v reflect.Value, field string) {
	if w.tokens.bool(v.IsNil()); v.IsNil() {
		return
	}
	if object, ok := v.Interface().(sim.Object); ok {
		w.tokens.object(object)
		return
	}
	at := place{v.UnsafePointer(), v.Type()}
	if !w.seen[at] {
		w.seen[at] = true
		w.value(v.Elem(), field)
	}
}

// savedMap visits a map, and restores its entries later: their number and values.
func (w *walk) savedMap(v reflect.Value, field string) {
	var keys, values []reflect.Value
	if v.Len() > 0 {
		keys = v.MapKeys()
	}
	for _, key := range keys {
		values = append(values, v.MapIndex(key))
	}
	if !v.IsNil() {
		w.image.redo = append(w.image.redo, func() {
			v.Clear()
			for i, key := range keys {
				v.SetMapIndex(key, values[i])
			}
		})
	}
	w.entries(v, field)
}

// entries visits the entries of a map in the order of their keys.
func (w *walk) entries(v reflect.Value, field string) {
	w.tokens.int(int64(v.Len()))
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
