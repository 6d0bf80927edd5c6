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
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

// startRun deletes the Jobs to replace and creates the Job of the run that is due. If the
// API server has a Job of that name which the cache does not show, it decides again. If no run
// is due it tries the Job of the next run, if the spec is new, or prepares it, if it is due soon.
func (c *Controller) startRun(ctx context.Context, snap *snapshot, d *decision) (res result, err error) {
	prepared := c.prepared.take(cache.MetaObjectToName(snap.cronTab), snap.cronTab, snap.now)
	switch {
	case d.start != nil:
		if err = c.buildJob(ctx, snap, d, prepared); err != nil {
			return res, err
		}
	case d.tryNext:
		return c.tryNext(ctx, snap, d)
	case d.prepare:
		c.prepareNext(ctx, snap, d, prepared)
		return res, nil
	default:
		return res, nil
	}
	res, err = c.replaceAndCreate(ctx, snap.cronTab, d)
	switch {
	case apierrors.IsAlreadyExists(err):
		return res, c.decideAgain(ctx, snap, d)
	case isServerError(err):
		res.rejected = err
	}
	return res, err
}

// buildJob completes the Job to create. Without a prepared one it reads the CronTab live first: a
// started run or a deleted Job cannot be undone, and the cache does not hold the Pod spec and the
// options, which may be large.
func (c *Controller) buildJob(ctx context.Context, snap *snapshot, d *decision, prepared *preparedJob) error {
	if prepared != nil && prepared.job.Name == d.start.Name {
		d.start = prepared.job
	} else {
		live, err := c.liveCronTab(ctx, snap.cronTab)
		if err != nil {
			return err
		}
		if d.start = newJob(live, d.due, d.zone()); !d.manual.at.IsZero() {
			d.start = newManualJob(live, d.manual.at, d.zone())
		}
	}
	return c.checkUnseenJobs(ctx, snap, d.former)
}

// tryNext asks the API server in a dry run whether it would create the Job of the next run.
// Other errors than a refusal may be over by then.
func (c *Controller) tryNext(ctx context.Context, snap *snapshot, d *decision) (result, error) {
	live, err := c.liveCronTab(ctx, snap.cronTab)
	if err != nil {
		return result{}, err
	}
	_, err = c.createJob(ctx, live, newJob(live, d.next, d.zone()), metav1.DryRunAll)
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return result{tried: true}, nil
	case controller.IsRejection(err) && !isInconclusive(err):
		return result{tried: true, rejected: err}, nil
	}
	return result{}, nil
}

// prepareNext keeps the Job of the next run, for which it reads the CronTab live unless the
// prepared one is that Job. After an error, or without an answer until the run is due, the run reads
// the CronTab itself.
func (c *Controller) prepareNext(ctx context.Context, snap *snapshot, d *decision, prepared *preparedJob) {
	if prepared == nil || prepared.job.Name != jobName(snap.cronTab.Name, d.next) {
		ctx, cancel := context.WithTimeout(ctx, d.requeueAfter)
		defer cancel()
		live, err := c.liveCronTab(ctx, snap.cronTab)
		if err != nil {
			klog.FromContext(ctx).V(4).Info("Did not prepare the next Job", "err", err)
			return
		}
		prepared = &preparedJob{live.UID, live.ResourceVersion, snap.now, newJob(live, d.next, d.zone())}
	}
	c.prepared.put(cache.MetaObjectToName(snap.cronTab), prepared)
}

// replaceAndCreate deletes the Jobs to replace and creates the next one. It deletes none for a
// Job that the API server refuses, as far as a dry run shows that.
func (c *Controller) replaceAndCreate(ctx context.Context, cronTab *alphav1.CronTab, d *decision) (res result, err error) {
	if len(d.replace) > 0 {
		if _, err = c.createJob(ctx, cronTab, d.start, metav1.DryRunAll); err != nil && !isInconclusive(err) {
			return res, err
		}
	}
	for _, job := range d.replace {
		if err = c.deleteJob(ctx, job); err != nil {
			return res, err
		}
		res.replaced = append(res.replaced, job)
	}
	if res.created, err = c.createJob(ctx, cronTab, d.start); err == nil && d.manual.at.IsZero() {
		c.skew.Observe(res.created.CreationTimestamp.Sub(d.due.Add(offsetOf(cronTab))).Seconds())
	}
	return res, err
}

