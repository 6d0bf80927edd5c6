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
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of the conditions that the controller sets on a CronTab.
const (
	// CronTabReady is True while the controller starts runs on schedule.
	CronTabReady = "Ready"
	// CronTabLate is True if no run has succeeded within spec.successDeadlineSeconds. Without
	// that there is no such condition.
	CronTabLate = "Late"
)

// Reasons of the Late condition.
const (
	// ReasonNoSuccess is the reason for True: no run has succeeded within
	// spec.successDeadlineSeconds.
	ReasonNoSuccess = "NoSuccess"
	// ReasonInTime is the reason for False: a run has succeeded within it.
	ReasonInTime = "InTime"
)

// Reasons of the Ready condition.
const (
	// ReasonScheduled is the reason for True: the controller has started the latest run
	// that was due.
	ReasonScheduled = "Scheduled"
	// ReasonSuspended says that spec.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSchedule says that spec.schedule cannot be parsed.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonUnknownTimeZone says that spec.timeZone is not in the time zone
	// database.
	ReasonUnknownTimeZone = "UnknownTimeZone"
	// ReasonNeverDue says that the schedule matches no date, like February 30th.
	ReasonNeverDue = "NeverDue"
	// ReasonMissedDeadline says that the controller could not start the latest due run
	// within spec.startingDeadlineSeconds.
	ReasonMissedDeadline = "MissedDeadline"
	// ReasonJobNameTaken says that the controller could not start the latest due run
	// because a Job that the CronTab does not own has its name.
	ReasonJobNameTaken = "JobNameTaken"
	// ReasonJobRejected says that the API server refuses the Job, or fails to create it: it is
	// invalid, a quota, a policy or RBAC forbids it, or an admission webhook does not answer.
	ReasonJobRejected = "JobRejected"
	// ReasonClockBehind says that the clock of the controller shows a time before the
	// latest run: the clock was ahead then, or is behind now.
	ReasonClockBehind = "ClockBehind"
	// ReasonInvalidRunAt says that the annotation alpha.ianlewis.org/run-at has a value that is not a
	// time. The runs of the schedule are started.
	ReasonInvalidRunAt = "InvalidRunAt"
)

// ScheduledTimeAnnotation is the annotation of a Job with its scheduled time, in the
// CronTab's time zone and the format of RFC 3339.
const ScheduledTimeAnnotation = GroupName + "/scheduled-time"

// RunAtAnnotation is the annotation of a CronTab by which users ask for one more run. Its value
// is the time when the run is due, in the format of RFC 3339. The run is started once, also
// while the CronTab is suspended.
const RunAtAnnotation = GroupName + "/run-at"

// InstantiateAnnotation is an annotation of the Jobs and Pods of runs that users asked for. Its
// value is InstantiateManual.
const (
	InstantiateAnnotation = GroupName + "/instantiate"
	InstantiateManual     = "manual"
)

// ConcurrencyPolicy says what the controller does when a run is due while an earlier one
// is still active.
//
// +kubebuilder:validation:Enum=Allow;Forbid;Replace
type ConcurrencyPolicy string

const (
	// AllowConcurrent starts the run.
	AllowConcurrent ConcurrencyPolicy = "Allow"
	// ForbidConcurrent starts the run after the earlier one has ended, unless by then a
	// later run is due or the deadline has passed.
	ForbidConcurrent ConcurrencyPolicy = "Forbid"
	// ReplaceConcurrent deletes the earlier Job, then starts the run.
	ReplaceConcurrent ConcurrencyPolicy = "Replace"
)

