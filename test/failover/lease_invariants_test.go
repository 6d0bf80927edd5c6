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
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// S5 of the contract: no write of a process passes its fence after another process has
// acquired the lease. The audit log has all writes and all versions of the Lease, and etcd's
// revisions order them. A write that has none, such as one that was refused, is ordered by
// the clock of the API server.

// auditEvent is an entry of the API server's audit log.
type auditEvent struct {
	Verb, RequestURI, UserAgent string

	ObjectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	// RequestObject is an object, a patch or the options of a deletion.
	RequestObject, ResponseObject auditedObject
	ResponseStatus                struct{ Code int }

	RequestReceivedTimestamp, StageTimestamp metav1.MicroTime
}

type auditedObject struct {
	Metadata      metav1.ObjectMeta
	Preconditions *metav1.Preconditions
	// Details are in the answer to a deletion.
	Details struct{ UID types.UID }
	Spec    struct{ HolderIdentity string }
}

// readAuditLog returns the writes of the controllers, in the order of their answers.
func (c *testCluster) readAuditLog() ([]*auditEvent, error) {
	file, err := os.Open(filepath.Join(c.work, "cluster", "logs", "audit.log"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []*auditEvent
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		event := &auditEvent{}
		if err := json.Unmarshal(line, event); err != nil {
			return nil, fmt.Errorf("line %q of the audit log: %w", line, err)
		}
		all = append(all, event)
	}
}

// process returns the name of the process that sent the request. The test starts each
// process under a name of its own, which begins its user agent.
func (a *auditEvent) process() string {
	name, _, _ := strings.Cut(a.UserAgent, "/")
	return name
}

func (a *auditEvent) String() string {
	return strings.TrimSuffix(a.Verb+" "+a.ObjectRef.Resource+"/"+a.ObjectRef.Subresource, "/") + " " + a.ObjectRef.Name
}

func (a *auditEvent) isLease() bool {
	return a.ObjectRef.Resource == "leases"
}

// isFenced reports whether the write must pass the fence. Reviews, dry runs and the
// certificate of the webhooks are not the leader's work.
func (a *auditEvent) isFenced() bool {
	return !a.isLease() && a.ObjectRef.Resource != "secrets" && !strings.Contains(a.RequestURI, "dryRun=") &&
		!slices.Contains([]string{"authentication.k8s.io", "authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"}, a.ObjectRef.APIGroup)
}

// isGuarded reports whether the write cannot undo what a later leader did: it has a
// precondition or creates an object of a fixed name. An Event needs none, since only the
// process that created it writes to it.
func (a *auditEvent) isGuarded() bool {
	asked := &a.RequestObject
	switch {
	case a.ObjectRef.Resource == "events":
		return true
	case a.Verb == "create":
		return asked.Metadata.Name != ""
	case a.Verb == "delete":
		return asked.Preconditions != nil && (asked.Preconditions.UID != nil || asked.Preconditions.ResourceVersion != nil)
	}
	return asked.Metadata.ResourceVersion != "" || asked.Metadata.UID != ""
}

// revision returns the revision of the write's effect, 0 if it had none. An answer to a
// deletion does not have it, but etcd's history has.
func (a *auditEvent) revision(deletedAt map[types.UID]int64) int64 {
	answer := &a.ResponseObject
	switch {
	case a.ResponseStatus.Code >= http.StatusMultipleChoices || answer.Metadata.ResourceVersion == a.RequestObject.Metadata.ResourceVersion && answer.Metadata.ResourceVersion != "":
		return 0
	case a.Verb == "delete" && answer.Metadata.ResourceVersion == "":
		return deletedAt[answer.Details.UID]
	}
	return parseRevision(answer.Metadata.ResourceVersion)
}

// deletions returns the revisions of the deletions of Deployments.
func (h *history) deletions() map[types.UID]int64 {
	revisions := map[types.UID]int64{}
	for _, v := range h.deployments {
		if v.deleted {
			revisions[v.object.UID] = v.revision
		}
	}
	return revisions
}

// acquisitions returns the writes to the Lease that changed its holder, in order.
func acquisitions(all []*auditEvent) []*auditEvent {
	writes := slices.DeleteFunc(slices.Clone(all), func(a *auditEvent) bool { return !a.isLease() || a.revision(nil) == 0 })
	slices.SortFunc(writes, func(a, b *auditEvent) int { return int(a.revision(nil) - b.revision(nil)) })
	holder := ""
	return slices.DeleteFunc(writes, func(a *auditEvent) bool {
		was := holder
		holder = a.ResponseObject.Spec.HolderIdentity
		return holder == "" || holder == was
	})
}

// fenceFindings are about writes that were applied or refused after another process had
// acquired the lease.
type fenceFindings struct {
	// passed counts those that may have passed the fence before.
	passed     int
	violations violations
}

// checkLease checks S5 for the writes of the processes whose names are in mayBeLate. Its
// values are how many writes each may have had on the way when it lost the lease: one for
// each worker if it was stopped for longer than the lease, none if it was terminated.
func checkLease(all []*auditEvent, mayBeLate map[string]int, deletedAt map[types.UID]int64) (f fenceFindings) {
	leaders, late := acquisitions(all), map[string][]*auditEvent{}
	for _, write := range all {
		if _, ours := mayBeLate[write.process()]; !ours || !write.isFenced() {
			continue
		}
		var leader *auditEvent
		for _, next := range leaders {
			if next.precedes(write, deletedAt) {
				leader = next
			}
		}
		switch {
		case leader == nil:
			f.violations.add("S5: %s wrote before any process had acquired the lease: %s", write.process(), write)
		case leader.process() == write.process():
		case !write.isGuarded():
			f.violations.add("S5: %s has no precondition, and %s sent it after %s had acquired the lease", write, write.process(), leader.process())
		default:
			late[write.process()] = append(late[write.process()], write)
		}
	}
	for name, writes := range late {
		if len(writes) > mayBeLate[name] {
			f.violations.add("S5: %s wrote %d times after another process had acquired the lease, at most %d had passed the fence before: %s",
				name, len(writes), mayBeLate[name], writes)
			continue
		}
		f.passed += len(writes)
	}
	return f
}

// precedes reports whether the write to the Lease was applied before the other write.
func (a *auditEvent) precedes(write *auditEvent, deletedAt map[types.UID]int64) bool {
	if revision := write.revision(deletedAt); revision != 0 {
		return a.revision(nil) < revision
	}
	return a.StageTimestamp.Time.Before(write.RequestReceivedTimestamp.Time)
}

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
