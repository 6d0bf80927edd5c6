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
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/test/check/trace"
	"example.com/sample-controller/test/kinds"
)

// The rules of testdata/suites.yaml, among them S1 to S4 of the contract, judge each write of a controller. A write
// carries the resource version as a precondition, so that it was applied to that version. A write without an answer was
// applied if the next version shows its effect.

// maxReadAge bounds the time between a read and the write of one sync on a busy machine.
const maxReadAge = 2 * time.Second

// judge returns the violations of the rules by one controller. Users change an object between a read of the controller
// and its write: a rule may hold at any moment in between. Before a deletion it reads live: its Foo, and what else that
// depends on. With several workers the reads of other syncs cannot be told apart.
func judge(rules *trace.RuleSet, versions []trace.Version, requests []request) (found violations) {
	byUser := map[string][]trace.Version{}
	for _, v := range versions {
		byUser[userOf(v.Object.GetName())] = append(byUser[userOf(v.Object.GetName())], v)
	}
	writes, reads := map[string][]trace.Request{}, map[string][]request{}
	for _, r := range requests {
		switch {
		case r.writesOurs():
			writes[userOf(r.Name)] = append(writes[userOf(r.Name)], r.Request)
		case !r.IsWrite():
			reads[userOf(r.Name)] = append(reads[userOf(r.Name)], r)
		}
	}
	for user, all := range writes {
		since := func(r *trace.Request) time.Time {
			from := r.At.Add(-maxReadAge)
			if r.Verb != http.MethodDelete {
				return from
			}
			last := slices.DeleteFunc(slices.Clone(reads[user]), func(read request) bool {
				return read.answered.Before(from) || read.answered.After(r.At)
			})
			owner := ownerOf(byUser[user], r.Precondition)
			if !slices.ContainsFunc(last, func(read request) bool { return read.Resource == foos && read.Name == owner }) {
				return r.At
			}
			return slices.MinFunc(last, func(a, b request) int { return a.At.Compare(b.At) }).At
		}
		rules.Judge(byUser[user], all, foos, since, func(rule, message string, r *trace.Request) {
			found.add("%s: %s: %s", rule, &request{Request: *r}, message)
		})
	}
	return found
}

// userOf returns who makes objects of that name, and changes no others.
func userOf(name string) string {
	user, _, _ := strings.Cut(name, "-")
	return user
}

func ownerOf(versions []trace.Version, resourceVersion string) string {
	for _, v := range versions {
		if by := metav1.GetControllerOf(v.Object); by != nil && v.Object.GetResourceVersion() == resourceVersion {
			return by.Name
		}
	}
	return ""
}

// leftReady returns the Foos that stopped being Ready although neither their spec changed nor their Deployment lost
// Pods. It loses some after a scale-down that a scale-up follows at once: the Deployment is complete again before the
// Pods of the first change are gone.
func leftReady(versions []trace.Version) (found violations) {
	type readiness struct{ generation, revision int64 }
	was := map[types.UID]readiness{}
	for _, v := range versions {
		if v.Resource != foos {
			continue
		}
		uid, generation := v.Object.GetUID(), v.Object.GetGeneration()
		ready, reason := kinds.Ready(v.Object)
		switch {
		case !v.IsLive():
			delete(was, uid)
		case ready == "True":
			was[uid] = readiness{generation, v.Revision}
		case was[uid].generation == generation:
			since := was[uid].revision
			delete(was, uid)
			name, _, _ := unstructured.NestedString(v.Object.Object, "spec", "deploymentName")
			if !lostPods(versions, name, since, v.Revision) {
				found.add("Foo %s stopped being Ready in generation %d by itself: %q", v.Object.GetName(), generation, reason)
			}
		}
	}
	return found
}

func lostPods(versions []trace.Version, name string, after, until int64) bool {
	return slices.ContainsFunc(versions, func(v trace.Version) bool {
		available, _, _ := unstructured.NestedInt64(v.Object.Object, "status", "availableReplicas")
		asked, _, _ := unstructured.NestedInt64(v.Object.Object, "spec", "replicas")
		is := v.Resource == deployments && v.Object.GetName() == name
		return is && after < v.Revision && v.Revision <= until && available < asked
	})
}

