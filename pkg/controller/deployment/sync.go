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

package deployment

import (
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"example.com/sample-controller/pkg/controller"
)

// Reasons of Normal events.
const (
	// EventCreated says that the controller created the Deployment, or another object that the
	// owner asks for.
	EventCreated = "Created"
	// EventUpdated says that the controller patched an object that the owner asks for. The message
	// has the fields.
	EventUpdated = "Updated"
	// EventAdopted says that the owner became the controller of an existing Deployment, as that
	// Deployment's annotation asks.
	EventAdopted = "Adopted"
)

// Reasons of Warning events, beside those of conditions.
const (
	// EventErrResourceExists says that an object of the name exists that the owner does not
	// control. The controller does not change it.
	EventErrResourceExists = "ErrResourceExists"
)

// Action is what a sync does about the Deployment that an owner asks for.
type Action int

const (
	// NoChange does nothing: the Deployment is as desired, or it is terminating, or the spec
	// is invalid.
	NoChange Action = iota
	// Create creates the Deployment: there is no Deployment of that name.
	Create
	// Repair patches the Deployment: it has drifted.
	Repair
	// NotOwned does nothing: the owner does not own the Deployment of that name.
	NotOwned
	// Adopt patches a Deployment that has no controller and asks to be adopted.
	Adopt
)

// String returns the name of the action.
func (a Action) String() string {
	return [...]string{"NoChange", "Create", "Repair", "NotOwned", "Adopt"}[a]
}

// Decision is what to do about the Deployment that an owner asks for.
type Decision struct {
	Action Action
	// Desired is the Deployment to create.
	Desired *appsv1.Deployment
	// Patch repairs the fields that have drifted, or adopts the Deployment.
	Patch controller.Patch
	// Invalid says what is wrong with the owner's spec and how to correct it, "" if it is
	// valid.
	Invalid string
	// Waits says why the Deployment is to have no replicas for now, "" if it is to have
	// those of the spec.
	Waits string
}

// Result is what a sync found and did: the status is computed from it.
type Result struct {
	// Deployment is the one of the name that the owner asks for, nil if there is none.
	Deployment *appsv1.Deployment
	// Written says that Deployment is the API server's answer to a write of this sync.
	Written bool
	// CacheBehind says that the cache did not show the Deployment when it was read live.
	CacheBehind bool
	// Adopted says that this sync has adopted the Deployment, and not compared it yet.
	Adopted bool
	// Invalid says what is wrong with the spec, "" if it is valid. The rest of the spec may
	// still be applied.
	Invalid string
	// Rejected is why a write had no effect: the API server refused it, or admission replaced
	// the owner reference. It is nil otherwise.
	Rejected error
	// CreateRefused says that the API server refused to create the Deployment.
	CreateRefused bool
	// Waits says why the Deployment has no replicas for now, "" if it has those of the spec.
	Waits string
	// WaitsFor is the terminating Deployment that the rollout waits for, nil if it waits for
	// none.
	WaitsFor *appsv1.Deployment
	// Others is what the message of Ready adds about the owner's Deployments of other names.
	Others string
	// OwnerMoved says that the Foo which owns the Deployment asks for another name.
	OwnerMoved bool
	// Contention is what is known of another writer that undoes the repairs.
	Contention controller.Contention
	// Admitted are the values that admission put in place of those that were written.
	Admitted []controller.FieldValue
}

// Drifted returns the names of the fields that the decision repairs.
func (d Decision) Drifted() []string {
	switch d.Action {
	case Create:
		return []string{controller.Existence}
	case Repair:
		return d.Patch.Fields()
	}
	return nil
}

// IsContested reports whether to report contention: it is described, and this sync met no
// refusal of the API server. Admission that replaces the owner reference each time is such
// contention.
func (r *Result) IsContested() bool {
	return r.Contention.Message != "" && (r.Rejected == nil || errors.Is(r.Rejected, controller.ErrOverridden))
}

// Wrote records the API server's answer to a write, nil if the write failed.
func (r *Result) Wrote(answer *appsv1.Deployment) {
	if answer != nil {
		r.Deployment, r.Written = answer, true
	}
}

// RequeueAfter returns how long to wait before the next sync, 0 to wait for an event.
// statusDelay is how long the status update is delayed.
func (r *Result) RequeueAfter(statusDelay time.Duration, now time.Time) time.Duration {
	delay := statusDelay
	pause := r.Contention.Pause
	if pause == 0 && r.Contention.Message != "" {
		// A repair has been made. One without an effect causes no event.
		pause = controller.MinContentionPause
	}
	if pause > 0 && (delay == 0 || pause < delay) {
		delay = pause
	}
	if (r.CacheBehind || r.Adopted) && delay == 0 {
		// If the Deployment is deleted before the cache shows it, no event arrives.
		return controller.StaleCacheDelay
	}
	// No event announces that a Deployment has been terminating for too long.
	for _, terminating := range []*appsv1.Deployment{r.Deployment, r.WaitsFor} {
		if left := untilTerminationStalls(terminating, now); left > 0 && (delay == 0 || left < delay) {
			delay = left
		}
	}
	return delay
}

// Container returns the container of that name in the Pod template, nil if there is none.
func Container(deployment *appsv1.Deployment, name string) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &containers[i]
	}
	return nil
}
