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

package fairqueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestQueue(t *testing.T) {
	push := func(q *Queue[string], values ...string) {
		for _, value := range values {
			q.Push(value[:1], value)
		}
	}
	for name, test := range map[string]struct {
		fill func(*Queue[string])
		want string
	}{
		"an empty queue": {func(*Queue[string]) {}, ""},
		"a namespace is first in, first out": {
			func(q *Queue[string]) { push(q, "a1", "a2", "a3") }, "a1 a2 a3",
		},
		"rule 25: namespaces take turns, in the order in which they came": {
			func(q *Queue[string]) { push(q, "b1", "b2", "b3", "b4", "c1", "c2", "a1") }, "b1 c1 a1 b2 c2 b3 b4",
		},
		"a namespace that comes back waits for its turn": {
			func(q *Queue[string]) { push(q, "a1", "b1", "b2"); q.Pop(); push(q, "a2") }, "b1 a2 b2",
		},
		"a namespace that had its turn is the last": {
			func(q *Queue[string]) { push(q, "a1", "a2", "b1"); q.Pop(); push(q, "c1") }, "b1 a2 c1",
		},
		"a value can be removed from the front, the middle and the end": {
			func(q *Queue[string]) {
				items := map[string]*Item[string]{}
				for _, value := range []string{"a1", "a2", "a3", "a4", "a5"} {
					items[value] = q.Push("a", value)
				}
				for _, value := range []string{"a1", "a3", "a5"} {
					q.Remove("a", items[value])
				}
			},
			"a2 a4",
		},
		"a namespace whose only value is removed has no turn": {
			func(q *Queue[string]) { item := q.Push("a", "a1"); push(q, "b1", "c1"); q.Remove("a", item) }, "b1 c1",
		},
		"a namespace whose value is removed keeps its turn": {
			func(q *Queue[string]) { item := q.Push("a", "a1"); push(q, "a2", "b1"); q.Remove("a", item) }, "a2 b1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var q Queue[string]
			test.fill(&q)
			var got []string
			for first, ok := q.First(); ok; first, ok = q.First() {
				if got = append(got, q.Pop()); got[len(got)-1] != first {
					t.Errorf("%s came instead of the first, %s", got[len(got)-1], first)
				}
			}
			if order := strings.Join(got, " "); order != test.want {
				t.Errorf("the order is %q, not %q", order, test.want)
			}
			if q.Len()+len(q.lines) > 0 || q.turns != (list[line[string]]{}) {
				t.Errorf("left over: %+v", q)
			}
		})
	}
}

// TestRandomQueue runs random sequences of operations. A value waits for those that came
// before it in its namespace, and for each of them and itself for one of each other namespace
// at most.
func TestRandomQueue(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var q Queue[int]
		waiting, items := map[string][]int{}, map[int]*Item[int]{}
		// overtaken counts the values of the second namespace that came since the first one,
		// which has values, had its turn.
		overtaken := map[[2]string]int{}
		pushed, length := 0, 0
		leave := func(namespace string, value int) {
			waiting[namespace] = slices.DeleteFunc(waiting[namespace], func(v int) bool { return v == value })
			delete(items, value)
			length--
		}
		forget := func(namespace string) {
			for of := range overtaken {
				if of[0] == namespace {
					delete(overtaken, of)
				}
			}
		}
		namespaces := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		r.Repeat(map[string]func(*rapid.T){
			"push": func(r *rapid.T) {
				namespace := namespaces.Draw(r, "namespace")
				if len(waiting[namespace]) == 0 {
					forget(namespace)
				}
				pushed++
				length++
				waiting[namespace] = append(waiting[namespace], pushed)
				items[pushed] = q.Push(namespace, pushed)
			},
			"remove": func(r *rapid.T) {
				namespace := namespaces.Draw(r, "namespace")
				if len(waiting[namespace]) == 0 {
					r.Skip("nothing waits")
				}
				value := rapid.SampledFrom(waiting[namespace]).Draw(r, "value")
				q.Remove(namespace, items[value])
				leave(namespace, value)
			},
			"pop": func(r *rapid.T) {
				if length == 0 {
					r.Skip("nothing waits")
				}
				value := q.Pop()
				from := ""
				for namespace, values := range waiting {
					if len(values) > 0 && values[0] == value {
						from = namespace
					}
				}
				if from == "" {
					r.Fatalf("%d came, and %v wait", value, waiting)
				}
				leave(from, value)
				forget(from)
				for namespace, values := range waiting {
					if overtaken[[2]string{namespace, from}]++; namespace != from && len(values) > 0 && overtaken[[2]string{namespace, from}] > 1 {
						r.Fatalf("two of %s came while %v of %s wait", from, values, namespace)
					}
				}
			},
			"": func(r *rapid.T) {
				lines := 0
				for namespace, values := range waiting {
					if q.LenOf(namespace) != len(values) {
						r.Fatalf("%d of %s wait, not %v", q.LenOf(namespace), namespace, values)
					}
					lines += min(len(values), 1)
				}
				if q.Len() != length || len(q.lines) != lines {
					r.Fatalf("%d of %d namespaces wait, not %v", q.Len(), len(q.lines), waiting)
				}
			},
		})
	})
}

func TestQueueReleasesMemory(t *testing.T) {
	for _, test := range []struct {
		namespaces int
		kept       bool
	}{{manyLines, true}, {manyLines + 1, false}} {
		var q Queue[int]
		for i := range test.namespaces {
			q.Push(fmt.Sprint(i), i)
		}
		for range test.namespaces - 1 {
			q.Pop()
		}
		if q.lines == nil || q.LenOf(fmt.Sprint(test.namespaces-1)) != 1 {
			t.Errorf("of %d namespaces the last one is lost", test.namespaces)
		}
		q.Pop()
		if kept := q.lines != nil; kept != test.kept {
			t.Errorf("after %d namespaces: the map is kept: %v, want %v", test.namespaces, kept, test.kept)
		}
		q.Push("a", 1)
		if got := q.Pop(); got != 1 {
			t.Errorf("after that %d comes", got)
		}
	}
}
