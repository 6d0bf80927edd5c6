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
	"slices"
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
		d.Created(key, 1, false)
		check("after a creation", 1, false)
		d.Repaired(key, 1, "replicas")
		check("after a repair", 1, true)
		time.Sleep(recentRepair - 1)
		check("just within the minute", 1, true)
		time.Sleep(time.Nanosecond)
		check("a minute later", 1, false)
		d.Repaired(key, 1, "replicas")
		check("for another generation", 2, false)
	})
}

// TestContentionKeepsRecentRepairs is rule 23: contention that never ends costs no memory.
func TestContentionKeepsRecentRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, key := NewContentionDetector(clock.RealClock{}), testKey("foo")
		for range 1000 {
			if c := d.Check(key, 1, "replicas"); c.Pause > 0 {
				time.Sleep(c.Pause)
			}
			d.Repaired(key, 1, "replicas")
		}
		if got := len(d.repairs[key].made); got > 10 {
			t.Errorf("%d repairs are remembered", got)
		}
		d.Clear(key)
	})
}

// TestRepairIsForgotten is rule 23: no sync and no other call follows the repairs.
func TestRepairIsForgotten(t *testing.T) {
	tests := map[string]func(*ContentionDetector){
		"rule 23: a repair":   func(d *ContentionDetector) { d.Repaired(testKey("foo"), 1, "replicas") },
		"rule 23: a creation": func(d *ContentionDetector) { d.Created(testKey("foo"), 1, false) },
		"rule 23: contention over a Foo that is not ours now": func(d *ContentionDetector) { contend(d, "replicas") },
		"rule 23: a repair after all others were forgotten": func(d *ContentionDetector) {
			d.Repaired(testKey("bar"), 1, "replicas")
			time.Sleep(time.Hour)
			d.Repaired(testKey("foo"), 1, "replicas")
		},
		"rule 23: a repair of a Foo that is gone, and one of another": func(d *ContentionDetector) {
			d.Repaired(testKey("bar"), 1, "replicas")
			d.Clear(testKey("bar"))
			time.Sleep(contentionSweep / 2)
			d.Repaired(testKey("foo"), 1, "replicas")
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := NewContentionDetector(clock.RealClock{})
				test(d)
				left := func() int {
					synctest.Wait()
					d.mu.Lock()
					defer d.mu.Unlock()
					return len(d.repairs)
				}
				time.Sleep(contentionWindow - time.Second)
				if got := left(); got != 1 {
					t.Errorf("%d Foos remembered just within 10 minutes, want 1", got)
				}
				time.Sleep(time.Second + contentionSweep)
				if got := left(); got != 0 || d.sweeping {
					t.Errorf("%d Foos remembered a minute after that, want none; the timer goes on: %v, want false", got, d.sweeping)
				}
			})
		})
	}
}

// contend lets the detector see five repairs of the field, a second apart, and then another
// drift of it. The last repair is just made.
func contend(d *ContentionDetector, field string) {
	for range maxRepairs {
		d.Check(testKey("foo"), 1, field)
		time.Sleep(time.Second)
		d.Repaired(testKey("foo"), 1, field)
	}
	d.Check(testKey("foo"), 1, field)
}

