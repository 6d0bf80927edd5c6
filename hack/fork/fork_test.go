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
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/sample-controller/hack/naming"
	"example.com/sample-controller/hack/tree"
)

func variables(dir string, changed map[string]string) func(string) string {
	all := map[string]string{"DIR": dir, "MODULE": "github.com/acme/widgets", "GROUP": "widgets.acme.io", "VERSION": "v1", "KIND": "Widget"}
	maps.Copy(all, changed)
	return func(name string) string { return all[name] }
}

// newTestOptions returns the options with these variables changed.
func newTestOptions(t *testing.T, changed map[string]string) *options {
	t.Helper()
	o, err := newOptions(root(t), variables(filepath.Join(t.TempDir(), "widgets"), changed))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOptionsAreRefused(t *testing.T) {
	full, dir := t.TempDir(), filepath.Join(t.TempDir(), "widgets")
	inside := filepath.Join(full, "inside")
	if err := os.Symlink(root(t), inside); err != nil {
		t.Fatal(err)
	}
	for sentence, test := range map[string]struct{ variable, value, want string }{
		"a variable that is not set":         {"KIND", "", "KIND: is not set; run make fork"},
		"a directory with files":             {"DIR", full, "is not empty"},
		"a directory in this repository":     {"DIR", "widgets", "is in this repository"},
		"a file for a directory":             {"DIR", filepath.Join(root(t), "go.mod"), "DIR: "},
		"a link":                             {"DIR", inside, "no directory"},
		"the same, through a link":           {"DIR", filepath.Join(inside, "widgets"), "is in this repository"},
		"a directory below none":             {"DIR", filepath.Join(full, "no", "widgets"), "below one that exists"},
		"a module path with a blank":         {"MODULE", "github.com/acme/my widgets", "MODULE: "},
		"a module path without a domain":     {"MODULE", "widgets", "is not a domain with a path"},
		"this repository's module":           {"MODULE", "example.com/sample-controller", "is this repository's"},
		"a program that is no DNS label":     {"PROGRAM", "my_widgets", "is not a DNS label"},
		"a program with a long name":         {"PROGRAM", strings.Repeat("x", 41), "at most 40"},
		"a program that begins with a digit": {"PROGRAM", "3d-printer", "begins with a letter"},
		"a program called like a directory":  {"PROGRAM", "test", "is a file or directory of the repository"},
		"a program called makefile":          {"PROGRAM", "makefile", "is a file or directory of the repository"},
		"a group that is no DNS subdomain":   {"GROUP", "Widgets.acme.io", "is not a DNS subdomain"},
		"a group without a dot":              {"GROUP", "widgets", "with a dot"},
		"a group of the Kubernetes project":  {"GROUP", "widgets.k8s.io", "is reserved"},
		"a group that begins with a digit":   {"GROUP", "3d.acme.io", "cannot be imported"},
		"a group that is a Go keyword":       {"GROUP", "go.acme.io", "cannot be imported"},
		"a group that Go cannot import":      {"GROUP", "internal.acme.io", "cannot be imported"},
		"a group with a sibling's folder":    {"GROUP", "cache.acme.io", "is the folder of another group"},
		"a version without a number":         {"VERSION", "latest", "VERSION: "},
		"a version of another form":          {"VERSION", "v1gamma1", "VERSION: "},
		"a kind in lower case":               {"KIND", "widget", "is not a kind"},
		"a kind of one letter":               {"KIND", "V", "2 to 63 letters"},
		"a kind that is a Go keyword":        {"KIND", "Map", "map is a Go keyword or a predeclared name"},
		"a kind that is a predeclared type":  {"KIND", "String", "string is a Go keyword or a predeclared name"},
		"a kind that is taken for a list":    {"KIND", "WidgetList", "has that name for something else"},
		"a kind that the package declares":   {"KIND", "Resource", "has that name for something else"},
		"a kind that is a system in files":   {"KIND", "Windows", "fake_windows.go"},
		"a kind whose files would be tests":  {"KIND", "Test", "fake_test.go"},
		"a kind of Kubernetes":               {"KIND", "Job", "is a kind of Kubernetes"},
		"a kind of a sibling that stays":     {"KIND", "CronTab", "is a kind of this repository"},
		"a plural with a hyphen":             {"PLURAL", "wid-gets", "is not a plural"},
		"a plural that is the kind":          {"PLURAL", "widget", "differs from the kind"},
		"a short name in upper case":         {"SHORT", "wd,WD", `"WD" is not a short name`},
		"a part that is none for DROP":       {"DROP", "memcached,redis", `"redis" is not one of memcached,crontab,webhooks`},
		"a part that other parts need":       {"DROP", "memcached,check", "newkind needs check"},
		"a part that no fork has":            {"DROP", "fork", "is not one of"},
		"a part that is none for WITH":       {"WITH", "tutorial", "is not one of bench,compare,failover,hostile,mutation,node,release,versions"},
		"a copyright that ends the comment":  {"COPYRIGHT", "2026 */ Acme", "COPYRIGHT: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := newOptions(root(t), variables(dir, map[string]string{test.variable: test.value}))
			if err == nil || !strings.HasPrefix(err.Error(), test.variable+": ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one of %s with %q", err, test.variable, test.want)
			}
		})
	}
	_, err := newOptions(root(t), variables(dir, map[string]string{"DROP": "rename", "WITH": "node"}))
	if err == nil || !strings.Contains(err.Error(), "DROP: node needs rename") {
		t.Errorf("error %v for a suite of what is dropped", err)
	}
}

