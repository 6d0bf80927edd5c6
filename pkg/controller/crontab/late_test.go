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
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// succeedsWithin sets how many seconds may pass without a success.
func succeedsWithin(seconds int64) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.SuccessDeadlineSeconds = &seconds }
}

func succeededAt(clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Status.LastSuccessfulTime = ptr.To(stamp(clock)) }
}

// wasLate sets the condition of a CronTab that is late.
func wasLate(cronTab *alphav1.CronTab) {
	cronTab.Status.Conditions = append(cronTab.Status.Conditions, metav1.Condition{
		Type: alphav1.CronTabLate, Status: metav1.ConditionTrue, Reason: alphav1.ReasonNoSuccess, ObservedGeneration: 1, LastTransitionTime: stamp("20T11:00:00"),
	})
}

// TestLate: the Late condition and its event. The CronTabs may be an hour without a success.
func TestLate(t *testing.T) {
	const sinceCreation = "no run has succeeded since the creation of the CronTab, and spec.successDeadlineSeconds is 3600"
	hour := succeedsWithin(3600)
	for sentence, test := range map[string]struct {
		now     string
		cronTab *alphav1.CronTab
		jobs    []*batchv1.Job
		// want is the condition, wakes when the next sync is, event the message of the event.
		want, event string
		wakes       time.Duration
	}{
		"rule C23: without the field there is no condition": {
			now: "12:30:00", cronTab: newCronTab("12:00:00"), wakes: time.Minute},
		"rule C23: the condition ends with the field": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", wasLate), wakes: time.Minute},
		"rule C23: the last success is in time": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", hour, succeededAt("12:01:00")), want: "False InTime", wakes: time.Minute},
		"rule C23: at the deadline it is in time": {
			now: "13:01:00.5", cronTab: newCronTab("13:00:00", hour, succeededAt("12:01:00")), want: "False InTime", wakes: 500 * time.Millisecond},
		"rule C23: after the deadline it is late": {
			now: "13:01:01", cronTab: newCronTab("13:00:00", hour, succeededAt("12:01:00")),
			want: "True NoSuccess", event: "no run has succeeded since 2026-11-21T12:01:00Z, and spec.successDeadlineSeconds is 3600", wakes: time.Minute},
		"rule C23: a run that succeeds ends it": {
			now: "13:02:00", cronTab: newCronTab("13:00:00", hour, succeededAt("11:01:00"), wasLate), jobs: []*batchv1.Job{jobAt("13:00:00", complete("13:01:00"))},
			want: "False InTime", wakes: time.Minute},
		"rule C23: a run that fails does not end it": {
			now: "13:02:00", cronTab: newCronTab("13:00:00", hour, succeededAt("11:01:00"), wasLate), jobs: []*batchv1.Job{jobAt("13:00:00", failed("13:01:00"))},
			want: "True NoSuccess", wakes: time.Minute},
		"rule C23: a CronTab without a success is late after the creation": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", hour), want: "True NoSuccess", event: sinceCreation, wakes: time.Minute},
		"rule C23: a new CronTab is in time": {
			now: "12:30:00", cronTab: newCronTab("", hour, createdAt("12:29:00")), want: "False InTime", wakes: time.Minute},
		"rule C23: a suspended CronTab becomes late": {
			now: "12:59:30", cronTab: newCronTab("12:00:00", hour, suspended, succeededAt("11:59:50")), want: "False InTime", wakes: 21 * time.Second},
		"rule C23: a suspended CronTab becomes late after its run by annotation": {
			now: "12:30:10", cronTab: newCronTab("11:00:00", hour, suspended, succeededAt("11:01:00"), wasLate), jobs: []*batchv1.Job{manualJob("12:30:00", complete("12:30:05"))},
			want: "False InTime", wakes: time.Minute},
		"rule C23: a suspended CronTab is late": {
			now: "12:59:51", cronTab: newCronTab("12:00:00", hour, suspended, succeededAt("11:59:50")),
			want: "True NoSuccess", event: "no run has succeeded since 2026-11-21T11:59:50Z, and spec.successDeadlineSeconds is 3600"},
		"rule C23: a CronTab with a schedule that cannot be read is late": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", hour, schedulesAt("x"), scheduled("x", "20T10:30:00")), want: "True NoSuccess", event: sinceCreation},
		"rule C23: it is reported once": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", hour, wasLate), want: "True NoSuccess", wakes: time.Minute},
	} {
		t.Run(sentence, func(t *testing.T) {
			snap := snapshot{cronTab: test.cronTab, jobs: test.jobs, jobNamed: jobsByName(test.jobs), now: moment(test.now)}
			d := decide(snap)
			stored := newStatus(snap, d, result{})
			d.awaitLate(test.cronTab, &stored, snap.now)
			differ(t, "next sync", test.wakes, d.requeueAfter)
			status, events := statusAndEvents(test.now, test.cronTab, test.jobs, nil, result{})
			got, event := "", ""
			if late := meta.FindStatusCondition(status.Conditions, alphav1.CronTabLate); late != nil {
				got = string(late.Status) + " " + late.Reason
			}
			for _, sent := range events {
				if sent.Reason == alphav1.CronTabLate {
					event += sent.Message
				}
			}
			differ(t, "condition", test.want, got)
			differ(t, "event", test.event, event)
			if test.wakes != 500*time.Millisecond {
				checkSteady(t, test.now, test.cronTab, nil, nil, result{}, status)
			}
		})
	}
}

// TestBecomesLate: a suspended CronTab becomes late when time passes, and the metric counts it.
func TestBecomesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "12:00:00", nil, nil)
		stop := f.start(ctx, t)
		if _, err := f.client.AlphaV1().CronTabs("ns").Create(ctx, newUnseen(createdAt("12:00:00"), suspended, succeedsWithin(600)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(600 * time.Second)
		synctest.Wait()
		differ(t, "rule C23: events within the deadline", []string(nil), f.recorded())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		differ(t, "rule C23: events after the deadline", []string{"Warning Late"}, f.recorded())
		differ(t, "rule C23: sample_controller_crontabs_late", 1.0, metricValue(t, f, "sample_controller_crontabs_late"))
		stop()
	})
}

// metricValue returns the value of a gauge, or the sum of a histogram, without labels.
func metricValue(t *testing.T, f *fixture, name string) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.Metric[0].GetGauge().GetValue() + family.Metric[0].GetHistogram().GetSampleSum()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