// CronTab runs a Pod on a schedule.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=crontabs,singular=crontab,shortName=ct,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.suspend`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52",message="metadata.name must have no more than 52 characters: the names of the Jobs are longer by up to 11"
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`,description="When runs are due"
// +kubebuilder:printcolumn:name="Time Zone",type=string,JSONPath=`.spec.timeZone`,description="The time zone of the schedule, UTC if it is unset"
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`,description="Whether the CronTab is suspended"
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.activeCount`,description="How many runs are active"
// +kubebuilder:printcolumn:name="Last Schedule",type=date,JSONPath=`.status.lastScheduleTime`,description="When the latest started run was due"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`,description="When the next run is due"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether runs are started on schedule"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the CronTab is or is not ready"
// +kubebuilder:printcolumn:name="Last Success",type=date,priority=1,JSONPath=`.status.lastSuccessfulTime`,description="When a run last completed"
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
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'^\\s*@every\\s+\\S') || [duration(self.trim().substring(7).trim())].all(d, d >= duration('10s') && d.getMilliseconds() % 1000 == 0)",message="@every must be followed by a duration of 10 or more whole seconds, as in '@every 1h30m'"
	Schedule string `json:"schedule"`

	// timeZone is the name of the schedule's time zone in the IANA time zone database,
	// such as 'Europe/Berlin'; UTC if it is unset.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.lowerAscii() != 'local' && self.matches('^[A-Za-z0-9_+/-]+$')",message="must be a name of the IANA time zone database, such as 'Europe/Berlin' or 'Etc/UTC'"
	// +kubebuilder:validation:XValidation:rule="self.lowerAscii() == 'local' || !self.matches('^[A-Za-z0-9_+/-]+$') || timestamp('2000-01-01T00:00:00Z').getFullYear(self) > 0",message="must be a name of the IANA time zone database, such as 'Europe/Berlin' or 'Etc/UTC'"
	TimeZone *string `json:"timeZone,omitempty"`

	// suspend stops the controller from starting runs; it does not stop active runs. The field
	// selector spec.suspend=false selects all other CronTabs, also those created without it.
	// +optional
	// +default=false
	Suspend *bool `json:"suspend,omitempty"`

	// concurrencyPolicy says what the controller does when a run is due while an earlier
	// one is still active: Allow starts the run, Forbid waits until the earlier one has
	// ended, Replace deletes the earlier one first.
	// +optional
	// +default="Allow"
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`

	// startingDeadlineSeconds is how many seconds late the controller may start a run. If
	// it is unset, the controller starts the latest due run however late it is.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`

	// splaySeconds spreads the start of the runs of several CronTabs over so many seconds: each
	// run of this CronTab is started that part of them after it is due that follows from
	// metadata.uid, which is always the same.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	SplaySeconds *int32 `json:"splaySeconds,omitempty"`

	// successDeadlineSeconds is how many seconds may pass without a run that succeeds, also
	// while the CronTab is suspended. Then the condition Late becomes True. If it is unset there
	// is no such condition.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	SuccessDeadlineSeconds *int64 `json:"successDeadlineSeconds,omitempty"`

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

	// jobTemplate is the spec of the Pod of each run.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.restartPolicy) && self.restartPolicy in ['Never', 'OnFailure']",message="restartPolicy must be Never or OnFailure"
	JobTemplate corev1.PodSpec `json:"jobTemplate"`

	// jobOptions are the other fields of the Job of each run.
	// +optional
	JobOptions JobOptions `json:"jobOptions,omitzero"`
}

// JobOptions are fields of a Job beside the spec of its Pods. They mean what they mean in a
// Job, and have the same defaults.
type JobOptions struct {
	// metadata are labels and annotations of the Jobs.
	// +optional
	Metadata JobMetadata `json:"metadata,omitzero"`

	// podMetadata are labels and annotations of the Pods.
	// +optional
	PodMetadata JobMetadata `json:"podMetadata,omitzero"`

	// backoffLimit is how often a Pod that fails is replaced before the Job has failed, 6 if it
	// is unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// activeDeadlineSeconds is how many seconds the Job may take before it has failed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished is how many seconds after its end the Job is deleted, if the
	// history limits do not delete it earlier.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// completions is how many Pods have to succeed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Completions *int32 `json:"completions,omitempty"`

	// parallelism is how many Pods may run at the same time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Parallelism *int32 `json:"parallelism,omitempty"`

	// podFailurePolicy says which failures of Pods count against the backoffLimit. It needs the
	// restartPolicy Never.
	// +optional
	PodFailurePolicy *batchv1.PodFailurePolicy `json:"podFailurePolicy,omitempty"`
}

// JobMetadata are labels and annotations. Those that the controller sets itself win.
type JobMetadata struct {
	// labels are the labels.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are the annotations.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
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

	// active are the Jobs that have not ended, the latest 100 of them.
	// +optional
	// +listType=atomic
	Active []corev1.ObjectReference `json:"active,omitempty"`

	// activeCount is the number of Jobs that have not ended.
	// +optional
	ActiveCount int32 `json:"activeCount"`

	// lastScheduleTime is when the latest started run was due.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// lastSuccessfulTime is when a run last completed.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`

	// lastManualTime is when the latest run was due that RunAtAnnotation asked for and that the
	// controller has handled. It starts no run that is asked for with an earlier time.
	// +optional
	LastManualTime *metav1.Time `json:"lastManualTime,omitempty"`

	// lastFailedTime is when a run last failed.
	// +optional
	LastFailedTime *metav1.Time `json:"lastFailedTime,omitempty"`

	// nextScheduleTime is when the next run is due; unset if no run will be due.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// nextScheduleTimes are when the next five runs are due.
	// +optional
	// +listType=atomic
	NextScheduleTimes []metav1.Time `json:"nextScheduleTimes,omitempty"`

	// lastMissedTime is when the latest run was due that the controller did not start and
	// will not start.
	// +optional
	LastMissedTime *metav1.Time `json:"lastMissedTime,omitempty"`

	// conditions are the CronTab's conditions. The controller sets the types "Ready" and
	// "Late" and does not change other types.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(c, size(c.message)).sum() <= 32768",message="the messages of all conditions must have no more than 32768 characters together: controllers keep them in memory"
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// ObservedSchedule is a schedule and the time from which on its runs are due: the
// controller does not start earlier runs of a new schedule.
type ObservedSchedule struct {
	// schedule is spec.schedule.
	// +required
	Schedule string `json:"schedule"`

	// timeZone is spec.timeZone.
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// since is the time from which on runs of this schedule and time zone are due. The
	// runs of @every are counted from here.
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

// GetConditions returns the CronTab's conditions.
func (c *CronTab) GetConditions() []metav1.Condition {
	return c.Status.Conditions
}
