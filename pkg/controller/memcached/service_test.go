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
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	"example.com/sample-controller/test/fixture"
)

func TestNewService(t *testing.T) {
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "mc", Namespace: "ns", Labels: map[string]string{"app.kubernetes.io/managed-by": "sample-controller"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "cache.example.com/v1alpha1", Kind: "Memcached", Name: "mc", UID: "uid-mc", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "None",
			Selector:  map[string]string{"app": "memcached", "memcached_cr": "mc"},
			Ports:     []corev1.ServicePort{{Name: "memcached", Port: 11222, TargetPort: intstr.FromString("memcached"), Protocol: "TCP"}},
		},
	}
	fixture.Differ(t, "rule M29: the Service", want, newService(newMemcached(port(11222))))
}

// newOwnedService returns the Service that the controller would create, as it is stored.
func newOwnedService(memcached *v1alpha1.Memcached, changes ...func(*corev1.Service)) *corev1.Service {
	service := newService(memcached)
	service.UID, service.ResourceVersion = "uid-mc-service", testVersion
	for _, change := range changes {
		change(service)
	}
	return service
}

// foreignService makes the Service one without a controller.
func foreignService(service *corev1.Service) { service.OwnerReferences = nil }

func TestServiceDrift(t *testing.T) {
	const (
		inSpec   = `{"metadata":{"resourceVersion":"10"},"spec":`
		selector = inSpec + `{"selector":{"$patch":"replace","app":"memcached","memcached_cr":"mc"}}}`
		ports    = inSpec + `{"ports":[{"$patch":"replace"},{"name":"memcached","protocol":"TCP","port":11211,"targetPort":"memcached"}]}}`
		ourPort  = "memcached 11211:memcached/TCP"
	)
	tests := map[string]struct {
		change func(*corev1.Service)
		patch  string
		words  string
	}{
		"rule M30: what is as it should be": {change: func(*corev1.Service) {}},
		"rule M30: what others set is no drift": {change: func(service *corev1.Service) {
			service.Labels["theirs"], service.Annotations = "x", map[string]string{"theirs": "x"}
			service.Spec.ClusterIP, service.Spec.Type, service.Spec.SessionAffinity = "10.0.0.1", "NodePort", "ClientIP"
			service.Spec.PublishNotReadyAddresses, service.Spec.Ports[0].NodePort, service.Spec.Ports[0].AppProtocol = true, 30000, ptr.To("x")
		}},
		"rule M30: another selector": {change: func(service *corev1.Service) { service.Spec.Selector["app"] = "theirs" },
			patch: selector, words: "selector from app=theirs,memcached_cr=mc to app=memcached,memcached_cr=mc"},
		"rule M30: a label too many in the selector": {change: func(service *corev1.Service) { service.Spec.Selector["zone"] = "a" },
			patch: selector, words: "selector from app=memcached,memcached_cr=mc,zone=a to app=memcached,memcached_cr=mc"},
		"rule M30: another number of the port": {change: func(service *corev1.Service) { service.Spec.Ports[0].Port = 80 },
			patch: ports, words: "ports from memcached 80:memcached/TCP to " + ourPort},
		"rule M30: another name of the port": {change: func(service *corev1.Service) { service.Spec.Ports[0].Name = "x" },
			patch: ports, words: "ports from x 11211:memcached/TCP to " + ourPort},
		"rule M30: another target of the port": {change: func(service *corev1.Service) { service.Spec.Ports[0].TargetPort = intstr.FromInt32(1) },
			patch: ports, words: "ports from memcached 11211:1/TCP to " + ourPort},
		"rule M30: another protocol": {change: func(service *corev1.Service) { service.Spec.Ports[0].Protocol = "UDP" },
			patch: ports, words: "ports from memcached 11211:memcached/UDP to " + ourPort},
		"rule M30: a second port": {change: func(service *corev1.Service) {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "x", Port: 1, TargetPort: intstr.FromInt32(1), Protocol: "TCP"})
		}, patch: ports, words: "ports from " + ourPort + " x 1:1/TCP to " + ourPort},
		"rule M30: no port":                           {change: func(service *corev1.Service) { service.Spec.Ports = nil }, patch: ports, words: "ports from none to " + ourPort},
		"rule M30: the label of another tool is left": {change: func(service *corev1.Service) { service.Labels[controller.ManagedByLabel] = "Helm" }},
		"rule M30: all that drifted is one patch": {
			change: func(service *corev1.Service) {
				service.Labels, service.OwnerReferences[0].BlockOwnerDeletion, service.Spec.Selector = nil, nil, nil
			},
			patch: `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"ownerReferences":[{"apiVersion":"cache.example.com/v1alpha1","kind":"Memcached","name":"mc","uid":"uid-mc","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},` +
				`"spec":{"selector":{"$patch":"replace","app":"memcached","memcached_cr":"mc"}}}`,
			words: `selector from none to app=memcached,memcached_cr=mc, label app.kubernetes.io/managed-by from none to "sample-controller", owner reference`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := newOwnedService(newMemcached(), test.change)
			before := service.DeepCopy()
			drift, trimmed := diffService(newMemcached(), service), TrimService(service)
			fixture.Differ(t, "patch", test.patch, string(drift.JSON()))
			fixture.Differ(t, "words", test.words, drift.String())
			fixture.Differ(t, "the Service in the cache", before, service)
			fromCache := diffService(newMemcached(), trimmed)
			fixture.Differ(t, "patch from the trimmed Service", test.patch, string(fromCache.JSON()))
			fixture.Differ(t, "words from the trimmed Service", test.words, fromCache.String())
			fixture.Differ(t, "trimmed twice", trimmed, TrimService(trimmed))
		})
	}
}

