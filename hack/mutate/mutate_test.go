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
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

// in wraps statements into a file.
func in(statements string) string {
	return "package p\n\nfunc f(a, b int, c bool) (int, bool) {\n" + statements + "\n}\n"
}

// TestFindMutants holds up that each change is found once, and no other.
func TestFindMutants(t *testing.T) {
	tests := map[string]struct {
		statements string
		// want are pairs of the code before and after.
		want []string
	}{
		"a condition holds, does not hold, is negated": {
			"if c {\n}", []string{"c → true", "c → false", "c → !c"}},
		"a comparison has a neighbour and an opposite": {
			"for a < b {\n}", []string{"a < b → true", "a < b → false", "a < b → a >= b", "a < b → a <= b"}},
		"an equality has no neighbour": {
			"if a == b {\n}", []string{"a == b → true", "a == b → false", "a == b → a != b"}},
		"either operand is left out or negated": {
			"if c && !g() {\n}", []string{
				"c && !g() → true", "c && !g() → false", "c && !g() → !(c && !g())",
				"c && !g() → c", "c && !g() → !g()", "c && !g() → !c && !g()", "c && !g() → c && g()"}},
		"operands of operands count too": {
			"if c || a > 1 && b > 1 {\n}", []string{
				"c || a > 1 && b > 1 → true", "c || a > 1 && b > 1 → false", "c || a > 1 && b > 1 → !(c || a > 1 && b > 1)",
				"c || a > 1 && b > 1 → c", "c || a > 1 && b > 1 → a > 1 && b > 1", "c || a > 1 && b > 1 → !c || a > 1 && b > 1",
				"c || a > 1 && b > 1 → c || a > 1", "c || a > 1 && b > 1 → c || b > 1",
				"c || a > 1 && b > 1 → c || a >= 1 && b > 1", "c || a > 1 && b > 1 → c || a <= 1 && b > 1",
				"c || a > 1 && b > 1 → c || a > 1 && b >= 1", "c || a > 1 && b > 1 → c || a > 1 && b <= 1"}},
		"each case of a switch without a tag is a condition": {
			"switch {\ncase c, g():\n}", []string{"c → true", "c → false", "c → !c", "g() → true", "g() → false", "g() → !g()"}},
		"each value of a switch with a tag always matches, or never": {
			"switch a {\ncase 1, b:\n}", []string{"1 → true", "1 → false", "b → true", "b → false"}},
		"what is boolean is changed wherever it stands": {
			"x := g(!c)", []string{"!c → true", "!c → false", "!c → c"}},
		"a returned boolean is flipped, other results are not touched": {
			"return a, true", []string{"true → false"}},
		"a function literal has results of its own": {
			"x := func() bool { return g() }", []string{"g() → true", "g() → false", "g() → !g()"}},
		"minimum and maximum, plus and minus change places": {
			"x := max(a-b, 0)", []string{"max(a-b, 0) → min(a-b, 0)", "max(a-b, 0) → max(a+b, 0)"}},
		"calls and assignments are left out": {
			"x := 1\nx = 2\nx++\nq.Add(x)\ndefer q.Done()", []string{
				"x = 2 → (nothing)", "x++ → (nothing)", "q.Add(x) → (nothing)", "defer q.Done() → (nothing)"}},
		"of a call with a long argument the first line is told": {
			"q.Go(func() {\n\tx++\n})", []string{"q.Go(func() { … } → (nothing)", "x++ → (nothing)"}},
		"what is logged, constants and panics are left alone": {
			"const d = 2 - 1\nlogger.Info(\"x\")\nklog.FromContext(x).V(2).Info(\"y\")\npanic(\"z\")", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, sites, err := findMutants("p.go", in(test.statements), 1)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			id := 0
			for _, s := range sites {
				for _, m := range s.mutants {
					lines := strings.Split(m.key, "\n")
					got = append(got, strings.TrimPrefix(lines[1], "- ")+" → "+strings.TrimPrefix(lines[2], "+ "))
					if id++; m.id != id {
						t.Errorf("number %d, want %d", m.id, id)
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("mutants (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEqualSitesAreToldApart(t *testing.T) {
	_, sites, err := findMutants("p.go", in("if c {\n}\nif c {\n}"), 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range sites {
		got = append(got, s.mutants[0].key)
	}
	want := []string{"p.go f\n- c\n+ true", "p.go f, occurrence 2\n- c\n+ true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// sample returns a package with a test that is good in part.
func sample() map[string]string {
	return map[string]string{
		"go.mod": "module sample\n\ngo 1.26\n",
		"p.go": `package sample

type counter struct{ n int }

func (c *counter) add(by int) {
	if by < 0 {
		return
	}
	switch by {
	case 3:
		c.n++
	}
	defer c.log()
	c.n += max(by, 1-by)
}

func (c *counter) log() {}
`,
		"p_test.go": `package sample

import "testing"

func TestAdd(t *testing.T) {
	c := &counter{}
	c.add(2)
	c.add(3)
	c.add(-1)
	if c.n != 6 {
		t.Fatal(c.n)
	}
}
`,
		"explained.txt": `# A comment.

p.go add
- by < 0
+ by <= 0
To add nothing, and to add it not, is the same.

p.go add
- defer c.log()
+ (nothing)
Nobody reads the log.
`,
	}
}

// run mutates the sample after those changes of its files.
func run(t *testing.T, changes map[string]string, args ...string) (string, error) {
	t.Helper()
	directory := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	for name, text := range sample() {
		if changed, ok := changes[name]; ok {
			text = changed
		}
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	args = append([]string{"-explained", filepath.Join(directory, "explained.txt"), "-root", directory}, args...)
	err := mutate(context.Background(), clock.RealClock{}, append(args, "p.go"), &out)
	left, readErr := os.ReadDir(os.Getenv("TMPDIR"))
	if readErr != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, readErr)
	}
	return out.String(), err
}

func TestMutate(t *testing.T) {
	tests := map[string]struct {
		changes map[string]string
		args    []string
		// want are parts of the output, err is a part of the error.
		want []string
		err  string
	}{
		"every mutant is killed or explained": {want: []string{"p.go       11       9          2      0"}},
		"a survivor that is not explained": {
			changes: map[string]string{"explained.txt": ""},
			want:    []string{"LIVED: p.go:6\np.go add\n- by < 0\n+ by <= 0\n", "p.go       11       9          0      2"},
			err:     "2 mutants lived"},
		"an explanation of a mutant that is killed": {
			changes: map[string]string{"explained.txt": sample()["explained.txt"] + "\np.go add\n- by < 0\n+ true\nSo what?\n"},
			want:    []string{"NEEDLESS EXPLANATION, there is no such survivor:\np.go add\n- by < 0\n+ true\n"},
			err:     "1 explanations are needless"},
		"an explanation without a reason": {
			changes: map[string]string{"explained.txt": "p.go add\n- by < 0\n+ true\n"}, err: "no explanation"},
		"only what is asked for is tried, and its explanations": {
			args: []string{"-match", "log"}, want: []string{"p.go        1       0          1      0"}},
		"a test that is skipped when time is short kills as well": {
			changes: map[string]string{"p_test.go": strings.Replace(sample()["p_test.go"], "c :=", "if testing.Short() {\n\t\tt.Skip()\n\t}\n\tc :=", 1)},
			want:    []string{"p.go       11       9          2      0"}},
		"a test that fails when time is short kills nobody either": {
			changes: map[string]string{"p_test.go": strings.Replace(sample()["p_test.go"], "c :=", "if testing.Short() {\n\t\tt.Fatal()\n\t}\n\tc :=", 1)},
			err:     "the tests fail without a mutant"},
		"a test that fails by itself kills nobody": {
			changes: map[string]string{"p_test.go": strings.Replace(sample()["p_test.go"], "6", "7", 1)}, err: "the tests fail without a mutant"},
		"the list": {args: []string{"-list", "-match", "max"}, want: []string{"# p.go:14\np.go add\n- c.n += max(by, 1-by)\n+ (nothing)\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, test.changes, test.args...)
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("output %s\nwant in it: %s", out, want)
				}
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}
