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
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

const (
	// prepareAhead is how long before a run is due the controller reads the CronTab live. The Jobs
	// of many CronTabs that are due in the same second then wait for no reads. No process can have
	// started the run by then, so a CronTab that has not changed since needs no second read.
	prepareAhead = 3 * time.Second
	// maxPreparedAge is how old a prepared Job may be. A run that starts late reads the CronTab live: the
	// cache may not show what has happened to it since.
	maxPreparedAge = 2 * prepareAhead
	// maxPrepared limits the memory of all prepared Jobs in bytes, as protobuf. A CronTab without
	// one is read live when the run is due.
	maxPrepared = 4 << 20
)

// preparedJobs are the Jobs of the next runs, until those are due.
type preparedJobs struct {
	mu   sync.Mutex
	jobs map[cache.ObjectName]*preparedJob
	// size is the sum of the sizes of jobs.
	size int
}

// preparedJob is the Job of a run, made from the live CronTab of that version.
type preparedJob struct {
	uid             types.UID
	resourceVersion string
	// read is when the CronTab was read.
	read time.Time
	job  *batchv1.Job
}

// put keeps the Job, unless the prepared Jobs would then exceed maxPrepared.
func (p *preparedJobs) put(key cache.ObjectName, prepared *preparedJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := prepared.job.Size()
	if p.size+size > maxPrepared {
		return
	}
	if p.jobs == nil {
		p.jobs = map[cache.ObjectName]*preparedJob{}
	}
	p.jobs[key] = prepared
	p.size += size
}

// take removes the CronTab's Job and returns it, nil if there is none, if it was made from
// another version of the CronTab, or if it is too old.
func (p *preparedJobs) take(key cache.ObjectName, cronTab *alphav1.CronTab, now time.Time) *preparedJob {
	p.mu.Lock()
	defer p.mu.Unlock()
	prepared, ok := p.jobs[key]
	if !ok {
		return nil
	}
	delete(p.jobs, key)
	p.size -= prepared.job.Size()
	if cronTab == nil || prepared.uid != cronTab.UID || prepared.resourceVersion != cronTab.ResourceVersion || prepared.isOld(now) {
		return nil
	}
	return prepared
}

// isOld reports whether the CronTab was read too long ago, by either clock: the monotonic one stops
// while a machine is suspended, and the other one can be set.
func (p *preparedJob) isOld(now time.Time) bool {
	return max(now.Sub(p.read), now.Round(0).Sub(p.read.Round(0))) > maxPreparedAge
}
