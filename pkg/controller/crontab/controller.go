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
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	alphainformers "example.com/sample-controller/pkg/generated/informers/externalversions/alpha/v1"
)

// byOwner indexes Jobs by the CronTab that controls them.
const byOwner = "controllingCronTab"

// Controller starts the Jobs of CronTabs when they are due.
//
// Each event of a CronTab or of a Job enqueues the CronTab's key, except that of the
// controller's own status update. A worker takes the key and calls syncHandler, which reads
// the caches and the clock, decides (crontab.go), starts the run that is due (start.go),
// updates the CronTab's status if it changed, and then deletes finished Jobs beyond the history
// limits. A sync just before a run is due prepares the Job (prepare.go). syncHandler returns how
// long to wait until time changes the decision, a minute at most, and the worker enqueues the key
// for then. While other keys wait, a sync that has created a Job leaves the status to the next
// sync: many schedules are due at the same minute. A failed sync is retried with backoff, and no
// later than the next run is due.
type Controller struct {
	kubeClient kubernetes.Interface

	cronTabs   *controller.Owners[*alphav1.CronTab]
	jobs       batchlisters.JobLister
	jobIndexer cache.TypedIndexer[*batchv1.Job]

	worker  *controller.Worker
	clock   clock.PassiveClock
	metrics controller.Counters
	client  clientset.Interface
	// skew is how late Jobs are created, in seconds.
	skew *metrics.Histogram
	// minInterval is the shortest interval of @every; a shorter one is raised to it.
	minInterval time.Duration
	// begun returns when syncHandler was first called.
	begun func() time.Time
	// unlisted has a set of UIDs for the key of each CronTab with more active Jobs than its
	// status lists: those of the other active Jobs after the last sync.
	unlisted sync.Map
	// unrecorded has, for the key of a CronTab, the Job that this process created and that the status
	// does not record yet, as last seen.
	unrecorded sync.Map
	// prepared are the Jobs of runs that are due soon.
	prepared preparedJobs
}

// Options are what a Controller needs. All but MinInterval are required.
type Options struct {
	KubeClient kubernetes.Interface
	Client     clientset.Interface
	// CronTabs and Jobs may be trimmed by Trim.
	CronTabs alphainformers.TypedCronTabInformer
	Jobs     batchinformers.TypedJobInformer
	// MinInterval is the shortest interval of @every, to which a shorter one is raised; 0 for any.
	MinInterval time.Duration

	controller.Options
}

