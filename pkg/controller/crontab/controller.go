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
// An event of a CronTab or a Job becomes the key of the CronTab that it concerns, and
// each sync says when to look at the clock again, which is such an event too. A worker
// takes a key and calls syncHandler, which reads the caches and the clock, decides
// (crontab.go), deletes what is to be replaced and creates at most one Job, writes the
// CronTab's status if it changed, and deletes what is too much history. While other keys
// wait, a sync that has created a Job leaves the rest to the next one. A sync that fails
// is tried again with growing delays, but is never later than the clock.
type Controller struct {
	*controller.Loop

	kubeClient kubernetes.Interface
	client     clientset.Interface

	cronTabs     alphalisters.CronTabLister
	jobs         batchlisters.JobLister
	cronTabIndex cache.TypedIndexer[*alphav1.CronTab]
	jobIndex     cache.TypedIndexer[*batchv1.Job]

	reporter *controller.Reporter
	clock    clock.PassiveClock
	metrics  controller.Counters
}

// Options are what a Controller needs. All clients and informers are required.
type Options struct {
	KubeClient kubernetes.Interface
	Client     clientset.Interface
	// CronTabs need hold no more than Strip leaves, and Jobs neither.
	CronTabs alphainformers.TypedCronTabInformer
	Jobs     batchinformers.TypedJobInformer

	controller.Options
}

// New returns a Controller that is ready to Run. It adds an index and event handlers to
// the informers, and fails where these are taken.
func New(ctx context.Context, options Options) (*Controller, error) {
	cronTabs, jobs := options.CronTabs.TypedInformer(), options.Jobs.TypedInformer()
	if err := jobs.AddTypedIndexers(cache.TypedIndexers[*batchv1.Job]{byOwner: controller.IndexByOwner[*batchv1.Job](groupKind())}); err != nil {
		return nil, fmt.Errorf("adding an index to the Job informer: %w", err)
	}
	c := &Controller{
		kubeClient:   options.KubeClient,
		client:       options.Client,
		cronTabs:     options.CronTabs.Lister(),
		jobs:         options.Jobs.Lister(),
		cronTabIndex: cronTabs.GetTypedIndexer(),
		jobIndex:     jobs.GetTypedIndexer(),
		clock:        options.Clock,
		metrics:      options.Metrics.Of(cronTabKind),
	}
	c.Loop = controller.NewLoop(cronTabKind, c.syncHandler, controller.Caches{Parents: cronTabs, Children: jobs}, options.Options)
	c.reporter = &controller.Reporter{Kind: cronTabKind, Resource: "crontabs", Gate: c.Gate, Metrics: c.metrics, Recorder: options.Recorder}
	if err := c.addEventHandlers(ctx, cronTabs, jobs); err != nil {
		c.Queue.ShutDown()
		return nil, err
	}
	controller.CountByReady(options.Metrics, "CronTabs", c.cronTabs.List, func(cronTab *alphav1.CronTab) []metav1.Condition { return cronTab.Status.Conditions })
	return c, nil
}

// addEventHandlers subscribes to both informers.
func (c *Controller) addEventHandlers(ctx context.Context, cronTabs alphainformers.CronTabIndexInformer, jobs batchinformers.JobIndexInformer) error {
	klog.FromContext(ctx).Info("Setting up event handlers")
	return errors.Join(
		controller.Subscribe(ctx, c.Loop, cronTabKind, cronTabs, alphainformers.CronTabHandlerFuncs{
			AddFunc:    func(cronTab *alphav1.CronTab) { c.Enqueue(cache.MetaObjectToName(cronTab)) },
			UpdateFunc: func(old, cronTab *alphav1.CronTab) { c.ParentUpdated(old, cronTab) },
			DeleteFunc: func(gone alphainformers.DeletedCronTab) { c.ParentDeleted(gone.GetObjectName()) },
		}),
		controller.Subscribe(ctx, c.Loop, "Job", jobs, batchinformers.JobHandlerFuncs{
			AddFunc:    func(job *batchv1.Job) { c.EnqueueOwner(groupKind(), job) },
			UpdateFunc: c.jobUpdated,
			DeleteFunc: c.jobDeleted,
		}))
}

