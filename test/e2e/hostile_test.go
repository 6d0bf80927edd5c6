//go:build e2e && hostile

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
	"crypto/tls" // +drop:webhooks
	"errors"
	"fmt"
	"io"       // +drop:webhooks
	"net/http" // +drop:webhooks
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic" // +drop:webhooks
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1" // +drop:crontab
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	// maxSlowdown is how much longer a Foo may take beside a hostile namespace.
	maxSlowdown = 2
	// largeAnnotation is close to what the API server accepts: 256 KiB of annotations.
	largeAnnotation = 250_000
	// podLimitMiB is the memory limit of the controller's Pod.
	podLimitMiB = 256
)

// make hostile runs these tests, and nothing beside them.

// TestHostileNamespace fills one namespace with Foos whose Deployments the API server refuses, and
// measures what a Foo in another namespace takes: while the controller receives all of them at the
// same moment, and then while their syncs fail.
func TestHostileNamespace(t *testing.T) {
	const foos, measured = 10_000, 15
	hostile, other := newEnv(t), newEnv(t)
	hostile.kubectl("create quota few --hard=count/deployments.apps=0")
	hostile.kubectl("wait --for=jsonpath='{.status.hard}' --timeout=3m resourcequota/few")
	other.startController("--namespace=" + hostile.namespace + " --metrics-bind-address=127.0.0.1:0 --metrics-secure=false")
	metrics := other.controller.awaitServing("metrics")
	idle := other.measure(measured)

	// The controller gets all Foos at once when it goes on.
	other.controller.signal(syscall.SIGSTOP)
	hostile.eachFoo(foos, func(name string) error {
		_, err := hostile.foos().Create(t.Context(), newFoo(name), metav1.CreateOptions{})
		return err
	})
	other.controller.signal(syscall.SIGCONT)
	other.awaitQueueDepth(metrics, "many", func(depth int) bool { return depth > foos/4 })
	times := map[string][]time.Duration{"in the burst": other.measure(measured)}
	// Most have been refused once, and wait for their backoff.
	other.awaitQueueDepth(metrics, "few", func(depth int) bool { return depth < foos/10 })
	times["beside the others"] = other.measure(measured)
	for what, times := range times {
		slowdown := median(times).Seconds() / median(idle).Seconds()
		t.Logf("a Foo is ready: idle after %s, %s after %s, ratio %.2f", spread(idle), what, spread(times), slowdown)
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

// measure creates that many Foos one after the other, and deletes each. It returns how long each took to be ready.
func (e *env) measure(count int) (times []time.Duration) {
	e.Helper()
	for range count {
		begun := time.Now()
		foo := e.create(unique("measured"))
		e.awaitReady(foo.Name)
		times = append(times, time.Since(begun))
		e.must(e.foos().Delete(e.Context(), foo.Name, metav1.DeleteOptions{}))
	}
	return times
}

// awaitQueueDepth waits until as many keys as that wait in the queue of Foos.
func (e *env) awaitQueueDepth(metrics, what string, passes func(depth int) bool) {
	e.Helper()
	e.eventually(what+" keys of Foos wait", func(context.Context) error {
		_, text := fetch(e.T, "http://"+metrics+"/metrics", "")
		found := regexp.MustCompile(`(?m)^workqueue_depth\{name="foo"\} (\d+)$`).FindStringSubmatch(text)
		if found == nil {
			return errors.New("no depth of the queue")
		}
		depth, err := strconv.Atoi(found[1])
		if err == nil && !passes(depth) {
			err = fmt.Errorf("%d wait", depth)
		}
		return err
	})
}

func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// spread returns the median, the least and the greatest of the times.
func spread(times []time.Duration) string {
	return fmt.Sprintf("%.2f s (%.2f to %.2f s)", median(times).Seconds(), slices.Min(times).Seconds(), slices.Max(times).Seconds())
}

// TestHostileMemory measures rule 24: a controller takes no more memory for objects with large
// annotations than for small ones. They are Foos and other people's Deployments, and those of further
// kinds.
func TestHostileMemory(t *testing.T) {
	const count = 300
	e := newEnv(t)
	e.environment = fmt.Sprintf("MEMORY_LIMIT=%d", podLimitMiB<<20)
	resources := []schema.GroupVersionResource{schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos"), appsv1.SchemeGroupVersion.WithResource("deployments")}
	e.eachFoo(count, func(name string) error {
		foo := newFoo(name)
		replicas(0)(&foo.Spec)
		if _, err := e.foos().Create(t.Context(), foo, metav1.CreateOptions{}); err != nil {
			return err
		}
		theirs := stockDeployment(foo)
		theirs.Name, theirs.OwnerReferences = "their-"+name, nil
		_, err := e.deployments().Create(t.Context(), theirs, metav1.CreateOptions{})
		return err
	})
	// +drop:crontab
	resources = append(resources, schema.GroupVersion(alphav1.GroupVersion).WithResource("crontabs"))
	var idle []string
	for i := range count {
		idle = append(idle, cronTabOf(fmt.Sprint("idle-", i), "schedule: '@yearly', suspend: true", backup))
	}
	e.apply(strings.Join(idle, "\n---\n"))
	// +drop:end
	small := e.peakOfController()
	large := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/large":%q}}}`, strings.Repeat("x", largeAnnotation))
	total := 0
	for _, resource := range resources {
		objects := shared.dynamic.Resource(resource).Namespace(e.namespace)
		list, err := objects.List(t.Context(), metav1.ListOptions{})
		e.must(err)
		for i := range list.Items {
			_, err := objects.Patch(t.Context(), list.Items[i].GetName(), types.MergePatchType, large, metav1.PatchOptions{})
			e.must(err)
			total++
		}
	}
	// Work of others on the machine delays the collection of garbage, and so adds to a peak, but takes nothing from it.
	peak := min(e.peakOfController(), e.peakOfController())
	held := total * largeAnnotation >> 20
	t.Logf("%d objects with %d kB of annotations each, %d MiB in all: the process took at most %d MiB, and %d MiB when they had none", total, largeAnnotation/1000, held, peak, small)
	if peak-small > held/3 || peak > podLimitMiB {
		t.Errorf("rule 24: the process took %d MiB, and %d MiB without annotations", peak, small)
	}
}

// +drop:webhooks

// TestHostileWebhooks has as many HTTP/2 connections as a port keeps, from clients without credentials. Most
// never send the last byte of a body, the others have as many Foos converted as one may hold.
func TestHostileWebhooks(t *testing.T) {
	// The limit is that of the webhooks' Pods.
	const connections, streams, rounds, limitMiB = 128, 8, 2, 512
	const foo = `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"x"},"spec":{"deploymentName":"x"}}`
	foos := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"x","desiredAPIVersion":"samplecontroller.k8s.io/v1beta1","objects":[` +
		strings.Repeat(foo+",", 16<<20/(len(foo)+1)-10) + foo + "]}}"
	w := newWebhookEnv(t)
	w.server = start(t, t.TempDir(), shared.asInPod(t, w.secrets, fmt.Sprintf("env MEMORY_LIMIT=%d sample-controller %s127.0.0.1:0", limitMiB<<20, webhookFlags)))
	w.server.awaitReady()
	url := "https://" + w.server.awaitServing("webhooks") + "/convert-foo"
	var clients sync.WaitGroup
	var answers atomic.Int64
	for i := range connections {
		text, length := strings.Repeat(" ", 32<<10-1), 32<<10
		if i%32 == 0 {
			text, length = foos, len(foos)
		}
		transport := &http.Transport{MaxConnsPerHost: 1, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		t.Cleanup(transport.CloseIdleConnections)
		for range streams {
			clients.Go(func() {
				for range rounds {
					body, sends := io.Pipe()
					go func() { _, _ = io.WriteString(sends, text) }()
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
					r.ContentLength = int64(length)
					if response, err := transport.RoundTrip(r); err == nil {
						answers.Add(1)
						_ = response.Body.Close()
					}
				}
			})
		}
	}
	clients.Wait()
	peak := w.server.peakMiB()
	t.Logf("%d requests were answered, the process took at most %d MiB", answers.Load(), peak)
	// The rest is for connections beyond these, which are closed.
	if most := limitMiB * 3 / 4; answers.Load() < connections*streams*rounds || peak > most {
		t.Errorf("not all requests were answered, or the process took more than %d MiB", most)
	}
}

// +drop:end

// peakOfController runs a controller until it has synced all Foos, and returns the most memory that
// it has had, in MiB.
func (e *env) peakOfController() int {
	e.Helper()
	e.startController("--metrics-bind-address=127.0.0.1:0 --metrics-secure=false")
	// Before that the queues are empty, too.
	for _, k := range shared.kinds {
		e.controller.awaitOutput(`"Started workers" controller="` + strings.ToLower(k.Kind) + `"`)
	}
	e.kubectl("wait --for=condition=Ready --timeout=3m foo --all")
	e.awaitQueueDepth(e.controller.awaitServing("metrics"), "no", func(depth int) bool { return depth == 0 })
	defer e.controller.stop()
	return e.controller.peakMiB()
}

// peakMiB returns the most memory that the process has had, in MiB.
func (p *process) peakMiB() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(p.t, err)
	match := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		p.t.Fatalf("no peak in %s", status)
	}
	kib, err := strconv.Atoi(string(match[1]))
	must(p.t, err)
	return kib / 1024
}
