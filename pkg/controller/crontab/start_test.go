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
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

func errInvalid() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "backup", field.ErrorList{field.Required(field.NewPath("spec.template.spec.containers[0].image"), "")})
}

// failingDryRun makes the creation of a Job fail if it is a dry run.
func failingDryRun(err error) func(*fixture) {
	return func(f *fixture) {
		f.prepend("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) > 0, nil, err
		})
	}
}

// nextRunTests: the Job of the next run is tried when the spec is new.
func nextRunTests() map[string]syncTest {
	unseen := newUnseen(createdAt("11:30:00"))
	corrected := newCronTab("11:00:00", refusedBecause("it is invalid"), nextGeneration)
	const begins = putStatus + "last= missed= next=12:00:00 active=0 "
	return map[string]syncTest{
		"rule C16: a new CronTab whose Job the API server will create": {
			now: "11:40:00", cronTab: unseen, requests: []string{getLive, tryRun, begins + "True/Scheduled"}, requeueAfter: time.Minute},
		"rule C16: a new CronTab whose Job the API server will refuse": {
			now: "11:40:00", cronTab: unseen, prepare: failing("create", "jobs", errInvalid()),
			requests: []string{getLive, tryRun, begins + "False/JobRejected"}, events: []string{"Warning JobRejected"}, err: "Required value", requeueAfter: minRetry},
		"rule C16: a quota may have room when the next run is due": {
			now: "11:40:00", cronTab: unseen, prepare: failing("create", "jobs", errQuota()),
			requests: []string{getLive, tryRun, begins + "True/Scheduled"}, requeueAfter: time.Minute},
		"rule C16: a webhook may answer when the next run is due": {
			now: "11:40:00", cronTab: unseen, prepare: failing("create", "jobs", errServer()),
			requests: []string{getLive, tryRun, begins + "True/Scheduled"}, requeueAfter: time.Minute},
		"rule C16: a name that is taken says nothing about the Job": {
			now: "11:40:00", cronTab: unseen, liveJobs: []*batchv1.Job{jobAt("12:00:00", ownedBy("", "", ""))},
			requests: []string{getLive, tryRun, begins + "True/Scheduled"}, requeueAfter: time.Minute},
		"rule C16: a refusal ends when the CronTab is corrected": {
			now: "11:40:00", cronTab: corrected,
			requests: []string{getLive, tryRun, putStatus + "last=11:00:00 missed= next=12:00:00 active=0 True/Scheduled"}, requeueAfter: time.Minute},
		"rule C16: a refusal that a quota hides stays": {
			now: "11:40:00", cronTab: corrected, prepare: failing("create", "jobs", errQuota()),
			requests: []string{getLive, tryRun, putStatus + "last=11:00:00 missed= next=12:00:00 active=0 False/JobRejected"}, requeueAfter: minRetry},
		"rule C16: while it lasts the Job is tried again": {
			now: "11:40:00", cronTab: newCronTab("11:00:00", refusedBecause("it is invalid")),
			requests: []string{getLive, tryRun, putStatus + "last=11:00:00 missed= next=12:00:00 active=0 True/Scheduled"}, requeueAfter: time.Minute},
		"rule C16: a Job is tried once for each change": {
			now: "11:40:00", cronTab: newCronTab("11:00:00", recordedAt("11:30:00")), requeueAfter: time.Minute},
	}
}

// dryRunTests: no Job is deleted for a run that the API server refuses.
func dryRunTests() map[string]syncTest {
	running := []*batchv1.Job{jobAt("11:00:00")}
	replaces := newCronTab("11:00:00", policy(alphav1.ReplaceConcurrent), recordedAt("11:30:00", running...))
	const refused = putStatus + "last=11:00:00 missed= next=13:00:00 active=1 False/JobRejected"
	warning, replaced := []string{"Warning JobRejected"}, []string{"Normal Deleted", "Normal Created"}
	return map[string]syncTest{
		"rule C11: Replace: no Job is deleted for a Job that is invalid": {
			now: "12:00:00", cronTab: replaces, jobs: running, prepare: failing("create", "jobs", errInvalid()),
			requests: []string{getLive, tryRun, refused}, events: warning, err: "spec.template.spec.containers[0].image: Required value", requeueAfter: minRetry},
		"rule C11: Replace: no Job is deleted for a Job that a policy forbids": {
			now: "12:00:00", cronTab: replaces, jobs: running, prepare: failing("create", "jobs", apierrors.NewForbidden(jobsGroup, "backup", errors.New("denied by a policy"))),
			requests: []string{getLive, tryRun, refused}, events: warning, err: "denied by a policy", requeueAfter: minRetry},
		"rule C11: Replace: no Job is deleted while the API server fails to create Jobs": {
			now: "12:00:00", cronTab: replaces, jobs: running, prepare: failing("create", "jobs", errServer()),
			requests: []string{getLive, tryRun, refused}, events: warning, err: "connection refused", requeueAfter: time.Minute},
		"rule C11: Replace: no Job is deleted while the API server is overloaded": {
			now: "12:00:00", cronTab: replaces, jobs: running, prepare: failing("create", "jobs", apierrors.NewTooManyRequests("later", 1)),
			requests: []string{getLive, tryRun}, err: "later", requeueAfter: time.Minute},
		"rule C11: Replace: no Job is deleted for a run whose name turns out to be taken": {
			now: "12:00:00", cronTab: replaces, jobs: running, liveJobs: []*batchv1.Job{running[0], jobAt("12:00:00", ownedBy("", "", ""))},
			requests: []string{getLive, tryRun}, err: "already exists", requeueAfter: time.Minute},
		"rule C11: Replace: no Job is deleted for a run that turns out to be started": {
			now: "12:00:00", cronTab: replaces, jobs: running, liveJobs: []*batchv1.Job{running[0], jobAt("12:00:00")},
			requests: []string{getLive, tryRun}, err: "already exists", requeueAfter: time.Minute},
		"rule C11: Replace: a quota that counts the running Job is no refusal": {
			now: "12:00:00", cronTab: replaces, jobs: running, prepare: failingDryRun(errQuota()),
			requests: []string{getLive, tryRun, getLive, deleteRun, createRun, started}, events: replaced, requeueAfter: time.Minute},
		"rule C11: Replace: a webhook that answers no dry run refuses nothing": {
			now: "12:00:00", cronTab: replaces, jobs: running,
			prepare:  failingDryRun(apierrors.NewBadRequest(`admission webhook "mutate.example.com" does not support dry run`)),
			requests: []string{getLive, tryRun, getLive, deleteRun, createRun, started}, events: replaced, requeueAfter: time.Minute},
		"rule C11: Replace: no Job is deleted for a Job that is refused as a bad request": {
			now: "12:00:00", cronTab: replaces, jobs: running, prepare: failingDryRun(apierrors.NewBadRequest("the request is malformed")),
			requests: []string{getLive, tryRun, refused}, events: warning, err: "the request is malformed", requeueAfter: minRetry},
	}
}