// decideAgain reads the Job live that has the name of the run's, and decides again. The name
// is the same for every attempt to start this run. An earlier request whose answer was lost,
// or another process, may have created the Job. decide never creates a Job that exists, so no
// run is started twice.
func (c *Controller) decideAgain(ctx context.Context, snap *snapshot, d *decision) error {
	live, err := c.kubeClient.BatchV1().Jobs(snap.cronTab.Namespace).Get(ctx, d.start.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Job %q: %w", d.start.Name, err)
	}
	c.cronTabs.Wrote(snap.cronTab, c.jobIndexer, live.ResourceVersion)
	cached := snap.jobNamed
	snap.jobNamed = func(name string) *batchv1.Job {
		if name == live.Name {
			return live
		}
		return cached(name)
	}
	*d = decide(*snap)
	return nil
}

// liveCronTab reads the CronTab live. It returns an error unless the caches are up to date:
// another process may have started a run just before this one became the leader. The live
// CronTab must have the cached version, since a newer status may record the run, whose Job
// may be gone again.
func (c *Controller) liveCronTab(ctx context.Context, cronTab *alphav1.CronTab) (*alphav1.CronTab, error) {
	live, err := c.client.AlphaV1().CronTabs(cronTab.Namespace).Get(ctx, cronTab.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (live.UID != cronTab.UID || live.ResourceVersion != cronTab.ResourceVersion) {
		err = controller.NewConflict(alphav1.Resource("crontabs"), cronTab.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading CronTab %s: %w", klog.KObj(cronTab), err)
	}
	return live, nil
}

// checkUnseenJobs reads live, with Forbid and Replace, each Job that the status lists as active and
// the cache does not have: none of them may still be running. former is another name that the
// Job of the run may have, "" for none.
func (c *Controller) checkUnseenJobs(ctx context.Context, snap *snapshot, former string) error {
	cronTab := snap.cronTab
	unseenJobs := unseenActive(cronTab, snap.jobs)
	if former != "" {
		unseenJobs = append(unseenJobs, corev1.ObjectReference{Name: former})
	}
	for _, unseen := range unseenJobs {
		job, err := c.kubeClient.BatchV1().Jobs(cronTab.Namespace).Get(ctx, unseen.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && !isUnseen(cronTab, unseen, job):
			continue
		case err == nil:
			c.cronTabs.Wrote(cronTab, c.jobIndexer, job.ResourceVersion)
			err = controller.ErrStaleCache
		}
		return fmt.Errorf("reading Job %q: %w", unseen.Name, err)
	}
	return nil
}

// createJob creates the Job, or, with metav1.DryRunAll, asks the API server whether it would.
func (c *Controller) createJob(ctx context.Context, cronTab *alphav1.CronTab, job *batchv1.Job, dryRun ...string) (*batchv1.Job, error) {
	created, err := c.kubeClient.BatchV1().Jobs(cronTab.Namespace).Create(ctx, job, metav1.CreateOptions{FieldManager: controller.FieldManager, DryRun: dryRun})
	if err != nil {
		return nil, fmt.Errorf("creating Job %q: %w", job.Name, err)
	}
	if len(dryRun) == 0 {
		c.metrics.Wrote("jobs", "create")
		c.unrecorded.Store(cache.MetaObjectToName(cronTab), trimJob(created))
		c.cronTabs.Wrote(cronTab, c.jobIndexer, created.ResourceVersion)
		klog.FromContext(ctx).V(2).Info("Created Job", "job", klog.KObj(created))
	}
	if !owns(cronTab, created) {
		return nil, fmt.Errorf("creating Job %q: owner reference: %w", created.Name, controller.ErrOverridden)
	}
	return created, nil
}
