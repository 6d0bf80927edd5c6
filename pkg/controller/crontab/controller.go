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
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	alphainformers "example.com/sample-controller/pkg/generated/informers/externalversions/alpha/v1"
	alphalisters "example.com/sample-controller/pkg/generated/listers/alpha/v1"
)

// byOwner indexes Jobs by the CronTab that controls them.
const byOwner = "controllingCronTab"

// Controller starts the Jobs of CronTabs when they are due.
//
// Each event of a CronTab or of a Job enqueues the CronTab's key. A worker takes the key
// and calls syncHandler, which reads the caches and the clock, decides (crontab.go),
// deletes the Jobs that the next run replaces, creates at most one Job, updates the
// CronTab's status if it changed, and then deletes finished Jobs beyond the history limits.
// It returns when time next changes the decision, at most a minute later, and the worker
// enqueues the key for then. While other keys wait, a sync that has created a Job leaves
// the status to the next sync: many schedules are due at the same minute. A failed sync is
// retried with backoff, and no later than the next run is due.
type Controller struct {
	*controller.Loop

	kubeClient kubernetes.Interface
	client     clientset.Interface

	cronTabs alphalisters.CronTabLister
	jobs     batchlisters.JobLister
	jobIndex cache.TypedIndexer[*batchv1.Job]

	reporter *controller.Reporter
	clock    clock.PassiveClock
	metrics  controller.Counters
}

// Options are what a Controller needs. All clients and informers are required.
type Options struct {
	KubeClient kubernetes.Interface
	Client     clientset.Interface
	// CronTabs and Jobs may be transformed by Strip.
	CronTabs alphainformers.TypedCronTabInformer
	Jobs     batchinformers.TypedJobInformer

	controller.Options
}

// New returns a Controller that is ready to Run. It adds an index and event handlers to the
// informers, and returns an error if an informer refuses them.
func New(ctx context.Context, options Options) (*Controller, error) {
	cronTabs, jobs := options.CronTabs.TypedInformer(), options.Jobs.TypedInformer()
	if err := jobs.AddTypedIndexers(cache.TypedIndexers[*batchv1.Job]{byOwner: controller.IndexByOwner[*batchv1.Job](cronTabGVK.GroupKind())}); err != nil {
		return nil, fmt.Errorf("adding an index to the Job informer: %w", err)
	}
	c := &Controller{
		kubeClient: options.KubeClient,
		client:     options.Client,
		cronTabs:   options.CronTabs.Lister(),
		jobs:       options.Jobs.Lister(),
		jobIndex:   jobs.GetTypedIndexer(),
		clock:      options.Clock,
		metrics:    options.Metrics.Of(cronTabGVK.Kind),
	}
	c.Loop = controller.NewLoop(cronTabGVK.Kind, c.syncHandler, controller.Caches{Parents: cronTabs, Children: jobs}, options.Options)
	c.reporter = &controller.Reporter{Kind: cronTabGVK.Kind, Resource: "crontabs", Gate: c.Gate, Metrics: c.metrics, Recorder: options.Recorder}
	if err := c.addEventHandlers(ctx, cronTabs, jobs); err != nil {
		c.Queue.ShutDown()
		return nil, err
	}
	controller.CountByReady(options.Metrics, "CronTabs", c.cronTabs.List, func(cronTab *alphav1.CronTab) []metav1.Condition { return cronTab.Status.Conditions })
	return c, nil
}

func (c *Controller) addEventHandlers(ctx context.Context, cronTabs alphainformers.CronTabIndexInformer, jobs batchinformers.JobIndexInformer) error {
	klog.FromContext(ctx).Info("Setting up event handlers")
	return errors.Join(
		controller.Subscribe(ctx, c.Loop, cronTabGVK.Kind, cronTabs, alphainformers.CronTabHandlerFuncs{
			AddFunc:    func(cronTab *alphav1.CronTab) { c.Enqueue(cache.MetaObjectToName(cronTab)) },
			UpdateFunc: func(old, cronTab *alphav1.CronTab) { c.ParentUpdated(old, cronTab) },
			DeleteFunc: func(gone alphainformers.DeletedCronTab) { c.ParentDeleted(gone.GetObjectName()) },
		}),
		controller.Subscribe(ctx, c.Loop, "Job", jobs, batchinformers.JobHandlerFuncs{
			AddFunc:    func(job *batchv1.Job) { c.EnqueueOwner(cronTabGVK.GroupKind(), job) },
			UpdateFunc: c.jobUpdated,
			DeleteFunc: c.jobDeleted,
		}))
}

func (c *Controller) jobUpdated(old, job *batchv1.Job) {
	if old.ResourceVersion != job.ResourceVersion {
		c.EnqueueOwner(cronTabGVK.GroupKind(), old)
		c.EnqueueOwner(cronTabGVK.GroupKind(), job)
	}
}