// TestContentionDetector is the arithmetic of rule 21.
func TestContentionDetector(t *testing.T) {
	foo := testKey("foo")
	// begin returns a detector that has seen five repairs of the replicas, a second apart, the
	// last one just now.
	begin := func() *ContentionDetector {
		d := NewContentionDetector(clock.RealClock{})
		for range maxRepairs {
			d.Check(foo, 1, "replicas")
			time.Sleep(time.Second)
			d.Repaired(foo, 1, "replicas")
		}
		return d
	}
	// expect checks what is undone, in how far the repair is held back, and for how long.
	expect := func(t *testing.T, got Contention, want time.Duration, undone ...string) {
		t.Helper()
		if got.Pause != want || !slices.Equal(got.Undone, undone) || got.HoldsBack() != (want > 0 && len(undone) > 0) {
			t.Errorf("rule 21: pause %v, undone %q, holds back %v, want %v, %q", got.Pause, got.Undone, got.HoldsBack(), want, undone)
		}
	}
	const replicas, image = "replicas", "image"
	tests := map[string]func(*testing.T){
		"rule 21: nothing is known of the Foo": func(t *testing.T) {
			expect(t, NewContentionDetector(clock.RealClock{}).Check(foo, 1, replicas), 0)
		},
		"rule 21: no repair was made": func(t *testing.T) {
			d := NewContentionDetector(clock.RealClock{})
			d.Describe(foo, "replicas")
			expect(t, d.Check(foo, 1, replicas), 0)
		},
		"rule 21: five repairs in ten minutes are none": func(t *testing.T) {
			expect(t, begin().Check(foo, 1), 0)
		},
		"rule 21: a sixth one that is needed is contention": func(t *testing.T) {
			expect(t, begin().Check(foo, 1, replicas), 10*time.Second, replicas)
		},
		"rule 21: each field counts for itself": func(t *testing.T) {
			d := begin()
			for range maxRepairs - 1 {
				expect(t, d.Check(foo, 1, image), 0)
				d.Repaired(foo, 1, image)
			}
			expect(t, d.Check(foo, 1, image), 0)
			expect(t, d.Check(foo, 1, image, replicas), 10*time.Second, replicas)
		},
		"rule 21: a field that is not contended is repaired without a pause": func(t *testing.T) {
			d := begin()
			expect(t, d.Check(foo, 1, replicas), 10*time.Second, replicas)
			if got := d.Check(foo, 1, image); got.HoldsBack() {
				t.Errorf("held back: %+v", got)
			}
		},
		"rule 21: a second contended field makes another message": func(t *testing.T) {
			d := begin()
			d.Check(foo, 1, replicas)
			d.Describe(foo, "replicas")
			for range maxRepairs {
				d.Repaired(foo, 1, image)
			}
			if got := d.Check(foo, 1, replicas, image); got.Message != "" || !slices.Equal(got.Undone, []string{replicas, image}) {
				t.Errorf("contention %+v", got)
			}
		},
		"rule 21: a sixth one ten minutes after the first is none": func(t *testing.T) {
			d := begin()
			time.Sleep(contentionWindow - 4*time.Second)
			expect(t, d.Check(foo, 1, replicas), 0)
		},
		"rule 21: a sixth one just within ten minutes is": func(t *testing.T) {
			d := begin()
			time.Sleep(contentionWindow - 4*time.Second - 1)
			expect(t, d.Check(foo, 1, replicas), 0, replicas)
		},
		"rule 21: a first creation is no repair, five more are, and a seventh is contention": func(t *testing.T) {
			d := NewContentionDetector(clock.RealClock{})
			for range 1 + maxRepairs {
				expect(t, d.Check(foo, 1, Existence), 0)
				d.Created(foo, 1, false)
			}
			expect(t, d.Check(foo, 1, Existence), 10*time.Second, Existence)
		},
		"rule 21: a creation ten minutes after another is no repair": func(t *testing.T) {
			d := NewContentionDetector(clock.RealClock{})
			d.Created(foo, 1, false)
			time.Sleep(contentionWindow)
			for range maxRepairs {
				d.Created(foo, 1, false)
			}
			expect(t, d.Check(foo, 1, Existence), 0)
		},
		"rule 21: the creation of what existed before the process began is a repair": func(t *testing.T) {
			d := NewContentionDetector(clock.RealClock{})
			for range maxRepairs {
				expect(t, d.Check(foo, 1, Existence), 0)
				d.Created(foo, 1, true)
			}
			expect(t, d.Check(foo, 1, Existence), 10*time.Second, Existence)
		},
		"rule 21: a creation that admission changed is a repair of the changed fields": func(t *testing.T) {
			d := NewContentionDetector(clock.RealClock{})
			for range maxRepairs {
				d.Created(foo, 1, false, FieldValue{Field: replicas, Value: "3"})
			}
			expect(t, d.Check(foo, 1, replicas), 10*time.Second, replicas)
		},
		"rule 21: repairs are ever further apart, 5 minutes at most": func(t *testing.T) {
			d := begin()
			for _, pause := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
				expect(t, d.Check(foo, 1, replicas), pause*time.Second, replicas)
				time.Sleep(pause*time.Second - 1)
				expect(t, d.Check(foo, 1, replicas), 1, replicas)
				time.Sleep(time.Nanosecond)
				expect(t, d.Check(foo, 1, replicas), 0, replicas)
				d.Repaired(foo, 1, replicas)
			}
		},
		"rule 21: repairs of other fields neither prolong it nor its pauses": func(t *testing.T) {
			d := begin()
			expect(t, d.Check(foo, 1, replicas), 10*time.Second, replicas)
			for range 2 {
				time.Sleep(4 * time.Minute)
				d.Repaired(foo, 1, image)
			}
			expect(t, d.Check(foo, 1), 2*time.Minute)
			time.Sleep(2 * time.Minute)
			expect(t, d.Check(foo, 1), 0)
			expect(t, d.Check(foo, 1, replicas), 0)
		},
		"rule 21: it is over when a repair has held for ten minutes": func(t *testing.T) {
			d := begin()
			expect(t, d.Check(foo, 1, replicas), 10*time.Second, replicas)
			time.Sleep(10 * time.Second)
			d.Repaired(foo, 1, replicas)
			expect(t, d.Check(foo, 1), contentionWindow)
			time.Sleep(contentionWindow - 1)
			expect(t, d.Check(foo, 1), 1)
			time.Sleep(time.Nanosecond)
			expect(t, d.Check(foo, 1), 0)
			expect(t, d.Check(foo, 1, replicas), 0)
		},
		"rule 21: no pause is longer than the time for which a repair must hold": func(t *testing.T) {
			if maxContentionPause >= contentionWindow {
				t.Error("the record would be dropped before the next repair")
			}
		},
		"rule 21: a new generation clears it": func(t *testing.T) {
			d := begin()
			expect(t, d.Check(foo, 1, replicas), 10*time.Second, replicas)
			expect(t, d.Check(foo, 2, replicas), 0)
		},
		"rule 21: what it is about is kept while it lasts": func(t *testing.T) {
			d := begin()
			d.Check(foo, 1, replicas)
			d.Describe(foo, "replicas")
			if got := d.Check(foo, 1, replicas).Message; got != "replicas" {
				t.Errorf("message %q", got)
			}
			if got := d.Check(foo, 1).Message; got != "replicas" {
				t.Errorf("message %q while nothing has drifted", got)
			}
			if got := d.Check(foo, 2, replicas).Message; got != "" {
				t.Errorf("message %q with a new generation", got)
			}
		},
		"rule 21: a Foo that is gone leaves no contention": func(t *testing.T) {
			d := begin()
			d.Clear(foo)
			expect(t, d.Check(foo, 1, replicas), 0)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
