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
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/test/check/trace"
)

func TestReadSuite(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"example.yaml": "{apiVersion: example.com/v1, kind: Bar, metadata: {name: x}}",
		"suite.yaml": `{example: example.yaml, quiet: 3s, scenarios: [{name: a, steps: [
			{merge: {spec: {replicas: 2}}}, {object: {apiVersion: v1, kind: Pod, where: owned}, delete: Background}]}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := readSuite(filepath.Join(dir, "suite.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	steps := s.Scenarios[0].Steps
	if diff := cmp.Diff([]string{`patch Bar x {"spec":{"replicas":2}}`, "delete Pod where owned"}, []string{steps[0].String(), steps[1].String()}); diff != "" {
		t.Error(diff)
	}
}

// object returns a version of an object, whose UID is its name and its UID's suffix.
func object(resource, name, uid, owner string, revision int64, deleted bool) trace.Version {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": resource, "metadata": map[string]any{"name": name, "uid": uid}}}
	if owner != "" {
		o.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"uid": owner}}
	}
	return trace.Version{Resource: resource, Object: o, Revision: revision, Deleted: deleted}
}

func TestPeakAndState(t *testing.T) {
	c := &checker{suite: &suite{}, owners: schema.GroupVersionResource{Resource: "bars"}}
	versions := []trace.Version{
		object("bars", "x", "1", "", 1, false),
		object("pods", "x-a", "2", "1", 2, false),
		object("pods", "other", "3", "4", 3, false),
		object("pods", "x-b", "5", "1", 6, false),
		object("pods", "x-a", "2", "1", 5, true),
	}
	if got := c.peak(versions)["pods"]; got != 1 {
		t.Errorf("peak of pods in order of their revisions: %d", got)
	}
	stable := map[string]bool{"x": true, "other": true}
	end := c.stateOf(versions, map[string]bool{"pods": true}, newAliases("check-1", stable))
	if got := end["pods #1 /metadata/ownerReferences/0/uid"]; got != "bars/x" {
		t.Errorf("the end is %v", end)
	}
	ignored := func(string) bool { return false }
	start := c.stateOf(versions[:3], map[string]bool{"pods": true}, newAliases("check-1", stable))
	if diff := cmp.Diff([]string(nil), differences(start, end, ignored)); diff != "" {
		t.Errorf("a dependent with another random name is another end: %s", diff)
	}
	fewer := c.stateOf(versions[:2], map[string]bool{"pods": true}, newAliases("check-1", stable))
	if diff := cmp.Diff([]string{"- pods other /kind: pods"}, differences(end, fewer, ignored)); diff != "" {
		t.Error(diff)
	}
}

// TestNamesThatDiffer: runs at the same time may have the same name by chance.
func TestNamesThatDiffer(t *testing.T) {
	c := &checker{suite: &suite{Ignore: []string{"jobs * /metadata/name"}}}
	to, _ := trace.ParsePath("/apis/batch/v1/namespaces/a/jobs/x-1")
	read := trace.NewRequest(http.MethodGet, "", to, nil)
	o := &outcome{namespace: "a", requests: []trace.Request{*read}, points: []recordedPoint{{request: read}}}
	if ref, _ := c.learnReference(&scenario{}, []*outcome{o, o}); ref.points[0].class != "GET jobs #1" {
		t.Errorf("the point is %q", ref.points[0].class)
	}
}

func TestHot(t *testing.T) {
	at := func(gap time.Duration) (times []time.Time) {
		for i := range hotCount {
			times = append(times, time.Unix(0, 0).Add(time.Duration(i)*gap))
		}
		return times
	}
	if got := []bool{hot(at(time.Second / hotCount)), hot(at(time.Second / (hotCount - 2))), hot(nil)}; !slices.Equal(got, []bool{true, false, false}) {
		t.Errorf("hot: %t", got)
	}
}

func TestFewest(t *testing.T) {
	c := &checker{owners: schema.GroupVersionResource{Resource: "bars"}}
	serving := func(name, uid string, revision, available int64, deleted bool) trace.Version {
		v := object("deployments", name, uid, "1", revision, deleted)
		v.Object.Object["metadata"].(map[string]any)["ownerReferences"].([]any)[0].(map[string]any)["controller"] = true
		v.Object.Object["status"] = map[string]any{"availableReplicas": available}
		return v
	}
	before := []trace.Version{object("bars", "x", "1", "", 1, false), serving("old", "2", 2, 2, false)}
	for name, test := range map[string]struct {
		then []trace.Version
		want int
	}{
		"the new one serves first": {[]trace.Version{serving("old", "2", 5, 2, true), serving("new", "3", 4, 2, false)}, 2},
		"the old one goes first":   {[]trace.Version{serving("new", "3", 4, 1, false), serving("old", "2", 5, 2, true), serving("new", "3", 6, 2, false)}, 1},
		"its owner goes":           {[]trace.Version{object("bars", "x", "1", "", 4, true), serving("old", "2", 5, 2, true)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.fewest(slices.Concat(before, test.then), len(before))["deployments"]; got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestReports encodes a finding, a fault that was not reached, and a run that passed.
func TestReports(t *testing.T) {
	r := &report{Suite: "s", Names: []string{"a", "b", "c"}, Unreached: []string{"b"}, Findings: []finding{{Judge: "end", Message: "m", Run: "a"}}}
	got, err := asJUnit([]*report{r})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<testcase name="a">`, `<failure type="end">`, `<skipped/>`, `name="c"></testcase>`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

// TestSuites reads the suites of this repository.
func TestSuites(t *testing.T) {
	files := []string{"../../testdata/suites.yaml"}
	for _, root := range []string{"../..", "../*"} {
		more, err := filepath.Glob(root + "/pkg/controller/*/testdata/suites.yaml")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		if s, err := readSuite(file); err != nil || s.data == nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