// TestTrimService: the cache keeps what is compared, and that is bounded.
func TestTrimService(t *testing.T) {
	fixture.Differ(t, "rule M31: what is kept of a foreign Service", (*corev1.Service)(nil), TrimService(newOwnedService(newMemcached(), foreignService)))
	large := newOwnedService(newMemcached(), func(service *corev1.Service) {
		for i := range 100 {
			service.Spec.Selector[fmt.Sprint("z", i)] = "x"
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1)})
		}
	})
	trimmed := TrimService(large)
	if len(trimmed.Spec.Selector) != 3 || len(trimmed.Spec.Ports) != 2 {
		t.Errorf("rule M30: %d labels and %d ports are kept: %+v", len(trimmed.Spec.Selector), len(trimmed.Spec.Ports), trimmed.Spec)
	}
	admitted, err := checkAdmittedService(newMemcached(), large)
	if err != nil {
		t.Fatal(err)
	}
	if patch := diffService(newMemcached(), trimmed, admitted...); !patch.IsEmpty() {
		t.Errorf("rule M30: what admission made of the Service is written again: %s", patch)
	}
}

const (
	createService    = "create services mc owner=uid-mc"
	patchServicePort = `patch services mc {"metadata":{"resourceVersion":"10"},"spec":{"ports":[{"$patch":"replace"},{"name":"memcached","protocol":"TCP","port":11211,"targetPort":"memcached"}]}}`
	readyStatus      = putStatus + `gen=1 nodes=["a"] ready=1 replicas=1 True/DeploymentAvailable`
	notOurs          = `Service "mc" exists and has no controller; delete it, or create this Memcached under another name`
	refusedService   = `the API server refused: creating Service "mc": services "mc" is forbidden: exceeded quota; it is tried again at least every 5 minutes, and at once when the Memcached changes`
)

func servicesQuota(text string) error {
	return apierrors.NewForbidden(corev1.Resource("services"), "mc", errors.New(text))
}

func otherPort(service *corev1.Service) { service.Spec.Ports[0].Port = 80 }

// about gives the Memcached a message that says that about its Service.
func about(text string) option {
	return func(memcached *v1alpha1.Memcached) {
		memcached.Status.Conditions[0].Message += aboutService + text
	}
}

func failService(verb string, err error) func(*env) {
	return func(s *env) { fixture.Failing(&s.kube.Fake, verb, "services", err) }
}

