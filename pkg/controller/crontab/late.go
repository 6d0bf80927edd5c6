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

package crontab

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

// lateAt returns when the CronTab becomes late, false if spec.successDeadlineSeconds is unset:
// that long after the last run that succeeded, or after the creation.
func lateAt(cronTab *alphav1.CronTab, status *alphav1.CronTabStatus) (time.Time, bool) {
	deadline := cronTab.Spec.SuccessDeadlineSeconds
	if deadline == nil {
		return time.Time{}, false
	}
	since := later(cronTab.CreationTimestamp.Time, timeOf(status.LastSuccessfulTime))
	return time.Unix(since.Unix()+*deadline+1, 0), true
}

// setLate sets the Late condition of the new status, or removes it.
func setLate(cronTab *alphav1.CronTab, status *alphav1.CronTabStatus, now time.Time) {
	at, ok := lateAt(cronTab, status)
	if !ok {
		meta.RemoveStatusCondition(&status.Conditions, alphav1.CronTabLate)
		return
	}
	late := metav1.Condition{
		Type: alphav1.CronTabLate, Status: metav1.ConditionFalse, Reason: alphav1.ReasonInTime,
		Message: "the last run that succeeded, or the creation, is not longer ago than spec.successDeadlineSeconds",
	}
	if !now.Before(at) {
		since := "the creation of the CronTab"
		if success := status.LastSuccessfulTime; success != nil {
			since = success.UTC().Format(time.RFC3339)
		}
		late.Status, late.Reason = metav1.ConditionTrue, alphav1.ReasonNoSuccess
		late.Message = fmt.Sprintf("no run has succeeded since %s, and spec.successDeadlineSeconds is %d", since, *cronTab.Spec.SuccessDeadlineSeconds)
	}
	late.ObservedGeneration, late.LastTransitionTime = cronTab.Generation, metav1.NewTime(now.Truncate(time.Second))
	meta.SetStatusCondition(&status.Conditions, late)
}

// lateEvent returns the event for a CronTab that has become late, or nil.
func lateEvent(old, new *alphav1.CronTabStatus) *controller.Event {
	late := meta.FindStatusCondition(new.Conditions, alphav1.CronTabLate)
	if late == nil || late.Status != metav1.ConditionTrue || meta.IsStatusConditionTrue(old.Conditions, alphav1.CronTabLate) {
		return nil
	}
	return &controller.Event{Type: corev1.EventTypeWarning, Reason: eventLate, Message: late.Message}
}
