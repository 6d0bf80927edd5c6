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

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CronTabReady is the type of the one condition that the controller keeps on a
// CronTab. It is True while runs are started as the schedule says.
const CronTabReady = "Ready"

// Reasons of the Ready condition.
const (
	// ReasonScheduled goes with True: the schedule is followed, and the latest run
	// that was due has been started.
	ReasonScheduled = "Scheduled"
	// ReasonSuspended says that spec.suspend keeps runs from being started.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSchedule says that spec.schedule cannot be read.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonUnknownTimeZone says that spec.timeZone is not in the time zone
	// database.
	ReasonUnknownTimeZone = "UnknownTimeZone"
	// ReasonNeverDue says that there is no such date, as with February 30th.
	ReasonNeverDue = "NeverDue"
	// ReasonMissedDeadline says that the latest run that was due could not be
	// started within spec.startingDeadlineSeconds.
	ReasonMissedDeadline = "MissedDeadline"
	// ReasonJobNameTaken says that the latest run that was due could not be
	// started because somebody else's Job has its name.
	ReasonJobNameTaken = "JobNameTaken"
	// ReasonJobRejected says that the API server refused the Job for good: it is
	// invalid, or a quota, a policy or RBAC forbids it.
	ReasonJobRejected = "JobRejected"
	// ReasonClockBehind says that the clock shows a time before that of the latest
	// run: it was ahead, or it is behind.
	ReasonClockBehind = "ClockBehind"
)

// ScheduledTimeAnnotation is the annotation of a Job that tells the time it was
// scheduled for, in the CronTab's time zone and as RFC 3339 has it.
const ScheduledTimeAnnotation = GroupName + "/scheduled-time"

// ConcurrencyPolicy says what happens when a run is due while a former one is
// still active.
//
// +kubebuilder:validation:Enum=Allow;Forbid;Replace
type ConcurrencyPolicy string

const (
	// AllowConcurrent starts it all the same.
	AllowConcurrent ConcurrencyPolicy = "Allow"
	// ForbidConcurrent starts it when the former one has ended, unless a later one
	// is due by then, or the deadline has passed.
	ForbidConcurrent ConcurrencyPolicy = "Forbid"
	// ReplaceConcurrent deletes the former one first.
	ReplaceConcurrent ConcurrencyPolicy = "Replace"
)

// CronTab asks for a Pod to be run at the times of a schedule.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=crontabs,singular=crontab,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52",message="metadata.name must have no more than 52 characters: the names of the Jobs are longer by up to 11"
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`,description="When runs are due"
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`,description="Whether no run is started"
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.activeCount`,description="How many runs are under way"
// +kubebuilder:printcolumn:name="Last Schedule",type=date,JSONPath=`.status.lastScheduleTime`,description="When the latest run was due that was started"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`,description="When the next run is due"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Time Zone",type=string,priority=1,JSONPath=`.spec.timeZone`,description="The time zone of the schedule, UTC if there is none"
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether runs are started as the schedule says"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the CronTab is or is not ready"
// +kubebuilder:printcolumn:name="Last Success",type=date,priority=1,JSONPath=`.status.lastSuccessfulTime`,description="When a run was last completed"
type CronTab struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the state that the user asks for.
	// +required
	Spec CronTabSpec `json:"spec,omitzero"`

	// status is the state that the controller last saw.
	// +optional
	Status CronTabStatus `json:"status,omitzero"`
}

