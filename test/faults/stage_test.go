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
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	// settling bounds how long everything may take to come to rest.
	settling = 5 * time.Minute
	// forgotten is after how long a Pod that has a node and does not start was
	// forgotten.
	forgotten = 45 * time.Second
)

// stage is where an outage is played, or changes of leader are: a namespace with
// its users, and the controllers that look after it.
type stage struct {
	t         *testing.T
	plane     *plane
	etcd      *etcd
	namespace string
	// replicas are all that were started, in that order.
	replicas []*replica
	// rights are what the users have.
	rights access
	crowd  *crowd
	// killed counts how often each component was killed.
	killed map[string]int
	// recordedTo is the revision up to which the history is known.
	recordedTo int64
	history    *history

	operations int64
	lateWrites int
	violations []string
}

// replica is one controller and what it asks for.
type replica struct {
	*process
	tap *tap
	// leaves says that it was told to end, or killed.
	leaves bool
}

// newTheatre makes what all stages of a test share. Until release it starts again
// what ends of the control plane by itself.
func newTheatre(t *testing.T) (control *plane, stored *etcd, release func()) {
	t.Helper()
	var err error
	if shared, err = newSuite(); err != nil {
		t.Fatal(err)
	}
	if control, err = newPlane(filepath.Join(shared.work, "cluster")); err != nil {
		t.Fatal(err)
	}
	stored = &etcd{url: control.find(etcdName).flag("listen-client-urls")}
	if _, err := url.Parse(stored.url); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var supervision sync.WaitGroup
	supervision.Go(func() { control.supervise(ctx) })
	return control, stored, func() {
		cancel()
		supervision.Wait()
	}
}

// endOfHistory is a namespace where nobody works: what is made there marks how far
// etcd's history was read.
const endOfHistory = "end-of-history"

func newStage(t *testing.T, control *plane, etcd *etcd) *stage {
	t.Helper()
	s := &stage{
		t: t, plane: control, etcd: etcd, namespace: shared.unique("outage"), rights: shared.access,
		killed: map[string]int{}, history: &history{changed: make(chan struct{}), raced: true},
	}
	for _, name := range []string{s.namespace, endOfHistory} {
		s.poll("namespace "+name+" is there", func(ctx context.Context) error {
			_, err := shared.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	s.poll("etcd tells its revision", func(ctx context.Context) (err error) {
		s.recordedTo, err = etcd.revision(ctx)
		return err
	})
	return s
}

// startAlone starts a controller that has the stage to itself, with an
// administrator's rights.
func (s *stage) startAlone() {
	s.t.Helper()
	s.startReplica(shared.program(), shared.transport, nil, func(tap *tap) []string {
		return []string{"--master=http://" + tap.address, "--namespace=" + s.namespace, "-v=2"}
	})
}

// startReplica starts a controller behind a tap of its own.
func (s *stage) startReplica(program string, transport http.RoundTripper, tls *tls.Config, arguments func(*tap) []string) *replica {
	s.t.Helper()
	tap := newTap(s.t, s.namespace, transport, tls)
	s.must(tap.open())
	s.t.Cleanup(tap.shut)
	process, err := startProcess(program, nil, arguments(tap)...)
	s.must(err)
	s.t.Cleanup(process.kill)
	r := &replica{process: process, tap: tap}
	s.replicas = append(s.replicas, r)
	return r
}

// records returns what each controller has sent.
func (s *stage) records() [][]request {
	var records [][]request
	for _, r := range s.replicas {
		records = append(records, r.tap.recorded())
	}
	return records
}

// play lets users work while something strikes, and records all until it is at rest.
func (s *stage) play(users, foosEach int, strike func(*stage)) {
	s.t.Helper()
	s.crowd = newCrowd(s.t.Context(), s.rights, s.namespace, users, foosEach)
	defer s.crowd.stop()
	strike(s)
	wishes, err := s.crowd.finish()
	s.operations = s.crowd.done.Load()
	s.must(err)
	s.poll("all wishes are fulfilled, and nothing else is there", func(ctx context.Context) error {
		if err := s.look(ctx, wishes); err != nil {
			return errors.Join(err, s.replaceForgottenPods(ctx))
		}
		return nil
	})
	s.staysQuiet(wishes)
	s.record()
}

// judge tells what was wrong.
func (s *stage) judge() {
	s.t.Helper()
	s.violations = append(s.violations, s.history.violations(s.records()...)...)
	for _, r := range s.replicas {
		if r.output.panicked() {
			s.violations = append(s.violations, "rule 18: the controller panicked")
		}
	}
	for _, violation := range s.violations {
		s.t.Error(violation)
	}
	if s.t.Failed() {
		s.tell()
	}
}

// tell logs what the controllers asked for and printed.
func (s *stage) tell() {
	s.t.Helper()
	for i, r := range s.replicas {
		var text strings.Builder
		for _, request := range r.tap.recorded() {
			fmt.Fprintf(&text, "    %s +%s %s (resource version %d) → %d\n", request.begun.Format("15:04:05.000000"),
				request.ended.Sub(request.begun).Round(time.Microsecond), &request, request.version, request.code)
		}
		s.t.Logf("Namespace %s. Controller %d asked for:\n%s  and printed:\n%s", s.namespace, i+1, text.String(), r.output)
	}
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.fatalf("%v", err)
	}
}

func (s *stage) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf(format, args...)
	s.tell()
	s.t.FailNow()
}

// poll waits until check returns nil, while the controllers live.
func (s *stage) poll(what string, check func(context.Context) error) {
	s.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(s.t.Context(), interval, settling, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		last = check(ctx)
		for i, r := range s.replicas {
			if !r.leaves && r.over() {
				return false, fmt.Errorf("controller %d ended", i+1)
			}
		}
		return last == nil, nil
	})
	if err != nil {
		s.fatalf("%s: %v; the last look: %v", what, err, last)
	}
}

