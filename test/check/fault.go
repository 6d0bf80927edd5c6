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

package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fault is one way in which a request, the process that sent it, or a watch can fail.
type fault struct {
	name string
	// code and reason are what is answered in place of the API server.
	code   int
	reason metav1.StatusReason
	// kills kills the process, before the API server gets the request or, if executes is set, before the
	// process gets the answer. With executes alone only the answer is lost.
	kills, executes bool
	watch           *watchFault
}

// watchFault applies to the events of one resource after the operation began, not to the initial list.
type watchFault struct {
	// delay is the delay of each event.
	delay time.Duration
	// hold is for how long all events are held from the first one on, once.
	hold time.Duration
	// cuts is how many events are cut in their middle.
	cuts int
	// expires ends the watch with 410: as the answer to the next watch, or with inStream as an event.
	expires, inStream bool
}

func requestFaults() []*fault {
	return []*fault{
		{name: "crash-before", kills: true},
		{name: "crash-after", kills: true, executes: true},
		{name: "answer-lost", executes: true},
		{name: "409", code: http.StatusConflict, reason: metav1.StatusReasonConflict},
		{name: "429", code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests},
		{name: "500", code: http.StatusInternalServerError, reason: metav1.StatusReasonInternalError},
		{name: "403", code: http.StatusForbidden, reason: metav1.StatusReasonForbidden},
	}
}

// watchFaults returns the faults of watches. A controller may bound its wait for a watch: one hold is longer
// than the 30 seconds that are usual.
func watchFaults(long bool) []*fault {
	all := []*fault{
		{name: "late-0.3s", watch: &watchFault{delay: 300 * time.Millisecond}},
		{name: "late-1.5s", watch: &watchFault{delay: 1500 * time.Millisecond}},
		{name: "held-4s", watch: &watchFault{hold: 4 * time.Second}},
		{name: "held-33s", watch: &watchFault{hold: 33 * time.Second}},
		{name: "cut", watch: &watchFault{cuts: 3}},
		{name: "410-answer", watch: &watchFault{expires: true}},
		{name: "410-event", watch: &watchFault{expires: true, inStream: true}},
	}
	return slices.DeleteFunc(all, func(f *fault) bool { return f.watch.hold > 30*time.Second && !long })
}

// userStep is the fault of a process that is not running while the user acts.
func userStep() *fault { return &fault{name: "down", kills: true} }

// appliesTo reports whether a correct API server can answer the request so. Without a precondition it has no
// reason for a conflict, except of a patch, which it retries five times on its own.
func (f *fault) appliesTo(r *request) bool {
	switch {
	case f.code == http.StatusConflict:
		return r.verb == http.MethodPatch || r.conditional
	case !r.isWrite():
		return !f.kills || !f.executes
	}
	return true
}

// respond answers in place of the API server.
func respond(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The client may be gone.
	_, _ = w.Write(newStatus(code, reason, message))
}

func newStatus(code int, reason metav1.StatusReason, message string) []byte {
	return mustEncode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func mustEncode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}
