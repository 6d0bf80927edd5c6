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

// Package result is what the measurements of package bench hand to their report.
package result

// Measured is one figure, as JSON on a line of its own.
type Measured struct {
	// Row is the figure's name in the report.
	Row string `json:"row"`
	// Who was measured: the controller of this repository, or a peer.
	Who string `json:"who"`
	// Objects is of how many objects it is, Workers by how many workers.
	Objects int `json:"objects"`
	Workers int `json:"workers"`
	// Value is in the unit of the row.
	Value float64 `json:"value"`
	// Details are what it was computed from; the names tell the units.
	Details map[string]float64 `json:"details,omitempty"`
}

// Few is how many Foos growth is compared with.
const Few = 1000

// Ours is who the controller of this repository is.
const Ours = "ours"

// Verdicts of a Row.
const (
	Met         = "pass"
	Missed      = "FAIL"
	NotMeasured = "not measured"
)

// Row is a figure with its target.
type Row struct {
	Name string `json:"name"`
	// Relation says how the figure has to stand to the target: ≥, ≤ or =.
	Relation string  `json:"relation"`
	Target   float64 `json:"target"`
	// Ours and Peer are the figures, nil where none was measured.
	Ours    *float64 `json:"ours"`
	Peer    *float64 `json:"peer,omitempty"`
	Verdict string   `json:"verdict"`
}

// Machine is what the figures are from.
type Machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Memory string `json:"memory"`
	Go     string `json:"go"`
	Commit string `json:"commit"`
}

// Report is all that was found.
type Report struct {
	Machine  Machine    `json:"machine"`
	Rows     []Row      `json:"rows"`
	Measured []Measured `json:"measured"`
}
