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

// Package result defines the JSON in which the measurements of package bench are stored.
package result

// Measurement is one figure.
type Measurement struct {
	// Row is the name under which package report finds the figure.
	Row string `json:"row"`
	// Who is the measured program: Ours, Peer or Plain.
	Who string `json:"who"`
	// Round is the number of the round. Each program has one turn in a round.
	Round int `json:"round"`
	// Objects is the number of objects that the measurement created.
	Objects int `json:"objects"`
	// Workers is the number of the program's workers.
	Workers int `json:"workers"`
	// Value is the figure, in the unit of the row.
	Value float64 `json:"value"`
	// Details are further figures of the same turn. Their names state the units.
	Details map[string]float64 `json:"details,omitempty"`
}

// Few is the number of Foos with which the growth rows compare.
const Few = 1000

// The measured programs: the controller of this repository, the one of test/bench/peer, and
// the plain client of test/bench/plain.
const (
	Ours  = "ours"
	Peer  = "peer"
	Plain = "plain"
)

// Verdicts of a Row.
const (
	Met         = "pass"
	Missed      = "FAIL"
	Undecided   = "undecided"
	NotMeasured = "not measured"
)

// Figure is what was measured for a Row.
type Figure struct {
	Value float64 `json:"value"`
	// Interval is the 95 % confidence interval of a ratio, nil for other figures.
	Interval *Interval `json:"interval,omitempty"`
}

// Interval is a confidence interval of a ratio.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Rounds is the number of rounds in which both programs were measured.
	Rounds int `json:"rounds"`
}

// Row is one row of the table.
type Row struct {
	Name string `json:"name"`
	// Relation is the required relation of the figure to Target: ≥, ≤ or =.
	Relation string  `json:"relation"`
	Target   float64 `json:"target"`
	// Measured is nil if the row was not measured.
	Measured *Figure `json:"measured"`
	// Verdict says whether Measured meets the target.
	Verdict string `json:"verdict"`
}

// Machine is the machine and the program of the measurements.
type Machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Memory string `json:"memory"`
	Go     string `json:"go"`
	Commit string `json:"commit"`
}

// Report is the content of results.json.
type Report struct {
	Machine      Machine       `json:"machine"`
	Rows         []Row         `json:"rows"`
	Measurements []Measurement `json:"measured"`
}
