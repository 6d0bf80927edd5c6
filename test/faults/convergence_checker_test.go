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
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestOrphans tests that the test deletes no Deployment that the controller must handle.
func TestOrphans(t *testing.T) {
	found := orphans([]appsv1.Deployment{
		*newDeployment("of the Foo", "1", 1), *newDeployment("of the earlier Foo of the same name", "2", 1), *newDeployment("without a Foo", "", 1),
	}, []v1alpha1.Foo{*newFoo("1", 1, "a")})
	if len(found) != 1 || found[0].Name != "of the earlier Foo of the same name" {
		t.Errorf("orphans: %+v", found)
	}
}