func (c *Controller) jobUpdated(old, job *batchv1.Job) {
	if old.ResourceVersion != job.ResourceVersion {
		c.EnqueueOwner(groupKind(), old)
		c.EnqueueOwner(groupKind(), job)
	}
}

func (c *Controller) jobDeleted(gone batchinformers.DeletedJob) {
	if gone.OptionalObj != nil {
		c.Gate.SawDelete(gone.OptionalObj.UID)
		c.EnqueueOwner(groupKind(), gone.OptionalObj)
	}
}

// syncHandler does what is due for the CronTab of that name. It returns how long to
// wait before the next look at the clock, 0 for until something happens, or the error
// for which to try again.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read the caches, once they show what the last sync wrote, and the clock.
	if !c.CaughtUp(key) {
		return controller.StaleCacheDelay, nil
	}
	cronTab, err := c.cronTabs.CronTabs(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) || err == nil && cronTab.DeletionTimestamp != nil {
		// The garbage collector removes the Jobs.
		c.Gate.Forget(key)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading CronTab from the cache: %w", err)
	}
	seen := observation{cronTab: cronTab, jobs: c.ownedJobs(cronTab), named: c.namedIn(key.Namespace), now: c.clock.Now()}

	// 2. Decide.
	verdict := decide(seen)

	// 3. Carry it out.
	err = c.carryOut(ctx, seen, &verdict)
	if verdict.wake > 0 {
		// It was counted from before the requests.
		verdict.wake = max(1, verdict.wake-c.clock.Since(seen.now))
	}
	if err != nil && verdict.wake > 0 {
		// Whatever has failed, and however often: the next run may be due before it is
		// tried again.
		c.Queue.AddAfter(key, verdict.wake)
		return 0, err
	}
	return verdict.wake, err
}

// carryOut makes room for the run that is due and starts it, reports, and only then
// forgets: the history is what the status was told by.
func (c *Controller) carryOut(ctx context.Context, seen observation, verdict *decision) error {
	done, err := c.act(ctx, &seen, verdict)
	switch {
	case controller.IsNamespaceTerminating(err):
		verdict.wake = 0
		return nil
	case controller.IsRejection(err):
		done.rejected = err
	case err != nil:
		return err
	case done.created != nil && !done.replaced && len(verdict.skipped) == 0 && c.Queue.Len() > 0:
		// Others may have to be started as well, which comes before all statuses: many
		// schedules strike at the same minute. The Job's event brings us back, and what
		// is to be told is seen from the Job.
		verdict.wake = controller.StaleCacheDelay
		return nil
	}
	if reportErr := c.report(ctx, seen, *verdict, done); reportErr != nil {
		return errors.Join(err, reportErr)
	}
	// One that cannot be deleted keeps no other.
	failures := []error{err}
	for _, job := range verdict.trim {
		failures = append(failures, c.delete(ctx, job))
	}
	return errors.Join(failures...)
}

// ownedJobs returns the Jobs that the CronTab controls, by age: an index has no order,
// and what is deleted and told should have one.
func (c *Controller) ownedJobs(cronTab *alphav1.CronTab) []*batchv1.Job {
	jobs := controller.LookUp(c.jobIndex, byOwner, controller.OwnerKey(cronTab.Namespace, cronTab.UID))
	for i, job := range jobs {
		jobs[i] = c.terminating(job)
	}
	slices.SortFunc(jobs, byAge)
	return jobs
}

// namedIn returns a function that returns the Job of that name in the namespace, nil if
// the cache has none.
func (c *Controller) namedIn(namespace string) func(string) *batchv1.Job {
	return func(name string) *batchv1.Job {
		job, err := c.jobs.Jobs(namespace).Get(name)
		if err != nil {
			return nil
		}
		return c.terminating(job)
	}
}

// terminating shows a Job that this process has deleted as terminating, although the
// cache does not know yet.
func (c *Controller) terminating(job *batchv1.Job) *batchv1.Job {
	if !c.Gate.IsDeleted(job.UID) {
		return job
	}
	shown := *job
	shown.DeletionTimestamp = ptr.To(metav1.NewTime(c.clock.Now()))
	return &shown
}