// root returns the directory of this repository.
func root(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestNames(t *testing.T) {
	want := naming.Names{Module: "github.com/acme/widgets", Program: "widgets", Group: "widgets.acme.io",
		GroupPackage: "widgets", Version: "v1", NextVersion: "v2", Kind: "Widget", Kinds: "Widgets", Plural: "widgets"}
	if got := newTestOptions(t, nil).Names; got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for sentence, test := range map[string]struct{ variables, want string }{
		"a major version is not part of the program": {"MODULE=git.acme.io/my.widgets/v2", " Program:my-widgets "},
		"after an alpha version comes a beta one":    {"VERSION=v1alpha3", " NextVersion:v1beta1 "},
		"after a beta version comes a stable one":    {"VERSION=v2beta2", " NextVersion:v2 "},
		"plurals follow the rules of English":        {"KIND=HTTPPolicy", " Kinds:HTTPPolicies Plural:httppolicies}"},
		"a plural is that of the code generators":    {"KIND=Proof", " Kinds:Prooves Plural:prooves}"},
		"a plural can be given":                      {"KIND=Goose PLURAL=geese", " Kinds:Geese Plural:geese}"},
		"a group with a hyphen has a name in Go":     {"GROUP=my-net2.acme.io", " GroupPackage:mynet2 "},
	} {
		t.Run(sentence, func(t *testing.T) {
			changed := map[string]string{}
			for variable := range strings.FieldsSeq(test.variables) {
				name, value, _ := strings.Cut(variable, "=")
				changed[name] = value
			}
			if got := fmt.Sprintf("%+v", newTestOptions(t, changed).Names); !strings.Contains(got, test.want) {
				t.Errorf("%s has no %q", got, test.want)
			}
		})
	}
}

func TestRename(t *testing.T) {
	// want is "" for the same text.
	for sentence, test := range map[string]struct{ path, text, want string }{
		"identifiers keep their case":        {"x.go", "newFoo fooKind JSONFoos foosEach fooinformers FooList FOOS addFoo", "newHTTPWidget httpWidgetKind JSONHTTPWidgets httpWidgetsEach httpwidgetinformers HTTPWidgetList HTTPWIDGETS addHTTPWidget"},
		"parts of other words stay":          {"x.md", "food footer Football foolproof", ""},
		"the program has several forms":      {"x.md", "sample-controller sample_controller_foos SampleControllerFoosInTrouble #samplecontrollerfoosintrouble", "my-app my_app_httpwidgets MyAppHTTPWidgetsInTrouble #myapphttpwidgetsintrouble"},
		"the module is no image":             {"x.md", "example.com/sample-controller/pkg registry.example.com/sample-controller:dev", "github.com/acme/widgets/pkg registry.example.com/my-app:dev"},
		"the group is no package":            {"x.go", "samplecontroller.k8s.io pkg/apis/samplecontroller SamplecontrollerV1alpha1", "net.acme.io pkg/apis/net NetV1"},
		"versions of the group are replaced": {"x.go", "samplecontroller.k8s.io/v1alpha1 v1alpha1.Foo Samplecontroller().V1alpha1() foos.v1beta1.samplecontroller.k8s.io", "net.acme.io/v1 v1.HTTPWidget Net().V1() httpwidgets.v2.net.acme.io"},
		"beside an import of another module": {"x.go", "\n\t\"k8s.io/apimachinery/pkg/apis/meta/v1\"\n w.apply(\"v1beta1\")", "\n\t\"k8s.io/apimachinery/pkg/apis/meta/v1\"\n w.apply(\"v2\")"},
		"versions of other groups stay":      {"x.go", "kustomize.config.k8s.io/v1alpha1 Cache().V1alpha1() CacheV1alpha1 cachev1alpha1.X configv1alpha1 example.com/v1beta1", ""},
		"a plural tells whose it is":         {"x.go", "/pkg/apis/m foos.v1beta1 bars.v1beta1", "/pkg/apis/m httpwidgets.v2 bars.v1beta1"},
		"a made kind has its own versions":   {"pkg/apis/billing/v1alpha1/doc.go", "package v1alpha1", ""},
		"also where it is used":              {"x.go", "\n\t\"example.com/sample-controller/pkg/apis/billing/v1alpha1\"\n v1alpha1.Account", "\n\t\"github.com/acme/widgets/pkg/apis/billing/v1alpha1\"\n v1alpha1.Account"},
		"the article is that of the kind":    {"x.go", "A Foo, a `foo` and a\n// Foo; a footer, a new Foo; #a-foo-at-rest; namespace/a foos", "An HTTPWidget, an `httpwidget` and an\n// HTTPWidget; a footer, a new HTTPWidget; #an-httpwidget-at-rest; namespace/an httpwidgets"},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := newTestOptions(t, map[string]string{"KIND": "HTTPWidget", "GROUP": "net.acme.io", "PROGRAM": "my-app"})
			got := naming.NewRenamer(original(), o.Names, o.isOther).Text(test.path, test.text)
			if got != cmp.Or(test.want, test.text) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestDropRegions(t *testing.T) {
	const panels = "    {\n      \"title\": \"CronTabs\",\n      \"b\": {\n      }\n    },\n    {\n      \"expr\": \"foo|crontab\"\n    },\n"
	for sentence, test := range map[string]struct{ path, text, want, wantError string }{
		"a region":                   {"x.sh", "a\n# +drop:crontab\nb\n# +drop:end\nc\n", "a\nc\n", ""},
		"a region that stays":        {"x.sh", "a\n# +drop:memcached\nb\n# +drop:end\nc\n", "a\nb\nc\n", ""},
		"a region of two, one stays": {"x.go", "// +drop:memcached,crontab\nvar b int\n// +drop:end\n", "var b int\n", ""},
		"a region within a line":     {"x.md", "a<!-- +drop:crontab -->, b<!-- +drop:end --><!-- +drop:webhooks -->, c<!-- +drop:end -->.", "a, c.", ""},
		"a line":                     {"x.go", "f(\n\ta, // +drop:crontab\n\tb, // +drop:webhooks\n)\n", "f(\n\tb,\n)\n", ""},
		"a row of a table":           {"x.md", "|---|\n| a | <!-- +drop:crontab -->\n| b | <!-- +drop:webhooks -->\n", "|---|\n| b |\n", ""},
		"the last line of a block":   {"x.go", "{\n\ta\n\n\t// +drop:crontab\n\tb\n\t// +drop:end\n}\n", "{\n\ta\n}\n", ""},
		"a panel of a dashboard":     {"x.json", panels, "    {\n      \"expr\": \"foo\"\n    },\n", ""},
		"an alternative in a query":  {"x.yaml", "a: foo|memcached|crontab\n", "a: foo|memcached\n", ""},
		"a region without an end":    {"x.sh", "# +drop:crontab\n", "", "x.sh: +drop:crontab has no counterpart"},
		"an end without a region":    {"x.sh", "# +drop:end\n", "", "x.sh: +drop:end has no counterpart"},
		"nested regions":             {"x.sh", "# +drop:webhooks\na\n# +drop:crontab\nb\n# +drop:end\nc\n# +drop:end\nd\n", "a\nc\nd\n", ""},
		"all of a nested region":     {"x.sh", "# +drop:crontab\na\n# +drop:webhooks\nb\n# +drop:end\nc\n# +drop:end\nd\n", "d\n", ""},
		"a comment for others":       {"x.go", "// +without:webhooks +a\n// +without:crontab +b\n", "// +b\n", ""},
		"a text for others":          {"x.md", "a<!-- +without:webhooks , b --><!-- +without:crontab , c -->.", "a, c.", ""},
		"a part that is none":        {"x.sh", "a # +drop:crontabs\n", "", "x.sh: +drop:crontabs names no part"},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := newTestOptions(t, map[string]string{"DROP": "crontab"}).dropRegions(test.path, test.text)
			if got != test.want || (err == nil) != (test.wantError == "") || err != nil && !strings.HasPrefix(err.Error(), test.wantError) {
				t.Errorf("got  %q, error %v\nwant %q, error %q", got, err, test.want, test.wantError)
			}
		})
	}
}

func TestLeftovers(t *testing.T) {
	err := newTestOptions(t, map[string]string{"KIND": "Foo2", "DROP": "crontab"}).checkLeftovers([]*tree.File{
		{Path: "a.md", Data: []byte("newFoo2 foo2s\nFoo\nCopyright The sample-controller Authors.\n\nof Sample Controller\nSampleController\nCronTabs\n[a](b.md) [c](https://d) [e](a.md#f)\nfood")},
		{Path: "foo.go"},
		{Path: "go.sum", Data: []byte("foo")},
	})
	const want = "\na.md:2: Foo\na.md:5: of Sample Controller\na.md:6: SampleController\na.md:7: CronTabs\na.md:8: links to b.md, which is not there\nfoo.go:0: foo.go"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error %v\nwant %s", err, want)
	}
}

