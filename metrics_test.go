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
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fixtures "example.com/sample-controller/test/fixture"
)

// TestWritesAreCounted looks at what one sync counts.
func TestWritesAreCounted(t *testing.T) {
	foo, three := newFoo(), newFoo(fooReplicas(ptr.To[int32](3)))
	former := newOwned(foo, func(deployment *appsv1.Deployment) { deployment.Name, deployment.UID = "former", "uid-of-former" })
	tests := map[string]struct {
		foo         *v1alpha1.Foo
		deployments []*appsv1.Deployment
		err         error
		want        []string
	}{
		"a creation, and the status later":        {foo: foo, want: []string{`resource="deployments",verb="create"`}},
		"a repair":                                {foo: three, deployments: []*appsv1.Deployment{newOwned(foo)}, want: []string{`resource="deployments",verb="patch"`}},
		"a status":                                {foo: foo, deployments: []*appsv1.Deployment{newOwned(foo, available)}, want: []string{`resource="foos/status",verb="update"`}},
		"a deletion, and the status":              {foo: foo, deployments: []*appsv1.Deployment{newOwned(foo, available), former}, want: []string{`resource="deployments",verb="delete"`, `resource="foos/status",verb="update"`}},
		"what the API server refuses is no write": {foo: foo, err: errors.New("refused")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, []*v1alpha1.Foo{test.foo}, test.deployments)
				f.fill(t, []*v1alpha1.Foo{test.foo}, test.deployments)
				if test.err != nil {
					fixtures.Failing(&f.kube.Fake, "create", "deployments", test.err)
				}
				if _, err := f.syncHandler(ctx, testKey(test.foo.Name)); (err != nil) != (test.err != nil) {
					t.Fatal(err)
				}
				var want strings.Builder
				for i, labels := range test.want {
					if i == 0 {
						want.WriteString("# HELP sample_controller_writes_total [ALPHA] Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.\n# TYPE sample_controller_writes_total counter\n")
					}
					want.WriteString("sample_controller_writes_total{controller=\"foo\"," + labels + "} 1\n")
				}
				gatherer := f.registry
				if err := testutil.GatherAndCompare(gatherer, strings.NewReader(want.String()), "sample_controller_writes_total"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestFoosAreCountedByReason(t *testing.T) {
	unknown := newFoo(fooNamed("unknown"))
	unknown.Status = v1alpha1.FooStatus{}
	_, f := newFixture(t, nil, nil)
	f.fill(t, []*v1alpha1.Foo{newFoo(fooReady), newFoo(fooNamed("second"), fooReady), unknown}, nil)
	want := `# HELP sample_controller_foos [ALPHA] Number of Foos in this process's cache, by the status and the reason of their Ready condition; Unknown and an empty reason for those that have none. Every replica reports all.
# TYPE sample_controller_foos gauge
sample_controller_foos{ready="True",reason="DeploymentAvailable"} 2
sample_controller_foos{ready="Unknown",reason=""} 1
`
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(want), "sample_controller_foos"); err != nil {
		t.Error(err)
	}
}

func TestCheckCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		if err := f.CheckCaches(); err == nil || strings.Count(err.Error(), "not filled yet") != 2 {
			t.Errorf("before the start: %v", err)
		}
		stop := f.start(ctx, t)
		if err := f.CheckCaches(); err != nil {
			t.Errorf("after the start: %v", err)
		}
		stop()
	})
}
