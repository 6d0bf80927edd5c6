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

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	// hostileInterval is how often a measurement looks at the API server.
	hostileInterval = 20 * time.Millisecond
	// maxSlowdown is how much longer a Foo may take beside a hostile namespace.
	maxSlowdown = 2
)

// hostileLoad is the size of a test with a hostile namespace.
type hostileLoad struct {
	// foos are those of the hostile namespace, rounds how often they come and go, and measured
	// how many Foos of the other namespace are measured without them and beside them each time.
	foos, rounds, measured int
	// timed says that the times have limits.
	timed bool
}

// newHostileLoad returns the full size if make hostile runs the test, which runs nothing
// beside it. Otherwise the machine may be busy, and the test finds out only what is done first.
func newHostileLoad() hostileLoad {
	if os.Getenv("HOSTILE") == "full" {
		return hostileLoad{foos: 10_000, rounds: 3, measured: 5, timed: true}
	}
	return hostileLoad{foos: 500, rounds: 2, measured: 3}
}

// TestHostileNamespace fills one namespace with Foos whose Deployments the API server refuses, and
// measures what a Foo in another namespace takes: while the controller receives all of them at the
// same moment, and then while their syncs fail.
// No other test runs beside it.
func TestHostileNamespace(t *testing.T) {
	load, hostile, other := newHostileLoad(), newEnv(t), newEnv(t)
	hostile.setQuota(0)
	other.startController("--namespace=" + hostile.namespace + " --metrics-bind-address=127.0.0.1:0 --metrics-secure=false")
	metrics := other.controller.awaitServing("metrics")
	// +drop:crontab
	cronTabs := newHostileCronTabs(hostile, other, load)
	// +drop:end
	var idle, burst, loaded fooTimes
	for round := range load.rounds {
		idle.measure(other, load.measured)

		// The controller gets all Foos at once when it goes on.
		other.controller.signal(syscall.SIGSTOP)
		hostile.eachFoo(load.foos, func(name string) error {
			_, err := hostile.foos().Create(t.Context(), newFoo(name), metav1.CreateOptions{})
			return err
		})
		// +drop:crontab
		cronTabs.create()
		// +drop:end
		other.controller.signal(syscall.SIGCONT)
		waiting := other.awaitQueueDepth(metrics, "many", func(depth int) bool { return depth > load.foos/4 })
		first := len(burst.written)
		burst.measure(other, load.measured)
		if between := hostile.statusesBetween(burst.written[first]); between > waiting/2 {
			t.Errorf("rule 25: %d of the %d hostile Foos that waited were synced before a Foo of another namespace", between, waiting)
		}
		// All have been refused once, and wait for their backoff.
		other.awaitQueueDepth(metrics, "few", func(depth int) bool { return depth < load.foos/10 })
		loaded.measure(other, load.measured)
		t.Logf("round %d: of %d Foos of the hostile namespace %d waited in the queue at first", round, load.foos, waiting)

		// +drop:crontab
		cronTabs.awaitRuns(load.rounds - 1)
		cronTabs.delete()
		// +drop:end
		hostile.eachFoo(load.foos, func(name string) error {
			return hostile.foos().Delete(t.Context(), name, metav1.DeleteOptions{})
		})
		other.awaitQueueDepth(metrics, "no", func(depth int) bool { return depth == 0 })
	}

	slowdown := median(loaded.ready).Seconds() / median(idle.ready).Seconds()
	t.Logf("a Foo is ready: idle after %s, in the burst after %s, beside the others after %s, ratio %.2f", spread(idle.ready), spread(burst.ready), spread(loaded.ready), slowdown)
	t.Logf("it has its Deployment: idle after %s, in the burst after %s, beside the others after %s", spread(idle.created), spread(burst.created), spread(loaded.created))
	if !load.timed {
		return
	}
	for what, slowdown := range map[string]float64{"in the burst": median(burst.ready).Seconds() / median(idle.ready).Seconds(), "beside the others": slowdown} {
		if slowdown > maxSlowdown {
			t.Errorf("rule 25: %s a Foo of another namespace takes %.2f times as long as without the hostile one, want %v times at most", what, slowdown, maxSlowdown)
		}
	}
}

// eachFoo calls do with the name of each of that many Foos, from eight goroutines.
func (e *env) eachFoo(count int, do func(name string) error) {
	e.Helper()
	var clients sync.WaitGroup
	failures := make(chan error, count)
	for client := range 8 {
		clients.Go(func() {
			for i := client; i < count; i += 8 {
				failures <- do(fmt.Sprintf("hostile-%d", i))
			}
		})
	}
	clients.Wait()
	close(failures)
	for err := range failures {
		e.must(err)
	}
}

// fooTimes are measured for one Foo after the other: from its creation until it has its
// Deployment, and until it is ready.
type fooTimes struct {
	created, ready []time.Duration
	// written has the resource versions of each Foo and of its Deployment when they were created.
	written [][2]uint64
}

// measure creates that many Foos one after the other, and deletes each.
func (times *fooTimes) measure(e *env, count int) {
	e.Helper()
	await := func(what string, check func(context.Context) error) time.Time {
		e.Helper()
		poll(e.T, what, hostileInterval, check)
		return time.Now()
	}
	for range count {
		begun := time.Now()
		foo := e.create(unique("measured"))
		var deployment *appsv1.Deployment
		created := await("the Foo has its Deployment", func(ctx context.Context) (err error) {
			deployment, err = e.deployments().Get(ctx, foo.Name, metav1.GetOptions{})
			return err
		})
		times.written = append(times.written, [2]uint64{e.revision(foo), e.revision(deployment)})
		ready := await("the Foo is ready", func(ctx context.Context) error {
			now, err := e.foos().Get(ctx, foo.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, err = hasReason(v1alpha1.ReasonDeploymentAvailable, now.Generation, now.Status.ObservedGeneration, now.Status.Conditions)
			return err
		})
		times.created = append(times.created, created.Sub(begun))
		times.ready = append(times.ready, ready.Sub(begun))
		e.must(e.foos().Delete(e.Context(), foo.Name, metav1.DeleteOptions{}))
	}
}

// revision returns the resource version of the object.
func (e *env) revision(object metav1.Object) uint64 {
	e.Helper()
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	e.must(err)
	return revision
}

// statusesBetween returns how many Foos have a status that was written between these revisions.
func (e *env) statusesBetween(revisions [2]uint64) (count int) {
	e.Helper()
	foos, err := e.foos().List(e.Context(), metav1.ListOptions{})
	e.must(err)
	for i := range foos.Items {
		if r := e.revision(&foos.Items[i]); foos.Items[i].Status.ObservedGeneration > 0 && revisions[0] < r && r < revisions[1] {
			count++
		}
	}
	return count
}

// awaitQueue waits until as many keys as that wait in the queue of Foos, and returns how many.
func (e *env) awaitQueueDepth(metrics, what string, passes func(depth int) bool) (depth int) {
	e.Helper()
	poll(e.T, what+" keys of Foos wait", hostileInterval, func(ctx context.Context) (err error) {
		if depth, err = queueDepth(ctx, metrics, "foo"); err == nil && !passes(depth) {
			err = fmt.Errorf("%d wait", depth)
		}
		return err
	})
	return depth
}

// queueDepth returns how many keys wait in the queue, according to the metrics.
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
