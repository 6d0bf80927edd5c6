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
	// respond answers instead of the API server. If it is nil, the API server applies the
	// request and the answer is lost.
	respond func(http.ResponseWriter)
	// kills kills the process before it gets the answer, and starts it again.
	kills bool
	// staleRoles are the caches of the new process that for a while show the state from
	// before the scenario's operation.
	staleRoles roles
}

// staleFor is how long a cache is stale: long enough for the new process to act on the
// stale state.
const staleFor = time.Second

var requestFaults = []fault{
	{name: "connection error", respond: func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
	{name: "409", respond: respondWith(http.StatusConflict, metav1.StatusReasonConflict)},
	{name: "429", respond: respondWith(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)},
	{name: "500", respond: respondWith(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
	{name: "answer lost"},
	{name: "killed", kills: true},
	{name: "killed, all caches are stale", kills: true, staleRoles: roles{owners, dependents, others}},
	{name: "killed, Owner cache is stale", kills: true, staleRoles: roles{owners}},
	{name: "killed, Dependent cache is stale", kills: true, staleRoles: roles{dependents}},
	{name: "killed, Other cache is stale", kills: true, staleRoles: roles{others}},
}

// requestFaultsFor returns the faults that apply to the kind.
func requestFaultsFor(k *kindSuite) []*fault {
	var some []*fault
	for i := range requestFaults {
		// Faults of one cache need that cache. "All caches" applies to every kind.
		if len(requestFaults[i].staleRoles) != 1 || k.hasRoles(requestFaults[i].staleRoles) {
			some = append(some, &requestFaults[i])
		}
	}
	return some
}

// respondWith returns a response with that code, with Retry-After where the API server
// sends it.
func respondWith(code int, reason metav1.StatusReason) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		// The test may have killed the client.
		_ = json.NewEncoder(w).Encode(newStatus(code, reason))
	}
}

// newStatus returns the Status that the API server sends with that code.
func newStatus(code int, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reason,
		Message:  "injected by the test",
	}
}

// point is where a fault can be injected: the nth request with that description after the
// scenario's operation began, or a step of the operation.
type point struct {
	request string
	nth     int
}

// stepPrefix begins the description of a point that is a step of the user. Only faults
// that kill apply to it: the user takes the step while the process is dead.
const stepPrefix = "step: "

func (p point) isStep() bool {
	return strings.HasPrefix(p.request, stepPrefix)
}

// alwaysReached reports whether every run must reach the point. These are the steps, and
// each write to a dependent for the first time: a conflict repeats it. The caches decide
// how often the controller reads an owner and writes its status, and time decides about
// dependents whose names vary.
func (p point) alwaysReached(k *kindSuite) bool {
	return p.isStep() || !k.namesVary && p.nth == 1 && strings.Contains(p.request, " "+k.ownedResource()+" ") && !strings.HasPrefix(p.request, http.MethodGet)
}
