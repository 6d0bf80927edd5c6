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
	"time"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// at returns a moment of a tale, in seconds.
func at(seconds int64) time.Time {
	return time.Unix(seconds, 0)
}

// writing is a write that came and was answered then.
func writing(begun, ended int64) request {
	return request{verb: http.MethodPatch, resource: deployments, name: "a", begun: at(begun), ended: at(ended), code: http.StatusOK}
}

// telling is the write of a status that tells of that generation.
func telling(generation, ended int64) request {
	return request{
		verb: http.MethodPut, resource: foos, name: "x", subresource: "status", told: spec{"1", generation},
		begun: at(ended), ended: at(ended), code: http.StatusOK,
	}
}

// wanting is a generation that a user asked for then.
func wanting(generation, when int64) asked {
	return asked{spec{"1", generation}, at(when)}
}

// TestFailoverJudge checks what judges the changes of leader.
func TestFailoverJudge(t *testing.T) {
	reading := writing(5, 6)
	reading.verb = http.MethodGet
	handovers := []*handover{{signalled: at(100), works: at(110)}}
	ready := func(generation int64) *v1alpha1.Foo {
		return saying(aFoo("1", generation, "a"), v1alpha1.ReasonDeploymentAvailable, generation)
	}
	history := func(versions ...*v1alpha1.Foo) []string {
		h := &tale{}
		for _, foo := range versions {
			h.foo(foo)
		}
		return h.leftReady()
	}
	for _, test := range []struct {
		sentence string
		found    []string
		// want is the beginning of what is reported, "" for nothing.
		want string
	}{
		{"nothing is wrong with one after the other", actingTogether([][]request{{writing(1, 2), writing(3, 4)}, {writing(5, 6)}}), ""},
		{"nothing is wrong with one who reads beside the other", actingTogether([][]request{{writing(1, 9)}, {reading}}), ""},
		{"two act: a write is answered after another one's came", actingTogether([][]request{{writing(1, 2), writing(3, 6)}, {writing(5, 6)}}),
			"two act: controller 2 began with PATCH deployments a 1s before PATCH deployments a of controller 1 was answered"},
		{"two act: the former one writes again", actingTogether([][]request{{writing(5, 6)}, {writing(1, 2), writing(7, 8)}}), "two act: controller 1 began"},
		{"nothing is wrong with a Foo that leaves Ready because it was changed",
			history(ready(1), saying(aFoo("1", 2, "a"), v1alpha1.ReasonDeploymentAvailable, 1), saying(aFoo("1", 2, "a"), v1alpha1.ReasonDeploymentProgressing, 2), ready(2)), ""},
		{"a Foo leaves Ready that nobody has changed", history(ready(1), saying(aFoo("1", 1, "a"), v1alpha1.ReasonDeploymentProgressing, 1)), "Foo x left Ready in generation 1"},
		{"nothing is wrong where all is told of as fast after a handover as beside it",
			newWaits([]asked{wanting(1, 10), wanting(2, 101)}, [][]request{{telling(1, 12)}, {telling(2, 118)}}, handovers).violations(), ""},
		{"nothing is wrong with a generation that a later one superseded",
			newWaits([]asked{wanting(1, 10), wanting(2, 101), wanting(3, 102)}, [][]request{{telling(1, 12)}, {telling(3, 118)}}, handovers).violations(), ""},
		{"somebody is forgotten over a handover",
			newWaits([]asked{wanting(1, 10), wanting(2, 101)}, [][]request{{telling(1, 12)}, {telling(2, 119)}}, handovers).violations(), "Foo x waited for 9s after a handover"},
		{"a run without a change across a handover proves nothing",
			newWaits([]asked{wanting(1, 10)}, [][]request{{telling(1, 12)}}, handovers).violations(), "nothing is proven"},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			if test.want == "" && len(test.found) > 0 || test.want != "" && (len(test.found) != 1 || !strings.HasPrefix(test.found[0], test.want)) {
				t.Errorf("reported is %q", test.found)
			}
		})
	}
}
