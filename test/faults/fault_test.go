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

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fault is one way in which a request, or the process that sent it, can fail.
type fault struct {
	name string
	// refuse answers in the API server's place. Without it the request is applied
	// and its answer lost.
	refuse func(http.ResponseWriter)
	// kills says that the process is killed before it learns of the answer, and
	// another one started.
	kills bool
	// lag says which caches of the new process lag: for a while they show what there
	// was before the scenario's operation.
	lag roles
}

// stale is for how long a cache lags: long enough for the new process to act upon
// what it sees first.
const stale = time.Second

var faults = []fault{
	{name: "connection error", refuse: func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
	{name: "409", refuse: refusal(http.StatusConflict, metav1.StatusReasonConflict)},
	{name: "429", refuse: refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)},
	{name: "500", refuse: refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
	{name: "answer lost"},
	{name: "killed", kills: true},
	{name: "killed, all caches lag", kills: true, lag: roles{parents, children, others}},
	{name: "killed, Parent cache lags", kills: true, lag: roles{parents}},
	{name: "killed, Child cache lags", kills: true, lag: roles{children}},
	{name: "killed, Other cache lags", kills: true, lag: roles{others}},
}

// faultsOf returns the faults that there are of requests of a kind's controller.
func faultsOf(k *kind) []*fault {
	var some []*fault
	for i := range faults {
		// Where one cache is missing, all can lag still.
		if len(faults[i].lag) != 1 || k.knows(faults[i].lag) {
			some = append(some, &faults[i])
		}
	}
	return some
}

// refusal answers with that code, and with Retry-After where it is usual.
func refusal(code int, reason metav1.StatusReason) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		// The client may be gone, which is no matter.
		_ = json.NewEncoder(w).Encode(statusOf(code, reason))
	}
}

// statusOf returns what the API server sends with that code.
func statusOf(code int, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reason,
		Message:  "a fault of the test's",
	}
}

// point is where a fault strikes: the nth request of that description since the
// scenario's operation began, or a step of the operation itself.
type point struct {
	request string
	nth     int
}

// step begins the description of a point that is a step of the user's. Only a
// kill can strike there: the process is dead while the step is taken.
const step = "step: "

func (p point) isStep() bool {
	return strings.HasPrefix(p.request, step)
}

// mustCome reports whether every run must come to this point: all writes to
// Deployments, less those that repeat one that met a newer version. How often a
// Foo is read and its status written depends on what the caches show at that
// moment.
func (p point) mustCome() bool {
	return p.isStep() || p.nth == 1 && strings.Contains(p.request, " "+deployments+" ") && !strings.HasPrefix(p.request, http.MethodGet)
}
