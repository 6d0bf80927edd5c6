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
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

const (
	createMC  = "create deployments mc replicas=1 owner=uid-mc"
	getMC     = "get memcacheds mc"
	putStatus = "status mc version=10 gen=1 "
	// rule M25: each status has the selector that the scale subresource reads.
	noNodes       = " nodes=[] readyReplicas=0 replicas=0"
	onePod        = " readyReplicas=1 replicas=1 selector=app=memcached,memcached_cr=mc"
	isReady       = putStatus + "True/DeploymentAvailable"
	nodeA         = " nodes=[a]" + onePod
	readyStatus   = isReady + nodeA
	patchThree    = `patch deployments mc {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`
	createService = "create services mc owner=uid-mc"
	patchService  = `patch services mc {"metadata":{"resourceVersion":"10"},"spec":{"ports":[{"$patch":"replace"},` +
		`{"name":"memcached","protocol":"TCP","port":11211,"targetPort":"memcached"}],"selector":{"$patch":"replace","app":"memcached","memcached_cr":"mc"}}}`
	portGone = `patch deployments mc {"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"containers":[{"name":"memcached","ports":[{"$patch":"replace"},` +
		`{"containerPort":9150,"protocol":"TCP"},{"containerPort":11211,"protocol":"UDP"},{"name":"memcached","containerPort":11211,"protocol":"TCP"}]}]}}}}`
	accepted = "; its Service: accepted from admission webhooks or policies: selector zone=a in place of app=memcached,memcached_cr=mc, " +
		"ports memcached 80:memcached/TCP memcached 80:memcached/TCP in place of memcached 11211:memcached/TCP"
	impossible = "there is none, because no Service can have a name with a dot or with more than 63 characters; " +
		"create this Memcached under another name, or a Service of your own for its Pods"
	notOurs        = `Service "mc" exists and has no controller; delete it, or create this Memcached under another name`
	refusedService = `the API server refused: creating Service "mc": services "mc" is forbidden: exceeded quota; ` +
		"it is tried again at least every 5 minutes, and at once when the Memcached changes"
	outdated = `reading Memcached ns/mc: Operation cannot be fulfilled on memcacheds.cache.example.com "mc": the cache is out of date`
)

var (
	deployments, services = appsv1.Resource("deployments"), corev1.Resource("services")
	oops                  = apierrors.NewInternalError(errors.New("oops"))
)

// gone deletes the Memcached in the API server.
func gone(s *env) { must(0, s.Tracker.Delete(memcachedsResource, testNamespace, "mc")) }

// numbered gives the Service a generation, as a manifest can.
func numbered(service *corev1.Service) { service.Generation = 1 }

// otherFields gives the Service another selector, and more ports than the cache keeps.
func otherFields(service *corev1.Service) {
	service.Spec.Ports[0].Port = 80
	service.Spec.Selector, service.Spec.Ports = map[string]string{"zone": "a"}, slices.Repeat(service.Spec.Ports, 9)
}

// aboutForeign gives the Memcached a message that says that its Service is not its own.
func aboutForeign(memcached *v1alpha1.Memcached) {
	memcached.Status.Conditions[0].Message += aboutService + notOurs
}

