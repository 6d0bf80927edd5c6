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
	// soak is the length of each test.
	soak         = 10 * time.Minute
	soakFoos     = 200
	soakRestarts = 3
	// soakResync gives the controller two resyncs between restarts.
	soakResync = time.Minute
)

// TestSoak covers what shows only after minutes. Run it with `make soak`.
func TestSoak(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"rule 15: many Foos without changes cause no writes, over resyncs and restarts", manyFoos},
		{"rule 21: the pauses grow while another writer undoes each repair at once", longContention},
		{"rule 21: the pauses grow while an autoscaler undoes each repair", longAutoscaler},
	})
}

func manyFoos(t *testing.T) {
	flags := "--resync-period=" + soakResync.String()
	e := startEnv(t, flags)
	for i := range soakFoos {
		e.create(fmt.Sprintf("x-%03d", i))
	}
	e.eventually("all are ready, and all events are sent", func(context.Context) error {
		list, err := shared.kube.CoreV1().Events(e.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Synced"})
		if err == nil && len(list.Items) < soakFoos {
			err = fmt.Errorf("%d events", len(list.Items))
		}
		return err
	})
	// This shows that the audit log contains the writes that must not occur below.
	seen := e.writes(e.startMark)
	for _, write := range []string{"create deployments ", "patch foos/status x-", "create events "} {
		if got := len(slices.DeleteFunc(slices.Clone(seen), func(w string) bool { return !strings.HasPrefix(w, write) })); got < soakFoos {
			t.Fatalf("the audit log has %d writes %q for %d Foos", got, write, soakFoos)
		}
	}

	mark := e.mark()
	for run := range soakRestarts + 1 {
		if run > 0 {
			e.controller.stop()
			e.startController(flags)
		}
		e.runFor(soak / (soakRestarts + 1))
	}
	writes := e.writes(mark)
	t.Logf("%d Foos, %s, %d restarts, resyncs every %s: %d writes and events", soakFoos, soak, soakRestarts, soakResync, len(writes))
	if len(writes) > 0 {
		t.Errorf("the controller wrote, though nothing had changed: %v", writes)
	}
}

func longContention(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	e.awaitReady("x")
	mark := e.mark()
	defer e.startContender("x", 2)()
	e.soakContention(mark, 1)
}

func longAutoscaler(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	e.awaitReady("x")
	mark := e.mark()
	e.createAutoscaler("x", autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "x"}, 3)
	e.awaitDriftsOfAutoscaler(mark)
	e.soakContention(mark, 2)
}

// soakContention lets the contention for Deployment x, which began at the mark, go on, and
// counts the writes. surplus is how many Pods the other writer adds each time.
func (e *env) soakContention(mark, surplus int) {
	e.Helper()
	e.awaitNotReady("x", v1alpha1.ReasonDeploymentContested)
	e.runFor(soak)
	e.awaitNotReady("x", v1alpha1.ReasonDeploymentContested)

	repairs := e.accepted(mark, repair)
	pause := firstPause
	for i := maxRepairs; i < len(repairs); i++ {
		if got := repairs[i].at().Sub(repairs[i-1].at()); got < pause {
			e.Errorf("repair %d came after %s, want %s", i+1, got, pause)
		}
		pause = min(2*pause, 5*time.Minute)
	}
	statuses := len(e.accepted(mark, "patch foos/status x"))
	e.Logf("%s of contention: %d repairs, %d status updates, %d writes and events in all", soak, len(repairs), statuses, len(e.writes(mark)))
	if len(repairs) <= maxRepairs {
		e.Errorf("%d repairs, want more: there was no contention after the first pause", len(repairs))
	}
	// Between two repairs only the numbers in the status change: each surplus Pod may become
	// available, and go, at a moment of its own.
	if statuses > 2*surplus*len(repairs)+2 {
		e.Errorf("%d status updates for %d repairs", statuses, len(repairs))
	}
}