// TestConvert makes forks without each set of parts. Nothing names what was dropped or this repository.
func TestConvert(t *testing.T) {
	for drop, kind := range map[string]string{
		"": "Image", "memcached": "Client", "crontab": "Cluster", "rename": "Gadget", "webhooks": "Task",
		"newkind,check": "Gizmo", "memcached,crontab": "Queue", "memcached,webhooks": "Policy", "crontab,webhooks": "HTTPRoute", "memcached,crontab,webhooks,rename,newkind,check,explore": "Goose",
	} {
		t.Run(cmp.Or(drop, "nothing"), func(t *testing.T) {
			changed := map[string]string{"DROP": drop, "KIND": kind, "GROUP": "convert.example.org", "SHORT": "wd,w", "COPYRIGHT": "2026 Acme Inc.", "PLURAL": map[string]string{"Goose": "geese"}[kind]}
			if drop == "rename" {
				changed["WITH"] = "bench,compare,hostile,release,versions"
			} else if strings.Contains(drop, "crontab") && !strings.Contains(drop, "check") {
				changed["WITH"] = strings.Join(partNames(true), ",")
			}
			o := newTestOptions(t, changed)
			all, err := tree.Read(t.Context(), root(t))
			if err != nil {
				t.Fatal(err)
			}
			files, err := convert(o, append(all, &tree.File{Path: "pkg/controller/made/made_test.go", Data: []byte(service)}))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(files, func(f *tree.File) bool { return f.Path == serviceFile }) {
				t.Errorf("the tests of a made kind lack %s", serviceFile)
			}
			for _, f := range files {
				switch f.Path {
				case "hack/fork/main.go", "docs/tutorial.md", "hack/tutorial/main.go":
					t.Errorf("the fork has %s", f.Path)
				case "pkg/apis/convert/v1/types.go":
					for _, want := range []string{"\nCopyright The sample-controller Authors.\nCopyright 2026 Acme Inc.\n", "path=" + o.Plural + ",shortName=wd;w,singular=", map[bool]string{true: "\n\t// +kubebuilder:validation:XValidation:rule=\"self == oldSelf\""}[strings.Contains(drop, "rename")]} {
						if !bytes.Contains(f.Data, []byte(want)) {
							t.Errorf("%s has no %q", f.Path, want)
						}
					}
				}
			}
		})
	}
}

