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
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	alphainformers "example.com/sample-controller/pkg/generated/informers/externalversions/alpha/v1"
)

const (
	// minRetry and maxRetry are the delays of the CronJob controller after a refused Job. maxTryRetry
	// bounds the delay after a refused dry run.
	minRetry    = 5 * time.Millisecond
	maxRetry    = 1000 * time.Second
	maxTryRetry = 5 * time.Minute
	// maxDeletions is how many finished Jobs a sync deletes: one CronTab must not hold a worker for long.
	maxDeletions = 10
)

// Controller starts the Jobs of CronTabs when they are due.
//
// Each event of a CronTab or of a Job enqueues the CronTab's key, and a worker calls syncHandler: it reads the
// caches and the clock, decides (crontab.go), starts the run that is due, updates the status, and deletes
// finished Jobs beyond the history limits. It returns how long to wait until time changes the decision.
// A failed sync is retried with backoff, and no later than the next run is to be started.
type Controller struct {
	controller.Options

	cronTabs *controller.Owners[*alphav1.CronTab]
	jobs     *controller.Dependents[*alphav1.CronTab, *batchv1.Job]
	// skew is how late Jobs are created, in seconds.
	skew *metrics.Histogram
	// memories has for the key of a CronTab its *memory, if there is anything to remember.
	memories sync.Map
}

// Options are what a Controller needs. All are required.
type Options struct {
	KubeClient kubernetes.Interface
	Client     clientset.Interface
	// CronTabs and Jobs may be trimmed by Trim.
	CronTabs alphainformers.TypedCronTabInformer
	Jobs     batchinformers.TypedJobInformer

	controller.Options
}

// New returns a Controller whose syncHandler and event handlers are registered with the
// Worker. It adds an index to the informers, and returns an error if that fails.
func New(ctx context.Context, options Options) (*Controller, error) {
	cronTabs := options.CronTabs.TypedInformer()
	c := &Controller{Options: options.Options, skew: RegisterMetrics(options.Metrics, cronTabs.GetStore())}
	c.cronTabs = controller.NewOwners(controller.OwnersOptions[*alphav1.CronTab]{
		Options: options.Options, Kind: cronTabGVK(), Resource: alphav1.Resource("crontabs"), Informer: cronTabs,
		Client: func(namespace string) controller.OwnerClient[*alphav1.CronTab] {
			return options.Client.AlphaV1().CronTabs(namespace)
		},
		LatestVersion: func(ctx context.Context) (string, error) {
			list, err := options.Client.AlphaV1().CronTabs(options.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
			return list.ResourceVersion, err
		},
		Status: func(cronTab *alphav1.CronTab) any { return &cronTab.Status },
	})
	var err error
	c.jobs, err = controller.NewDependents(c.cronTabs, controller.DependentsOptions[*alphav1.CronTab, *batchv1.Job]{
		Kind: "Job", Resource: batchv1.Resource("jobs"), Informer: options.Jobs.TypedInformer(),
		Client: func(namespace string) controller.DependentClient[*batchv1.Job] {
			return options.KubeClient.BatchV1().Jobs(namespace)
		},
	})
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Setting up event handlers")
	controller.AddEventHandler(c.Worker, cronTabGVK().Kind, cronTabs, c.cronTabs.EventHandler())
	controller.AddEventHandler(c.Worker, "Job", options.Jobs.TypedInformer(), c.jobs.EventHandler(func(cache.ObjectName) {}))
	c.Worker.Handle(options.Namespace, c.syncHandler)
	options.Metrics.CountByReady("CronTabs", cronTabs.GetStore())
	return c, nil
}

// The admission plugin OwnerReferencesPermissionEnforcement requires update on
// crontabs/finalizers to set blockOwnerDeletion.
// +kubebuilder:rbac:groups=alpha.ianlewis.org,resources=crontabs,verbs=get;list;watch
// +kubebuilder:rbac:groups=alpha.ianlewis.org,resources=crontabs/status,verbs=patch
// +kubebuilder:rbac:groups=alpha.ianlewis.org,resources=crontabs/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete

// syncHandler starts the run that is due for the CronTab of that name. It returns how long to wait before the
// next sync, 0 to wait for an event, or an error, after which the Worker retries with backoff.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read the caches, once they show the writes of the last sync, and the clock.
	cronTab, exists, err := c.cronTabs.Get(key)
	if err != nil {
		return 0, err
	}
	if !exists {
		// The garbage collector deletes the Jobs.
		c.memories.Delete(key)
		return 0, nil
	}
	snap := c.snapshot(cronTab)
	defer c.remember(key, snap.memory)

	// 2. Decide.
	d := decide(snap)

	// 3. Act, and 4. report.
	err = c.carryOut(ctx, snap, &d)
	if d.requeueAfter > 0 {
		// requeueAfter counts from snap.now: the requests took a part of it.
		d.requeueAfter = max(1, d.requeueAfter-c.Clock.Since(snap.now))
		if err == nil {
			// The events of Jobs have high priority: without it runs that are due would go after them.
			c.Worker.Queue.RaiseNext(key)
		}
	}
	return d.requeueAfter, err
}

