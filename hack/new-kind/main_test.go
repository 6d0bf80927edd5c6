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
	"fmt"
	"go/build"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseInput(t *testing.T) {
	for name, test := range map[string]struct {
		args string
		// want is a part of the error, "" if the input is accepted.
		want string
	}{
		"a kind":                              {"", ""},
		"all variables":                       {"PLURAL=barz SHORT=b EXTERNAL=yes", ""},
		"a variable that is empty is not set": {"PLURAL= SHORT= EXTERNAL=", ""},
		"no kind":                             {"KIND=", "KIND is not set; usage: make new-kind"},
		"a variable that does not exist":      {"NAME=x", "NAME is no variable of new-kind"},
		"a group without a dot":               {"GROUP=cache", "GROUP is \"cache\"; set it to a domain"},
		"a group in upper case":               {"GROUP=Cache.io", "GROUP is \"Cache.io\"; set it to a domain"},
		"a group of Kubernetes":               {"GROUP=networking.k8s.io", "GROUP is \"networking.k8s.io\", a group of the Kubernetes project"},
		"a version that is none":              {"VERSION=1", "VERSION is \"1\"; set it to one such as v1"},
		"a version 0":                         {"VERSION=v0", "VERSION is \"v0\""},
		"a kind in lower case":                {"KIND=bar", "KIND is \"bar\"; set it to a name in CamelCase"},
		"a kind with a dash":                  {"KIND=Foo-Bar", "KIND is \"Foo-Bar\""},
		"a kind of one letter":                {"KIND=B", "two or more letters"},
		"a kind that is long":                 {"KIND=A" + strings.Repeat("a", 60), "which has more than"},
		"a kind that is a keyword":            {"KIND=Range", "range is a keyword or predeclared in Go"},
		"a kind that is predeclared":          {"KIND=String", "string is a keyword or predeclared in Go"},
		"a kind that is a system":             {"KIND=Windows", "Go builds a file of the clientset, fake_windows.go, for one system"},
		"a kind whose clients would be tests": {"KIND=Test", "fake_test.go"},
		"a kind that ends in List":            {"KIND=BarList", "names that end in List"},
		"a kind whose name the code uses":     {"KIND=Option", "a name that the generated controller uses itself"},
		"a plural that is the singular":       {"PLURAL=bar", "PLURAL is \"bar\", which is the singular"},
		"a plural that is no label":           {"PLURAL=Bars", "PLURAL is \"Bars\": "},
		"a short name that is no label":       {"SHORT=b.r", "SHORT is \"b.r\": "},
		"EXTERNAL is a word":                  {"EXTERNAL=true", "EXTERNAL is \"true\"; set it to yes"},
		"a kind with the name of a file":      {"KIND=Fixture", "a name that the generated controller uses itself"},
		"a kind whose package is internal":    {"KIND=Internal", "Go cannot import a package with the name internal"},
		"a kind whose package is a program":   {"KIND=Main", "Go cannot import a package with the name main"},
		"a kind of Kubernetes":                {"KIND=Role", "KIND is \"Role\", a kind of Kubernetes itself, and kubectl get role would not mean yours"},
		"one of Kubernetes in other letters":  {"KIND=NODE", "KIND is \"NODE\", a kind of Kubernetes itself"},
		"OWNS is the kind itself":             {"KIND=ConfigMap", "KIND is \"ConfigMap\", a kind of Kubernetes itself"},
		"OWNS is unknown":                     {"OWNS=Gadget", "there is a template for each of ConfigMap, Deployment, Job, Secret, Service, StatefulSet"},
		"OWNS cannot be changed":              {"OWNS=Pod", "the API server refuses nearly every change of its spec"},
		"OWNS is not namespaced":              {"OWNS=Namespace", "it is not namespaced"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"GROUP=cache.acme.io", "VERSION=v1alpha1", "KIND=Bar", "OWNS=ConfigMap"}, strings.Fields(test.args)...)
			_, err := parseInput(args)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
}