// TestRun makes a fork in an empty directory, for a user whose git signs commits, runs hooks and ignores files, from
// within a hook of another repository. A failure leaves what was there.
func TestRun(t *testing.T) {
	user := t.TempDir()
	for name, text := range map[string]string{"make": "#!/bin/sh\necho >docs/api.md\n[ $STATUS = vet ] || exit $STATUS\n", "go": "#!/bin/sh\n[ \"$1 $STATUS\" != \"vet vet\" ]\n", "pre-commit": "#!/bin/sh\nexit 1\n", "ignored": "*.md\n"} {
		if err := os.WriteFile(filepath.Join(user, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", user+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(user, "config"))
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	for _, name := range []string{"AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"} {
		t.Setenv("GIT_"+name, "")
		if err := os.Unsetenv("GIT_" + name); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GIT_DIR", t.TempDir())
	const identity = "name = x\nemail = x@localhost\n"
	for sentence, test := range map[string]struct{ identity, status, want string }{
		"git is asked for an identity first":    {"useConfigOnly = true\n", "3", "git config --global user.email"},
		"a failure of the generators leaves it": {identity, "3", "make --no-print-directory generate: exit status 3"},
		"code that does not compile is no fork": {identity, "vet", "such as WidgetSet"},
		"a fork is one commit":                  {identity, "0", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			configuration := "[commit]\ngpgSign = true\n[gpg]\nprogram = false\n[core]\nhooksPath = " + user + "\nexcludesFile = " + user + "/ignored\n[user]\n"
			if err := os.WriteFile(filepath.Join(user, "config"), []byte(configuration+test.identity), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("STATUS", test.status)
			parent := t.TempDir()
			dir := filepath.Join(parent, "widgets")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := run(t.Context(), root(t), variables(dir, nil), io.Discard)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if all, err := os.ReadDir(parent); err != nil || len(all) != 1 {
				t.Errorf("there is %v beside DIR, error %v", all, err)
			}
			got, err := exec.Command("git", "--git-dir="+dir+"/.git", "log", "--format=%s by %an", "--name-only", "--", "widget.go", "docs/api.md").Output()
			if want := "Start from sample-controller by x\n\ndocs/api.md\nwidget.go\n"; test.want == "" && (err != nil || string(got) != want) {
				t.Errorf("got  %q, error %v\nwant %q", got, err, want)
			}
		})
	}
}

// TestReadFiles reads a repository in which one file is tracked, from within a hook of another one.
func TestReadFiles(t *testing.T) {
	t.Setenv("GIT_DIR", t.TempDir())
	err := tree.InCopy(t.Context(), t.TempDir(), []*tree.File{{Path: "tracked", Mode: 0o600, Data: []byte("x")}}, func(dir string) error {
		if err := (&tree.File{Path: ".env", Mode: 0o600}).Write(dir); err != nil {
			return err
		}
		files, err := tree.Read(t.Context(), dir)
		if len(files) != 1 || files[0].Path != "tracked" || string(files[0].Data) != "x" {
			t.Errorf("files %v", files)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