// act carries the decision out. Where the cache turns out to be behind, it decides anew.
func (c *Controller) act(ctx context.Context, seen *observation, verdict *decision) (outcome, error) {
	var done outcome
	if verdict.start != nil {
		// What is started or replaced cannot be taken back.
		if err := c.confirm(ctx, seen); err != nil {
			return done, err
		}
	}
	for _, job := range verdict.replace {
		if err := c.delete(ctx, job); err != nil {
			return done, err
		}
		done.replaced = true
	}
	if verdict.start == nil {
		return done, nil
	}
	created, err := c.create(ctx, seen.cronTab, verdict.start)
	if !apierrors.IsAlreadyExists(err) {
		done.created = created
		return done, err
	}
	// The name is the lock, and somebody has it: perhaps an earlier try of ours whose
	// answer was lost. What is there decides, and nothing is started a second time.
	live, err := c.kubeClient.BatchV1().Jobs(seen.cronTab.Namespace).Get(ctx, verdict.start.Name, metav1.GetOptions{})
	if err != nil {
		return done, fmt.Errorf("reading Job %q: %w", verdict.start.Name, err)
	}
	c.Gate.Wrote(cache.MetaObjectToName(seen.cronTab), controller.Children, live.ResourceVersion)
	// As the time is the same, so is the run that is due: no other name is asked for.
	seen.named = func(string) *batchv1.Job { return live }
	replaced := verdict.replace
	*verdict = decide(*seen)
	// These are deleted, and to be told of.
	verdict.replace = replaced
	return done, nil
}

// confirm returns nil if nothing has happened that the caches do not know of: another
// process may have started a run just before this one took over. The API server has the
// CronTab in the cached version, status included, which may tell of this run already and
// its Job be gone; and the cache has all Jobs that this status says are in the way.
func (c *Controller) confirm(ctx context.Context, seen *observation) error {
	cronTab := seen.cronTab
	live, err := c.client.AlphaV1().CronTabs(cronTab.Namespace).Get(ctx, cronTab.Name, metav1.GetOptions{})
	err = controller.Confirm(cronTab, live, err)
	if err == nil && live.ResourceVersion != cronTab.ResourceVersion {
		err = controller.ErrCacheBehind
	}
	if err != nil {
		return fmt.Errorf("reading CronTab %s: %w", klog.KObj(cronTab), err)
	}
	for _, missing := range inTheWay(cronTab, seen.jobs) {
		job, err := c.kubeClient.BatchV1().Jobs(cronTab.Namespace).Get(ctx, missing.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && (job.UID != missing.UID || resultOf(job) != underWay):
			continue
		case err == nil:
			c.Gate.Wrote(cache.MetaObjectToName(cronTab), controller.Children, job.ResourceVersion)
			err = controller.ErrCacheBehind
		}
		return fmt.Errorf("reading Job %q: %w", missing.Name, err)
	}
	return nil
}

func (c *Controller) create(ctx context.Context, cronTab *alphav1.CronTab, job *batchv1.Job) (*batchv1.Job, error) {
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

// delete removes a Job that the cache shows as the CronTab's, provided that it is
// unchanged.
func (c *Controller) delete(ctx context.Context, job *batchv1.Job) error {
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

// report writes the CronTab's status if it differs from the cached one, and tells what
// has happened.
func (c *Controller) report(ctx context.Context, seen observation, verdict decision, done outcome) error {
	cronTab, status := seen.cronTab, newStatus(seen, verdict, done)
	if equality.Semantic.DeepEqual(cronTab.Status, status) {
		return nil
	}
	const progress = false
	_, err := c.reporter.Report(ctx, cronTab, progress, func(ctx context.Context) (metav1.Object, error) {
		// A PUT with the cached uid and resourceVersion, as for Foos.
		updated := *cronTab
		updated.Status = status
		return c.client.AlphaV1().CronTabs(cronTab.Namespace).UpdateStatus(ctx, &updated, metav1.UpdateOptions{FieldManager: controller.FieldManager})
	}, eventsOf(seen, verdict, done, &status)...)
	return err
}

// Strip drops from a CronTab or a Job what a sync never reads, and reports whether the
// object is one. It is for cache transforms.
func Strip(object any) bool {
	switch object := object.(type) {
	case *alphav1.CronTab:
		// When it was written is read, but not what.
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