// CronTabSpec is the state that the user asks for.
type CronTabSpec struct {
	// schedule says when runs are due: five fields (minute, hour, day of month,
	// month, day of week), a word such as @daily, or @every with a duration.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('TZ=')",message="must not name a time zone; set spec.timeZone"
	// +kubebuilder:validation:XValidation:rule="self.contains('TZ=') || self.matches(r'^\\s*(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every\\s+\\S+|[^@\\s]\\S*(\\s+\\S+){4})\\s*$')",message="must be five fields (minute, hour, day of month, month, day of week), as in '30 3 * * *', or one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, or @every with a duration, as in '@every 1h30m'"
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'^\\s*@every\\s+\\S') || [duration(self.trim().substring(7).trim())].all(d, d >= duration('1s') && d.getMilliseconds() % 1000 == 0)",message="@every must be followed by a duration of one or more whole seconds, as in '@every 1h30m'"
	Schedule string `json:"schedule"`

	// timeZone is the name of the time zone that the schedule is read in, as in
	// the IANA time zone database ('Europe/Berlin'); UTC if there is none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.lowerAscii() != 'local' && self.matches('^[A-Za-z0-9_+/-]+$')",message="must be a name of the IANA time zone database, such as 'Europe/Berlin' or 'Etc/UTC'"
	// +kubebuilder:validation:XValidation:rule="self.lowerAscii() == 'local' || !self.matches('^[A-Za-z0-9_+/-]+$') || timestamp('2000-01-01T00:00:00Z').getFullYear(self) > 0",message="must be a name of the IANA time zone database, such as 'Europe/Berlin' or 'Etc/UTC'"
	TimeZone *string `json:"timeZone,omitempty"`

	// suspend keeps runs from being started; those under way go on.
	// +optional
	// +default=false
	Suspend *bool `json:"suspend,omitempty"`

	// concurrencyPolicy says what happens when a run is due while a former one is
	// still active: Allow starts it, Forbid waits for the former one to end,
	// Replace deletes the former one.
	// +optional
	// +default="Allow"
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`

	// startingDeadlineSeconds is how late a run may be started. Without it, the
	// latest run that was due is started however late it is.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`

	// successfulJobsHistoryLimit is the number of completed Jobs to keep.
	// +optional
	// +default=3
	// +kubebuilder:validation:Minimum=0
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`

	// failedJobsHistoryLimit is the number of failed Jobs to keep.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=0
	FailedJobsHistoryLimit *int32 `json:"failedJobsHistoryLimit,omitempty"`

	// jobTemplate is the spec of the Pod that a run is.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.restartPolicy) && self.restartPolicy in ['Never', 'OnFailure']",message="restartPolicy must be Never or OnFailure"
	JobTemplate corev1.PodSpec `json:"jobTemplate"`
}

// CronTabStatus is the state that the controller last saw.
type CronTabStatus struct {
	// observedGeneration is the metadata.generation that the controller last
	// acted upon.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// observedSchedule is the schedule that the times below were computed from.
	// +optional
	ObservedSchedule *ObservedSchedule `json:"observedSchedule,omitempty"`

	// active are the Jobs that are under way, the latest 100 of them.
	// +optional
	// +listType=atomic
	Active []corev1.ObjectReference `json:"active,omitempty"`

	// activeCount is the number of Jobs that are under way.
	// +optional
	ActiveCount int32 `json:"activeCount"`

	// lastScheduleTime is when the latest run was due that was started.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// lastSuccessfulTime is when a run was last completed.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// nextScheduleTime is when the next run is due; unset while none is.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// lastMissedTime is when the latest run was due that was not started and will
	// not be.
	// +optional
	LastMissedTime *metav1.Time `json:"lastMissedTime,omitempty"`

	// conditions are the CronTab's conditions. The controller keeps the type
	// "Ready" and leaves all others alone.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// ObservedSchedule is a schedule, and since when it is followed. Only times after
// that are due: a new schedule does not make up for what it would have started
// before.
type ObservedSchedule struct {
	// schedule is spec.schedule.
	// +required
	Schedule string `json:"schedule"`

	// timeZone is spec.timeZone.
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// since is when the controller first saw them together. The runs of @every are
	// counted from here.
	// +required
	Since metav1.Time `json:"since"`
}

// CronTabList is a list of CronTabs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type CronTabList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the CronTabs.
	Items []CronTab `json:"items"`
}
