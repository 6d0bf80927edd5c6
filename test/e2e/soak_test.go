//go:build e2e && soak

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

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	// soak is how long the controller is watched.
	soak = 10 * time.Minute
	// soakFoos and soakRestarts are what it has to keep and to survive meanwhile.
	soakFoos     = 200
	soakRestarts = 3
	// soakResync lets each of its lives see two resyncs.
	soakResync = time.Minute
)

// TestSoak watches what short tests cannot see. Run it with `make soak`.
func TestSoak(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sentence string
		test     func(*testing.T)
	}{
		{"rule 15: many Foos cost nothing, over resyncs and restarts", steadyCrowd},
		{"rule 21: an instant rival costs ever less", lastingRival},
		{"rule 21: an autoscaler costs ever less", lastingAutoscaler},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			t.Parallel()
			test.test(t)
		})
	}
}

func steadyCrowd(t *testing.T) {
	flags := "--resync-period=" + soakResync.String()
	s := newScene(t, flags)
	for i := range soakFoos {
		s.create(fmt.Sprintf("x-%03d", i))
	}
	s.eventually("all are ready, and all events are sent", func(context.Context) error {
		list, err := shared.kube.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Synced"})
		if err == nil && len(list.Items) < soakFoos {
			err = fmt.Errorf("%d events", len(list.Items))
		}
		return err
	})
	// They are counted below: so they must be seen here.
	seen := s.writes(s.began)
	for _, write := range []string{"create deployments ", "update foos/status x-", "create events "} {
		if got := len(slices.DeleteFunc(slices.Clone(seen), func(w string) bool { return !strings.HasPrefix(w, write) })); got < soakFoos {
			t.Fatalf("%d writes %q of %d Foos are in the audit log", got, write, soakFoos)
		}
	}

	mark := s.mark()
	for life := range soakRestarts + 1 {
		if life > 0 {
			s.controller.stop()
			s.startController(flags)
		}
		s.restsFor(soak / (soakRestarts + 1))
	}
	writes := s.writes(mark)
	t.Logf("%d Foos, %s, %d restarts, resyncs every %s: %d writes and events", soakFoos, soak, soakRestarts, soakResync, len(writes))
	if len(writes) > 0 {
		t.Errorf("the controller wrote, though nothing had changed: %v", writes)
	}
}

func lastingRival(t *testing.T) {
	s := newScene(t, "")
	s.create("x")
	s.ready("x")
	mark := s.mark()
	defer s.rival("x", 2)()
	s.soaksInFight(mark)
}

func lastingAutoscaler(t *testing.T) {
	s := newScene(t, "")
	s.create("x")
	s.ready("x")
	mark := s.mark()
	s.createAutoscaler("x", autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"}, 3)
	s.soaksInFight(mark)
}

// soaksInFight lets a fight over Deployment x, which began at the mark, go on, and
// counts what it costs.
func (s *scene) soaksInFight(mark int) {
	s.Helper()
	s.notReady("x", v1alpha1.ReasonDeploymentContested)
	s.restsFor(soak)
	s.notReady("x", v1alpha1.ReasonDeploymentContested)

	repairs := s.repairs(mark, "x")
	pause := firstPause
	for i := freeRepairs; i < len(repairs); i++ {
		if got := repairs[i].at().Sub(repairs[i-1].at()); got < pause {
			s.Errorf("repair %d came after %s, want %s", i+1, got, pause)
		}
		pause = min(2*pause, 5*time.Minute)
	}
	statuses := s.accepted(mark, "update foos/status x")
	s.Logf("%s of fight: %d repairs, %d status writes, %d writes and events in all", soak, len(repairs), statuses, len(s.writes(mark)))
	if len(repairs) <= freeRepairs {
		s.Errorf("%d repairs: the fight was not fought", len(repairs))
	}
	// The state is one and the same all the time, the numbers aside.
	if statuses > 2*len(repairs)+2 {
		s.Errorf("%d status writes tell of %d repairs", statuses, len(repairs))
	}
}
