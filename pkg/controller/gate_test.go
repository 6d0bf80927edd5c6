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

func TestGateCaughtUp(t *testing.T) {
	foo, other := testKey("foo"), testKey("other")
	tests := map[string]struct {
		write func(*Gate)
		// reached is how far the caches of Foos and of Deployments have come.
		reached Versions
		after   time.Duration
		want    bool
	}{
		"rule 14: nothing was written": {reached: Versions{"1", "1"}, want: true},
		"rule 14: the cache has not seen the write": {
			write: func(g *Gate) { g.Wrote(foo, Children, "10") }, reached: Versions{"99", "9"}, want: false},
		"rule 14: the cache has seen the write": {
			write: func(g *Gate) { g.Wrote(foo, Children, "10") }, reached: Versions{"1", "10"}, want: true},
		"rule 14: the cache is past the write": {
			write: func(g *Gate) { g.Wrote(foo, Children, "10") }, reached: Versions{"1", "100"}, want: true},
		"rule 14: a status write counts against the cache of Foos": {
			write: func(g *Gate) { g.Wrote(foo, Parents, "10") }, reached: Versions{"9", "99"}, want: false},
		"rule 14: both were written, one was seen": {
			write: func(g *Gate) { g.Wrote(foo, Parents, "10"); g.Wrote(foo, Children, "11") }, reached: Versions{"10", "10"}, want: false},
		"rule 14: the last write counts": {
			write: func(g *Gate) { g.Wrote(foo, Parents, "10"); g.Wrote(foo, Parents, "12") }, reached: Versions{"11", "1"}, want: false},
		"rule 14: another Foo's write does not matter": {
			write: func(g *Gate) { g.Wrote(other, Parents, "10") }, reached: Versions{"1", "1"}, want: true},
		"rule 14: how far the cache has come is unknown: carry on": {
			write: func(g *Gate) { g.Wrote(foo, Parents, "10") }, reached: Versions{"", ""}, want: true},
		"rule 14: the Versions are not comparable: carry on": {
			write: func(g *Gate) { g.Wrote(foo, Parents, "abc") }, reached: Versions{"9", "9"}, want: true},
		"rule 14: almost 30 seconds later it still waits": {
			write: func(g *Gate) { g.Wrote(foo, Parents, "10") }, reached: Versions{"9", "9"}, after: 30*time.Second - 1, want: false},
		"rule 14: after 30 seconds: carry on": {
			write: func(g *Gate) { g.Wrote(foo, Parents, "10") }, reached: Versions{"9", "9"}, after: 30 * time.Second, want: true},
		"rule 14: the Foo is gone, and its writes are forgotten": {
			write: func(g *Gate) { g.Wrote(foo, Parents, "10"); g.Forget(foo) }, reached: Versions{"9", "9"}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(clock.RealClock{})
				if test.write != nil {
					test.write(g)
				}
				time.Sleep(test.after)
				for range 2 {
					if got := g.CaughtUp(foo, test.reached); got != test.want {
						t.Errorf("caughtUp = %v, want %v", got, test.want)
					}
				}
			})
		})
	}
}

func TestGateForgetsAWriteThatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(clock.RealClock{})
		g.Wrote(testKey("foo"), Parents, "10")
		if !g.CaughtUp(testKey("foo"), Versions{"10", ""}) {
			t.Error("not caught up with the write itself")
		}
		// A cache that is filled anew from a lagging server may go back in time.
		if !g.CaughtUp(testKey("foo"), Versions{"9", ""}) {
			t.Error("a write that was seen is still waited for")
		}
	})
}

func TestGateKeepsNothingOfWhatIsAtRest(t *testing.T) {
	tests := map[string]struct {
		remember func(g *Gate)
		keys     int
	}{
		"all writes were seen":    {remember: func(g *Gate) { g.Wrote(testKey("foo"), Parents, "10") }},
		"a write was not seen":    {remember: func(g *Gate) { g.Wrote(testKey("foo"), Children, "11") }, keys: 1},
		"a status was put off":    {remember: func(g *Gate) { g.PutOff(testKey("foo")) }, keys: 1},
		"the status was reported": {remember: func(g *Gate) { g.PutOff(testKey("foo")); g.Reported(testKey("foo")) }},
		"there was a repair":      {remember: func(g *Gate) { g.Repaired(testKey("foo"), 1) }, keys: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(clock.RealClock{})
				test.remember(g)
				g.CaughtUp(testKey("foo"), Versions{"10", "10"})
				if got := len(g.keys); got != test.keys {
					t.Errorf("%d keys are remembered, want %d", got, test.keys)
				}
			})
		})
	}
}

func TestGateGivesBackAnEmptyMap(t *testing.T) {
	g := NewGate(clock.RealClock{})
	first := reflect.ValueOf(g.keys).Pointer()
	g.Wrote(testKey("foo"), Parents, "10")
	g.Wrote(testKey("bar"), Parents, "10")
	g.CaughtUp(testKey("foo"), Versions{"10", "10"})
	if reflect.ValueOf(g.keys).Pointer() != first || len(g.keys) != 1 {
		t.Errorf("with one key left there are %d in another map", len(g.keys))
	}
	g.CaughtUp(testKey("bar"), Versions{"10", "10"})
	if reflect.ValueOf(g.keys).Pointer() == first || len(g.keys) != 0 {
		t.Errorf("with no key left there are %d in the same map", len(g.keys))
	}
}

func TestGateDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(clock.RealClock{})
		g.WroteDelete("a")
		g.WroteDelete("b")
		if !g.IsDeleted("a") || g.IsDeleted("c") {
			t.Errorf("rule 14: deleted a: %v, c: %v, want true and false", g.IsDeleted("a"), g.IsDeleted("c"))
		}
		g.SawDelete("a")
		if g.IsDeleted("a") || !g.IsDeleted("b") {
			t.Errorf("rule 14: after a's event a: %v, b: %v, want false and true", g.IsDeleted("a"), g.IsDeleted("b"))
		}
		time.Sleep(WriteMemory)
		if g.IsDeleted("b") {
			t.Error("rule 14: after 30 seconds b still counts as deleted")
		}
	})
}

func TestGateKeepsNoOldDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(clock.RealClock{})
		g.WroteDelete("a") // whose event came before the answer
		time.Sleep(WriteMemory)
		g.WroteDelete("b")
		if got := len(g.deleted); got != 1 {
			t.Errorf("rule 14: %d deletes are remembered, want the last one", got)
		}
	})
}

func TestGatePutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, foo := NewGate(clock.RealClock{}), testKey("foo")
		expect := func(sentence string, want time.Duration) {
			t.Helper()
			if got := g.PutOff(foo); got != want {
				t.Errorf("rule 13: %s: put off for %v, want %v", sentence, got, want)
			}
		}
		expect("the first sync notes the time", time.Second)
		time.Sleep(300 * time.Millisecond)
		expect("a sync before the second is over waits for the rest", 700*time.Millisecond)
		g.PutOff(testKey("other"))
		time.Sleep(700 * time.Millisecond)
		expect("the first sync past the second writes", 0)
		time.Sleep(time.Hour)
		expect("and so does any later one", 0)
		g.Reported(foo)
		expect("a write drops the note", time.Second)
		g.Forget(foo)
		time.Sleep(time.Second)
		expect("a Foo that is gone drops the note", time.Second)
		g.Reported(testKey("unknown"))
	})
}

func TestGateRepairedLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, key := NewGate(clock.RealClock{}), testKey("foo")
		check := func(when string, generation int64, want bool) {
			t.Helper()
			if got := g.RepairedLately(key, generation); got != want {
				t.Errorf("rule 4: repaired lately %s: %v, want %v", when, got, want)
			}
		}
		check("without a repair", 1, false)
		g.Repaired(key, 1)
		check("after a repair", 1, true)
		time.Sleep(FightWindow - 1)
		check("just within the minute", 1, true)
		time.Sleep(time.Nanosecond)
		check("a minute later", 1, false)
		g.Repaired(key, 1)
		check("for another generation", 2, false)
		g.Wrote(key, Parents, "10")
		check("after another write alone", 2, false)
	})
}

// TestGateFighting is the arithmetic of rule 21.
func TestGateFighting(t *testing.T) {
	foo := testKey("foo")
	// begin returns a gate that has seen five repairs, a second apart, the last one
	// just now.
	begin := func() *Gate {
		g := NewGate(clock.RealClock{})
		for range 5 {
			g.Fighting(foo, 1, true)
			time.Sleep(time.Second)
			g.Repaired(foo, 1)
		}
		return g
	}
	expect := func(t *testing.T, g *Gate, generation int64, drifted bool, want time.Duration, fights bool) {
		t.Helper()
		if pause, _, yes := g.Fighting(foo, generation, drifted); pause != want || yes != fights {
			t.Errorf("rule 21: pause %v, fighting %v, want %v, %v", pause, yes, want, fights)
		}
	}
	tests := map[string]func(*testing.T){
		"rule 21: nothing is known of the Foo": func(t *testing.T) {
			expect(t, NewGate(clock.RealClock{}), 1, true, 0, false)
		},
		"rule 21: no repair was made": func(t *testing.T) {
			g := NewGate(clock.RealClock{})
			g.PutOff(foo)
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
				g.Repaired(foo, 1)
			}
		},
		"rule 21: it is over when a repair has held for a minute": func(t *testing.T) {
			g := begin()
			expect(t, g, 1, true, 10*time.Second, true)
			time.Sleep(10 * time.Second)
			g.Repaired(foo, 1)
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
				pause, _, _ := g.Fighting(foo, 1, true)
				time.Sleep(pause)
				g.Repaired(foo, 1)
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
			g.Fighting(foo, 1, true)
			g.FightAbout(foo, "replicas")
			if _, about, _ := g.Fighting(foo, 1, true); about != "replicas" {
				t.Errorf("about %q", about)
			}
			if _, about, _ := g.Fighting(foo, 2, true); about != "" {
				t.Errorf("about %q with a new generation", about)
			}
		},
		"rule 21: a Foo that is gone leaves no fight": func(t *testing.T) {
			g := begin()
			g.Forget(foo)
			expect(t, g, 1, true, 0, false)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func TestGateLosesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(clock.RealClock{})
		g.Wrote(testKey("foo"), Parents, "10")
		g.WroteDelete("a")
		g.Lose()
		if !g.CaughtUp(testKey("foo"), Versions{"9", "9"}) || g.IsDeleted("a") {
			t.Error("something is remembered")
		}
	})
}
