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
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestStatusDebouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, foo := NewStatusDebouncer(clock.RealClock{}), testKey("foo")
		expect := func(sentence string, want time.Duration) {
			t.Helper()
			if got := d.Delay(foo); got != want {
				t.Errorf("rule 13: %s: delay %v, want %v", sentence, got, want)
			}
		}
		expect("the first sync notes the time", time.Second)
		time.Sleep(300 * time.Millisecond)
		expect("a sync before the second is over waits for the rest", 700*time.Millisecond)
		d.Delay(testKey("other"))
		time.Sleep(700 * time.Millisecond)
		expect("the first sync past the second writes", 0)
		time.Sleep(time.Hour)
		expect("and so does any later one", 0)
		d.Reset(foo)
		expect("a write or the end of the Foo drops the note", time.Second)
		d.Reset(testKey("unknown"))
		expect("another Foo's reset does not", time.Second)
	})
}

func TestStatusDebouncerReleasesMemory(t *testing.T) {
	d := NewStatusDebouncer(clock.RealClock{})
	first := reflect.ValueOf(d.since).Pointer()
	d.Delay(testKey("foo"))
	d.Delay(testKey("bar"))
	d.Reset(testKey("foo"))
	if len(d.since) != 1 || reflect.ValueOf(d.since).Pointer() != first {
		t.Errorf("with one status waiting there are %d in another map", len(d.since))
	}
	d.Reset(testKey("bar"))
	if len(d.since) != 0 || reflect.ValueOf(d.since).Pointer() == first {
		t.Errorf("with no status waiting there are %d in the same map", len(d.since))
	}
}