// serviceSyncTests are about the Service of a Memcached whose Deployment is complete.
func serviceSyncTests() map[string]syncTest {
	none, its := []*corev1.Service{}, func(changes ...func(*corev1.Service)) []*corev1.Service {
		return []*corev1.Service{newOwnedService(newMemcached(), changes...)}
	}
	told := []string{"Normal Updated"}
	terminating := apierrors.NewForbidden(corev1.Resource("services"), "mc", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	overridden := "updating Service \"mc\": owner reference: an admission webhook or policy overrides it"
	return map[string]syncTest{
		"rule M29: a missing Service is created, and the status stays": {services: none, requests: []string{createService, "get memcacheds mc"}, events: []string{"Normal Created"}},
		"rule M29: the Service of a Memcached that is gone from the API server is not created again": {services: none, liveMemcacheds: []*v1alpha1.Memcached{},
			requests: []string{"get memcacheds mc"}, err: "reading Memcached ns/mc: the cache is out of date"},
		"rule M29: AlreadyExists from a stale cache: it is this Memcached's": {services: none, liveServices: its(),
			requests: []string{createService, "get services mc", "get memcacheds mc"}, again: controller.StaleCacheDelay},
		"rule M29: AlreadyExists, and what exists has drifted: it is repaired": {services: none, liveServices: its(otherPort),
			requests: []string{createService, "get services mc", patchServicePort, "get memcacheds mc"}, events: told, again: controller.StaleCacheDelay},
		"rule M29: a Service that is gone again is a failed sync": {services: none, prepare: func(s *env) {
			failService("create", apierrors.NewAlreadyExists(corev1.Resource("services"), "mc"))(s)
		}, requests: []string{createService, "get services mc", "get memcacheds mc"}, err: `reading Service "mc": services "mc" not found`},
		"rule M30: drift is repaired with one patch": {services: its(otherPort), requests: []string{patchServicePort}, events: told},
		"rule M30: a terminating Service is left alone": {services: its(otherPort, func(service *corev1.Service) {
			service.DeletionTimestamp, service.Finalizers = &testNow, []string{"x"}
		})},
		"rule M30: what another process changed for a newer generation is not undone a second time": {
			services: its(otherPort), liveMemcacheds: []*v1alpha1.Memcached{newMemcached(generation(2))},
			prepare:  func(s *env) { s.serviceContention.Repaired(testKey(), 1, "ports") },
			requests: []string{"get memcacheds mc"}, err: "reading Memcached ns/mc: the cache is out of date"},
		"rule M30: what admission made of the last write is not written again, and the message says so": {services: its(otherPort), prepare: func(s *env) {
			s.serviceAdmitted.Set(testKey(), 1, []controller.FieldValue{{Field: "ports", Value: "memcached 80:memcached/TCP"}})
		}, requests: []string{readyStatus},
			about: "accepted from admission webhooks or policies: ports memcached 80:memcached/TCP in place of memcached 11211:memcached/TCP"},
		"rule M30: a repair that admission takes back is no refusal, and no event tells of it": {services: its(otherPort),
			prepare:  func(s *env) { s.answerService("patch", its(otherPort)[0]) },
			requests: []string{patchServicePort, readyStatus},
			about:    "accepted from admission webhooks or policies: ports memcached 80:memcached/TCP in place of memcached 11211:memcached/TCP"},
		"rule M30: the values that admission puts into a new Service are accepted": {services: none,
			prepare:  func(s *env) { s.answerService("create", its(otherPort)[0]) },
			requests: []string{createService, "get memcacheds mc", readyStatus}, events: []string{"Normal Created"},
			about: "accepted from admission webhooks or policies: ports memcached 80:memcached/TCP in place of memcached 11211:memcached/TCP"},
		"rule M30: in contention nothing is repaired until the pause is over, and the message names the writer": {services: its(otherPort),
			prepare:  func(s *env) { s.contendService("ports") },
			requests: []string{"get services mc", readyStatus}, events: []string{"Warning ServiceContested"}, again: 10 * time.Second,
			about: `another writer keeps changing what this Memcached enforces on Service "mc": ports (by a writer that is not on record); stop that writer, or create a Service of another name for it`},
		"rule M30: contention that the status tells of is not told again": {services: its(otherPort), memcacheds: []*v1alpha1.Memcached{newMemcached(ready("a"), about("contended"))},
			prepare: func(s *env) {
				s.contendService("ports")
				s.serviceContention.Describe(testKey(), "contended")
			}, again: 10 * time.Second},
		"rule M30: a Service that another client deletes again and again is not created until the pause is over": {services: none, prepare: func(s *env) {
			for range 6 {
				s.serviceContention.Created(testKey(), 1, false)
			}
		}, requests: []string{readyStatus}, events: []string{"Warning ServiceContested"}, again: 10 * time.Second,
			about: `Service "mc" is deleted by another client again and again; stop that client, or delete the Memcached instead`},
		"rule M30: contention over the Deployment holds no repair of the Service back": {services: its(otherPort), prepare: beginContention,
			requests: []string{patchServicePort}, events: told, again: 10 * time.Minute},
		"rule M31: a foreign Service is told once and never touched, and Ready stays": {services: its(foreignService),
			requests: []string{readyStatus}, events: []string{"Warning ErrResourceExists"}, about: notOurs},
		"rule M31: a foreign Service is told once, also if the status changes otherwise": {services: its(foreignService),
			memcacheds: []*v1alpha1.Memcached{newMemcached(status(deployment.Result{Deployment: newOwned(newMemcached())}), about(notOurs))},
			requests:   []string{readyStatus}, events: []string{"Normal Synced"}, about: notOurs},
		"rule M31: AlreadyExists, and it is foreign": {services: none, liveServices: its(foreignService),
			requests: []string{createService, "get services mc", "get memcacheds mc", readyStatus}, events: []string{"Warning ErrResourceExists"}, about: notOurs, again: controller.StaleCacheDelay},
		"rule M31: while it is in the way nothing is written, told or tried again": {
			services: its(foreignService), memcacheds: []*v1alpha1.Memcached{newMemcached(ready("a"), about(notOurs))}},
		"rule M31: when it is gone the Service is created, and the message is without it": {
			services: none, memcacheds: []*v1alpha1.Memcached{newMemcached(ready("a"), about(notOurs))},
			requests: []string{createService, "get memcacheds mc", readyStatus}, events: []string{"Normal Created"}},
		"rule M31: the Service of an earlier Memcached is waited for": {
			services: its(func(service *corev1.Service) { service.OwnerReferences[0].UID = "earlier" }),
			requests: []string{readyStatus}, events: []string{"Warning ErrResourceExists"},
			about: `Service "mc" belongs to an earlier Memcached of this name (uid earlier); waiting for the garbage collector to remove it`},
		"rule M31: a Memcached that does not own its Deployment creates no Service": {
			services: none, deployments: []*appsv1.Deployment{newForeign()}, memcacheds: []*v1alpha1.Memcached{newMemcached(status(deployment.Result{Deployment: newForeign()}))}},
		"rule M31: nor does it tell of a foreign Service": {
			services: its(foreignService), deployments: []*appsv1.Deployment{newForeign()}, memcacheds: []*v1alpha1.Memcached{newMemcached(status(deployment.Result{Deployment: newForeign()}))}},
		"rule M16: for an invalid spec the Service is left alone": {
			services: its(otherPort), memcacheds: []*v1alpha1.Memcached{newMemcached(port(0))},
			requests: []string{putStatus + "gen=1 nodes=[\"a\"] ready=1 replicas=1 False/InvalidSpec"}, events: []string{"Warning InvalidSpec"}},
		"rule M32: a refusal is reported, told once and tried again with backoff, and Ready stays": {services: none, prepare: failService("create", servicesQuota("exceeded quota")),
			requests: []string{createService, "get memcacheds mc", readyStatus}, events: []string{"Warning ServiceRejected"}, about: refusedService, err: "exceeded quota"},
		"rule M32: a refusal that the status tells of is not told again": {
			services: none, memcacheds: []*v1alpha1.Memcached{newMemcached(ready("a"), about(refusedService))}, prepare: failService("create", servicesQuota("exceeded quota")),
			requests: []string{createService, "get memcacheds mc"}, err: "exceeded quota"},
		"rule M32: a refusal that differs in its numbers alone is not told again": {
			services: none, memcacheds: []*v1alpha1.Memcached{newMemcached(ready("a"), about(strings.Replace(refusedService, "quota", "quota: used 3", 1)))},
			prepare:  failService("create", servicesQuota("exceeded quota: used 4")),
			requests: []string{createService, "get memcacheds mc"}, err: "exceeded quota"},
		"rule M32: another refusal is told": {
			services: none, memcacheds: []*v1alpha1.Memcached{newMemcached(ready("a"), about("denied"))}, prepare: failService("create", servicesQuota("exceeded quota")),
			requests: []string{createService, "get memcacheds mc", readyStatus}, events: []string{"Warning ServiceRejected"}, about: refusedService, err: "exceeded quota"},
		"rule M32: a repair whose owner reference admission removes is a refusal": {services: its(otherPort),
			prepare:  func(s *env) { s.answerService("patch", its(foreignService)[0]) },
			requests: []string{patchServicePort, readyStatus}, events: []string{"Warning ServiceRejected"}, err: overridden,
			about: "the API server refused: " + overridden + "; it is tried again at least every 5 minutes, and at once when the Memcached changes"},
		"rule M32: a creation whose owner reference admission removes is a refusal": {services: none,
			prepare:  func(s *env) { s.answerService("create", its(foreignService)[0]) },
			requests: []string{createService, "get memcacheds mc", readyStatus}, events: []string{"Warning ServiceRejected"}, err: "creating Service \"mc\": owner reference",
			about: strings.Replace("the API server refused: "+overridden, "updating", "creating", 1) + "; it is tried again at least every 5 minutes, and at once when the Memcached changes"},
		"rule M32: 500 is tried again, and the status says what it said": {
			services: none, memcacheds: []*v1alpha1.Memcached{newMemcached(ready("a"), about(notOurs))}, prepare: failService("create", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{createService, "get memcacheds mc"}, err: "creating Service \"mc\": Internal error occurred: oops"},
		"rule M32: a conflict is tried again": {services: its(otherPort), prepare: failService("patch", apierrors.NewConflict(corev1.Resource("services"), "mc", errors.New("no"))),
			requests: []string{patchServicePort}, err: "updating Service \"mc\""},
		"rule M32: in a terminating namespace the sync stops quietly": {services: none, prepare: failService("create", terminating), requests: []string{createService, "get memcacheds mc"}},
		"rule M14: a sync waits until the cache shows its last write to the Service": {services: its(otherPort), err: "behind version 11", prepare: func(s *env) {
			s.consistency.WroteAt(testKey(), "uid-mc", corev1.Resource("services"), "11")
			s.serviceIndexer().Bookmark("10")
		}},
	}
}

// TestSyncService is the part of the Memcached contract that is about the Service.
func TestSyncService(t *testing.T) {
	for name, test := range serviceSyncTests() {
		if test.memcacheds == nil {
			test.memcacheds = []*v1alpha1.Memcached{newMemcached(ready("a"))}
		}
		if test.deployments == nil {
			test.deployments = []*appsv1.Deployment{newOwned(newMemcached(), fixture.Available)}
		}
		set := newSet("rs", newOwned(newMemcached()))
		test.sets, test.pods = []*appsv1.ReplicaSet{set}, []*corev1.Pod{newPod("a", set)}
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

// TestWritesToAService: each write is counted, and awaited before the next sync.
func TestWritesToAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := newEnv(t, []*v1alpha1.Memcached{newMemcached()}, nil)
		for version, write := range map[string]func() error{
			"12": func() error { _, err := s.createService(ctx, newMemcached(), newService(newMemcached())); return err },
			"13": func() error {
				_, err := s.patchService(ctx, newMemcached(), newOwnedService(newMemcached()), diffService(newMemcached(), newOwnedService(newMemcached(), otherPort)))
				return err
			},
		} {
			answer := newOwnedService(newMemcached(), func(service *corev1.Service) { service.ResourceVersion = version })
			s.answerService("*", answer)
			s.consistency.Clear(testKey(), "")
			s.serviceIndexer().Bookmark("11")
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if err := s.consistency.EnsureReady(testKey()); err == nil || !strings.Contains(err.Error(), "behind version "+version) {
				t.Errorf("rule M14: error %v, want the wait for version %s", err, version)
			}
			s.kube.ReactionChain = s.kube.ReactionChain[1:]
		}
		if !s.serviceContention.RepairedRecently(testKey(), 1) {
			t.Error("rule M30: the repair is not remembered")
		}
		const want = `# HELP sample_controller_writes_total [ALPHA] Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.
# TYPE sample_controller_writes_total counter
sample_controller_writes_total{controller="memcached",resource="services",verb="create"} 1
sample_controller_writes_total{controller="memcached",resource="services",verb="patch"} 1
`
		if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "sample_controller_writes_total"); err != nil {
			t.Error(err)
		}
	})
}