// snapshot reads the cached Jobs, the clock, and what the process remembers of the CronTab.
func (c *Controller) snapshot(cronTab *alphav1.CronTab) snapshot {
	snap := snapshot{
		cronTab: cronTab, jobs: c.jobs.Of(cronTab), now: c.Clock.Now(), memory: newMemory(cronTab.UID),
		jobNamed: func(name string) *batchv1.Job { return c.jobs.Get(cronTab.Namespace, name) },
	}
	if known, ok := c.memories.Load(cache.MetaObjectToName(cronTab)); ok && known.(*memory).cronTab == cronTab.UID {
		snap.memory = known.(*memory)
	}
	return snap
}

// remember keeps the memory if there is anything in it.
func (c *Controller) remember(key cache.ObjectName, memory *memory) {
	if len(memory.started) == 0 && len(memory.refused) == 0 {
		c.memories.Delete(key)
	} else {
		c.memories.Store(key, memory)
	}
}

// noteRefusal counts a refusal of the Job, which is not tried again for that time at least.
func (c *Controller) noteRefusal(snap snapshot, d *decision, retryAfter time.Duration) {
	due, limit, delay := d.toCreate(), maxRetry, minRetry
	if known := snap.memory.refused[due.manual]; known.generation == snap.cronTab.Generation {
		delay = 2 * known.delay
	}
	if d.tryNext {
		limit = maxTryRetry
	}
	delay = min(delay, limit)
	until := snap.now.Add(max(delay, retryAfter, c.Worker.DelayRefusal(snap.cronTab.Namespace)))
	if d.tryNext && until.After(d.nextStart) {
		until = d.nextStart // Asking about a run does not delay that run.
	}
	snap.memory.refused[due.manual] = refusedJob{due, d.asked, snap.cronTab.Generation, until, delay}
	d.syncBy(until, snap.now)
}

// carryOut deletes the Jobs to replace, starts the run that is due, updates the status, and
// only then deletes finished Jobs: the status is computed from them.
func (c *Controller) carryOut(ctx context.Context, snap snapshot, d *decision) error {
	cronTab := snap.cronTab
	res, err := c.startRun(ctx, snap, d)
	if res.rejected != nil && d.toCreate().manual {
		d.asked = fmt.Sprintf("; the %s: %s", d.start.describe(time.UTC), describeRejection(res))
	}
	switch {
	case controller.IsNamespaceTerminating(err):
		d.requeueAfter = 0
		return nil
	case res.rejected != nil && controller.IsRefusal(err), err == nil && d.tryNext && !res.tried && wasRejected(cronTab):
		if c.noteRefusal(snap, d, res.retryAfter); err != nil {
			// The Worker takes a second token of the namespace for an error that it knows to be a refusal.
			err = errors.New(err.Error())
		}
	case err != nil && res.rejected == nil && len(res.replaced) == 0:
		// This sync did nothing. A CronTab becomes late all the same.
		status := *cronTab.Status.DeepCopy()
		setLate(cronTab, &status, snap.now)
		if late := lateEvent(&cronTab.Status, &status); late != nil {
			_, statusErr := c.cronTabs.UpdateStatus(ctx, cronTab, &status, false, controller.GetReady(status.Conditions), late)
			err = errors.Join(err, statusErr)
		}
		return err
	case err == nil && (d.start != nil || res.tried):
		delete(snap.memory.refused, d.toCreate().manual)
	}
	status := newStatus(snap, *d, res)
	_, statusErr := c.cronTabs.UpdateStatus(ctx, cronTab, &status, false, controller.GetReady(status.Conditions), eventsOf(snap, *d, res, &status)...)
	if statusErr != nil {
		return errors.Join(err, statusErr)
	}
	stored := *cronTab
	stored.Status = status
	snap.memory.settle(d, &stored)
	if at := lateAt(cronTab, &status); at.After(snap.now) {
		d.syncBy(at, snap.now)
	}
	// Go on after a deletion that fails: the other Jobs can still be deleted.
	failures := []error{err}
	const why = "there are more finished Jobs than the CronTab keeps"
	for _, job := range d.excess[:min(len(d.excess), maxDeletions)] {
		failures = append(failures, c.jobs.Delete(ctx, cronTab, job, metav1.DeletePropagationBackground, why))
	}
	err = errors.Join(failures...)
	startsNext := d.recordFirst || res.created != nil && len(d.due) > 1
	if err == nil && (startsNext || len(d.excess) > maxDeletions || len(excessJobs(&stored, snap.jobs)) > len(d.excess)) {
		// The next sync goes on.
		d.requeueAfter = controller.StaleCacheDelay
	}
	return err
}