func (c *Controller) jobDeleted(gone batchinformers.DeletedJob) {
	if gone.OptionalObj != nil {
		c.Gate.SawDelete(gone.OptionalObj.UID)
		c.EnqueueOwner(cronTabGVK.GroupKind(), gone.OptionalObj)
	}
}

// syncHandler starts the run that is due for the CronTab of that name. It returns when to
// sync again, 0 if only an event can change anything, or the error of a sync to retry.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read the caches, once they show the writes of the last sync, and the clock.
	if !c.CaughtUp(key) {
		return controller.StaleCacheDelay, nil
	}
	cronTab, err := c.cronTabs.CronTabs(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) || err == nil && cronTab.DeletionTimestamp != nil {
		// The garbage collector deletes the Jobs.
		c.Gate.Forget(key)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading CronTab from the cache: %w", err)
	}
	snap := snapshot{cronTab: cronTab, jobs: c.ownedJobs(cronTab), jobNamed: c.jobNamed(key.Namespace), now: c.clock.Now()}

	// 2. Decide.
	d := decide(snap)

	// 3. Act, and 4. report.
	err = c.carryOut(ctx, snap, &d)
	if d.requeueAfter > 0 {
		// decide counted it from before the requests.
		d.requeueAfter = max(1, d.requeueAfter-c.clock.Since(snap.now))
	}
	if err != nil && d.requeueAfter > 0 {
		// The backoff may be longer than the time until the next run is due.
		c.Queue.AddAfter(key, d.requeueAfter)
		return 0, err
	}
	return d.requeueAfter, err
}

// carryOut deletes the Jobs to replace, starts the run that is due, updates the status, and
// only then deletes finished Jobs: the status is computed from them.
func (c *Controller) carryOut(ctx context.Context, snap snapshot, d *decision) error {
	res, err := c.startRun(ctx, &snap, d)
	switch {
	case controller.IsNamespaceTerminating(err):
		d.requeueAfter = 0
		return nil
	case controller.IsRejection(err):
		res.rejected = err
	case err != nil:
		return err
	case res.created != nil && !res.replaced && len(d.missed) == 0 && c.Queue.Len() > 0:
		// Other CronTabs may have a run to start as well, and runs go before statuses. The
		// event of the Job enqueues this CronTab, and the next sync finds the Job. Replaced
		// Jobs and missed runs it would not find, so those are reported at once.
		d.requeueAfter = controller.StaleCacheDelay
		return nil
	}
	if statusErr := c.updateCronTabStatus(ctx, snap, *d, res); statusErr != nil {
		return errors.Join(err, statusErr)
	}
	// A Job that cannot be deleted does not keep the others from being deleted.
	failures := []error{err}
	for _, job := range d.excess {
		failures = append(failures, c.deleteJob(ctx, job))
	}
	return errors.Join(failures...)
}

// ownedJobs returns the Jobs that the CronTab controls, the oldest first: an index has no
// order, and without one deletions and events would come in a random order.
func (c *Controller) ownedJobs(cronTab *alphav1.CronTab) []*batchv1.Job {
	jobs := controller.LookUp(c.jobIndex, byOwner, controller.OwnerKey(cronTab.Namespace, cronTab.UID))
	for i, job := range jobs {
		jobs[i] = c.withDeletion(job)
	}
	slices.SortFunc(jobs, byAge)
	return jobs
}

// jobNamed returns a function that returns the Job of that name in the namespace, nil if
// the cache has none.
func (c *Controller) jobNamed(namespace string) func(string) *batchv1.Job {
	return func(name string) *batchv1.Job {
		job, err := c.jobs.Jobs(namespace).Get(name)
		if err != nil {
			return nil
		}
		return c.withDeletion(job)
	}
}

// withDeletion returns the Job. If this process has deleted it and the cache does not show
// that yet, it returns a copy with a deletion timestamp.
func (c *Controller) withDeletion(job *batchv1.Job) *batchv1.Job {
	if !c.Gate.IsDeleted(job.UID) {
		return job
	}
	deleted := *job
	deleted.DeletionTimestamp = ptr.To(metav1.NewTime(c.clock.Now()))
	return &deleted
}

// startRun deletes the Jobs to replace and creates the Job of the run that is due. If the
// API server has a Job of that name which the cache does not show, it decides again.
func (c *Controller) startRun(ctx context.Context, snap *snapshot, d *decision) (result, error) {
	var res result
	if d.start != nil {
		// Neither a started run nor a deleted Job can be taken back.
		if err := c.checkLive(ctx, snap); err != nil {
			return res, err
		}
	}
	for _, job := range d.replace {
		if err := c.deleteJob(ctx, job); err != nil {
			return res, err
		}
		res.replaced = true
	}
	if d.start == nil {
		return res, nil
	}
	created, err := c.createJob(ctx, snap.cronTab, d.start)
	if !apierrors.IsAlreadyExists(err) {
		res.created = created
		return res, err
	}
	// The name is the lock. An earlier request of this process may have created the Job and
	// its answer been lost. For a Job that exists decide never says to create it, so it is
	// called once more and no run is started twice.
	live, err := c.kubeClient.BatchV1().Jobs(snap.cronTab.Namespace).Get(ctx, d.start.Name, metav1.GetOptions{})
	if err != nil {
		return res, fmt.Errorf("reading Job %q: %w", d.start.Name, err)
	}
	c.Gate.Wrote(cache.MetaObjectToName(snap.cronTab), controller.Children, live.ResourceVersion)
	// The time is the same and so is the run that is due: decide asks for no other name.
	snap.jobNamed = func(string) *batchv1.Job { return live }
	replaced := d.replace
	*d = decide(*snap)
	// These are deleted, and still have to be reported.
	d.replace = replaced
	return res, nil
}

