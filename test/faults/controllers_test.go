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

// restart kills the controller, calls meanwhile if it is not nil, and starts the
// controller again. The caches of the given roles are stale for a while.
func (r *run) restart(staleRoles roles, meanwhile func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.controller != nil {
		r.controller.kill()
	}
	if meanwhile != nil {
		meanwhile()
	}
	r.proxy.serveStaleLists(staleRoles)
	// Only a cache that lists can get a stale list, so stale caches turn streamed lists
	// off.
	fault := r.proxy.watches.fault
	r.controller = r.startController(r.proxy.server.URL, len(staleRoles) > 0 || fault != nil && fault.useLists)
}

// startController starts a controller process. lists makes it fill its caches by lists
// instead of streamed lists. The caller holds the lock.
func (r *run) startController(server string, lists bool) *process {
	var environment []string
	if lists {
		environment = append(environment, "KUBE_FEATURE_WatchListClient=false")
	}
	// One worker sends requests one after the other and handles keys in the order of
	// their events. Without that, no run would repeat the points of the faultless run.
	flags := []string{"--master=" + server, "--controllers=" + r.scenario.suite.Controller, "--namespace=" + r.namespace, "--workers=1", "-v=2"}
	flags = append(flags, r.scenario.suite.Flags(r.service)...)
	controller, err := startProcess(cluster.controllerBinary(), environment, flags...)
	if err != nil {
		r.t.Error(err)
		return nil
	}
	r.outputs = append(r.outputs, controller.output)
	return controller
}

// startSecond starts a second controller without leader election, as a misconfigured
// Deployment could.
func (r *run) startSecond() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secondController = r.startController(r.proxy.secondServer.URL, false)
}

// controllers returns the running controllers, and fails the test if one did not start.
func (r *run) controllers() []*process {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	controllers := []*process{r.controller}
	if r.proxy.watches.fault != nil && r.proxy.watches.fault.twoControllers {
		controllers = append(controllers, r.secondController)
	}
	for _, controller := range controllers {
		if controller == nil {
			r.t.FailNow()
		}
	}
	return controllers
}

// withEachController calls do once for each controller, while the other one is stopped by
// SIGSTOP. So each controller alone must handle what do creates.
func (r *run) withEachController(do func()) {
	r.t.Helper()
	controllers := r.controllers()
	if len(controllers) == 1 {
		do()
		return
	}
	for i, controller := range controllers {
		other := controllers[1-i]
		other.pause()
		controller.resume()
		do()
	}
	for _, controller := range controllers {
		controller.resume()
	}
}