// startRun creates the Job of the run that is due, after it has deleted the Jobs to replace, or tries that of
// the next run (decision.tryNext). It reads the CronTab live first: a started run or a deleted Job cannot be
// undone, a newer status may record the run, and the cache does not hold the Pod spec and the options.
func (c *Controller) startRun(ctx context.Context, snap snapshot, d *decision) (res result, err error) {
	for _, missed := range d.missed {
		if missed.reason == missedUnanswered {
			err = cmp.Or(err, c.jobs.CheckGone(ctx, snap.cronTab, dueRun{missed.latest, missed.manual}.jobName(snap.cronTab.Name), ""))
		}
	}
	if err != nil || d.start == nil && !d.tryNext {
		return res, err
	}
	live, err := c.cronTabs.Live(ctx, snap.cronTab)
	if err != nil {
		return res, err
	}
	job := newJob(live, d.toCreate(), d.zone())
	if d.tryNext {
		return c.tryNext(ctx, snap.cronTab, job)
	}
	for _, unseen := range unseenActive(snap.cronTab, snap.jobs) {
		if err := c.jobs.CheckGone(ctx, snap.cronTab, unseen.Name, unseen.UID); err != nil {
			return res, err
		}
	}
	err = c.createJob(ctx, snap, d, job, &res)
	return res, err
}

// tryNext asks the API server whether it would create the Job. Other errors than a refusal may soon be over.
func (c *Controller) tryNext(ctx context.Context, cronTab *alphav1.CronTab, job *batchv1.Job) (res result, err error) {
	err = c.jobs.TryCreate(ctx, cronTab, job)
	if controller.IsRefusal(err) && !isInconclusive(err) {
		res.rejected = err
	}
	res.tried = err == nil || apierrors.IsAlreadyExists(err) || res.rejected != nil
	res.retryAfter = controller.RetryAfter(err)
	return res, res.rejected
}

// createJob deletes the Jobs to replace and creates the next one. It deletes none for a
// Job that the API server refuses, as far as a dry run shows that.
func (c *Controller) createJob(ctx context.Context, snap snapshot, d *decision, job *batchv1.Job, res *result) error {
	cronTab := snap.cronTab
	if len(d.replace) > 0 {
		if err := c.jobs.TryCreate(ctx, cronTab, job); err != nil && !isInconclusive(err) {
			return c.failed(ctx, cronTab, job.Name, err, res)
		}
	}
	for i, active := range d.replace {
		if i == maxDeletions {
			return fmt.Errorf("more Jobs are replaced before Job %q is created: %w", job.Name, controller.ErrStaleCache)
		}
		if err := c.jobs.Delete(ctx, cronTab, active, metav1.DeletePropagationBackground, "the next run is due"); err != nil {
			return err
		}
		res.replaced = append(res.replaced, active)
	}
	sent, open := snap.memory.started[*d.start]
	if open && c.Clock.Since(sent) >= maxResend || ctx.Err() != nil {
		return fmt.Errorf("this sync took too long to create Job %q: %w", job.Name, controller.ErrStaleCache)
	}
	if !open {
		snap.memory.started[*d.start] = c.Clock.Now()
	}
	created, err := c.jobs.CreateOnce(ctx, cronTab, job, " for the "+d.start.describe(d.zone()))
	// Another answer is none to an earlier request that had no answer.
	if !open && !mayExist(err) {
		delete(snap.memory.started, *d.start)
	}
	if created == nil {
		return c.failed(ctx, cronTab, job.Name, err, res)
	}
	// Beside a Job there may be the error that admission has taken its owner: it runs all the same.
	res.created, res.rejected, d.started[d.start.manual] = created, err, d.start.at
	snap.memory.addStarted(*d.start)
	if !d.start.manual {
		c.skew.Observe(created.CreationTimestamp.Sub(d.start.at.Add(offsetOf(cronTab))).Seconds())
	}
	return err
}

// failed notes an answer that the Job is not created. If there is one of its name, the cache has to show
// that first.
func (c *Controller) failed(ctx context.Context, cronTab *alphav1.CronTab, job string, err error, res *result) error {
	switch {
	case apierrors.IsAlreadyExists(err):
		return cmp.Or(c.jobs.CheckGone(ctx, cronTab, job, ""), err)
	case isAnswer(err):
		res.rejected = err
	}
	return err
}

