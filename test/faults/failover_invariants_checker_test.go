//go:build faults

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

package faults

import (
	"net/http"
	"strings"
	"testing"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// statusWriteAt returns a status write for that generation, answered at that second.
func statusWriteAt(generation, ended int64) request {
	return request{
		verb: http.MethodPut, resource: foos, name: "x", subresource: "status", observed: fooGeneration{"1", generation},
		received: unixTime(ended), answered: unixTime(ended), code: http.StatusOK,
	}
}

// specChangeAt returns a change of the spec to that generation at that second.
func specChangeAt(generation, when int64) specChange {
	return specChange{fooGeneration{"1", generation}, unixTime(when)}
}

// TestFailoverInvariants tests the checks of TestFailover, which could otherwise let
// every run pass.
func TestFailoverInvariants(t *testing.T) {
	handovers := []*handover{{signalled: unixTime(100), nextStarted: unixTime(110)}}
	ready := func(generation int64) *v1alpha1.Foo {
		return withStatus(newFoo("1", generation, "a"), v1alpha1.ReasonDeploymentAvailable, generation)
	}
	history := func(versions ...*v1alpha1.Foo) []string {
		h := &fakeHistory{}
		for _, foo := range versions {
			h.addFoo(foo)
		}
		return h.leftReady()
	}
	for _, test := range []struct {
		name  string
		found []string
		// want is the beginning of the one violation, "" for none.
		want string
	}{
		{"valid: a Foo stops being Ready because its spec changed",
			history(ready(1), withStatus(newFoo("1", 2, "a"), v1alpha1.ReasonDeploymentAvailable, 1), withStatus(newFoo("1", 2, "a"), v1alpha1.ReasonDeploymentProgressing, 2), ready(2)), ""},
		{"a Foo stops being Ready without a change of its spec", history(ready(1), withStatus(newFoo("1", 1, "a"), v1alpha1.ReasonDeploymentProgressing, 1)), "Foo x stopped being Ready in generation 1"},
		{"valid: statuses are as fast after a handover as outside",
			measureStatusLatency([]specChange{specChangeAt(1, 10), specChangeAt(2, 101)}, [][]request{{statusWriteAt(1, 12)}, {statusWriteAt(2, 118)}}, handovers).violations(), ""},
		{"valid: a later generation superseded a change",
			measureStatusLatency([]specChange{specChangeAt(1, 10), specChangeAt(2, 101), specChangeAt(3, 102)}, [][]request{{statusWriteAt(1, 12)}, {statusWriteAt(3, 118)}}, handovers).violations(), ""},
		{"a change is late after a handover",
			measureStatusLatency([]specChange{specChangeAt(1, 10), specChangeAt(2, 101)}, [][]request{{statusWriteAt(1, 12)}, {statusWriteAt(2, 119)}}, handovers).violations(), "the status of Foo x came 9s after a handover"},
		{"no change was made before or during a handover",
			measureStatusLatency([]specChange{specChangeAt(1, 10)}, [][]request{{statusWriteAt(1, 12)}}, handovers).violations(), "too few changes to compare"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.want == "" && len(test.found) > 0 || test.want != "" && (len(test.found) != 1 || !strings.HasPrefix(test.found[0], test.want)) {
				t.Errorf("violations: %q", test.found)
			}
		})
	}
}
