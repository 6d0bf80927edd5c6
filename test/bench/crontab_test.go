//go:build bench

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

package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	"k8s.io/client-go/util/workqueue"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// TestCronTabs measures how late the Jobs of CronTabs start that are due in the same second.
// A plain client creates as many Jobs of the same shape before and after, with as many
// concurrent requests as the controller has workers. kube-controller-manager is paused,
// because its work on the Jobs would count for neither.
func TestCronTabs(t *testing.T) {
	e := newEnv(t)
	jobs := e.observeJobs()
	e.pause("kube-controller-manager")
	e.start("--controllers=crontab")

	before := jobs.createPlain("before")
	due := e.createCronTabs()
	jobs.awaitAll("cron-")
	lateness := jobs.since(due, "cron-")
	jobs.checkOnePerCronTab()
	// The statuses that the controller has put off would slow down the plain client.
	e.awaitStatuses(due)
	after := jobs.createPlain("after")

	plain := mean(quantile(before, 0.99), quantile(after, 0.99))
	e.record("CronTabs", quantile(lateness, 0.99)/plain, map[string]float64{
		"p50 s": quantile(lateness, 0.5), "p99 s": quantile(lateness, 0.99), "last s": quantile(lateness, 1),
		"POST before p99 s": quantile(before, 0.99), "POST after p99 s": quantile(after, 0.99),
	})
}

// createCronTabs creates CronTabs that are all due at the same minute, which it returns, and
// waits until the controller has written each one's next schedule time.
func (e *env) createCronTabs() time.Time {
	e.Helper()
	// 80 ms per CronTab is enough to create it and for its first status.
	due := time.Now().UTC().Add(time.Minute + time.Duration(e.objects)*80*time.Millisecond).Truncate(time.Minute)
	cronTabs := e.foos.AlphaV1().CronTabs(namespace)
	e.inParallel(e.objects, func(ctx context.Context, i int) error {
		cronTab := &alphav1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: name("cron", i)}}
		cronTab.Spec.Schedule, cronTab.Spec.JobTemplate = fmt.Sprintf("%d %d * * *", due.Minute(), due.Hour()), podSpec()
		_, err := cronTabs.Create(ctx, cronTab, metav1.CreateOptions{})
		return err
	})
	e.eventually(func(ctx context.Context) error {
		list, err := cronTabs.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Status.NextScheduleTime == nil {
				return fmt.Errorf("CronTab %s has no next schedule time", list.Items[i].Name)
			}
		}
		return nil
	})
	if left := time.Until(due); left < 2*time.Second {
		e.Fatalf("the CronTabs are due in %s, too early for the measurement", left)
	}
	return due
}

// awaitStatuses waits until the status of each CronTab tells of the run that was due then.
func (e *env) awaitStatuses(due time.Time) {
	e.Helper()
	e.eventually(func(ctx context.Context) error {
		list, err := e.foos.AlphaV1().CronTabs(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if last := list.Items[i].Status.LastScheduleTime; last == nil || last.Time.Before(due) {
				return fmt.Errorf("CronTab %s has the last schedule time %v", list.Items[i].Name, last)
			}
		}
		return nil
	})
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "backup", Image: "mybackupscript:v9"}}, RestartPolicy: corev1.RestartPolicyNever}
}

// newJob returns a Job of the same shape as the controller's.
func newJob(name string, owners []metav1.OwnerReference) *batchv1.Job {
	labels := map[string]string{"app.kubernetes.io/managed-by": "bench", "bench.example.com/crontab": name}
	annotations := map[string]string{"bench.example.com/scheduled-time": time.Now().Format(time.RFC3339)}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations, OwnerReferences: owners},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"bench.example.com/crontab": name}, Annotations: annotations},
			Spec:       podSpec(),
		}},
	}
}

// jobObserver records when the watch first delivered each Job.
type jobObserver struct {
	notifier
	e *env

	created map[string]time.Time
	// recreated are the Jobs that were created a second time.
	recreated []string
}

func (e *env) observeJobs() *jobObserver {
	e.Helper()
	o := &jobObserver{notifier: newNotifier(), e: e, created: map[string]time.Time{}}
	factory := kubeinformers.NewSharedInformerFactory(e.kube, 0)
	_, err := factory.Batch().V1().Jobs().TypedInformer().AddTypedEventHandler(batchinformers.JobHandlerFuncs{AddFunc: func(job *batchv1.Job) {
		o.update(func() {
			if _, known := o.created[job.Name]; known {
				o.recreated = append(o.recreated, job.Name)
			}
			o.created[job.Name] = time.Now()
		})
	}})
	e.must(err)
	factory.StartWithContext(e.Context())
	factory.WaitForCacheSyncWithContext(e.Context())
	return o
}

// since returns the times from start to each Job of the group, in ascending order.
func (o *jobObserver) since(start time.Time, prefix string) []time.Duration {
	o.Lock()
	defer o.Unlock()
	var times []time.Duration
	for name, at := range o.created {
		if strings.HasPrefix(name, prefix) {
			times = append(times, at.Sub(start))
		}
	}
	return sorted(times)
}

func (o *jobObserver) awaitAll(prefix string) {
	o.e.Helper()
	o.e.waitForCount("Jobs", o.e.objects, func() int { return len(o.since(time.Time{}, prefix)) })
}

// createPlain creates Jobs and returns the times from the first request to each Job's event,
// in ascending order.
func (o *jobObserver) createPlain(prefix string) []time.Duration {
	e := o.e
	e.Helper()
	owners := e.createOwner(prefix)
	start := time.Now()
	workqueue.ParallelizeUntil(e.Context(), e.workers, e.objects, func(i int) {
		if _, err := e.kube.BatchV1().Jobs(namespace).Create(e.Context(), newJob(name(prefix, i), owners), metav1.CreateOptions{}); err != nil {
			e.Errorf("creating Job %d: %v", i, err)
		}
	})
	o.awaitAll(prefix)
	return o.since(start, prefix)
}

// createOwner creates a ConfigMap, which the controller ignores as an owner, and returns
// the owner reference for its dependents.
func (e *env) createOwner(name string) []metav1.OwnerReference {
	e.Helper()
	owner, err := e.kube.CoreV1().ConfigMaps(namespace).Create(e.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	e.must(err)
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
}

// checkOnePerCronTab checks that each CronTab has started exactly one Job.
func (o *jobObserver) checkOnePerCronTab() {
	e := o.e
	e.Helper()
	list, err := e.kube.BatchV1().Jobs(namespace).List(e.Context(), metav1.ListOptions{})
	e.must(err)
	owners := map[string]int{}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Kind == "CronTab" {
			owners[owner.Name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if owners[name] != 1 {
			e.Errorf("CronTab %s has %d Jobs", name, owners[name])
		}
	}
	o.Lock()
	defer o.Unlock()
	if len(owners) != e.objects || len(o.recreated) > 0 {
		e.Errorf("%d of %d CronTabs have a Job; created twice: %v", len(owners), e.objects, o.recreated)
	}
}