// TestImpossibleNames: no Service can have some of the names of Memcacheds.
func TestImpossibleNames(t *testing.T) {
	tests := map[string]struct {
		name string
		want string
	}{
		"rule M29: 63 characters are a name of a Service":                  {strings.Repeat("a", 63), ""},
		"rule M29: the API server decides about a digit at the beginning":  {"1a", ""},
		"rule M32: 64 characters are not, and the API server is not asked": {strings.Repeat("a", 64), eventServiceRejected},
		"rule M32: nor is a name with a dot":                               {"a.b", eventServiceRejected},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			memcached := newMemcached(func(m *v1alpha1.Memcached) { m.Name = test.name })
			d := decideService(memcached, nil)
			reason, text := describeService(memcached, serviceResult{impossible: d.impossible}, "")
			if reason != test.want || (d.create == nil) != (test.want != "") || (text == "") != (test.want == "") {
				t.Errorf("decision %+v, reason %q, text %q", d, reason, text)
			}
		})
	}
}

// TestReadyAboutAService: what the message says about the Service has no effect on the events
// and refusals that are about the Deployment.
func TestReadyAboutAService(t *testing.T) {
	refused := newMemcached(status(deployment.Result{Deployment: newOwned(newMemcached()), Rejected: errors.New("used 3")}), about(notOurs))
	got := newStatus(refused, deployment.Result{Deployment: newOwned(newMemcached()), Rejected: errors.New("used 4")}, nil, testNow)
	if message := got.Conditions[0].Message; !strings.Contains(message, "used 3") || strings.Contains(message, aboutService) {
		t.Errorf("rule M32: message %q", message)
	}
	fixture.Differ(t, "rule M32: event about a refusal that is known", (*controller.Event)(nil), readyEvent(refused.Status.Conditions[0], got.Conditions[0]))

	now := newMemcached(ready("a"), about(notOurs)).Status.Conditions[0]
	fixture.Differ(t, "rule M31: event about a Memcached that became ready", &controller.Event{Type: "Normal", Reason: "Synced", Message: "Memcached is ready: 1 updated Pods are available, 1 are wanted"}, readyEvent(metav1.Condition{}, now))
}

