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

// startSecond starts another controller beside the first one, as a mistake would
// for which there is no lease.
func (r *run) startSecond() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.second = r.start(r.proxy.second.URL, false)
}

// controllers returns those that are at work.
func (r *run) controllers() []*process {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	controllers := []*process{r.controller}
	if r.proxy.watches.fault != nil && r.proxy.watches.fault.two {
		controllers = append(controllers, r.second)
	}
	for _, controller := range controllers {
		if controller == nil {
			r.t.FailNow()
		}
	}
	return controllers
}

// eachAlone does the same with each controller while the other one is stopped: so
// what happens was done by that one, and that one has dealt with it.
func (r *run) eachAlone(do func()) {
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