// awaitOperations waits until the users have done some operations more.
func (s *stage) awaitOperations() {
	s.t.Helper()
	until := s.crowd.done.Load() + between
	s.poll("users go on", func(context.Context) error {
		if done := s.crowd.done.Load(); done < until {
			return fmt.Errorf("%d to go", until-done)
		}
		return s.crowd.failure()
	})
}

// kill kills components, all at once as far as that goes.
func (s *stage) kill(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.must(s.plane.find(name).kill(s.t.Context()))
		s.killed[name]++
		if name == apiServerName {
			s.replicas[0].tap.shut()
		}
	}
}

// renew kills a component and starts it again. The controller sees no more of that
// than requests that fail.
func (s *stage) renew(name string) {
	s.t.Helper()
	s.must(s.plane.find(name).kill(s.t.Context()))
	s.must(s.plane.find(name).start())
}

// start starts components. It returns once etcd and the API server are reached,
// which is long before they are ready.
func (s *stage) start(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.must(s.plane.find(name).start())
		switch name {
		case etcdName:
			s.poll("etcd answers", func(ctx context.Context) error {
				_, err := s.etcd.revision(ctx)
				return err
			})
		case apiServerName:
			s.must(listening(s.t.Context(), shared.server.Host))
			s.must(s.replicas[0].tap.open())
		}
	}
}

// awaitReady waits until the API server serves all that the controller asks for.
func (s *stage) awaitReady() {
	s.t.Helper()
	s.poll("the API server is ready", func(ctx context.Context) error {
		if _, err := shared.kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return err
		}
		_, err := shared.foos.SamplecontrollerV1alpha1().Foos(s.namespace).List(ctx, metav1.ListOptions{})
		return err
	})
}

// record reads from etcd what has happened since the last time.
func (s *stage) record() {
	s.t.Helper()
	last := shared.unique("end")
	s.poll("a mark ends the history", func(ctx context.Context) error {
		_, err := shared.foos.SamplecontrollerV1alpha1().Foos(endOfHistory).Create(ctx, &v1alpha1.Foo{
			ObjectMeta: metav1.ObjectMeta{Name: last}, Spec: v1alpha1.FooSpec{DeploymentName: last},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		labels := map[string]string{"end": last}
		_, err = shared.kube.AppsV1().Deployments(endOfHistory).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: last},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}},
				},
			},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	ctx, cancel := context.WithTimeout(s.t.Context(), settling)
	defer cancel()
	upTo, err := s.history.append(ctx, s.etcd, s.namespace, s.recordedTo+1, last)
	s.must(err)
	s.recordedTo = upTo
}

// compact makes etcd forget its history, once that has been recorded.
func (s *stage) compact() {
	s.t.Helper()
	s.record()
	s.poll("etcd is compacted", func(ctx context.Context) error { return s.etcd.compact(ctx, s.recordedTo) })
}