func TestServiceEventHandlers(t *testing.T) {
	owned, foreign := newOwnedService(newMemcached()), newOwnedService(newMemcached(), foreignService)
	newer := func(service *corev1.Service) *corev1.Service {
		service = service.DeepCopy()
		service.ResourceVersion = "11"
		return service
	}
	renamed := func(service *corev1.Service) *corev1.Service {
		service = service.DeepCopy()
		service.Name = "other"
		return service
	}
	tests := map[string]struct {
		event func(*env)
		want  []string
	}{
		"rule M19: its Service enqueues it":                                    {func(s *env) { s.addService(owned) }, []string{"mc"}},
		"rule M19: a relisted Service enqueues nothing":                        {func(s *env) { s.updateService(owned, owned.DeepCopy()) }, nil},
		"rule M19: a changed Service enqueues it":                              {func(s *env) { s.updateService(owned, newer(owned)) }, []string{"mc"}},
		"rule M19: a Service of another name that it owns enqueues it":         {func(s *env) { s.addService(renamed(owned)) }, []string{"mc"}},
		"rule M19: a Service of a name that no Memcached has enqueues nothing": {func(s *env) { s.addService(renamed(foreign)) }, nil},
		"rule M31: a foreign Service of its name enqueues it":                  {func(s *env) { s.addService(foreign) }, []string{"mc"}},
		"rule M31: a Service that is released enqueues it":                     {func(s *env) { s.updateService(renamed(owned), newer(renamed(foreign))) }, []string{"mc"}},
		"rule M31: a Service that is handed over enqueues it":                  {func(s *env) { s.updateService(renamed(foreign), newer(renamed(owned))) }, []string{"mc"}},
		"rule M31: the end of its Service enqueues it": {func(s *env) {
			s.deleteService(cache.DeletedObject[*corev1.Service]{OptionalObj: renamed(owned)})
		}, []string{"mc"}},
		"rule M31: the end of a foreign Service of its name enqueues it": {func(s *env) {
			s.deleteService(cache.DeletedObject[*corev1.Service]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/mc"}})
		}, []string{"mc"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := newEnv(t, nil, nil)
				fixture.Fill(t, s.memcachedIndexer(), []*v1alpha1.Memcached{newMemcached()})
				test.event(s)
				fixture.Differ(t, "enqueued", test.want, fixture.Enqueued(s.worker, 0))
			})
		})
	}
}
