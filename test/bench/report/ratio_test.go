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
	"math"
	"testing"

	"example.com/sample-controller/test/bench/result"
)

func TestRatio(t *testing.T) {
	tests := map[string]struct {
		pairs            [][2]float64
		value, low, high float64
	}{
		"equal pairs leave no doubt": {
			pairs: [][2]float64{{3, 2}, {6, 4}}, value: 1.5, low: 1.5, high: 1.5,
		},
		// The logarithms are ±ln 2: mean 0, standard error ln 2, and t(1) = 12.706.
		"two pairs that contradict each other say nothing": {
			pairs: [][2]float64{{2, 1}, {1, 2}}, value: 1, low: math.Exp(-12.706 * math.Ln2), high: math.Exp(12.706 * math.Ln2),
		},
		// The logarithms are 0.1, 0.2 and 0.3: mean 0.2, standard error 0.1/√3, and t(2) = 4.303.
		"the interval is Student's, of the logarithms": {
			pairs: [][2]float64{{math.Exp(0.1), 1}, {math.Exp(0.2), 1}, {math.Exp(0.3), 1}},
			value: math.Exp(0.2), low: math.Exp(0.2 - 0.24844), high: math.Exp(0.2 + 0.24844),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ratio(test.pairs)
			for what, pair := range map[string][2]float64{"value": {got.Value, test.value}, "low": {got.Interval.Low, test.low}, "high": {got.Interval.High, test.high}} {
				if math.Abs(pair[0]/pair[1]-1) > 1e-4 {
					t.Errorf("%s = %g, want %g", what, pair[0], pair[1])
				}
			}
			if got.Interval.Rounds != len(test.pairs) {
				t.Errorf("%d rounds, want %d", got.Interval.Rounds, len(test.pairs))
			}
		})
	}
}

// The ratio of b to a is the inverse of that of a to b, with the inverse interval.
func TestRatioIsSymmetric(t *testing.T) {
	ours := ratio([][2]float64{{480, 500}, {610, 570}, {300, 310}})
	theirs := ratio([][2]float64{{500, 480}, {570, 610}, {310, 300}})
	for what, product := range map[string]float64{"value": ours.Value * theirs.Value, "low": ours.Interval.Low * theirs.Interval.High, "high": ours.Interval.High * theirs.Interval.Low} {
		if math.Abs(product-1) > 1e-9 {
			t.Errorf("%s: the product of both ratios is %g, want 1", what, product)
		}
	}
}

func TestStudentQuantile(t *testing.T) {
	for degrees, want := range map[int]float64{1: 12.706, 5: 2.571, 29: 2.045, 30: 2.042, 200: 2.042} {
		if got := studentQuantile(degrees); got != want {
			t.Errorf("studentQuantile(%d) = %g, want %g", degrees, got, want)
		}
	}
}

func TestVerdict(t *testing.T) {
	tests := map[string]struct {
		relation         string
		target           float64
		value, low, high float64
		want             string
	}{
		"at least: the whole interval meets the target":                  {atLeast, 1, 1.1, 1.05, 1.15, result.Met},
		"at least: the ratio does, the interval is within the precision": {atLeast, 1, 1, 0.951, 1.05, result.Met},
		"at least: the ratio does, the interval is too wide":             {atLeast, 1, 1.01, 0.94, 1.09, result.Undecided},
		"at least: only the upper end meets the target":                  {atLeast, 1, 0.97, 0.94, 1, result.Undecided},
		"at least: no value of the interval meets the target":            {atLeast, 1, 0.95, 0.92, 0.99, result.Missed},
		"at most: the whole interval meets the target":                   {atMost, 1.1, 0.9, 0.8, 1, result.Met},
		"at most: the ratio does, the interval is within the precision":  {atMost, 1.1, 1.1, 1.06, 1.15, result.Met},
		"at most: the ratio does, the interval is too wide":              {atMost, 1.1, 1.09, 1.02, 1.17, result.Undecided},
		"at most: only the lower end meets the target":                   {atMost, 1.1, 1.14, 1.1, 1.18, result.Undecided},
		"at most: no value of the interval meets the target":             {atMost, 1.1, 1.2, 1.11, 1.3, result.Missed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			figure := result.Figure{Value: test.value, Interval: &result.Interval{Low: test.low, High: test.high, Rounds: 6}}
			if got := verdict(test.relation, test.target, figure); got != test.want {
				t.Errorf("verdict() = %s, want %s", got, test.want)
			}
		})
	}
}

func TestVerdictWithoutInterval(t *testing.T) {
	tests := map[string]struct {
		relation      string
		target, value float64
		want          string
	}{
		"a count has to be exact":           {exactly, 1, 1.005, result.Missed},
		"an exact count passes":             {exactly, 1, 1, result.Met},
		"a bound may be reached":            {atMost, 60, 60, result.Met},
		"there is no slack above a bound":   {atMost, 60, 60.1, result.Missed},
		"there is no slack below a minimum": {atLeast, 1, 0.99, result.Missed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := verdict(test.relation, test.target, result.Figure{Value: test.value}); got != test.want {
				t.Errorf("verdict() = %s, want %s", got, test.want)
			}
		})
	}
}

func TestIsPrecise(t *testing.T) {
	for name, test := range map[string]struct {
		figure result.Figure
		want   bool
	}{
		"a figure without an interval": {result.Figure{Value: 7}, true},
		"± 5 %":                        {result.Figure{Value: 2, Interval: &result.Interval{Low: 1.91, High: 2.1}}, true},
		"± 6 %":                        {result.Figure{Value: 2, Interval: &result.Interval{Low: 1.89, High: 2.12}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isPrecise(test.figure); got != test.want {
				t.Errorf("isPrecise() = %v, want %v", got, test.want)
			}
		})
	}
}