func wasRejected(cronTab *alphav1.CronTab) bool {
	return controller.GetReady(cronTab.Status.Conditions).Reason == alphav1.ReasonJobRejected
}

// isAnswer reports whether the API server, an admission webhook or a policy answered that the Job was not
// created, which may last. An overload, and a conflict such as that of a quota, is over soon.
func isAnswer(err error) bool {
	var answer apierrors.APIStatus
	return controller.IsRefusal(err) || errors.As(err, &answer) && !mayExist(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsConflict(err)
}

// mayExist reports whether the Job may have been created although the request failed: the API server did not answer,
// although there was a connection, or answered that its time was over. Its other answers are taken at their word: a
// run must not be lost in an outage of etcd.
func mayExist(err error) bool {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		return apierrors.IsTimeout(err)
	}
	var network *net.OpError
	isDial := errors.As(err, &network) && network.Op == "dial"
	return err != nil && !isDial && !errors.Is(err, controller.ErrOverridden)
}

// isInconclusive reports whether the Job that was refused in a dry run may be created all the
// same: a quota counts the Jobs that are still to be deleted, and a webhook with side effects
// answers no dry run. The API server gives these refusals no reason of their own.
func isInconclusive(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: ") ||
		apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// describeRejection repeats the API server's message and says when the controller retries.
func describeRejection(res result) string {
	what, again := "did not create the Job", maxRetry
	switch {
	case res.created != nil:
		what = "created the Job without its owner"
	case res.tried:
		what, again = "will refuse the Job of the next run", maxTryRetry
	}
	return fmt.Sprintf("the API server %s: %s; it is tried again every %v at least, and at once when the spec changes", what, controller.RefusalMessage(res.rejected), again)
}

// unseenActive returns the Jobs that the status lists as active and the cache does not
// have, if the concurrency policy makes the next run depend on them.
func unseenActive(cronTab *alphav1.CronTab, cached []*batchv1.Job) []corev1.ObjectReference {
	if cmp.Or(cronTab.Spec.ConcurrencyPolicy, alphav1.AllowConcurrent) == alphav1.AllowConcurrent {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(cronTab.Status.Active), func(ref corev1.ObjectReference) bool {
		return slices.ContainsFunc(cached, func(job *batchv1.Job) bool { return job.UID == ref.UID })
	})
}

// NewDescriptor returns the descriptor of the controller of CronTabs.
func NewDescriptor() app.ControllerDescriptor {
	resource := schema.GroupVersion(alphav1.GroupVersion).WithResource("crontabs")
	return app.ControllerDescriptor{
		Name: "crontab", Kind: cronTabGVK().Kind, Resource: resource, CRDManifest: "artifacts/examples/crontab-crd.yaml",
		Informers: []app.Informer{
			{Resource: resource, Trim: Trim},
			{Resource: batchv1.SchemeGroupVersion.WithResource("jobs"), Trim: Trim},
		},
		New: func(ctx context.Context, c *app.ControllerContext) error {
			_, err := New(ctx, Options{
				KubeClient: c.KubeClient, Client: c.Client,
				CronTabs: c.Informers.Alpha().V1().CronTabs(), Jobs: c.KubeInformers.Batch().V1().Jobs(), Options: c.Options,
			})
			return err
		},
	}
}

// RegisterMetrics registers the metrics of this controller, once, and returns the histogram of
// the skew. Its name and buckets are those of the CronJob controller's, with this kind's name.
// The CronTabs of the store that are late are counted.
func RegisterMetrics(registered *controller.Metrics, cronTabs cache.Store) *metrics.Histogram {
	const help = "Number of CronTabs in this process's cache whose " + alphav1.CronTabLate + " condition is True. Every replica reports all."
	registered.CountStored("crontabs_"+strings.ToLower(alphav1.CronTabLate), help, nil, cronTabs, func(objects []any, found func(float64, ...string)) {
		late := 0.0
		for _, object := range objects {
			if meta.IsStatusConditionTrue(object.(controller.Conditioned).GetConditions(), alphav1.CronTabLate) {
				late++
			}
		}
		found(late)
	})
	return controller.Shared(registered, "crontabs_skew", func(registry metrics.KubeRegistry) *metrics.Histogram {
		skew := metrics.NewHistogram(&metrics.HistogramOpts{
			Subsystem: "crontab_controller", Name: "job_creation_skew_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time between when a run of a CronTab is to be started, and when its Job is created.",
			Buckets: metrics.ExponentialBuckets(1, 2, 10),
		})
		registry.MustRegister(skew)
		return skew
	})
}
