//go:build e2e

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
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	// hostileInterval is how often a measurement looks at the API server.
	hostileInterval = 20 * time.Millisecond
	// maxSlowdown is how much longer a Foo may take beside the hostile namespace, and
	// maxEventDelay how long after it is ready its event may arrive.
	maxSlowdown   = 2
	maxEventDelay = 5 * time.Second
)

// TestHostileNamespace fills one namespace with Foos whose Deployments the API server refuses,
// all changed at the same moment, and measures what a Foo in another namespace takes meanwhile.
// HOSTILE=full makes ten thousand of them; hack/hostile.sh sets it. No other test runs beside
// it.
func TestHostileNamespace(t *testing.T) {
	foos, rounds := 500, 5
	if os.Getenv("HOSTILE") == "full" {
		foos, rounds = 10_000, 15
	}
	hostile, other := newEnv(t), newEnv(t)
	hostile.setQuota(0)
	other.startController("--namespace=" + hostile.namespace + " --metrics-bind-address=127.0.0.1:0 --metrics-secure=false")
	metrics := other.controller.awaitServing("metrics")
	idle := measureFoos(other, "idle", rounds)
	// +drop:crontab
	awaitRuns := hostileCronTabs(hostile, other, foos/20)
	// +drop:end

	// The controller gets all Foos at once when it goes on.
	other.controller.signal(syscall.SIGSTOP)
	hostile.createFoos(foos)
	other.controller.signal(syscall.SIGCONT)
	// +drop:crontab
	resumed := time.Now()
	// +drop:end
	waiting := 0
	other.eventually("the keys of the hostile namespace wait", func(context.Context) (err error) {
		waiting, err = queueDepth(t.Context(), metrics, "foo")
		if err == nil && waiting < foos/4 {
			err = fmt.Errorf("%d wait", waiting)
		}
		return err
	})
	loaded := measureFoos(other, "loaded", rounds)
	left, err := queueDepth(t.Context(), metrics, "foo")
	other.must(err)
	// +drop:crontab
	awaitRuns(resumed, max(1, rounds/3))
	// +drop:end

	t.Logf("%d Foos of the hostile namespace: %d keys waited at first, %d after %d rounds", foos, waiting, left, rounds)
	slowdown := median(loaded.ready).Seconds() / median(idle.ready).Seconds()
	t.Logf("Ready: idle %s, loaded %s, ratio %.2f", spread(idle.ready), spread(loaded.ready), slowdown)
	t.Logf("event after Ready: idle %s, loaded %s", spread(idle.event), spread(loaded.event))
	if slowdown > maxSlowdown {
		t.Errorf("rule 25: a Foo of another namespace takes %.2f times as long as without the hostile one, want %d times at most", slowdown, maxSlowdown)
	}
	if latest := slices.Max(loaded.event); latest > maxEventDelay {
		t.Errorf("rule 25: an event of another namespace arrives %v late, want %v at most", latest, maxEventDelay)
	}
}

// createFoos creates that many Foos from eight goroutines.
func (e *env) createFoos(count int) {
	e.Helper()
	var clients sync.WaitGroup
	failures := make(chan error, count)
	for client := range 8 {
		clients.Go(func() {
			for i := client; i < count; i += 8 {
				_, err := e.foos().Create(e.Context(), newFoo(fmt.Sprintf("hostile-%d", i)), metav1.CreateOptions{})
				failures <- err
			}
		})
	}
	clients.Wait()
	close(failures)
	for err := range failures {
		e.must(err)
	}
}

// fooTimes are measured for one Foo after the other: from its creation until it is ready, and
// from then until its event has arrived.
type fooTimes struct {
	ready, event []time.Duration
}

// measureFoos creates Foos one after the other, and deletes each.
func measureFoos(e *env, name string, rounds int) fooTimes {
	e.Helper()
	var times fooTimes
	for round := range rounds {
		begun := time.Now()
		foo := e.create(fmt.Sprintf("%s-%d", name, round))
		poll(e.T, "the Foo is ready", hostileInterval, func(ctx context.Context) error {
			now, err := e.foos().Get(ctx, foo.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, err = hasReason(v1alpha1.ReasonDeploymentAvailable, now.Generation, now.Status.ObservedGeneration, now.Status.Conditions)
			return err
		})
		ready := time.Now()
		poll(e.T, "the event arrives", hostileInterval, func(context.Context) error {
			if len(e.events(foo, "Synced")) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
		times.ready, times.event = append(times.ready, ready.Sub(begun)), append(times.event, time.Since(ready))
		e.must(e.foos().Delete(e.Context(), foo.Name, metav1.DeleteOptions{}))
	}
	return times
}

// queueDepth returns how many keys of the queue wait, according to the metrics.
func queueDepth(ctx context.Context, address, queue string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^workqueue_depth\{name="` + queue + `"\} (\d+)$`).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("no depth of the queue in\n%s", text)
	}
	return strconv.Atoi(string(found[1]))
}

func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// spread returns the median, the least and the greatest of the times.
func spread(times []time.Duration) string {
	return fmt.Sprintf("%.2f s (%.2f to %.2f s)", median(times).Seconds(), slices.Min(times).Seconds(), slices.Max(times).Seconds())
}
