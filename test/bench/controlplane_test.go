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

// pause stops components of the control plane until the measurement ends, so that the API
// server, etcd and their client have the machine to themselves.
func (e *env) pause(components ...string) {
	e.Helper()
	for _, component := range components {
		pid := e.pidOf(component)
		e.must(syscall.Kill(pid, syscall.SIGSTOP))
		e.Cleanup(func() {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				e.Errorf("resuming %s: %v", component, err)
			}
		})
	}
}

// pauseAllButAPIServer leaves the API server and etcd running.
func (e *env) pauseAllButAPIServer() {
	e.Helper()
	e.pause("kube-controller-manager", "kube-scheduler", "kwok-controller")
}

// pidOf returns the process of a component of the control plane.
func (e *env) pidOf(component string) int {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.workDir(), "cluster/.kwok/clusters/control-plane/pids", component+".pid"))
	e.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	e.must(err)
	return pid
}

// cpu returns the CPU seconds that each component of the control plane has used.
func (e *env) cpu() map[string]float64 {
	e.Helper()
	used := map[string]float64{}
	for _, component := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller"} {
		used["CPU s of "+component] = e.cpuOf(e.pidOf(component))
	}
	return used
}

// cpuSince returns the CPU seconds that each component has used since before was taken.
func (e *env) cpuSince(before map[string]float64) map[string]float64 {
	e.Helper()
	used := e.cpu()
	for component := range used {
		used[component] -= before[component]
	}
	return used
}

// cpuOf returns the CPU seconds that a process has used.
func (e *env) cpuOf(pid int) float64 {
	e.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	e.must(err)
	// The program's name, in parentheses, may contain blanks. utime and stime are the 14th
	// and the 15th field, in hundredths of a second on Linux.
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	total := 0.0
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseFloat(field, 64)
		e.must(err)
		total += ticks / 100
	}
	return total
}

// requests is the API server's count of requests by verb and resource, such as
// "POST deployments".
type requests map[string]float64

// requests returns the requests of all clients since the API server's start. The API server
// counts LIST, WATCH and WATCHLIST separately.
func (e *env) requests() requests {
	e.Helper()
	text, err := e.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(e.Context())
	e.must(err)
	parsed := testutil.NewMetrics()
	e.must(testutil.ParseMetrics(string(text), &parsed))
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

// since returns the requests since before was taken. It omits leases, which components renew
// whatever the load is.
func (e *env) since(before requests) requests {
	e.Helper()
	counted := requests{}
	for request, count := range e.requests() {
		if more := count - before[request]; more > 0 && !strings.HasSuffix(request, " leases") {
			counted[request] = more
		}
	}
	return counted
}

var (
	writeVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}
	// allVerbs omits the verbs of watches.
	allVerbs = append([]string{"GET", "LIST"}, writeVerbs...)
)

// sum returns the number of requests for the resource with one of the verbs.
func (r requests) sum(resource string, verbs ...string) float64 {
	total := 0.0
	for _, verb := range verbs {
		total += r[verb+" "+resource]
	}
	return total
}

// statusWrites returns the number of writes to Foos' status.
func (r requests) statusWrites() float64 {
	return r.sum("foos/status", writeVerbs...)
}

// writes returns the number of all writes that a controller of Foos may send, including
// events.
func (r requests) writes() float64 {
	return r.sum("foos", writeVerbs...) + r.statusWrites() + r.sum("deployments", writeVerbs...) + r.sum("events", writeVerbs...)
}

// all returns the number of all requests.
func (r requests) all() float64 {
	total := 0.0
	for _, count := range r {
		total += count
	}
	return total
}