// New returns a Controller whose syncHandler and event handlers are registered with the
// Worker. It adds an index to the informers, and returns an error if that fails.
func New(ctx context.Context, options Options) (*Controller, error) {
	cronTabs, jobs := options.CronTabs.TypedInformer(), options.Jobs.TypedInformer()
	c := &Controller{
		kubeClient: options.KubeClient,
		client:     options.Client,
		cronTabs: controller.NewOwners(controller.OwnersOptions[*alphav1.CronTab]{
			Options: options.Options, Kind: cronTabGVK(), Resource: alphav1.Resource("crontabs"), Informer: cronTabs,
			Client: func(namespace string) controller.OwnerClient[*alphav1.CronTab] {
				return options.Client.AlphaV1().CronTabs(namespace)
			},
			Present: func(ctx context.Context) (string, error) {
				list, err := options.Client.AlphaV1().CronTabs(options.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
				return list.ResourceVersion, err
			},
			Status: func(cronTab *alphav1.CronTab) any { return &cronTab.Status },
		}),
		jobs:        options.Jobs.Lister(),
		jobIndexer:  jobs.GetTypedIndexer(),
		worker:      options.Worker,
		clock:       options.Clock,
		metrics:     options.Metrics.Of(cronTabGVK().Kind),
		skew:        RegisterMetrics(options.Metrics, cronTabs.GetStore()),
		minInterval: options.MinInterval,
		begun:       sync.OnceValue(options.Clock.Now),
	}

	if err := jobs.AddTypedIndexers(batchinformers.JobIndexers{byOwner: controller.IndexByOwner[*batchv1.Job](cronTabGVK().GroupKind())}); err != nil {
		return nil, fmt.Errorf("adding an index to the Job informer: %w", err)
	}
	klog.FromContext(ctx).Info("Setting up event handlers")
	controller.AddEventHandler(c.worker, cronTabGVK().Kind, cronTabs, alphainformers.CronTabHandlerFuncs{
		AddFunc:    c.cronTabs.Enqueue,
		UpdateFunc: c.cronTabs.Updated,
		DeleteFunc: func(deleted alphainformers.DeletedCronTab) { c.cronTabs.Deleted(deleted.GetObjectName()) },
	})
	controller.AddEventHandler(c.worker, "Job", jobs, batchinformers.JobHandlerFuncs{
		AddFunc: c.handleObject, UpdateFunc: c.updateJob, DeleteFunc: c.handleJobDeletion,
	})
	c.worker.Handle(options.Namespace, c.syncHandler)
	options.Metrics.CountByReady("CronTabs", cronTabs.GetStore())
	return c, nil
}

func (c *Controller) updateJob(old, updated *batchv1.Job) {
	if old.ResourceVersion != updated.ResourceVersion {
		c.seeUnrecorded(updated)
		// The owner reference may have changed: both CronTabs are concerned.
		c.handleObject(old)
		c.handleObject(updated)
	}
}

func (c *Controller) handleJobDeletion(deleted batchinformers.DeletedJob) {
	if deleted.OptionalObj != nil {
		c.seeUnrecorded(deleted.OptionalObj)
		c.cronTabs.DeletionSeen(deleted.OptionalObj.UID)
		c.handleObject(deleted.OptionalObj)
	}
}

// handleObject enqueues the CronTab that controls the Job, if one does.
func (c *Controller) handleObject(object *batchv1.Job) {
	if ref := controller.ControllerOf(object, cronTabGVK().GroupKind()); ref != nil {
		c.worker.Enqueue(cache.NewObjectName(object.Namespace, ref.Name))
	}
}

// The admission plugin OwnerReferencesPermissionEnforcement requires update on
// crontabs/finalizers to set blockOwnerDeletion.
// +kubebuilder:rbac:groups=alpha.ianlewis.org,resources=crontabs,verbs=get;list;watch
// +kubebuilder:rbac:groups=alpha.ianlewis.org,resources=crontabs/status,verbs=patch
// +kubebuilder:rbac:groups=alpha.ianlewis.org,resources=crontabs/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete

// syncHandler starts the run that is due for the CronTab of that name. It returns how long
// to wait before the next sync, 0 to wait for an event, or an error, after which the Worker
// retries with backoff.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read the caches, once they show the writes of the last sync, and the clock.
	cronTab, exists, err := c.cronTabs.Get(key)
	if err != nil {
		return 0, err
	}
	if !exists {
		// The garbage collector deletes the Jobs.
		c.unlisted.Delete(key)
		c.unrecorded.Delete(key)
		c.prepared.take(key, nil, time.Time{})
		return 0, nil
	}
	snap := snapshot{cronTab: cronTab, jobs: c.ownedJobs(cronTab), jobNamed: c.jobNamed(key.Namespace), begun: c.begun(), now: c.clock.Now(), minInterval: c.minInterval}
	if unlisted, ok := c.unlisted.Load(key); ok {
		snap.unlisted = unlisted.(sets.Set[types.UID])
	}
	isGone := c.addUnrecorded(&snap)

	// 2. Decide.
	d := decide(snap)

	// 3. Act, and 4. report.
	err = c.carryOut(ctx, snap, &d)
	if d.requeueAfter > 0 {
		// requeueAfter counts from snap.now: the requests took a part of it.
		d.requeueAfter = max(1, d.requeueAfter-c.clock.Since(snap.now))
	}
	if err == nil && isGone {
		// The status records the run now, and the next sync that its Job is gone.
		d.requeueAfter = controller.StaleCacheDelay
	}
	if err != nil && d.requeueAfter > 0 {
		// The backoff may be longer than the time until the next run is due.
		c.worker.Queue.AddAfter(key, d.requeueAfter)
		return 0, err
	}
	if d.requeueAfter > 0 {
		// The events of Jobs have high priority: without it the statuses of runs that were started
		// would go before runs that are due.
		c.worker.Queue.RaiseNext(key)
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
	case err != nil && res.rejected == nil && len(res.replaced) == 0:
		return err
	case res.created != nil && !snap.unrecorded && len(res.replaced) == 0 && len(d.missed) == 0 && c.worker.Queue.Len() > 0:
		// Runs of other CronTabs go before this status. The event of the Job enqueues this
		// CronTab, and the next sync finds the Job, or what is remembered of it. That sync could
		// not find replaced Jobs and missed runs, so those are reported at once.
		d.requeueAfter = controller.StaleCacheDelay
		return nil
	}
	stored, statusErr := c.updateCronTabStatus(ctx, snap, *d, res)
	if statusErr != nil {
		return errors.Join(err, statusErr)
	}
	startsNext := d.recordFirst || d.manual.waits || d.start != nil && res.created == nil
	if stored != nil && err == nil && (startsNext || len(excessJobs(stored, snap.jobs)) > len(d.excess)) {
		// The next sync goes on. The event of this status update enqueues nothing.
		d.requeueAfter = controller.StaleCacheDelay
	}
	// Go on after a deletion that fails: the other Jobs can still be deleted.
	failures := []error{err}
	if res.tried {
		// The error is for the Worker's count of failing syncs (docs/contract.md, rule 25). The
		// retry finds nothing to do, because the status is written.
		failures = append(failures, res.rejected)
	}
	for _, job := range d.excess {
		failures = append(failures, c.deleteJob(ctx, job))
	}
	return errors.Join(failures...)
}

