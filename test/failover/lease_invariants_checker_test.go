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

package failover

import (
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// auditedAt returns a successful write of the process, received and answered at that second.
// It is guarded by the resourceVersion before the given one, which its effect has.
func auditedAt(process, verb, resource string, revision, second int64) *auditEvent {
	a := &auditEvent{Verb: verb, UserAgent: process + "/v0.0.0 (linux/amd64) kubernetes/$Format"}
	a.ObjectRef.Resource, a.ObjectRef.Name, a.ResponseStatus.Code = resource, "x", 200
	a.RequestObject.Metadata.ResourceVersion = strconv.FormatInt(revision-1, 10)
	a.ResponseObject.Metadata.ResourceVersion = strconv.FormatInt(revision, 10)
	a.RequestReceivedTimestamp, a.StageTimestamp = metav1.NewMicroTime(unixTime(second)), metav1.NewMicroTime(unixTime(second))
	return a
}

// leaseOf returns a write to the Lease by the process that then holds it.
func leaseOf(process string, revision, second int64) *auditEvent {
	a := auditedAt(process, "update", "leases", revision, second)
	a.ResponseObject.Spec.HolderIdentity = "identity of " + process
	return a
}

// refused returns the write with the answer 409.
func refused(a *auditEvent) *auditEvent {
	a.ResponseStatus.Code, a.ResponseObject = 409, auditedObject{}
	return a
}

// unguarded returns the write without its precondition.
func unguarded(a *auditEvent) *auditEvent {
	a.RequestObject = auditedObject{}
	return a
}

// deletionAt returns a deletion, whose answer has no resource version.
func deletionAt(process string, uid types.UID, second int64) *auditEvent {
	a := auditedAt(process, "delete", deployments, 0, second)
	a.RequestObject = auditedObject{Preconditions: &metav1.Preconditions{UID: ptr.To(uid)}}
	a.ResponseObject = auditedObject{}
	a.ResponseObject.Details.UID = uid
	return a
}

// TestLeaseInvariants tests the checker of S5. Process a leads from revision 10 on, process
// b from revision 20 and second 20 on. Each has two workers, and only a may be frozen.
func TestLeaseInvariants(t *testing.T) {
	const late = "S5: a wrote "
	for _, test := range []struct {
		name   string
		writes []*auditEvent
		// frozen is set if process a was stopped for longer than its lease.
		frozen bool
		// passed is the number of writes that had passed the fence before, want the
		// beginning of the one violation, "" for none.
		passed int
		want   string
	}{
		{name: "valid: a, then b", writes: []*auditEvent{auditedAt("a", "patch", deployments, 19, 19), auditedAt("b", "patch", deployments, 21, 21)}},
		{name: "valid: a holds the lease again", writes: []*auditEvent{leaseOf("a", 30, 30), auditedAt("a", "patch", deployments, 31, 31)}},
		{name: "valid: a renews its lease between writes", writes: []*auditEvent{leaseOf("b", 25, 25), auditedAt("b", "patch", deployments, 26, 26)}},
		{name: "valid: a review, a dry run, the certificate", writes: func() []*auditEvent {
			review, dryRun := auditedAt("a", "create", "tokenreviews", 0, 21), auditedAt("a", "create", deployments, 0, 21)
			review.ObjectRef.APIGroup, dryRun.RequestURI = "authentication.k8s.io", "/apis/apps/v1/namespaces/n/deployments?dryRun=All"
			return []*auditEvent{review, dryRun, auditedAt("a", "update", "secrets", 21, 21)}
		}()},
		{name: "S5: the former leader writes on", frozen: true, want: late + "3 times after another process had acquired the lease, at most 2 had passed the fence before: [patch deployments x",
			writes: []*auditEvent{auditedAt("a", "patch", deployments, 21, 21), auditedAt("a", "update", foos, 22, 21), auditedAt("a", "patch", deployments, 23, 21)}},
		{name: "valid: each worker of a frozen leader had passed the fence with one write", frozen: true, passed: 2,
			writes: []*auditEvent{auditedAt("a", "patch", deployments, 21, 21), auditedAt("a", "update", foos, 22, 21)}},
		{name: "S5: the same of a leader that was not frozen", want: late + "1 times",
			writes: []*auditEvent{auditedAt("a", "patch", deployments, 21, 21)}},
		{name: "S5: the write was received before, but applied after", want: late + "1 times",
			writes: []*auditEvent{auditedAt("a", "patch", deployments, 21, 19)}},
		{name: "valid: the write was answered after, but applied before", writes: []*auditEvent{auditedAt("a", "patch", deployments, 19, 21)}},
		{name: "S5: a refused write", want: late + "1 times", writes: []*auditEvent{refused(auditedAt("a", "patch", deployments, 0, 21))}},
		{name: "valid: a write was refused before", writes: []*auditEvent{refused(auditedAt("a", "patch", deployments, 0, 19))}},
		{name: "S5: a write without an effect", want: late + "1 times", writes: func() []*auditEvent {
			same := auditedAt("a", "update", foos, 12, 21)
			same.RequestObject.Metadata.ResourceVersion = "12"
			return []*auditEvent{same}
		}()},
		{name: "S5: a deletion", want: late + "1 times", writes: []*auditEvent{deletionAt("a", "late", 19)}},
		{name: "valid: a deletion before", writes: []*auditEvent{deletionAt("a", "early", 21)}},
		{name: "S5: an Event", want: late + "1 times", writes: []*auditEvent{auditedAt("a", "create", "events", 21, 21)}},
		{name: "S5: a patch of a frozen leader without a precondition", frozen: true, want: "S5: patch deployments x has no precondition",
			writes: []*auditEvent{unguarded(auditedAt("a", "patch", deployments, 21, 21))}},
		{name: "S5: a create of a frozen leader without a name", frozen: true, want: "S5: create deployments x has no precondition",
			writes: []*auditEvent{unguarded(auditedAt("a", "create", deployments, 21, 21))}},
		{name: "S5: a deletion of a frozen leader without a precondition", frozen: true, want: "S5: delete deployments x has no precondition",
			writes: []*auditEvent{unguarded(deletionAt("a", "late", 21))}},
		{name: "S5: a write of a process before the first leader", want: "S5: b wrote before any process had acquired the lease", writes: []*auditEvent{auditedAt("b", "patch", deployments, 9, 9)}},
		{name: "S5: a write of a process that does not lead yet", want: "S5: b wrote 1 times", writes: []*auditEvent{auditedAt("b", "patch", deployments, 11, 11)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			mayBeLate := map[string]int{"a": 0, "b": 0}
			if test.frozen {
				mayBeLate["a"] = 2
			}
			all := append([]*auditEvent{leaseOf("a", 10, 10), leaseOf("a", 15, 15), leaseOf("b", 20, 20)}, test.writes...)
			l := checkLease(all, mayBeLate, map[types.UID]int64{"early": 19, "late": 21})
			if test.want == "" && len(l.violations) > 0 || test.want != "" && (len(l.violations) != 1 || !strings.HasPrefix(l.violations[0], test.want)) {
				t.Errorf("violations: %q", l.violations)
			}
			if l.passed != test.passed {
				t.Errorf("%d writes had passed the fence before, want %d", l.passed, test.passed)
			}
		})
	}
}
