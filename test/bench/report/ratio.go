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

	"example.com/sample-controller/test/bench/result"
)

// precision is the half-width of an interval, as a part of its ratio, at which the rounds end.
const precision = 0.05

// ratio returns the ratio of the two figures of each pair, averaged over all pairs, with its
// 95 % confidence interval. Both are taken of the logarithms, which are closer to a normal
// distribution, and in which a ratio and its inverse weigh the same: the geometric mean, and
// Student's t-interval. There must be two pairs.
func ratio(pairs [][2]float64) result.Figure {
	logs, mean := make([]float64, len(pairs)), 0.0
	n := float64(len(pairs))
	for i, pair := range pairs {
		logs[i] = math.Log(pair[0] / pair[1])
		mean += logs[i] / n
	}
	squares := 0.0
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	half := studentQuantile(len(pairs)-1) * math.Sqrt(squares/(n-1)/n)
	return result.Figure{Value: math.Exp(mean), Interval: &result.Interval{Low: math.Exp(mean - half), High: math.Exp(mean + half), Rounds: len(pairs)}}
}

// studentQuantile returns the 97.5 % quantile of Student's t-distribution. Above 30 degrees of
// freedom it returns the quantile of 30, which is at most 4 % too large.
func studentQuantile(degrees int) float64 {
	quantiles := [...]float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
		2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
		2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}
	return quantiles[min(degrees, len(quantiles))-1]
}

// isPrecise says whether the rounds may end: the figure is no ratio, or its interval is narrow.
func isPrecise(figure result.Figure) bool {
	return figure.Interval == nil || figure.Interval.High <= (1+precision)*figure.Value
}

// verdict judges a figure. A ratio meets its target if the ratio itself does and no value in
// its interval misses the target by more than the precision. It misses the target if all
// values in the interval do. Otherwise the interval allows no verdict.
func verdict(relation string, target float64, figure result.Figure) string {
	interval := figure.Interval
	if interval == nil {
		interval = &result.Interval{Low: figure.Value, High: figure.Value}
	}
	met, missed := figure.Value == target, figure.Value != target
	switch relation {
	case atLeast:
		met = figure.Value >= target && interval.Low >= target*(1-precision)
		missed = interval.High < target
	case atMost:
		met = figure.Value <= target && interval.High <= target*(1+precision)
		missed = interval.Low > target
	}
	switch {
	case met:
		return result.Met
	case missed:
		return result.Missed
	}
	return result.Undecided
}
