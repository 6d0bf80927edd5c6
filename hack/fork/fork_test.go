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
	"cmp"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// variables of a fork that is made.
func forkVariables(dir string) map[string]string {
	return map[string]string{"DIR": dir, "MODULE": "github.com/acme/widgets", "GROUP": "widgets.acme.io", "VERSION": "v1", "KIND": "Widget"}
}

// newTestRepository returns this repository as if no kinds had been added to it: the names in the tests
// may be theirs.
func newTestRepository(t *testing.T) *repository {
	t.Helper()
	r := openThisRepository(t)
	r.components = slices.DeleteFunc(r.components, func(c component) bool {
		return !slices.Contains([]string{"crontab", "memcached", "webhooks", original}, c.name)
	})
	return r
}

func openThisRepository(t *testing.T) *repository {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r, err := openRepository(root)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// droppable returns the names of what a fork can be without.
func droppable(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, c := range newTestRepository(t).components {
		all = append(all, c.name)
	}
	for _, name := range []string{"crontab", "memcached", "webhooks", original} {
		if !slices.Contains(all, name) {
			t.Fatalf("%s is none of %q", name, all)
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == original })
}

// newTestOptions returns the options with these variables changed.
func newTestOptions(t *testing.T, changed map[string]string) (*options, error) {
	t.Helper()
	return newOptionsOf(t, newTestRepository(t), changed)
}

func newOptionsOf(t *testing.T, r *repository, changed map[string]string) (*options, error) {
	t.Helper()
	all := forkVariables(filepath.Join(t.TempDir(), "widgets"))
	maps.Copy(all, changed)
	return newOptions(r, func(name string) string { return all[name] })
}

func TestOptionsAreRefused(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link, inside := filepath.Join(full, "link"), filepath.Join(full, "inside")
	for name, target := range map[string]string{link: t.TempDir(), inside: newTestRepository(t).root} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for sentence, test := range map[string]struct{ variable, value, want string }{
		"a variable that is not set":                      {"KIND", "", "KIND: is not set; run make fork"},
		"a directory with files":                          {"DIR", full, "is not empty; give a directory that does not exist"},
		"a directory in this repository":                  {"DIR", ".", "is in this repository"},
		"a file for a directory":                          {"DIR", "fork_test.go", "DIR: "},
		"a link to an empty directory":                    {"DIR", link, "is a link"},
		"a directory in this repository, through a link":  {"DIR", filepath.Join(inside, "widgets"), "is in this repository"},
		"a directory below one that does not exist":       {"DIR", filepath.Join(full, "no", "widgets"), "below one that exists"},
		"a module path with a blank":                      {"MODULE", "github.com/acme/my widgets", "MODULE: "},
		"a module path without a domain":                  {"MODULE", "widgets", "does not begin with a domain"},
		"a module path with the version v1":               {"MODULE", "github.com/acme/widgets/v1", "MODULE: "},
		"this repository's module":                        {"MODULE", "example.com/sample-controller", "is this repository's"},
		"a program that is no DNS label":                  {"PROGRAM", "my_widgets", "is not a DNS label"},
		"a program with a long name":                      {"PROGRAM", strings.Repeat("x", 41), "at most 40"},
		"a program that begins with a digit":              {"PROGRAM", "3d-printer", "begins with a letter"},
		"a program with a unit in its name":               {"PROGRAM", "c-d-e", "metric names should not contain abbreviated units"},
		"a program with the name of a directory":          {"PROGRAM", "test", "is a file or directory of the repository"},
		"a program with the name of a file in lower case": {"PROGRAM", "makefile", "is a file or directory of the repository"},
		"a group that is no DNS subdomain":                {"GROUP", "Widgets.acme.io", "is not a DNS subdomain"},
		"a group without a dot":                           {"GROUP", "widgets", "has no dot"},
		"a group of the Kubernetes project":               {"GROUP", "widgets.k8s.io", "is reserved"},
		"a group that begins with a digit":                {"GROUP", "3d.acme.io", "cannot be imported"},
		"a group whose first label is a Go keyword":       {"GROUP", "go.acme.io", "cannot be imported"},
		"a group whose packages could not be imported":    {"GROUP", "internal.acme.io", "cannot be imported"},
		"a group whose packages would be programs":        {"GROUP", "main.acme.io", "cannot be imported"},
		"a group whose folder is that of a sibling":       {"GROUP", "cache.acme.io", "is the folder of another group"},
		"a version without a number":                      {"VERSION", "latest", "VERSION: "},
		"a version with a leading zero":                   {"VERSION", "v01", "VERSION: "},
		"a version of another form":                       {"VERSION", "v1gamma1", "VERSION: "},
		"a kind in lower case":                            {"KIND", "widget", "is not a kind"},
		"a kind with an underscore":                       {"KIND", "My_Widget", "is not a kind"},
		"a kind of one letter":                            {"KIND", "V", "two or more letters"},
		"a kind that is a Go keyword in lower case":       {"KIND", "Map", "map is a Go keyword or a predeclared name"},
		"a kind that is another keyword":                  {"KIND", "Range", "range is a Go keyword"},
		"a kind that is a predeclared type":               {"KIND", "String", "string is a Go keyword or a predeclared name"},
		"a kind that is a predeclared function":           {"KIND", "Copy", "copy is a Go keyword or a predeclared name"},
		"a kind that is taken for a list":                 {"KIND", "WidgetList", "ends in List"},
		"a kind that is a system in the names of files":   {"KIND", "Windows", "Go builds a file of the clientset, fake_windows.go, for one system"},
		"a kind whose files would be tests":               {"KIND", "Test", "fake_test.go"},
		"a kind of a sibling that stays":                  {"KIND", "CronTab", "is a kind of this repository"},
		"a plural with a hyphen":                          {"PLURAL", "wid-gets", "is not a plural"},
		"a plural that is the kind":                       {"PLURAL", "widget", "differs from it"},
		"a short name in upper case":                      {"SHORT", "wd,WD", `"WD" is not a short name`},
		"a part that is not there":                        {"DROP", "memcached,redis", `"redis" cannot be dropped; give a list of ` + strings.Join(droppable(t), ",")},
		"a copyright that would end the comment":          {"COPYRIGHT", "2026 */ Acme", "COPYRIGHT: "},
		"the part that every fork is without, by a name":  {"DROP", "fork", "cannot be dropped"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := newTestOptions(t, map[string]string{test.variable: test.value})
			if err == nil || !strings.HasPrefix(err.Error(), test.variable+": ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one of %s with %q", err, test.variable, test.want)
			}
		})
	}
	t.Run("a built-in kind of the same group", func(t *testing.T) {
		_, err := newTestOptions(t, map[string]string{"GROUP": "apps", "KIND": "Deployment"})
		if err == nil || !strings.Contains(err.Error(), `"Deployment" is built into the group "apps"`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("one error names all mistakes", func(t *testing.T) {
		_, err := newTestOptions(t, map[string]string{"KIND": "Map", "VERSION": "one"})
		if err == nil || !strings.Contains(err.Error(), "KIND: ") || !strings.Contains(err.Error(), "VERSION: ") {
			t.Errorf("error %v", err)
		}
	})
}

func TestNames(t *testing.T) {
	for sentence, test := range map[string]struct {
		changed map[string]string
		want    names
	}{
		"all names follow from four": {nil, names{module: "github.com/acme/widgets", program: "widgets", group: "widgets.acme.io", groupPackage: "widgets",
			version: "v1", nextVersion: "v2", kind: "Widget", kinds: "Widgets", plural: "widgets"}},
		"a major version of the module is not part of the program's name": {map[string]string{"MODULE": "git.acme.io/infra.tools/my.widgets/v2", "VERSION": "v1alpha3"},
			names{module: "git.acme.io/infra.tools/my.widgets/v2", program: "my-widgets", group: "widgets.acme.io", groupPackage: "widgets",
				version: "v1alpha3", nextVersion: "v1beta1", kind: "Widget", kinds: "Widgets", plural: "widgets"}},
		"plurals follow the rules of English": {map[string]string{"KIND": "HTTPPolicy", "VERSION": "v2beta2", "GROUP": "my-net2.acme.io"},
			names{module: "github.com/acme/widgets", program: "widgets", group: "my-net2.acme.io", groupPackage: "mynet2",
				version: "v2beta2", nextVersion: "v2", kind: "HTTPPolicy", kinds: "HTTPPolicies", plural: "httppolicies"}},
		"a plural can be given": {map[string]string{"KIND": "Goose", "PLURAL": "geese"},
			names{module: "github.com/acme/widgets", program: "widgets", group: "widgets.acme.io", groupPackage: "widgets",
				version: "v1", nextVersion: "v2", kind: "Goose", kinds: "Geese", plural: "geese"}},
		"a plural that is given is exported in Go": {map[string]string{"KIND": "VM", "PLURAL": "machines"},
			names{module: "github.com/acme/widgets", program: "widgets", group: "widgets.acme.io", groupPackage: "widgets",
				version: "v1", nextVersion: "v2", kind: "VM", kinds: "Machines", plural: "machines"}},
		"a plural is that of the code generators": {map[string]string{"KIND": "Proof"},
			names{module: "github.com/acme/widgets", program: "widgets", group: "widgets.acme.io", groupPackage: "widgets",
				version: "v1", nextVersion: "v2", kind: "Proof", kinds: "Prooves", plural: "prooves"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			o, err := newTestOptions(t, test.changed)
			if err != nil {
				t.Fatal(err)
			}
			if o.names != test.want {
				t.Errorf("got  %+v\nwant %+v", o.names, test.want)
			}
		})
	}
}

func TestRename(t *testing.T) {
	for sentence, test := range map[string]struct{ path, text, want string }{
		"identifiers keep their case":                  {"x.go", "newFoo fooKind JSONFoos foosEach fooinformers FooList FOOS addFoo", "newHTTPWidget httpWidgetKind JSONHTTPWidgets httpWidgetsEach httpwidgetinformers HTTPWidgetList HTTPWIDGETS addHTTPWidget"},
		"parts of other words stay":                    {"x.md", "food footer Football foolproof", "food footer Football foolproof"},
		"the program has several forms":                {"x.md", "sample-controller sample_controller_foos SampleControllerFoosInTrouble #samplecontrollerfoosintrouble", "my-app my_app_httpwidgets MyAppHTTPWidgetsInTrouble #myapphttpwidgetsintrouble"},
		"the module is no image":                       {"x.md", "example.com/sample-controller/pkg registry.example.com/sample-controller:dev", "github.com/acme/my-app/pkg registry.example.com/my-app:dev"},
		"the group is no package":                      {"x.go", "samplecontroller.k8s.io pkg/apis/samplecontroller SamplecontrollerV1alpha1", "net.acme.io pkg/apis/net NetV1"},
		"versions of the group are replaced":           {"x.go", "samplecontroller.k8s.io/v1alpha1 v1alpha1.Foo Samplecontroller().V1alpha1() foos.v1beta1.samplecontroller.k8s.io", "net.acme.io/v1 v1.HTTPWidget Net().V1() httpwidgets.v2.net.acme.io"},
		"versions of other groups stay":                {"x.go", "kustomize.config.k8s.io/v1alpha1 Cache().V1alpha1() CacheV1alpha1 cachev1alpha1.X configv1alpha1 example.com/v1beta1", "kustomize.config.k8s.io/v1alpha1 Cache().V1alpha1() CacheV1alpha1 cachev1alpha1.X configv1alpha1 example.com/v1beta1"},
		"a sibling has versions of its own":            {"pkg/apis/cache/v1alpha1/doc.go", "package v1alpha1", "package v1alpha1"},
		"what was replaced is not replaced once more":  {"x.md", "Foo Foo", "HTTPWidget HTTPWidget"},
		"an import of another group names its version": {"x.go", "import (\n\t\"example.com/sample-controller/pkg/apis/cache/v1alpha1\"\n)\nvar x v1alpha1.Foo", "import (\n\t\"github.com/acme/my-app/pkg/apis/cache/v1alpha1\"\n)\nvar x v1alpha1.HTTPWidget"},
		"the article is that of the new kind":          {"x.go", "A Foo, a `foo` and a\n// Foo; a footer, a new Foo; #a-foo-at-rest; namespace/a foos", "An HTTPWidget, an `httpwidget` and an\n// HTTPWidget; a footer, a new HTTPWidget; #an-httpwidget-at-rest; namespace/a httpwidgets"},
	} {
		t.Run(sentence, func(t *testing.T) {
			o, err := newTestOptions(t, map[string]string{"KIND": "HTTPWidget", "GROUP": "net.acme.io", "MODULE": "github.com/acme/my-app"})
			if err != nil {
				t.Fatal(err)
			}
			if got := newRenamer(o).text(test.path, test.text); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestCommandsNameTheResource renames for a kind for whose name kubectl would take a built-in one.
func TestCommandsNameTheResource(t *testing.T) {
	o, err := newTestOptions(t, map[string]string{"KIND": "Job"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"`kubectl get foo` and kubectl get foos -A":                    "`kubectl get jobs.widgets.acme.io` and kubectl get jobs.widgets.acme.io -A",
		`"${KUBECTL}" get foo,deployment,pods`:                         `"${KUBECTL}" get jobs.widgets.acme.io,deployment,pods`,
		`e.kubectl("delete foo foo --cascade=foreground")`:             `e.kubectl("delete jobs.widgets.acme.io job --cascade=foreground")`,
		"kubectl --namespace=%s wait --for=condition=Ready foo/my-foo": "kubectl --namespace=%s wait --for=condition=Ready jobs.widgets.acme.io/my-job",
		"kubectl annotate deployment web example.com/adopt-by=foo":     "kubectl annotate deployment web example.com/adopt-by=job",
		"kubectl get foos.samplecontroller.k8s.io, or a foo":           "kubectl get jobs.widgets.acme.io, or a job",
		"kubectl create role x --verb=get --resource=foos,deployments": "kubectl create role x --verb=get --resource=jobs.widgets.acme.io,deployments",
	} {
		if got := newRenamer(o).text("x.md", text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestRenameFile(t *testing.T) {
	o, err := newTestOptions(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &file{"pkg/apis/samplecontroller/v1alpha1/foo.go", 0, []byte("// Copyright The sample-controller Authors.\n\npackage x\n\nimport (\n\t\"example.com/sample-controller/pkg/z\"\n\t\"example.com/sample-controller/pkg/samplecontroller\"\n)\n")}
	if err := newRenamer(o).file(f); err != nil {
		t.Fatal(err)
	}
	if want := "pkg/apis/widgets/v1/widget.go"; f.path != want {
		t.Errorf("path %s, want %s", f.path, want)
	}
	want := "// Copyright The sample-controller Authors.\n// Copyright The widgets Authors.\n\npackage x\n\nimport (\n\t\"github.com/acme/widgets/pkg/widgets\"\n\t\"github.com/acme/widgets/pkg/z\"\n)\n"
	if string(f.data) != want {
		t.Errorf("got  %q\nwant %q", f.data, want)
	}
}

func TestNamesThatBecomeTheSameAreRefused(t *testing.T) {
	o, err := newTestOptions(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	for sentence, test := range map[string]struct{ a, b, want string }{
		"parameters of a function":       {"func f(foo, widget int) {}", "", "x/a.go:3:13: foo and widget would both be named widget"},
		"functions in two files":         {"func newFoo() {}", "func newWidget() {}", "x/b.go:3:6: newFoo and newWidget"},
		"a constant and an import":       {"const foos = 1", `import "x/widgets"`, "foos and widgets"},
		"a field and a method":           {"type t struct{ fooName int }", "func (t *t) widgetName() {}", "fooName and widgetName"},
		"a field and an embedded type":   {"type t struct {\n\tFoo int\n\t*y.Widget\n}", "", "Foo and Widget"},
		"methods of an interface":        {"type t interface {\n\tFoo()\n\tWidget()\n}", "", "Foo and Widget"},
		"fields of a type without name":  {"var t []struct{ foo, widget int }", "", "foo and widget"},
		"methods of two types":           {"func (t *t) foo() {}", "func (u *u) widget() {}", ""},
		"variables of two functions":     {"func f() { foo() }", "func g() { widget() }", ""},
		"a method and a variable in it":  {"func (t *t) foo(widget int) {}", "", ""},
		"a name that is in two programs": {"func main() {}", "func main() {}", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			err := newRenamer(o).checkNames([]*file{{"x/a.go", 0, []byte("package x\n\n" + test.a + "\n")}, {"x/b.go", 0, []byte("package x\n\n" + test.b + "\n")}})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestSeparate forks code in which a cluster stands beside a Foo, for the kind Cluster.
func TestSeparate(t *testing.T) {
	o, err := newTestOptions(t, map[string]string{"KIND": "Cluster"})
	if err != nil {
		t.Fatal(err)
	}
	for sentence, test := range map[string]struct{ a, b, want string }{
		"a variable of one function":          {"func f(foo int) int { return foo }\n\nfunc g(foo, cluster int) int { return foo.foo }", "", "func f(cluster int) int { return cluster }\n\nfunc g(clusterObject, cluster int) int { return clusterObject.cluster }"},
		"a package that a function uses":      {"func f(foo int) { cluster.New(foo) }", "", "func f(clusterObject int) { cluster.New(clusterObject) }"},
		"the key of a map":                    {"func f(foo, cluster int) { _ = map[int]int{foo: 1} }", "", "func f(clusterObject, cluster int) { _ = map[int]int{clusterObject: 1} }"},
		"a function, in another file":         {"// newFoo returns a Foo.\nfunc newFoo() {}\n\nfunc newCluster() {}", "var x, newFooName = newFoo(), t.newFoo()", "// newClusterObject returns a Cluster.\nfunc newClusterObject() {}\n\nfunc newCluster() {}\nvar x, newClusterName = newClusterObject(), t.newCluster()"},
		"an exported function, in a package":  {"func EachFoos() {}\n\nfunc EachClusters() {}", "package y\n\nimport \"x\"\n\nvar y = x.EachFoos", "func EachClusterObjects() {}\n\nfunc EachClusters() {}\nimport \"x\"\n\nvar y = x.EachClusterObjects"},
		"a function that a variable hides":    {"func newFoo() {}", "func f(newCluster int) { newFoo() }", "func newClusterObject() {}\nfunc f(newCluster int) { newClusterObject() }"},
		"a field, wherever it is used":        {"type t struct{ foo, cluster int }", "func f(x t) { x.foo = t{foo: foo} }", "type t struct{ clusterObject, cluster int }\nfunc f(x t) { x.clusterObject = t{clusterObject: cluster} }"},
		"a field of an embedded type":         {"type clusters struct{ foos int }\n\ntype t struct{ *clusters }", "func f(x t) { x.foos, x.clusters = 1, nil }", "type clusters struct{ clusterObjects int }\n\ntype t struct{ *clusters }\nfunc f(x t) { x.clusterObjects, x.clusters = 1, nil }"},
		"a field that is exported, no type":   {"import \"v1\"\n\ntype t struct{ Foo, Cluster v1.Foo }", "package y\n\nimport \"v1\"\n\nvar y = v1.Foo{x.Foo}", "import \"v1\"\n\ntype t struct{ ClusterObject, Cluster v1.Cluster }\nimport \"v1\"\n\nvar y = v1.Cluster{x.ClusterObject}"},
		"a method, of types of the same name": {"func (t *t) foo() {}\n\nfunc (t *t) cluster() { t.foo() }", "", "func (t *t) clusterObject() {}\n\nfunc (t *t) cluster() { t.clusterObject() }"},
	} {
		t.Run(sentence, func(t *testing.T) {
			var got []string
			files := []*file{{"x/a.go", 0, []byte("package x\n\n" + test.a)}, {"x/b.go", 0, []byte("package x\n\n" + test.b)}}
			if strings.HasPrefix(test.b, "package") {
				files[1] = &file{"y/b.go", 0, []byte(test.b)}
			}
			r := newRenamer(o)
			if err := errors.Join(r.separate(files), r.checkNames(files)); err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if err := r.file(f); err != nil {
					t.Fatal(err)
				}
				_, text, _ := strings.Cut(string(f.data), "\n\n")
				got = append(got, strings.TrimSpace(text))
			}
			if got := strings.TrimSpace(strings.Join(got, "\n")); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestSeparatePaths(t *testing.T) {
	for kind, want := range map[string]string{"Widget": "foo.go foo_test.go x/foo.go run_test.go README.md: [foo.go](../foo.go) food.go", "Run": "foo_object.go foo_object_test.go x/foo_object.go run_test.go README.md: [foo_object.go](../foo_object.go) food.go"} {
		o, err := newTestOptions(t, map[string]string{"KIND": kind})
		if err != nil {
			t.Fatal(err)
		}
		files := []*file{{"foo.go", 0, nil}, {"foo_test.go", 0, nil}, {"x/foo.go", 0, nil}, {"run_test.go", 0, nil}, {"README.md", 0, []byte("[foo.go](../foo.go) food.go")}}
		newRenamer(o).separatePaths(files)
		var paths []string
		for _, f := range files {
			paths = append(paths, f.path)
		}
		if got := strings.Join(paths, " ") + ": " + string(files[4].data); got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
	}
}

// convertFile returns what the fork has of a file of this repository.
func convertFile(t *testing.T, path string, changed map[string]string) string {
	t.Helper()
	o, err := newTestOptions(t, changed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(o.repository.root, path))
	if err != nil {
		t.Fatal(err)
	}
	f := &file{path: path, data: data}
	if _, err := newDropper(o).files([]*file{f}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(newRenamer(o).file(f), adapt(o, f)); err != nil {
		t.Fatal(err)
	}
	return string(f.data)
}

func TestFilesOfThisRepository(t *testing.T) {
	const doc, types = "pkg/apis/samplecontroller/v1alpha1/doc.go", "pkg/apis/samplecontroller/v1alpha1/types.go"
	for sentence, test := range map[string]struct {
		path    string
		changed map[string]string
		want    string
		has     bool
	}{
		"a group with a hyphen has a name in Go": {doc, map[string]string{"GROUP": "my-net.acme.io"}, "// +groupGoName=Mynet\n", true},
		"the generators are told of a plural":    {types, map[string]string{"KIND": "Goose", "PLURAL": "geese"}, "// +resourceName=geese\n", true},
		"the generators know other plurals":      {types, map[string]string{"KIND": "Policy"}, "+resourceName", false},
		"short names are in the CRD":             {types, map[string]string{"SHORT": "wd,w"}, "path=widgets,shortName=wd;w,singular=widget", true},
		"no group but *.k8s.io needs approval":   {types, nil, "api-approved", false},
		"a copyright ends in one full stop":      {doc, map[string]string{"COPYRIGHT": "2026 Acme Inc."}, "\nCopyright 2026 Acme Inc.\n", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := convertFile(t, test.path, test.changed); strings.Contains(got, test.want) != test.has {
				t.Errorf("%q in it: %t, want %t:\n%s", test.want, !test.has, test.has, got)
			}
		})
	}
}

func newTestDropper(t *testing.T, drop string) *dropper {
	t.Helper()
	o, err := newTestOptions(t, map[string]string{"DROP": drop})
	if err != nil {
		t.Fatal(err)
	}
	return newDropper(o)
}

func TestDropFromText(t *testing.T) {
	for sentence, test := range map[string]struct{ path, text, want string }{
		"a region":                            {"x.sh", "a\n# +drop:crontab\nb\n# +drop:end\nc\n", "a\nc\n"},
		"a region of a part that stays":       {"x.sh", "a\n# +drop:memcached\nb\n# +drop:end\nc\n", "a\nb\nc\n"},
		"a region of two, of which one stays": {"x.go", "package x\n\n// +drop:memcached,crontab\nvar b int\n\n// +drop:end\n", "package x\n\nvar b int\n\n"},
		"a region within a line":              {"x.md", "a<!-- +drop:crontab -->, b<!-- +drop:end --><!-- +drop:webhooks -->, c<!-- +drop:end -->.", "a, c."},
		"an enumeration":                      {"x.md", "the CRDs of Foos, Memcacheds and CronTabs;", "the CRDs of Foos and Memcacheds;"},
		"the last two of an enumeration":      {"x.md", "each Foo and each CronTab is", "each Foo is"},
		"names of controllers":                {"x.md", "All controllers: crontab, foo, memcached |", "All controllers: foo, memcached |"},
		"an alternative and an item":          {"x.yaml", "rules:\n- a: foo|crontab|memcached\n- alert: CronTabs\n  # why\n  expr: x\n- b\n", "rules:\n- a: foo|memcached\n- b\n"},
		"the last object of a list":           {"x.json", "[\n  {\n    \"a\": 1\n  },\n  {\n    \"title\": \"CronTabs\",\n    \"b\": {\n    }\n  }\n]", "[\n  {\n    \"a\": 1\n  }\n]"},
		"a section with its subsections":      {"x.md", "## A\n\na\n\n## CronTabs\n\nb\n\n### C\n\n## D\n", "## A\n\na\n\n## D\n"},
		"an item of a list":                   {"x.md", "- `CronTab` does\n  that\n- Foo", "- Foo"},
		"a row and a column":                  {"x.md", "| | Foo | CronTab |\n|---|---|---|\n| a | b | c |\n| crontab | d | e |\n", "| | Foo |\n|---|---|\n| a | b |\n"},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := &file{test.path, 0, []byte(test.text)}
			if _, err := newTestDropper(t, "crontab").files([]*file{f}); err != nil {
				t.Fatal(err)
			}
			if string(f.data) != test.want {
				t.Errorf("got  %q\nwant %q", f.data, test.want)
			}
		})
	}
	for sentence, text := range map[string]string{"a region without an end": "# +drop:crontab\n", "an end without a region": "# +drop:end\n", "nested regions": "# +drop:a\n# +drop:b\n"} {
		t.Run(sentence, func(t *testing.T) {
			if _, err := newTestDropper(t, "crontab").files([]*file{{"x.sh", 0, []byte(text)}}); err == nil || !strings.HasPrefix(err.Error(), "x.sh:") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestDropFromGo(t *testing.T) {
	for sentence, test := range map[string]struct{ code, want string }{
		"an import and what it names":      {"import alphav1 \"example.com/sample-controller/pkg/apis/alpha/v1\"\n\nvar a int\n\n// b is one.\nvar b alphav1.X\n", "var a int\n"},
		"an element of a list":             {"var a = []int{1, cronTab, 2}\n", "var a = []int{1, 2}\n"},
		"the last element of a list":       {"var a = []int{1, cronTab}\n", "var a = []int{1}\n"},
		"a whole row of a table":           {"var a = []struct{ b, c int }{\n\t{b: 1},\n\t// why\n\t{b: 2, c: cronTab},\n}\n", "var a = []struct{ b, c int }{\n\t{b: 1},\n}\n"},
		"a field and its value":            {"type a struct {\n\tb int\n\t// cronTab is one.\n\tcronTab int\n}\n\nvar c = a{b: 1, cronTab: 2}\n", "type a struct {\n\tb int\n}\n\nvar c = a{b: 1}\n"},
		"one of a parallel assignment":     {"func a() {\n\tb, c := cronTabs(), 1\n\tprint(c)\n}\n", "func a() {\n\tc := 1\n\tprint(c)\n}\n"},
		"a condition":                      {"func a() {\n\tprint(1)\n\tif cronTab {\n\t\tprint(2)\n\t}\n}\n", "func a() {\n\tprint(1)\n}\n"},
		"a statement in a condition":       {"func a() {\n\tif b {\n\t\tprint(1)\n\t\tprint(\"crontab\") // why\n\t}\n}\n", "func a() {\n\tif b {\n\t\tprint(1)\n\t}\n}\n"},
		"a case":                           {"func a() {\n\tswitch b {\n\tcase cronTab:\n\t\tprint(1)\n\tcase 1, cronTabs:\n\t}\n}\n", "func a() {\n\tswitch b {\n\tcase 1:\n\t}\n}\n"},
		"an argument of append":            {"func a() {\n\tb = append(b, cronTab, 1)\n}\n", "func a() {\n\tb = append(b, 1)\n}\n"},
		"a function that takes one":        {"func a(b *CronTab) {}\n\nfunc c() {}\n", "func c() {}\n"},
		"what only it used":                {"import \"fmt\"\n\nfunc TestCronTab() { helper() }\n\nfunc helper() { fmt.Print(deeper) }\n\nconst deeper = 1\n\nfunc unused() {}\n", "func unused() {}\n"},
		"a variable that is not used then": {"func a() {\n\tb := 1\n\tprint(cronTab, b)\n\tprint()\n}\n", "func a() {\n\tprint()\n}\n"},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := &file{"x/x.go", 0, []byte("package x\n\n" + test.code)}
			if _, err := newTestDropper(t, "crontab").files([]*file{f}); err != nil {
				t.Fatal(err)
			}
			got := strings.TrimPrefix(string(f.data), "package x\n\n")
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// emptyPackages imports packages without their names.
type emptyPackages struct{}

func (emptyPackages) Import(name string) (*types.Package, error) {
	spec := &ast.ImportSpec{Path: &ast.BasicLit{Value: strconv.Quote(name)}}
	imported := types.NewPackage(name, importName(spec))
	imported.MarkComplete()
	return imported, nil
}

// nameError matches the errors of go/types about names that a package declares itself.
var nameError = regexp.MustCompile(`^(undefined: \w+$|\w+ redeclared|\S+ already declared|duplicate |no new variables|field and method|\w+ is not a type)`)

// nameErrors returns what is wrong with the names in each package of the files. What they import
// is not there, so errors about it do not count.
func nameErrors(t *testing.T, files []*file) (all []string) {
	t.Helper()
	parsed, err := parseGo(files)
	if err != nil {
		t.Fatal(err)
	}
	set, packages := token.NewFileSet(), map[string][]*ast.File{}
	for _, f := range parsed {
		syntax, err := parser.ParseFile(set, f.path, f.data, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		packages[f.pkg] = append(packages[f.pkg], syntax)
	}
	config := types.Config{Importer: emptyPackages{}, Error: func(err error) {
		if problem := (types.Error{}); errors.As(err, &problem) && nameError.MatchString(problem.Msg) && problem.Msg != "undefined: GroupName" {
			// GroupName is generated.
			all = append(all, err.Error())
		}
	}}
	for name, syntax := range packages {
		// Its error is one of those above.
		_, _ = config.Check(name, set, syntax, nil)
	}
	return all
}

// TestConvert makes forks without each set of parts, for kinds with whose names code beside Foo
// calls variables, functions, fields and imports. Nothing names what was dropped or this
// repository, and all names are declared, once.
func TestConvert(t *testing.T) {
	for drop, kind := range map[string]string{
		"": "Image", "memcached": "Client", "crontab": "Cluster", "webhooks": "Index", "memcached,crontab": "Job",
		"memcached,webhooks": "Run", "crontab,webhooks": "Process", "memcached,crontab,webhooks": "Role",
	} {
		t.Run(cmp.Or(drop, "nothing"), func(t *testing.T) {
			// The forks have the kinds that were added to this repository, whose group is hardly this one.
			o, err := newOptionsOf(t, openThisRepository(t), map[string]string{"DROP": drop, "KIND": kind, "GROUP": "convert.example.org"})
			if err != nil {
				t.Fatal(err)
			}
			files, dropped, err := convert(o)
			if err != nil && strings.Contains(err.Error(), "such as "+kind+"Set,") {
				// A kind that was added to this repository owns objects of that kind.
				if o, err = newOptionsOf(t, openThisRepository(t), map[string]string{"DROP": drop, "KIND": kind + "Set", "GROUP": "convert.example.org"}); err != nil {
					t.Fatal(err)
				}
				files, dropped, err = convert(o)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range nameErrors(t, files) {
				t.Error(problem)
			}
			for _, file := range []string{"hack/fork/main.go", "docs/tutorial.md", "hack/verify-tutorial.sh", "hack/tutorial/main.go"} {
				if !slices.Contains(dropped, file) {
					t.Errorf("the fork has %s; dropped: %q", file, dropped)
				}
			}
		})
	}
}

func TestLeftovers(t *testing.T) {
	o, err := newTestOptions(t, map[string]string{"KIND": "Foo2", "DROP": "crontab"})
	if err != nil {
		t.Fatal(err)
	}
	files := []*file{
		{"a.md", 0, []byte("newFoo2 foo2s\nFoo\nCopyright The sample-controller Authors.\n\nof Sample Controller\nSampleController\nCronTabs\n[a](b.md) [c](https://d) [e](a.md#f)\nfood")},
		{"foo.go", 0, nil},
		{"go.sum", 0, []byte("foo")},
	}
	want := []string{
		"a.md:2: a name of this repository: Foo",
		"a.md:5: a name of this repository: of Sample Controller",
		"a.md:6: a name of this repository: SampleController",
		"a.md:7: names crontab, which is dropped: CronTabs",
		"a.md:8: links to b.md, which is not there",
		"foo.go: the name of the file",
	}
	if got := leftovers(o, files); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