// TestSyncHandler is the Memcached contract about the Deployment, rule by rule.
func TestSyncHandler(t *testing.T) {
	plain, three := newMemcached(), newMemcached(ready("a"), generation(2), size(3))
	available := newOwned(plain, fixture.Available)
	drifted := []*appsv1.Deployment{newOwned(newMemcached(size(9)))}
	atVersion11 := func(d *appsv1.Deployment) { d.ResourceVersion = "11" }
	its := func(d ...*appsv1.Deployment) []*appsv1.Deployment { return append([]*appsv1.Deployment{}, d...) }
	set := newSet("rs", available)
	b := newPod("b", set)

	tests := map[string]syncTest{
		"rule M1: for a Memcached that is gone nothing is done":                          {deployments: drifted, prepare: func(s *env) { must(0, s.memcacheds.Informer.GetTypedIndexer().Delete(newMemcached())) }},
		"rule M2: of one that is terminating nothing is repaired, and no status written": {memcached: newMemcached(terminating), deployments: drifted},
		"rule M3: a missing Deployment is created, the status of its progress put off": {
			memcached: newMemcached(ready("a"), generation(2)), deployments: its(), requests: []string{createMC}, events: "Normal Created", again: time.Second},
		"rule M4: drift is repaired with one patch": {
			memcached: three, requests: []string{patchThree}, events: "Normal Updated", again: time.Second},
		"rule M22: a missing port is added, and others stay": {
			deployments: its(newOwned(plain, fixture.Available, container(func(c *corev1.Container) {
				c.Ports = []corev1.ContainerPort{{ContainerPort: 9150, Protocol: "TCP"}, {ContainerPort: 11211, Protocol: "UDP"}}
			}))), requests: []string{portGone}, events: "Normal Updated", again: time.Second},
		"rule M4: what admission made of a repair is told, and not written again": {
			memcached: three, prepare: answering("patch", deployments, available), waits: time.Second,
			requests: []string{patchThree, "status mc version=10 gen=2 True/DeploymentAvailable; accepted from admission webhooks or policies: replicas 1 in place of 3" + nodeA}},
		"rule M7: an owned Deployment that is being deleted is left alone": {
			deployments: its(newOwned(newMemcached(size(5)), fixture.Available, terminating)),
			requests:    []string{putStatus + "False/DeploymentProgressing nodes=[a] readyReplicas=5 replicas=5 selector=app=memcached,memcached_cr=mc"}, again: 10 * time.Minute},
		"rule M11: refused for good: reported, told once, tried again with backoff": {
			memcached: plain, deployments: its(), prepare: failing("create", deployments, forbidden(deployments, "exceeded quota")),
			requests: []string{createMC, putStatus + "False/DeploymentRejected" + noNodes}, events: "Warning DeploymentRejected", err: "exceeded quota"},
		"rule M12: 500 is tried again, status unchanged": {
			memcached: plain, deployments: its(), prepare: failing("create", deployments, oops), requests: []string{createMC}, err: `creating Deployment "mc": Internal error occurred: oops`},
		"rule M13: ready is written at once, when its nodes are known": {memcached: plain, requests: []string{readyStatus}, events: "Normal Synced"},
		"rule M13: the delay of a status that is no longer needed ends, and the next one waits for a whole second": {
			pods: []*corev1.Pod{b}, waits: time.Second / 2, then: func(s *env) {
				must(0, s.podIndexer.Replace([]any{newPod("a", set)}, testVersion))
				must(s.syncHandler(context.Background(), testKey()))
				must(0, s.podIndexer.Replace([]any{b}, testVersion))
			}, again: time.Second},
		"rule M14: the next sync waits until the cache shows a write to the Deployment": {
			memcached: three, prepare: answering("patch", deployments, newOwned(three, fixture.Available, atVersion11)), waits: time.Second,
			requests: []string{patchThree}, events: "Normal Updated", err: "caches are behind"},
		"rule M15: a converged Memcached costs nothing": {},
		"rule M16: an invalid spec is told once, is not tried again, and leaves the objects alone": {
			memcached: newMemcached(port(0)), deployments: its(newOwned(plain, container(func(c *corev1.Container) { c.Image = "x" }))), services: []*corev1.Service{newOwnedService(otherFields)},
			requests: []string{putStatus + "False/InvalidSpec nodes=[a] readyReplicas=0 replicas=0 selector=app=memcached,memcached_cr=mc"}, events: "Warning InvalidSpec"},
	}
	for sentence, change := range map[string]func(*appsv1.Deployment){
		"rule M5: a foreign Deployment is reported, with no nodes, and never touched": ownedBy(),
		"rule M6: the Deployment of an earlier Memcached is waited for":               func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = "earlier" },
		"rule M9: a Foo's Deployment of the same name is not ours": func(d *appsv1.Deployment) {
			d.OwnerReferences[0].APIVersion, d.OwnerReferences[0].Kind = "samplecontroller.k8s.io/v1alpha1", "Foo"
		},
		"rule M10: an orphaned Deployment is not adopted": func(d *appsv1.Deployment) {
			d.OwnerReferences, d.Annotations = nil, map[string]string{"samplecontroller.k8s.io/adopt-by": "mc"}
		},
	} {
		tests[sentence] = syncTest{
			memcached: plain, deployments: its(newOwned(plain, fixture.Available, change)), requests: []string{putStatus + "False/DeploymentNotOwned" + noNodes}, events: "Warning ErrResourceExists"}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

// TestSyncService is the part of the Memcached contract that is about the Service.
func TestSyncService(t *testing.T) {
	none, its := []*corev1.Service{}, func(changes ...func(*corev1.Service)) []*corev1.Service {
		return []*corev1.Service{newOwnedService(changes...)}
	}
	quota := failing("create", services, forbidden(services, "exceeded quota"))
	blocked := newMemcached(status(findings{deployment: newForeign()}))
	theirs := []*appsv1.Deployment{newForeign()}

	tests := map[string]syncTest{
		"rule M29: a missing Service is created, and the status stays": {services: none, requests: []string{createService, getMC}, events: "Normal Created", again: time.Second},
		"rule M30: drift is repaired with one patch":                   {services: its(otherFields), requests: []string{patchService}, events: "Normal Updated", again: time.Second},
		"rule M30: what admission made of a repair is told, and not written again": {
			services: its(otherFields), prepare: answering("patch", services, its(otherFields)[0]), waits: time.Second, then: func(s *env) { s.see(s.memcached(), nil) },
			requests: []string{patchService, isReady + accepted + nodeA}},
		"rule M31: a foreign Service is told once, also if the status changes otherwise": {
			services: its(foreignService), memcached: newMemcached(status(findings{deployment: newOwned(newMemcached())}), aboutForeign),
			requests: []string{isReady + aboutService + notOurs + nodeA}, events: "Normal Synced"},
		"rule M31: a Memcached that does not own its Deployment creates no Service": {services: none, deployments: theirs, memcached: blocked},
		"rule M31: nor does it tell of a foreign Service":                           {services: its(foreignService), deployments: theirs, memcached: blocked},
		"rule M32: a refusal is reported, told once and tried again with backoff, and Ready stays": {
			services: none, prepare: quota, requests: []string{createService, getMC, isReady + aboutService + refusedService + nodeA}, events: "Warning ServiceRejected", err: "exceeded quota"},
		"rule M32: a refusal of the Deployment does not keep the Service from being repaired": {
			memcached: newMemcached(ready("a"), size(3)), services: its(otherFields), prepare: failing("patch", deployments, forbidden(deployments, "exceeded quota")),
			requests: []string{patchThree, patchService, putStatus + "False/DeploymentRejected" + nodeA}, events: "Normal Updated, Warning DeploymentRejected",
			again: time.Second, err: "exceeded quota"},
		"rule M32: after a 500 the status says what it said": {
			services: none, memcached: newMemcached(ready("a"), aboutForeign), prepare: failing("create", services, oops), requests: []string{createService, getMC}, err: `creating Service "mc": Internal error occurred: oops`},
		"rule M32: in a terminating namespace the sync stops quietly": {
			services: none, prepare: failing("create", services, fixture.Terminating(services)), requests: []string{createService, getMC}},
	}
	for name, can := range map[string]bool{strings.Repeat("a", 63): true, strings.Repeat("a", 64): false, "a.b": false} {
		named := newMemcached(size(0), func(m *v1alpha1.Memcached) { m.Name = name })
		told, selected := "status "+name+" version=10 gen=1 True/DeploymentAvailable", noNodes+" selector=app=memcached,memcached_cr="+labelsOf(named)[nameLabel]
		requests, events := []string{"create services " + name + " owner=uid-mc", told + selected}, "Normal Created, Normal Synced"
		if !can {
			requests, events = []string{told + aboutService + impossible + selected}, "Normal Synced, Warning ServiceRejected"
		}
		d := []*appsv1.Deployment{newOwned(named, fixture.Available)}
		tests["rule M32: the name "+name] = syncTest{memcached: named, deployments: d, services: none, requests: requests, events: events}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
	_, text := describeService(newMemcached(port(0)), findings{deployment: newOwned(newMemcached()), service: newOwnedService(foreignService)}, "")
	fixture.Differ(t, "rule M16: what an invalid spec's message says of the Service", "", text)
}

// TestContention: another writer undoes each repair. Of the Service the message of Ready tells beside the rollout.
func TestContention(t *testing.T) {
	const contested = "another writer keeps changing what this Memcached enforces on "
	memcached, nobody := newMemcached(), " (by a writer that is not on record)"
	available := newOwned(memcached, fixture.Available)
	for rule, test := range map[string]struct {
		deployment     *appsv1.Deployment
		service        *corev1.Service
		event, message string
	}{
		"rule M21: ": {
			newOwned(memcached, fixture.Available, container(func(c *corev1.Container) { c.Image = "other" })), newOwnedService(), "DeploymentContested",
			contested + `Deployment "mc": image` + nobody + "; stop that writer, and scale or change the Memcached instead (a HorizontalPodAutoscaler belongs on the Memcached)",
		},
		"rule M30: ": {
			available, newOwnedService(otherFields, numbered), "ServiceContested", "1 updated Pods are available, 1 are wanted" + aboutService + contested +
				`Service "mc": selector` + nobody + ", ports" + nobody + "; stop that writer, or create a Service of another name for it",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, s := (&syncTest{services: []*corev1.Service{newOwnedService(numbered)}}).start(t)
			for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second} {
				fixture.Recorded(s.Events)
				s.see(s.memcached(), []*appsv1.Deployment{test.deployment}, test.service)
				again, err := s.syncHandler(ctx, testKey())
				if again != pause || err != nil {
					t.Errorf("%sto be called again after %v, want %v, error %v", rule, again, pause, err)
				}
				time.Sleep(again)
			}
			fixture.Differ(t, rule+"events of the fifth repair", []string{"Normal Updated", "Warning " + test.event}, fixture.Recorded(s.Events))
			fixture.Differ(t, rule+"message", test.message, controller.GetReady(s.memcached().Status.Conditions).Message)
		})
	}
	both := findings{deployment: available, refused: oops, writes: controller.Report{Contested: "x"}, serviceErr: forbidden(services, ""), serviceWrites: controller.Report{Contested: "x"}}
	fixture.Differ(t, "rule M21: a refusal comes before contention", "DeploymentRejected", readyCondition(memcached, both, testNow.Time).Reason)
	fixture.Differ(t, "rule M21: a creation that waits", "DeploymentProgressing", readyCondition(memcached, findings{}, testNow.Time).Reason)
	reason, _ := describeService(memcached, both, "")
	fixture.Differ(t, "rule M30: a refusal comes before contention", eventServiceRejected, reason)
}

// TestRun follows one Memcached through a running controller, to its Deployment and what is counted.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := newEnv(t, []*v1alpha1.Memcached{newMemcached()}, nil)
		panics := 0
		s.Kube.PrependReactor("create", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			if panics == 3 {
				return false, nil, nil
			}
			panics++
			panic("a sync that panics is tried again")
		})
		stop := fixture.Run(ctx, t, s.opts.Worker, s.KubeInformers, s.informers)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := s.Kube.AppsV1().Deployments(testNamespace).Get(ctx, "mc", metav1.GetOptions{}); err != nil || panics != 3 {
			t.Errorf("rule M18: after %d panics, want 3: %v", panics, err)
		}
		const want = `# HELP sample_controller_memcacheds [ALPHA] Number of Memcacheds in this process's cache, by the status and the reason of their Ready condition; Unknown and an empty reason for those that have none. Every replica reports all.
# TYPE sample_controller_memcacheds gauge
sample_controller_memcacheds{ready="False",reason="DeploymentProgressing"} 1
`
		if err := testutil.GatherAndCompare(s.Registry, strings.NewReader(want), "sample_controller_memcacheds"); err != nil {
			t.Error(err)
		}
		stop()
	})
}
