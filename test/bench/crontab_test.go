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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	batchinformers "k8s.io/client-go/informers/batch/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// TestCronTabs tells how late the Jobs of many CronTabs are that are due in the
// same second, and how long a plain client takes for as many Jobs of the same shape,
// before and after. BENCH_WORKERS is how many workers the controller has, and how many
// creations the plain client makes at the same time. kube-controller-manager is paused:
// what it would do with the Jobs is nothing of theirs.
func TestCronTabs(t *testing.T) {
	b := newBench(t)
	births := b.watchBirths()
	b.pause("kube-controller-manager")
	b.start("--controllers=crontab")

	before := births.raw("before")
	due := b.createCronTabs()
	births.await("cron-")
	lateness := births.since(due, "cron-")
	births.checkOnce()
	after := births.raw("after")

	floor := mean(quantile(before, 0.99).Seconds(), quantile(after, 0.99).Seconds())
	b.report("CronTabs", quantile(lateness, 0.99).Seconds()/floor, map[string]float64{
		"p50 s": quantile(lateness, 0.5).Seconds(), "p99 s": quantile(lateness, 0.99).Seconds(), "last s": quantile(lateness, 1).Seconds(),
		"POST before p99 s": quantile(before, 0.99).Seconds(), "POST after p99 s": quantile(after, 0.99).Seconds(),
	})
}

// createCronTabs creates CronTabs with a run at the same coming minute and waits until
// the controller knows them. It returns that minute.
func (b *bench) createCronTabs() time.Time {
	b.Helper()
	// Time enough to create them and to store a status of each.
	due := time.Now().UTC().Add(time.Minute + time.Duration(b.objects)*80*time.Millisecond).Truncate(time.Minute)
	cronTabs := b.foos.AlphaV1().CronTabs(namespace)
	b.inParallel(b.objects, creators, func(ctx context.Context, i int) error {
		cronTab := &alphav1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cron-%05d", i)}}
		cronTab.Spec.Schedule, cronTab.Spec.JobTemplate = fmt.Sprintf("%d %d * * *", due.Minute(), due.Hour()), podSpec()
		_, err := cronTabs.Create(ctx, cronTab, metav1.CreateOptions{})
		return err
	})
	b.eventually(func(ctx context.Context) error {
		list, err := cronTabs.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Status.NextScheduleTime == nil {
				return fmt.Errorf("no status of %s", list.Items[i].Name)
			}
		}
		return nil
	})
	if left := time.Until(due); left < 2*time.Second {
		b.Fatalf("the CronTabs were not ready in time: %s are left", left)
	}
	return due
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "backup", Image: "mybackupscript:v9"}}, RestartPolicy: corev1.RestartPolicyNever}
}

// bareJob returns a Job of the shape that the controller makes.
func bareJob(name string, owner *corev1.ConfigMap) *batchv1.Job {
	labels := map[string]string{"app.kubernetes.io/managed-by": "bench", "bench.example.com/crontab": name}
	annotations := map[string]string{"bench.example.com/scheduled-time": time.Now().Format(time.RFC3339)}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"bench.example.com/crontab": name}, Annotations: annotations},
			Spec:       podSpec(),
		}},
	}
}

// births are when each Job was first seen by a watch of the benchmark's own.
type births struct {
	b    *bench
	mu   sync.Mutex
	seen map[string]time.Time
	// twice are those that were created a second time.
	twice []string
}

func (b *bench) watchBirths() *births {
	b.Helper()
	w := &births{b: b, seen: map[string]time.Time{}}
	factory := kubeinformers.NewSharedInformerFactory(b.kube, 0)
	_, err := factory.Batch().V1().Jobs().TypedInformer().AddTypedEventHandler(batchinformers.JobHandlerFuncs{AddFunc: func(job *batchv1.Job) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, known := w.seen[job.Name]; known {
			w.twice = append(w.twice, job.Name)
		}
		w.seen[job.Name] = time.Now()
	}})
	if err != nil {
		b.Fatal(err)
	}
	factory.StartWithContext(b.Context())
	factory.WaitForCacheSyncWithContext(b.Context())
	return w
}

// since returns how long after the time the Jobs were seen whose names begin like that,
// in order.
func (w *births) since(began time.Time, prefix string) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var took []time.Duration
	for name, at := range w.seen {
		if strings.HasPrefix(name, prefix) {
			took = append(took, at.Sub(began))
		}
	}
	slices.Sort(took)
	return took
}

func (w *births) await(prefix string) {
	b := w.b
	b.Helper()
	b.eventually(func(context.Context) error {
		if got := len(w.since(time.Time{}, prefix)); got < b.objects {
			return fmt.Errorf("%d Jobs", got)
		}
		return nil
	})
}

// raw creates Jobs at once and returns how long it took until each was seen, in order.
func (w *births) raw(prefix string) []time.Duration {
	b := w.b
	b.Helper()
	// The controller takes no notice of what is owned by something else.
	owner, err := b.kube.CoreV1().ConfigMaps(namespace).Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: prefix}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	b.inParallel(b.objects, b.workers, func(ctx context.Context, i int) error {
		_, err := b.kube.BatchV1().Jobs(namespace).Create(ctx, bareJob(fmt.Sprintf("%s-%05d", prefix, i), owner), metav1.CreateOptions{})
		return err
	})
	w.await(prefix)
	return w.since(began, prefix)
}

// checkOnce sees that each CronTab has started one Job.
func (w *births) checkOnce() {
	b := w.b
	b.Helper()
	jobs, err := b.kube.BatchV1().Jobs(namespace).List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	owners := map[string]int{}
	for i := range jobs.Items {
		if owner := metav1.GetControllerOf(&jobs.Items[i]); owner != nil && owner.Kind == "CronTab" {
			owners[owner.Name]++
		}
	}
	for name, count := range owners {
		if count != 1 {
			b.Errorf("CronTab %s has %d Jobs", name, count)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(owners) != b.objects || len(w.twice) > 0 {
		b.Errorf("%d of %d CronTabs have a Job; created twice: %v", len(owners), b.objects, w.twice)
	}
}
