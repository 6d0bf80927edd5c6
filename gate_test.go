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

package main

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestGateCaughtUp(t *testing.T) {
	foo, other := testKey("foo"), testKey("other")
	tests := map[string]struct {
		write func(*gate)
		// reached is how far the caches of Foos and of Deployments have come.
		reached versions
		after   time.Duration
		want    bool
	}{
		"rule 14: nothing was written": {reached: versions{"1", "1"}, want: true},
		"rule 14: the cache has not seen the write": {
			write: func(g *gate) { g.wrote(foo, deploymentsResource, "10") }, reached: versions{"99", "9"}, want: false},
		"rule 14: the cache has seen the write": {
			write: func(g *gate) { g.wrote(foo, deploymentsResource, "10") }, reached: versions{"1", "10"}, want: true},
		"rule 14: the cache is past the write": {
			write: func(g *gate) { g.wrote(foo, deploymentsResource, "10") }, reached: versions{"1", "100"}, want: true},
		"rule 14: a status write counts against the cache of Foos": {
			write: func(g *gate) { g.wrote(foo, foosResource, "10") }, reached: versions{"9", "99"}, want: false},
		"rule 14: both were written, one was seen": {
			write: func(g *gate) { g.wrote(foo, foosResource, "10"); g.wrote(foo, deploymentsResource, "11") }, reached: versions{"10", "10"}, want: false},
		"rule 14: the last write counts": {
			write: func(g *gate) { g.wrote(foo, foosResource, "10"); g.wrote(foo, foosResource, "12") }, reached: versions{"11", "1"}, want: false},
		"rule 14: another Foo's write does not matter": {
			write: func(g *gate) { g.wrote(other, foosResource, "10") }, reached: versions{"1", "1"}, want: true},
		"rule 14: how far the cache has come is unknown: carry on": {
			write: func(g *gate) { g.wrote(foo, foosResource, "10") }, reached: versions{"", ""}, want: true},
		"rule 14: the versions are not comparable: carry on": {
			write: func(g *gate) { g.wrote(foo, foosResource, "abc") }, reached: versions{"9", "9"}, want: true},
		"rule 14: almost 30 seconds later it still waits": {
			write: func(g *gate) { g.wrote(foo, foosResource, "10") }, reached: versions{"9", "9"}, after: 30*time.Second - 1, want: false},
		"rule 14: after 30 seconds: carry on": {
			write: func(g *gate) { g.wrote(foo, foosResource, "10") }, reached: versions{"9", "9"}, after: 30 * time.Second, want: true},
		"rule 14: the Foo is gone, and its writes are forgotten": {
			write: func(g *gate) { g.wrote(foo, foosResource, "10"); g.forget(foo) }, reached: versions{"9", "9"}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(clock.RealClock{})
				if test.write != nil {
					test.write(g)
				}
				time.Sleep(test.after)
				for range 2 {
					if got := g.caughtUp(foo, test.reached); got != test.want {
						t.Errorf("caughtUp = %v, want %v", got, test.want)
					}
				}
			})
		})
	}
}

func TestGateForgetsAWriteThatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(clock.RealClock{})
		g.wrote(testKey("foo"), foosResource, "10")
		if !g.caughtUp(testKey("foo"), versions{"10", ""}) {
			t.Error("not caught up with the write itself")
		}
		// A cache that is filled anew from a lagging server may go back in time.
		if !g.caughtUp(testKey("foo"), versions{"9", ""}) {
			t.Error("a write that was seen is still waited for")
		}
	})
}

func TestGateDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(clock.RealClock{})
		g.wroteDelete("a")
		g.wroteDelete("b")
		if !g.isDeleted("a") || g.isDeleted("c") {
			t.Errorf("rule 14: deleted a: %v, c: %v, want true and false", g.isDeleted("a"), g.isDeleted("c"))
		}
		g.sawDelete("a")
		if g.isDeleted("a") || !g.isDeleted("b") {
			t.Errorf("rule 14: after a's event a: %v, b: %v, want false and true", g.isDeleted("a"), g.isDeleted("b"))
		}
		time.Sleep(writeMemory)
		if g.isDeleted("b") {
			t.Error("rule 14: after 30 seconds b still counts as deleted")
		}
	})
}

func TestGateKeepsNoOldDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(clock.RealClock{})
		g.wroteDelete("a") // whose event came before the answer
		time.Sleep(writeMemory)
		g.wroteDelete("b")
		if got := len(g.deleted); got != 1 {
			t.Errorf("rule 14: %d deletes are remembered, want the last one", got)
		}
	})
}

func TestGatePutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, foo := newGate(clock.RealClock{}), testKey("foo")
		expect := func(sentence string, want time.Duration) {
			t.Helper()
			if got := g.putOff(foo); got != want {
				t.Errorf("rule 13: %s: put off for %v, want %v", sentence, got, want)
			}
		}
		expect("the first sync notes the time", time.Second)
		time.Sleep(300 * time.Millisecond)
		expect("a sync before the second is over waits for the rest", 700*time.Millisecond)
		g.putOff(testKey("other"))
		time.Sleep(700 * time.Millisecond)
		expect("the first sync past the second writes", 0)
		time.Sleep(time.Hour)
		expect("and so does any later one", 0)
		g.reported(foo)
		expect("a write drops the note", time.Second)
		g.forget(foo)
		time.Sleep(time.Second)
		expect("a Foo that is gone drops the note", time.Second)
		g.reported(testKey("unknown"))
	})
}

func TestGateRepairedLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key := newGate(clock.RealClock{}), testKey("foo")
		check := func(when string, generation int64, want bool) {
			t.Helper()
			if got := g.repairedLately(key, generation); got != want {
				t.Errorf("rule 4: repaired lately %s: %v, want %v", when, got, want)
			}
		}
		check("without a repair", 1, false)
		g.repaired(key, 1)
		check("after a repair", 1, true)
		time.Sleep(fightWindow - 1)
		check("just within the minute", 1, true)
		time.Sleep(time.Nanosecond)
		check("a minute later", 1, false)
		g.repaired(key, 1)
		check("for another generation", 2, false)
		g.wrote(key, foosResource, "10")
		check("after another write alone", 2, false)
	})
}

// TestGateFighting is the arithmetic of rule 21.
func TestGateFighting(t *testing.T) {
	foo := testKey("foo")
	// begin returns a gate that has seen five repairs, a second apart, the last one
	// just now.
	begin := func() *gate {
		g := newGate(clock.RealClock{})
		for range 5 {
			g.fighting(foo, 1, true)
			time.Sleep(time.Second)
			g.repaired(foo, 1)
		}
		return g
	}
	expect := func(t *testing.T, g *gate, generation int64, drifted bool, want time.Duration, fights bool) {
		t.Helper()
		if pause, _, yes := g.fighting(foo, generation, drifted); pause != want || yes != fights {
			t.Errorf("rule 21: pause %v, fighting %v, want %v, %v", pause, yes, want, fights)
		}
	}
	tests := map[string]func(*testing.T){
		"rule 21: nothing is known of the Foo": func(t *testing.T) {
			expect(t, newGate(clock.RealClock{}), 1, true, 0, false)
		},
		"rule 21: no repair was made": func(t *testing.T) {
			g := newGate(clock.RealClock{})
			g.putOff(foo)
			expect(t, g, 1, true, 0, false)
		},
		"rule 21: five repairs in a minute are none": func(t *testing.T) {
			expect(t, begin(), 1, false, 0, false)
		},
		"rule 21: a sixth one that is needed is a fight": func(t *testing.T) {
			expect(t, begin(), 1, true, 10*time.Second, true)
		},
		"rule 21: a sixth one a minute after the first is none": func(t *testing.T) {
			g := begin()
			time.Sleep(56 * time.Second)
			expect(t, g, 1, true, 0, false)
		},
		"rule 21: a sixth one just within the minute is": func(t *testing.T) {
			g := begin()
			time.Sleep(56*time.Second - 1)
			expect(t, g, 1, true, 0, true)
		},
		"rule 21: repairs are ever further apart, 5 minutes at most": func(t *testing.T) {
			g := begin()
			for _, pause := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
				expect(t, g, 1, true, pause*time.Second, true)
				time.Sleep(pause*time.Second - 1)
				expect(t, g, 1, true, 1, true)
				time.Sleep(time.Nanosecond)
				expect(t, g, 1, true, 0, true)
				g.repaired(foo, 1)
			}
		},
		"rule 21: it is over when a repair has held for a minute": func(t *testing.T) {
			g := begin()
			expect(t, g, 1, true, 10*time.Second, true)
			time.Sleep(10 * time.Second)
			g.repaired(foo, 1)
			expect(t, g, 1, false, time.Minute, true)
			time.Sleep(time.Minute - 1)
			expect(t, g, 1, false, 1, true)
			time.Sleep(time.Nanosecond)
			expect(t, g, 1, false, 0, false)
			expect(t, g, 1, true, 0, false)
		},
		"rule 21: a long fight is over when a repair has held for the last pause": func(t *testing.T) {
			g := begin()
			for range 4 {
				pause, _, _ := g.fighting(foo, 1, true)
				time.Sleep(pause)
				g.repaired(foo, 1)
			}
			expect(t, g, 1, false, 160*time.Second, true)
		},
		"rule 21: a new generation clears it": func(t *testing.T) {
			g := begin()
			expect(t, g, 1, true, 10*time.Second, true)
			expect(t, g, 2, true, 0, false)
		},
		"rule 21: what it is about is kept while it lasts": func(t *testing.T) {
			g := begin()
			g.fighting(foo, 1, true)
			g.fightAbout(foo, "replicas")
			if _, about, _ := g.fighting(foo, 1, true); about != "replicas" {
				t.Errorf("about %q", about)
			}
			if _, about, _ := g.fighting(foo, 2, true); about != "" {
				t.Errorf("about %q with a new generation", about)
			}
		},
		"rule 21: a Foo that is gone leaves no fight": func(t *testing.T) {
			g := begin()
			g.forget(foo)
			expect(t, g, 1, true, 0, false)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}
