//go:build bench

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

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/component-base/metrics/testutil"
)

// pause stops those parts of the control plane until the measurement has ended, so that
// the machine works for the API server and its client alone.
func (b *bench) pause(components ...string) {
	b.Helper()
	for _, component := range components {
		pid := b.pidOf(component)
		b.must(syscall.Kill(pid, syscall.SIGSTOP))
		b.Cleanup(func() {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				b.Errorf("waking up %s: %v", component, err)
			}
		})
	}
}

// pidOf returns the process of a component.
func (b *bench) pidOf(component string) int {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(b.work(), "cluster/.kwok/clusters/control-plane/pids", component+".pid"))
	b.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	b.must(err)
	return pid
}

// cpu returns the processor time that the parts of the control plane have taken, in
// seconds.
func (b *bench) cpu() map[string]float64 {
	b.Helper()
	took := map[string]float64{}
	for _, component := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller"} {
		took["CPU s of "+component] = b.cpuOf(b.pidOf(component))
	}
	return took
}

// cpuSince returns what the parts of the control plane have taken since then.
func (b *bench) cpuSince(before map[string]float64) map[string]float64 {
	b.Helper()
	took := b.cpu()
	for component := range took {
		took[component] -= before[component]
	}
	return took
}

// cpuOf returns the processor time of a process, in seconds.
func (b *bench) cpuOf(pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	b.must(err)
	// The name of the program, in parentheses, may have blanks. utime and stime are the
	// 14th and 15th field, in hundredths of a second on Linux.
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	total := 0.0
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseFloat(field, 64)
		b.must(err)
		total += ticks / 100
	}
	return total
}

// pauseOthers leaves the API server and etcd.
func (b *bench) pauseOthers() {
	b.Helper()
	b.pause("kube-controller-manager", "kube-scheduler", "kwok-controller")
}

// requests are how often the API server was asked for what, by verb and resource, as in
// "POST deployments", from the API server's own counters.
type requests map[string]float64

// requests returns those of all clients since the API server's start. Lists, watches
// and lists by watches have counters of their own.
func (b *bench) requests() requests {
	b.Helper()
	text, err := b.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	b.must(err)
	parsed := testutil.NewMetrics()
	b.must(testutil.ParseMetrics(string(text), &parsed))
	counted := requests{}
	for _, sample := range parsed["apiserver_request_total"] {
		resource := string(sample.Metric["resource"])
		if sub := string(sample.Metric["subresource"]); sub != "" {
			resource += "/" + sub
		}
		counted[fmt.Sprintf("%s %s", sample.Metric["verb"], resource)] += float64(sample.Value)
	}
	return counted
}

// since returns the requests that have come since then, without those that are no part
// of anybody's work: leases, events' own counters and this very question.
func (b *bench) since(before requests) requests {
	b.Helper()
	counted := requests{}
	for what, count := range b.requests() {
		if more := count - before[what]; more > 0 && !strings.HasSuffix(what, " leases") {
			counted[what] = more
		}
	}
	return counted
}

// anyVerb are all verbs but those of watches.
var anyVerb = []string{"GET", "LIST", "POST", "PUT", "PATCH", "APPLY", "DELETE"}

// sum returns the number of requests with one of the verbs for the resource.
func (r requests) sum(resource string, verbs ...string) float64 {
	total := 0.0
	for _, verb := range verbs {
		total += r[verb+" "+resource]
	}
	return total
}

// all returns the number of all requests.
func (r requests) all() float64 {
	total := 0.0
	for _, count := range r {
		total += count
	}
	return total
}