// newRepository returns a repository with a few groups and kinds.
func newRepository(t *testing.T) *repository {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":                             "module github.com/acme/widgets/v2\n",
		"main.go":                            "package main\n\nimport (\n\t\"github.com/acme/widgets/v2/pkg/app\"\n)\n\nvar program = app.Program{Description: \"does it.\", Controllers: []app.ControllerDescriptor{}}\n",
		"hack/boilerplate.go.txt":            "/*\nCopyright Acme.\n*/\n",
		"pkg/controller/owner.go":            "package controller\n\nconst FieldManager = \"widgets\"\n",
		"pkg/controller/taken/controller.go": "package taken\n",
		"pkg/apis/store/v1/doc.go":           "// +groupName=store.example.org\npackage v1\n",
		"pkg/apis/store/v1/types.go":         "package v1\n\n// Thing is one.\n// +genclient\ntype Thing struct{}\n",
		"pkg/apis/many/v1/doc.go":            "// +groupName=many.example.com\npackage v1\n",
		"pkg/apis/many/v2/doc.go":            "// +groupName=many.example.com\npackage v2\n",
		"pkg/apis/named/v1/doc.go":           "// +groupName=named.example.com\n// +groupGoName=Special\npackage v1\n",
		"docs/bear.md":                       "| rule | what |\n|---|---|\n| B1 | x |\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	repo, err := readRepository(root)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

func TestNewKind(t *testing.T) {
	for name, test := range map[string]struct {
		args string
		want string
		err  string
	}{
		"a new group": {"GROUP=acme.io KIND=Bar", "acme Acme marker= plural=bars Bars bar/bars rule=A", ""},
		"a group whose first label another group has":   {"GROUP=store.acme.io KIND=Bar", "storeacme Storeacme marker=Storeacme plural=bars Bars bar/bars rule=A", ""},
		"a group whose first label another has in Go":   {"GROUP=special.acme.io KIND=Bar", "specialacme Specialacme marker=Specialacme plural=bars Bars bar/bars rule=A", ""},
		"a group that begins with a digit":              {"GROUP=3d.acme.io KIND=Bar", "group3d Group3d marker=Group3d plural=bars Bars bar/bars rule=A", ""},
		"a group with a dash":                           {"GROUP=my-cache.acme.io KIND=Bar", "mycache Mycache marker=Mycache plural=bars Bars bar/bars rule=A", ""},
		"a group that exists":                           {"GROUP=named.example.com KIND=Bar", "named Special marker= plural=bars Bars bar/bars rule=A", ""},
		"a plural of another form":                      {"GROUP=acme.io KIND=Policy", "acme Acme marker= plural=policies Policies policy/policies rule=P", ""},
		"an abbreviation":                               {"GROUP=acme.io KIND=HTTPRoute", "acme Acme marker= plural=httproutes HTTPRoutes httpRoute/httpRoutes rule=H", ""},
		"a kind whose variable a package is named for":  {"GROUP=acme.io KIND=Cache", "acme Acme marker= plural=caches Caches cacheObject/cacheObjects rule=C", ""},
		"a kind whose variable a test declares":         {"GROUP=acme.io KIND=Prepare", "acme Acme marker= plural=prepares Prepares prepareObject/prepareObjects rule=P", ""},
		"a kind whose variables a package is named for": {"GROUP=acme.io KIND=Slice", "acme Acme marker= plural=slices Slices slice/sliceList rule=S", ""},
		"an irregular plural":                           {"GROUP=acme.io KIND=Mouse PLURAL=mice", "acme Acme marker= plural=mice Mice mouse/mouses rule=M irregular", ""},
		"a kind that the group has":                     {"GROUP=store.example.org KIND=Thing", "", "the group store.example.org has that kind already, in pkg/apis/store"},
		"a kind that another group has":                 {"GROUP=acme.io KIND=Thing", "", "has that kind already"},
		"a kind that another group has in capitals":     {"GROUP=acme.io KIND=THing", "", "has that kind already"},
		"a kind with the name of a package":             {"GROUP=acme.io KIND=Taken", "", "pkg/controller/taken exists already"},
		"a kind with a contract":                        {"GROUP=acme.io KIND=Bear", "", "docs/bear.md exists already"},
		"another version of a group":                    {"GROUP=named.example.com KIND=Bar VERSION=v2", "", "VERSION is \"v2\", but the group named.example.com has the version v1"},
		"a group with two versions":                     {"GROUP=many.example.com KIND=Bar", "", "which has the versions v1 and v2"},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := parseInput(append([]string{"VERSION=v1", "OWNS=ConfigMap"}, strings.Fields(test.args)...))
			if err != nil {
				t.Fatal(err)
			}
			k, err := newKind(in, newRepository(t))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q in it", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join([]string{k.APIDir, k.GroupGo, "marker=" + k.GroupGoName, "plural=" + k.Plural, k.GoPlural, k.Var + "/" + k.VarPlural, "rule=" + k.Rule}, " ")
			if k.Irregular {
				got += " irregular"
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOutputs: the names of the files are none that Go builds for one platform alone.
func TestOutputs(t *testing.T) {
	linux := build.Default
	linux.GOOS, linux.GOARCH = "linux", "amd64"
	linux.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("package x\n")), nil }
	for _, name := range []string{"Bar", "UTest"} {
		in, err := parseInput([]string{"GROUP=acme.io", "VERSION=v1", "KIND=" + name, "OWNS=ConfigMap", "EXTERNAL=yes"})
		if err != nil {
			t.Fatal(err)
		}
		k, err := newKind(in, newRepository(t))
		if err != nil {
			t.Fatal(err)
		}
		for file := range k.outputs() {
			if built, err := linux.MatchFile("", file); strings.HasSuffix(file, ".go") && (!built || err != nil) {
				t.Errorf("%s is not built (%v)", file, err)
			}
		}
	}
}

// TestNext: the user learns of rights that expose secrets.
func TestNext(t *testing.T) {
	for _, dependent := range ownedKinds() {
		text, secret := next(&kind{Singular: "bar", Owned: dependent}), dependent.Kind == "Secret"
		if strings.Contains(text, "every Secret of the cluster") != secret || !strings.Contains(text, "pkg/controller/bar") {
			t.Errorf("%s: %s", dependent.Kind, text)
		}
	}
}

// TestRender renders each kind. Rendering fails for a Go file that does not parse.
func TestRender(t *testing.T) {
	for _, dependent := range ownedKinds() {
		for _, external := range []string{"no", "yes"} {
			in, err := parseInput([]string{"GROUP=acme.io", "VERSION=v1", "KIND=Bar", "OWNS=" + dependent.Kind, "EXTERNAL=" + external})
			if err != nil {
				t.Fatal(err)
			}
			k, err := newKind(in, newRepository(t))
			if err != nil {
				t.Fatal(err)
			}
			files, err := render(k)
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != len(k.outputs()) {
				t.Errorf("%s: %d files, want %d", dependent.Kind, len(files), len(k.outputs()))
			}
			for name, content := range files {
				for _, word := range []string{"[[", "<no value>"} {
					if strings.Contains(string(content), word) {
						t.Errorf("%s: %s contains %q", dependent.Kind, name, word)
					}
				}
				if strings.Contains(string(content), "+default={}") && strings.Contains(string(content), "+required") {
					t.Errorf("%s: %s has a default spec without a required field: the API server refuses such a CRD", dependent.Kind, name)
				}
				if strings.HasSuffix(name, ".go") && !strings.Contains(string(content), "Copyright Acme.") {
					t.Errorf("%s: %s has no licence header", dependent.Kind, name)
				}
			}
		}
	}
}

func TestRegister(t *testing.T) {
	for name, test := range map[string]struct {
		source, want, err string
	}{
		"the first controller": {
			"import (\n\t\"x/pkg/app\"\n)\n\nvar p = app.Program{Description: \"does it.\", Controllers: []app.ControllerDescriptor{}}\n",
			"import (\n\t\"x/pkg/app\"\n\t\"x/pkg/controller/bar\"\n)\n\nvar p = app.Program{Description: \"does it, and keeps a ConfigMap for each Bar.\", Controllers: []app.ControllerDescriptor{bar.NewDescriptor()}}\n", ""},
		"a list on several lines": {
			"import (\n\t\"x/pkg/app\"\n)\n\nvar p = app.Program{Controllers: []app.ControllerDescriptor{\n\tfoo(),\n}}\n",
			"import (\n\t\"x/pkg/app\"\n\t\"x/pkg/controller/bar\"\n)\n\nvar p = app.Program{Controllers: []app.ControllerDescriptor{\n\tfoo(), bar.NewDescriptor(),\n}}\n", ""},
		"a name that is taken": {
			"import (\n\t\"x/pkg/bar\"\n)\n\nvar p = bar.Program{Controllers: nil2{foo()}}\n",
			"import (\n\t\"x/pkg/bar\"\n\tbarcontroller \"x/pkg/controller/bar\"\n)\n\nvar p = bar.Program{Controllers: nil2{foo(), barcontroller.NewDescriptor()}}\n", ""},
		"no list": {"import (\n\t\"x/pkg/app\"\n)\n\nvar p = app.Program{}\n", "", "main.go has no field Controllers"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := register(&repository{mainFile: []byte("package main\n\n" + test.source)}, &kind{Module: "x", Kind: "Bar", Singular: "bar", Owned: owned{Kind: "ConfigMap"}})
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q in it", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("package main\n\n"+test.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestApply runs generators that do not end well.
func TestApply(t *testing.T) {
	for name, test := range map[string]struct {
		generate string
		err      string
	}{
		"a failure leaves the tree unchanged": {"\t@touch generated; rm docs/bear.md; echo no; exit 1\n", "nothing was changed: make generate: exit status 2"},
		"so does SIGTERM":                     {signalling("TERM"), "nothing was changed: make generate: signal: terminated"},
		"so does SIGHUP":                      {signalling("HUP"), "nothing was changed: make generate: signal: terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			ctx, stop := notify(t.Context())
			defer stop()
			repo := newRepository(t)
			if err := os.WriteFile(filepath.Join(repo.root, "Makefile"), []byte("generate:\n"+test.generate), 0o600); err != nil {
				t.Fatal(err)
			}
			before, err := readTree(repo.root)
			if err != nil {
				t.Fatal(err)
			}
			err = apply(ctx, repo, &kind{Singular: "bar"}, map[string][]byte{"docs/bar.md": []byte("new"), "main.go": []byte("changed")})
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q in it", err, test.err)
			}
			after, err := readTree(repo.root)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Error(diff)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left in the temporary directory: %v (%v)", left, err)
			}
		})
	}
}

// signalling returns a recipe that sends this process a signal and then does not end by itself.
func signalling(signal string) string {
	return fmt.Sprintf("\t@kill -s %s %d; exec sleep 60\n", signal, os.Getpid())
}

// TestInstall adds, changes and deletes a file, or fails at one that cannot be written.
func TestInstall(t *testing.T) {
	before := map[string][]byte{"kept": []byte("1"), "changed": []byte("1"), "deleted": []byte("1")}
	for name, test := range map[string]struct {
		after map[string][]byte
		fails bool
	}{
		"the tree is that of the copy": {after: map[string][]byte{"kept": []byte("1"), "changed": []byte("2"), "dir/added": []byte("1")}},
		"a file that cannot be written": {
			after: map[string][]byte{"kept": []byte("1"), "changed": []byte("2"), "kept/below": []byte("1")}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := writeTree(root, root, before); err != nil {
				t.Fatal(err)
			}
			err := install(root, t.TempDir(), before, test.after)
			if (err != nil) != test.fails {
				t.Fatalf("error %v", err)
			}
			got, err := readTree(root)
			if err != nil {
				t.Fatal(err)
			}
			want := test.after
			if test.fails {
				want = before
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