// ownedJobs returns the Jobs that the CronTab controls, the oldest first. An index has no
// order; sorting makes the order of deletions and events deterministic.
func (c *Controller) ownedJobs(cronTab *alphav1.CronTab) []*batchv1.Job {
	jobs := controller.LookUp(c.jobIndexer, byOwner, controller.OwnerKey(cronTab.Namespace, cronTab.UID))
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
	if !c.cronTabs.IsDeleted(job.UID) {
		return job
	}
	deleted := *job
	deleted.DeletionTimestamp = ptr.To(metav1.NewTime(c.clock.Now()))
	return &deleted
}

// deleteJob deletes a Job that the cache shows as the CronTab's. The preconditions make the
// API server refuse if the Job has changed since.
func (c *Controller) deleteJob(ctx context.Context, job *batchv1.Job) error {
	err := c.kubeClient.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if apierrors.IsNotFound(err) {
		c.cronTabs.Writes.Deleted(job.UID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting Job %q: %w", job.Name, err)
	}
	c.metrics.Wrote("jobs", "delete")
	c.cronTabs.Writes.Deleted(job.UID)
	klog.FromContext(ctx).V(2).Info("Deleted Job", "job", klog.KObj(job))
	return nil
}

// updateCronTabStatus updates the status if it differs from the cached one, and then sends
// the events. It returns the updated CronTab, nil if nothing differs.
func (c *Controller) updateCronTabStatus(ctx context.Context, snap snapshot, d decision, res result) (*alphav1.CronTab, error) {
	cronTab, status := snap.cronTab, newStatus(snap, d, res)
	if equality.Semantic.DeepEqual(cronTab.Status, status) {
		c.unrecorded.Delete(cache.MetaObjectToName(cronTab))
		c.rememberUnlisted(snap, d, res, &status)
		return nil, nil
	}
	updated := *cronTab
	updated.Status = status
	_, err := c.cronTabs.UpdateStatus(ctx, cronTab, &updated.Status, false, controller.GetReady(status.Conditions), eventsOf(snap, d, res, &status)...)
	if err != nil {
		return nil, err
	}
	c.unrecorded.Delete(cache.MetaObjectToName(cronTab))
	c.rememberUnlisted(snap, d, res, &status)
	return &updated, nil
}

// addUnrecorded adds the Job that the status does not record yet to the snapshot, if its deletion took it
// from the cache: without it the run would be started again. It reports whether it did.
func (c *Controller) addUnrecorded(snap *snapshot) bool {
	unrecorded, ok := c.unrecorded.Load(cache.MetaObjectToName(snap.cronTab))
	if !ok {
		return false
	}
	job := unrecorded.(*batchv1.Job)
	snap.unrecorded = owns(snap.cronTab, job)
	if !snap.unrecorded || slices.ContainsFunc(snap.jobs, func(cached *batchv1.Job) bool { return cached.UID == job.UID }) {
		return false
	}
	snap.jobs = append(snap.jobs, job)
	slices.SortFunc(snap.jobs, byAge)
	return true
}

// seeUnrecorded keeps what the watch tells of a Job that the status does not record yet, such as how it
// ended.
func (c *Controller) seeUnrecorded(job *batchv1.Job) {
	ref := controller.ControllerOf(job, cronTabGVK().GroupKind())
	if ref == nil {
		return
	}
	key := cache.NewObjectName(job.Namespace, ref.Name)
	if old, ok := c.unrecorded.Load(key); ok && old.(*batchv1.Job).UID == job.UID {
		c.unrecorded.CompareAndSwap(key, old, job)
	}
}

// rememberUnlisted remembers which active Jobs the stored status does not list, so that the
// next syncs report how they end.
func (c *Controller) rememberUnlisted(snap snapshot, d decision, res result, status *alphav1.CronTabStatus) {
	key := cache.MetaObjectToName(snap.cronTab)
	if status.ActiveCount <= maxActive {
		c.unlisted.Delete(key)
		return
	}
	c.unlisted.Store(key, unlistedJobs(jobsAfter(snap, d, res), status))
}
