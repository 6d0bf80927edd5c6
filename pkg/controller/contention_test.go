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
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestRepairedRecently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, key := NewContentionDetector(clock.RealClock{}), testKey("foo")
		check := func(when string, generation int64, want bool) {
			t.Helper()
			if got := d.RepairedRecently(key, generation); got != want {
				t.Errorf("rule 4: repaired recently %s: %v, want %v", when, got, want)
			}
		}
		check("without a repair", 1, false)
		d.Repaired(key, 1)
		check("after a repair", 1, true)
		time.Sleep(contentionWindow - 1)
		check("just within the minute", 1, true)
		time.Sleep(time.Nanosecond)
		check("a minute later", 1, false)
		d.Repaired(key, 1)
		check("for another generation", 2, false)
	})
}

// TestContentionDetector is the arithmetic of rule 21.
func TestContentionDetector(t *testing.T) {
	foo := testKey("foo")
	// begin returns a detector that has seen five repairs, a second apart, the last one
	// just now.
	begin := func() *ContentionDetector {
		d := NewContentionDetector(clock.RealClock{})
		for range 5 {
			d.Check(foo, 1, true)
			time.Sleep(time.Second)
			d.Repaired(foo, 1)
		}
		return d
	}
	expect := func(t *testing.T, d *ContentionDetector, generation int64, drifted bool, want time.Duration, contended bool) {
		t.Helper()
		if got := d.Check(foo, generation, drifted); got.Pause != want || got.Contended != contended {
			t.Errorf("rule 21: pause %v, contended %v, want %v, %v", got.Pause, got.Contended, want, contended)
		}
	}
	tests := map[string]func(*testing.T){
		"rule 21: nothing is known of the Foo": func(t *testing.T) {
			expect(t, NewContentionDetector(clock.RealClock{}), 1, true, 0, false)
		},
		"rule 21: no repair was made": func(t *testing.T) {
			d := NewContentionDetector(clock.RealClock{})
			d.Describe(foo, "replicas")
			expect(t, d, 1, true, 0, false)
		},
		"rule 21: five repairs in a minute are none": func(t *testing.T) {
			expect(t, begin(), 1, false, 0, false)
		},
		"rule 21: a sixth one that is needed is contention": func(t *testing.T) {
			expect(t, begin(), 1, true, 10*time.Second, true)
		},
		"rule 21: a sixth one a minute after the first is none": func(t *testing.T) {
			d := begin()
			time.Sleep(56 * time.Second)
			expect(t, d, 1, true, 0, false)
		},
		"rule 21: a sixth one just within the minute is": func(t *testing.T) {
			d := begin()
			time.Sleep(56*time.Second - 1)
			expect(t, d, 1, true, 0, true)
		},
		"rule 21: repairs are ever further apart, 5 minutes at most": func(t *testing.T) {
			d := begin()
			for _, pause := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
				expect(t, d, 1, true, pause*time.Second, true)
				time.Sleep(pause*time.Second - 1)
				expect(t, d, 1, true, 1, true)
				time.Sleep(time.Nanosecond)
				expect(t, d, 1, true, 0, true)
				d.Repaired(foo, 1)
			}
		},
		"rule 21: it is over when a repair has held for a minute": func(t *testing.T) {
			d := begin()
			expect(t, d, 1, true, 10*time.Second, true)
			time.Sleep(10 * time.Second)
			d.Repaired(foo, 1)
			expect(t, d, 1, false, time.Minute, true)
			time.Sleep(time.Minute - 1)
			expect(t, d, 1, false, 1, true)
			time.Sleep(time.Nanosecond)
			expect(t, d, 1, false, 0, false)
			expect(t, d, 1, true, 0, false)
		},
		"rule 21: long contention is over when a repair has held for the last pause": func(t *testing.T) {
			d := begin()
			for range 4 {
				time.Sleep(d.Check(foo, 1, true).Pause)
				d.Repaired(foo, 1)
			}
			expect(t, d, 1, false, 160*time.Second, true)
		},
		"rule 21: a new generation clears it": func(t *testing.T) {
			d := begin()
			expect(t, d, 1, true, 10*time.Second, true)
			expect(t, d, 2, true, 0, false)
		},
		"rule 21: what it is about is kept while it lasts": func(t *testing.T) {
			d := begin()
			d.Check(foo, 1, true)
			d.Describe(foo, "replicas")
			if got := d.Check(foo, 1, true).Message; got != "replicas" {
				t.Errorf("message %q", got)
			}
			if got := d.Check(foo, 2, true).Message; got != "" {
				t.Errorf("message %q with a new generation", got)
			}
		},
		"rule 21: a Foo that is gone leaves no contention": func(t *testing.T) {
			d := begin()
			d.Clear(foo)
			expect(t, d, 1, true, 0, false)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
