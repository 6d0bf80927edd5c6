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

package memcached

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

// TestGoneIsForgotten: the process remembers nothing about a Memcached that is gone.
func TestGoneIsForgotten(t *testing.T) {
	gone := newMemcached(func(m *v1alpha1.Memcached) { m.DeletionTimestamp = &testNow })
	for name, memcacheds := range map[string][]*v1alpha1.Memcached{
		"rule M1: gone from the cache": nil, "rule M2: being deleted": {gone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, s := newEnv(t, nil, nil)
				fixture.Fill(t, s.memcachedIndexer(), memcacheds)
				s.contention.Repaired(testKey(), 1, "replicas")
				s.serviceContention.Repaired(testKey(), 1, "ports")
				s.serviceAdmitted.Set(testKey(), 1, []controller.FieldValue{{Field: "ports", Value: "none"}})
				s.admitted.Set(testKey(), 1, []controller.FieldValue{{Field: "replicas", Value: "3"}})
				if _, err := s.syncHandler(ctx, testKey()); err != nil {
					t.Fatal(err)
				}
				fixture.Differ(t, "a repair is remembered", false, s.contention.RepairedRecently(testKey(), 1))
				fixture.Differ(t, "what admission made of a write is remembered", 0, len(s.admitted.Get(testKey(), 1)))
				fixture.Differ(t, "a repair of the Service is remembered", false, s.serviceContention.RepairedRecently(testKey(), 1))
				fixture.Differ(t, "what admission made of the Service is remembered", 0, len(s.serviceAdmitted.Get(testKey(), 1)))
			})
		})
	}
}

// TestDelayBeginsAnew: the delay of a status update that is no longer needed ends, and the
// next one waits for a whole second.
func TestDelayBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memcached := newMemcached(ready("a"))
		owned := newOwned(memcached, fixture.Available)
		set := newSet("rs", owned)
		a, b := newPod("a", set), newPod("b", set)
		ctx, s := newEnv(t, []*v1alpha1.Memcached{memcached}, []*appsv1.Deployment{owned})
		fixture.Fill(t, s.memcachedIndexer(), []*v1alpha1.Memcached{memcached})
		fixture.Fill(t, s.deploymentIndexer(), cached(owned))
		fixture.Fill(t, s.serviceIndexer(), cachedServices(newOwnedService(memcached)))
		fixture.Fill(t, s.replicaSetIndexer, []*appsv1.ReplicaSet{set})
		for _, step := range []struct {
			pod   *corev1.Pod
			again time.Duration
		}{{b, time.Second}, {a, 0}, {b, time.Second}} {
			if err := s.podIndexer.Replace([]any{step.pod}, testVersion); err != nil {
				t.Fatal(err)
			}
			if again, err := s.syncHandler(ctx, testKey()); again != step.again || err != nil {
				t.Errorf("rule M13: with Pod %s again after %v, error %v, want %v", step.pod.Name, again, err, step.again)
			}
			time.Sleep(600 * time.Millisecond)
		}
		fixture.Differ(t, "rule M13: requests", []string(nil), s.requests())
	})
}

// TestMetrics: the metrics of the Memcacheds.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := newEnv(t, nil, nil)
		fixture.Fill(t, s.memcachedIndexer(), []*v1alpha1.Memcached{newMemcached(ready("a"))})
		const want = `# HELP sample_controller_memcacheds [ALPHA] Number of Memcacheds in this process's cache, by the status and the reason of their Ready condition; Unknown and an empty reason for those that have none. Every replica reports all.
# TYPE sample_controller_memcacheds gauge
sample_controller_memcacheds{ready="True",reason="DeploymentAvailable"} 1
`
		if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "sample_controller_memcacheds"); err != nil {
			t.Error(err)
		}
	})
}