// statusLatencies returns how long it took until a status had the generation of a spec change: since the change, or
// since the handover for changes from before or during one.
func statusLatencies(changes []specChange, versions []trace.Version, hs []*handover) (outside, across []time.Duration) {
	ofFoo := map[types.UID][]trace.Version{}
	for _, v := range versions {
		ofFoo[v.Object.GetUID()] = append(ofFoo[v.Object.GetUID()], v)
	}
	for _, c := range changes {
		first := slices.IndexFunc(ofFoo[c.uid], func(v trace.Version) bool {
			observed, _, _ := unstructured.NestedInt64(v.Object.Object, "status", "observedGeneration")
			return observed >= c.generation
		})
		if first < 0 {
			// The user may have deleted the Foo before.
			continue
		}
		reported, last := ofFoo[c.uid][first].At, (*handover)(nil)
		for _, h := range hs {
			if h.signalled.Before(reported) && c.at.Before(h.nextStarted) {
				last = h
			}
		}
		if last == nil {
			outside = append(outside, reported.Sub(c.at))
		} else {
			across = append(across, reported.Sub(last.nextStarted))
		}
	}
	return outside, across
}

// maxLatencyFactor bounds the latency after handovers as a multiple of that outside. It is greater than 1 because the
// new leader handles everything that was queued meanwhile at once.
const maxLatencyFactor = 4

func checkLatencies(outside, across []time.Duration) (found violations) {
	if len(outside) == 0 || len(across) == 0 {
		found.add("too few changes to compare: %d outside handovers and %d across them", len(outside), len(across))
	} else if late, most := slices.Max(across), slices.Max(outside); late > maxLatencyFactor*most {
		found.add("a status came %s after a handover, but outside handovers none took more than %s", late, most)
	}
	return found
}

// S5 of the contract: no write of a process passes its fence after another process has acquired the lease. The proxies
// have all writes and all versions of the Lease, and etcd's revisions order them. A write that has none, such as one
// that was refused, is ordered by the clock.

type process struct {
	name     string
	requests []request
	// mayBeLate is how many writes it may have had on the way when it lost the lease: none if it was terminated.
	mayBeLate int
}

// isFenced reports whether the write must pass the fence. Reviews and the certificate of the webhooks are not the
// leader's work, and dry runs are no writes.
func (r *request) isFenced() bool {
	no := []string{"authentication.k8s.io", "authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"}
	return r.IsWrite() && r.Resource != "leases" && r.Resource != "secrets" && !slices.Contains(no, r.Group)
}

// isGuarded reports whether the write cannot undo what a later leader did: it has a precondition or creates an object
// of a fixed name. An Event needs none, since only the process that created it writes to it.
func (r *request) isGuarded() bool {
	return r.Resource == "events" || r.Precondition != "" || r.Verb == http.MethodPost && r.Name != ""
}

// effectAt returns the revision of the write's effect, 0 if it had none. That of a deletion is in the history only.
func (r *request) effectAt(versions []trace.Version) int64 {
	switch {
	case !r.Applied() || r.Revision == r.Precondition && r.Revision != "":
		return 0
	case r.Deletes != "":
		for _, v := range versions {
			if string(v.Object.GetUID()) == r.Deletes && !v.IsLive() {
				return v.Revision
			}
		}
		return 0
	}
	revision, _ := strconv.ParseInt(r.Revision, 10, 64)
	return revision
}

// acquisition is a write to the Lease that changed its holder.
type acquisition struct {
	request

	by string
}

func (a *acquisition) precedes(write *request, versions []trace.Version) bool {
	if revision := write.effectAt(versions); revision != 0 {
		return a.effectAt(nil) < revision
	}
	return a.answered.Before(write.At)
}

func acquisitions(all []process) (found []acquisition) {
	for _, p := range all {
		for _, r := range p.requests {
			if r.Resource == "leases" && r.effectAt(nil) != 0 {
				found = append(found, acquisition{r, p.name})
			}
		}
	}
	slices.SortFunc(found, func(a, b acquisition) int { return int(a.effectAt(nil) - b.effectAt(nil)) })
	holder := ""
	return slices.DeleteFunc(found, func(a acquisition) bool {
		was := holder
		holder = a.holder
		return holder == "" || holder == was
	})
}

// checkLease checks S5. It also returns how many late writes may have passed the fence before.
func checkLease(all []process, versions []trace.Version) (passed int, found violations) {
	leaders := acquisitions(all)
	for _, p := range all {
		var late []string
		for i := range p.requests {
			write := &p.requests[i]
			if !write.isFenced() {
				continue
			}
			leader := ""
			for _, next := range leaders {
				if next.precedes(write, versions) {
					leader = next.by
				}
			}
			switch {
			case leader == "":
				found.add("S5: %s wrote before any process had acquired the lease: %s", p.name, write)
			case leader == p.name:
			case !write.isGuarded():
				found.add("S5: %s has no precondition, and %s sent it after %s had acquired the lease", write, p.name, leader)
			default:
				late = append(late, write.String())
			}
		}
		if len(late) > p.mayBeLate {
			found.add("S5: %s wrote %d times after another process had acquired the lease, and %d at most had passed before: %s",
				p.name, len(late), p.mayBeLate, strings.Join(late, ", "))
			continue
		}
		passed += len(late)
	}
	return passed, found
}