// checkLive returns nil if the caches are up to date: another process may have started a
// run just before this one became the leader. The live CronTab must have the cached
// version, since a newer status may record the run, whose Job may be gone again. And no Job
// that the status lists as active and the cache does not have may still run.
func (c *Controller) checkLive(ctx context.Context, snap *snapshot) error {
	cronTab := snap.cronTab
	live, err := c.client.AlphaV1().CronTabs(cronTab.Namespace).Get(ctx, cronTab.Name, metav1.GetOptions{})
	err = controller.Confirm(cronTab, live, err)
	if err == nil && live.ResourceVersion != cronTab.ResourceVersion {
		err = controller.ErrCacheBehind
	}
	if err != nil {
		return fmt.Errorf("reading CronTab %s: %w", klog.KObj(cronTab), err)
	}
	for _, unseen := range unseenActive(cronTab, snap.jobs) {
		job, err := c.kubeClient.BatchV1().Jobs(cronTab.Namespace).Get(ctx, unseen.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && (job.UID != unseen.UID || resultOf(job) != unfinished):
			continue
		case err == nil:
			c.Gate.Wrote(cache.MetaObjectToName(cronTab), controller.Children, job.ResourceVersion)
			err = controller.ErrCacheBehind
		}
		return fmt.Errorf("reading Job %q: %w", unseen.Name, err)
	}
	return nil
}

func (c *Controller) createJob(ctx context.Context, cronTab *alphav1.CronTab, job *batchv1.Job) (*batchv1.Job, error) {
	created, err := c.kubeClient.BatchV1().Jobs(cronTab.Namespace).Create(ctx, job, metav1.CreateOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("creating Job %q: %w", job.Name, err)
	}
	c.metrics.Wrote("jobs", "create")
	c.Gate.Wrote(cache.MetaObjectToName(cronTab), controller.Children, created.ResourceVersion)
	if !owns(cronTab, created) {
		return nil, fmt.Errorf("creating Job %q: owner reference: %w", created.Name, controller.ErrOverridden)
	}
	klog.FromContext(ctx).V(2).Info("Created Job", "job", klog.KObj(created))
	return created, nil
}

// deleteJob deletes a Job that the cache shows as the CronTab's. The preconditions make the
// API server refuse if the Job has changed since.
func (c *Controller) deleteJob(ctx context.Context, job *batchv1.Job) error {
	err := c.kubeClient.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if apierrors.IsNotFound(err) {
		c.Gate.WroteDelete(job.UID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting Job %q: %w", job.Name, err)
	}
	c.metrics.Wrote("jobs", "delete")
	c.Gate.WroteDelete(job.UID)
	klog.FromContext(ctx).V(2).Info("Deleted Job", "job", klog.KObj(job))
	return nil
}

// updateCronTabStatus updates the status if it differs from the cached one, and then sends
// the events.
func (c *Controller) updateCronTabStatus(ctx context.Context, snap snapshot, d decision, res result) error {
	cronTab, status := snap.cronTab, newStatus(snap, d, res)
	if equality.Semantic.DeepEqual(cronTab.Status, status) {
		return nil
	}
	const progress = false
	_, err := c.reporter.Report(ctx, cronTab, progress, func(ctx context.Context) (metav1.Object, error) {
		// With the cached uid and resourceVersion, as for Foos.
		updated := *cronTab
		updated.Status = status
		return c.client.AlphaV1().CronTabs(cronTab.Namespace).UpdateStatus(ctx, &updated, metav1.UpdateOptions{FieldManager: controller.FieldManager})
	}, eventsOf(snap, d, res, &status)...)
	return err
}

// Strip drops from a CronTab or a Job what a sync never reads, for cache transforms. It
// reports whether the object is one of them.
func Strip(object any) bool {
	switch object := object.(type) {
	case *alphav1.CronTab:
		// writtenAt reads the times of managed fields, not the fields.
		for i := range object.ManagedFields {
			object.ManagedFields[i].FieldsV1 = nil
		}
		return true
	case *batchv1.Job:
		object.ManagedFields, object.Spec = nil, batchv1.JobSpec{}
		return true
	}
	return false
}
