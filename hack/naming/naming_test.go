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

package naming

import "testing"

func TestPlural(t *testing.T) {
	for singular, want := range map[string]string{
		"Pod": "Pods", "Proxy": "Proxies", "Gateway": "Gateways", "Class": "Classes", "Box": "Boxes", "Batch": "Batches",
		"Mesh": "Meshes", "Path": "Paths", "Shelf": "Shelves", "Knife": "Knives", "Role": "Roles", "VM": "VMs", "V": "V", "": "",
	} {
		if got := Plural(singular); got != want {
			t.Errorf("%q: got %q, want %q", singular, got, want)
		}
	}
}

func TestArticle(t *testing.T) {
	for word, want := range map[string]string{
		"Pod": "a", "Application": "an", "Order": "an", "Upgrade": "an", "User": "a", "Unit": "a", "HTTPRoute": "an", "VM": "a", "URLMap": "a", "S3Bucket": "an", "B2Bucket": "a",
	} {
		if got := Article(word); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

func TestLowerCamel(t *testing.T) {
	for name, want := range map[string]string{"Pod": "pod", "ReplicaSet": "replicaSet", "HTTPRoute": "httpRoute", "VM": "vm", "Tier1": "tier1"} {
		if got := LowerCamel(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestIsBuilt(t *testing.T) {
	for file, want := range map[string]bool{
		"fake_pod.go": true, "windows.go": true, "fake_windows.go": false, "fake_arm64.go": false, "fake_test.go": false, "fake_tests.go": true,
	} {
		if got := IsBuilt(file); got != want {
			t.Errorf("%s: got %t, want %t", file, got, want)
		}
	}
}

func TestImports(t *testing.T) {
	for imported, want := range map[string]string{
		`"github.com/acme/widgets/pkg/apis/widgets/v1"`:       `v1 "github.com/acme/widgets/pkg/apis/widgets/v1"`,
		`"github.com/acme/widgets/pkg/apis/widgets/v1beta1"`:  `"github.com/acme/widgets/pkg/apis/widgets/v1beta1"`,
		`alphav1 "github.com/acme/widgets/pkg/apis/alpha/v1"`: `alphav1 "github.com/acme/widgets/pkg/apis/alpha/v1"`,
		`"github.com/acme/widgets/v2"`:                        `"github.com/acme/widgets/v2"`,
	} {
		if got := string(Imports([]byte("import (\n\t" + imported + "\n)\n"))); got != "import (\n\t"+want+"\n)\n" {
			t.Errorf("%s: %s", imported, got)
		}
	}
}
