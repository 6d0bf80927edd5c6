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

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

var errRefused = apierrors.NewForbidden(deployments.GroupResource(), "web", errors.New("denied"))

func TestCreate(t *testing.T) {
	inEachCluster(t, map[string]func(*testCluster){
		"rule 3: where this process has created one in the last 10 minutes the Foo is read live; the next sync waits for the cache": func(c *testCluster) {
			for _, after := range []time.Duration{0, time.Minute, 10 * time.Minute} {
				time.Sleep(after)
				want := []string{create}
				if after == time.Minute {
					want = []string{readFoo, create}
				}
				_, err := c.deployments.Create(c.ctx, c.foo, c.desired(c.foo))
				c.expect(err, nil, want...)
				c.waits(true)
				c.see()
				c.waits(false)
				c.remove(deployments)
				c.see()
			}
		},
		"S1: one that is gone, terminating, made anew, changed or not the Foo's any more cannot be read live": func(c *testCluster) {
			for _, change := range []func(metav1.Object){
				nil, func(d metav1.Object) { d.SetDeletionTimestamp(ptr.To(metav1.Now())) },
				func(d metav1.Object) { d.SetUID("another") }, func(d metav1.Object) { d.SetGeneration(7) }, orphan,
			} {
				c.drift(func(d metav1.Object) { d.SetDeletionTimestamp(nil) })
				cached := c.cached()
				if change == nil {
					c.remove(deployments)
				} else {
					c.drift(change)
				}
				_, err := c.deployments.Live(c.ctx, c.foo, cached)
				c.expect(err, apierrors.IsConflict, read)
			}
		},
		"rule 22: a cache that reaches the present during a sync has told it nothing": func(c *testCluster) {
			foo := c.foo
			c.edit()
			_, err := c.deployments.Create(c.ctx, foo, c.desired(foo))
			c.expect(err, apierrors.IsConflict, readFoo)
		},
		"rule 12: one that the cache does not show is gone only if the API server says so": func(c *testCluster) {
			isGone := func(is func(error) bool) {
				c.Helper()
				c.expect(c.deployments.CheckGone(c.ctx, c.foo, "web", "uid-11"), is, read)
			}
			c.drift()
			c.deploymentStore.Bookmark("10")
			isGone(apierrors.IsConflict)
			c.waits(true)
			c.answer = refuse("get", apierrors.NewInternalError(errors.New("oops")))
			isGone(apierrors.IsInternalError)
			c.answer = refuse("get", nil)
			c.drift(orphan)
			isGone(nil)
		},
		"rule 3: of a Deployment that the cache does not show yet the version is read": func(c *testCluster) {
			foo := c.foo
			c.drift()
			_, err := c.deployments.Create(c.ctx, foo, c.desired(foo))
			c.expect(err, apierrors.IsConflict, create, read)
			c.deploymentStore.Bookmark("10")
			c.waits(true)
			c.answer = refuse("get", apierrors.NewNotFound(deployments.GroupResource(), "web"))
			_, err = c.deployments.Create(c.ctx, foo, c.desired(foo))
			c.expect(err, apierrors.IsAlreadyExists, create, read)
		},
	})
}

// TestAdmission is about what admission and the cache make of a write.
func TestAdmission(t *testing.T) {
	inEachCluster(t, map[string]func(*testCluster){
		"rule 4: an accepted value counts in place of the value that was sent alone": func(c *testCluster) {
			c.admit = scale(2)
			c.expect(c.apply(), nil, create)
			c.expect(c.apply(), nil)
			c.replicas = 5
			c.expect(c.apply(), nil, patchOf(11, `"replicas":5`))
			c.expect(c.apply(), nil)
			time.Sleep(time.Second)
			c.drift(scale(7))
			c.expect(c.apply(), nil, patchOf(12, `"replicas":5`))
			c.replicas = 3
			c.expect(c.apply(), nil, rescale(13))
		},
		"rule 4: a new generation sends it once more; without an effect there is no event and nothing to wait for": func(c *testCluster) {
			c.admit = image("mirror/a")
			c.expect(c.apply(), nil, create)
			c.edit()
			c.told("Normal Created")
			c.waits(false)
			_, err := c.write()
			c.expect(err, nil, patchOf(11, reimage))
			c.deploymentStore.Bookmark("10")
			c.waits(false)
			c.expect(c.apply(), nil)
			c.told()
		},
		"rule 4: a field that the cache drops is not fought over, and an error in the log names it, and no accepted one": func(c *testCluster) {
			c.admit = image("mirror/a")
			c.deployments.Trim = func(d *appsv1.Deployment) *appsv1.Deployment {
				trimmed := d.DeepCopy()
				trimmed.Labels = nil
				return trimmed
			}
			c.expect(c.apply(), nil, create)
			c.drift(scale(5))
			c.expect(c.apply(), nil, rescale(12))
			c.expect(c.apply(), nil)
			logged := klog.FromContext(c.ctx).GetSink().(ktesting.Underlier).GetBuffer().String()
			if want := `keep it in Trim`; strings.Count(logged, want) != 2 || !strings.Contains(logged, `field="label tier"`) {
				c.Errorf("the log is %s, want twice %q", logged, want)
			}
		},
		"rule 11: a Deployment that a patch or an adoption has taken from the Foo is left alone in this generation; another change of the reference is accepted": func(c *testCluster) {
			adopt := func() error { return c.deployments.Adopt(c.ctx, c.foo, c.cached(), v1alpha1.AdoptByAnnotation) }
			c.drift(scale(5))
			c.admit = orphan
			c.expect(c.apply(), isOverridden, rescale(11))
			c.expect(c.apply(), isOverridden)
			if report := c.report(nil); report != (controller.Report{}) {
				c.Errorf("rule 21: an overridden repair counts: %+v", report)
			}
			c.drift(func(d metav1.Object) { d.SetUID("another") })
			c.expect(c.apply(), nil)
			c.drift(func(d metav1.Object) { d.SetUID("uid-11") })
			c.edit()
			if err := adopt(); !isOverridden(err) || len(c.requests) != 2 {
				c.Errorf("error %v of an adoption after %q", err, c.requests)
			}
			c.requests = nil
			c.expect(adopt(), isOverridden)
			c.told()
			c.admit = func(d metav1.Object) { d.GetOwnerReferences()[0].BlockOwnerDeletion = nil }
			c.drift(scale(5), func(d metav1.Object) { d.SetOwnerReferences(c.desired(c.foo).OwnerReferences) })
			c.expect(c.apply(), nil, rescale(c.version-1))
			c.expect(c.apply(), nil)
			if got := c.report(c.cached()).Accepted; got != `owner reference of "foo", blockOwnerDeletion false` {
				c.Errorf("rule 4: accepted %q", got)
			}
			c.drift(func(d metav1.Object) { d.GetOwnerReferences()[0].Name = "another" })
			if err := c.apply(); err != nil || len(c.requests) != 1 {
				c.Errorf("rule 4: error %v, requests %q after another drift of what was accepted", err, c.requests)
			}
		},
	})
}

// TestContested is rule 21: another writer undoes the repairs.
func TestContested(t *testing.T) {
	const scaler = `another writer keeps changing what this Foo enforces on Deployment "web": replicas (by scaler through scale); stop that writer, and change the Foo`
	says := func(c *testCluster, message string, wait time.Duration) {
		c.Helper()
		report := c.report(nil)
		if left := max(0, time.Until(report.Next)); report.Contested != message || left != wait {
			c.Errorf("message %q for %v, want %q for %v", report.Contested, left, message, wait)
		}
	}
	// undo lets the other writer act, and says what that leads to: message, and for how long the next repair waits.
	undo := func(c *testCluster, message string, wait time.Duration) {
		c.Helper()
		c.drift(scale(5), func(d metav1.Object) {
			d.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "scaler", Subresource: "scale", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)}})
		})
		requests := []string{rescale(c.version)}
		if message != "" {
			requests = []string{read, requests[0]}
		}
		c.expect(c.apply(), nil, requests...)
		says(c, message, wait)
	}
	inEachCluster(t, map[string]func(*testCluster){
		"rule 21: pauses grow from 1 s to 5 min, and the writer is named until a repair has held for 10 minutes": func(c *testCluster) {
			c.existed = true
			for _, pause := range []time.Duration{1, 2, 4, 8} {
				undo(c, "", pause*time.Second)
				time.Sleep(pause * time.Second)
			}
			pause := 16 * time.Second
			undo(c, scaler, pause)
			for _, next := range []time.Duration{32, 64, 128, 256, 300, 300} {
				time.Sleep(pause - 1)
				c.drift(scale(5))
				c.expect(c.apply(), nil)
				says(c, scaler, 1)
				time.Sleep(time.Nanosecond)
				pause = next * time.Second
				undo(c, scaler, pause)
			}
			time.Sleep(pause)
			says(c, scaler, 5*time.Minute)
			time.Sleep(5 * time.Minute)
			says(c, "", 0)
			undo(c, "", time.Second)
		},
		"rule 21: so do creations, if another client deletes the Deployment": func(c *testCluster) {
			const deleter = `another client keeps changing or deleting Deployment "web", and deleted it last; stop that client, and change or delete the Foo instead`
			c.existed = true
			for i, message := range []string{"", "", "", "", deleter} {
				c.expect(c.apply(), nil, readFoo, create)
				c.remove(deployments)
				c.see()
				c.expect(c.apply(), nil)
				says(c, message, time.Second<<i)
				time.Sleep(time.Second << i)
			}
		},
		"rule 12: a repair that is refused does not count, and while the writer cannot be read nothing is repaired": func(c *testCluster) {
			c.existed = true
			for i := range 14 {
				c.drift(scale(5))
				if c.answer = refuse("patch", errRefused); i < 10 {
					c.expect(c.apply(), controller.IsRefusal, rescale(c.version))
					continue
				}
				c.answer = refuse("get", apierrors.NewInternalError(errors.New("oops")))
				c.expect(c.apply(), nil, rescale(c.version-1))
				time.Sleep(time.Minute)
			}
			c.drift(scale(5))
			c.expect(c.apply(), apierrors.IsInternalError, read)
		},
	})
}

func TestDelete(t *testing.T) {
	deletesWeb := func(c *testCluster) {
		c.Helper()
		web := c.cached()
		err := c.deployments.Delete(c.ctx, c.foo, web, metav1.DeletePropagationForeground, "it is not needed")
		c.expect(err, nil, readFoo, "delete deployments web uid=uid-11 version=11 Foreground")
	}
	inEachCluster(t, map[string]func(*testCluster){
		"S1: a delete has preconditions, and the next sync waits until the Deployment is gone from the cache": func(c *testCluster) {
			c.drift()
			deletesWeb(c)
			c.told("Normal Deleted")
			c.waits(true)
			c.see()
			c.waits(false)
		},
		"rule 14: the next sync waits until a deleted Deployment is terminating in the cache, or is another one": func(c *testCluster) {
			for _, seen := range []func(metav1.Object){
				func(d metav1.Object) { d.SetDeletionTimestamp(ptr.To(metav1.Now())) }, func(d metav1.Object) { d.SetUID("another") },
			} {
				c.drift(func(d metav1.Object) { d.SetDeletionTimestamp(nil) })
				c.foos.AwaitDeletion(c.foo, c.deploymentStore, c.cached())
				c.waits(true)
				c.drift(seen)
				c.waits(false)
			}
		},
		"S1: a Foo that is terminating, or cannot be read, deletes nothing": func(c *testCluster) {
			c.drift()
			foo := c.foo.DeepCopy()
			c.edit(func(foo *v1alpha1.Foo) { terminate(foo); foo.Generation-- })
			for err, is := range map[error]func(error) bool{nil: apierrors.IsConflict, apierrors.NewInternalError(errors.New("oops")): apierrors.IsInternalError} {
				c.answer = refuse("get", err)
				c.expect(c.deployments.Delete(c.ctx, foo, c.cached(), metav1.DeletePropagationForeground, ""), is, readFoo)
			}
		},
		"S1: a Deployment that is gone needs no delete, and the next sync waits for the cache for 30 seconds at most": func(c *testCluster) {
			c.drift()
			c.remove(deployments)
			deletesWeb(c)
			c.told()
			time.Sleep(30*time.Second - 1)
			c.waits(true)
			time.Sleep(time.Nanosecond)
			c.waits(false)
		},
	})
}

// TestLargeObjects is rule 24: what takes much memory is not read by two syncs at once.
func TestLargeObjects(t *testing.T) {
	patch := func(c *testCluster, ctx context.Context, foo *v1alpha1.Foo) error {
		_, err := c.deployments.Patch(ctx, foo, c.cached(), c.desired(foo))
		return err
	}
	for sentence, test := range map[string]struct {
		tolerations, want int
		call              func(*testCluster, context.Context, *v1alpha1.Foo) error
	}{
		"rule 24: ordinary objects do not wait": {1, 2, patch},
		"rule 24: a patch":                      {450000, 1, patch},
		"rule 24: a live read": {450000, 1, func(c *testCluster, ctx context.Context, foo *v1alpha1.Foo) error {
			_, err := c.deployments.Live(ctx, foo, c.cached())
			return err
		}},
		"rule 24: a live read for another owner, as in a cycle of renames": {450000, 1, func(c *testCluster, ctx context.Context, foo *v1alpha1.Foo) error {
			other := foo.DeepCopy()
			other.Name = "other"
			_, err := c.deployments.Live(ctx, other, c.cached())
			return err
		}},
		"rule 24: a live read of what the cache does not have, of any size": {1, 1, func(c *testCluster, ctx context.Context, foo *v1alpha1.Foo) error {
			return c.deployments.CheckGone(ctx, foo, "web", "")
		}},
		"rule 24: a live read of the owner": {450000, 1, func(c *testCluster, ctx context.Context, foo *v1alpha1.Foo) error {
			return c.foos.CheckLive(ctx, foo)
		}},
		"rule 24: a status of the owner": {450000, 1, func(c *testCluster, ctx context.Context, foo *v1alpha1.Foo) error {
			_, err := c.foos.UpdateStatus(ctx, foo, &v1alpha1.FooStatus{Replicas: 7}, false, metav1.Condition{})
			return err
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *testCluster) {
				c.deployments.Trim = func(d *appsv1.Deployment) *appsv1.Deployment {
					trimmed := d.DeepCopy()
					controller.MarkLarge(trimmed, &corev1.PodSpec{Tolerations: make([]corev1.Toleration, test.tolerations)})
					return trimmed
				}
				c.drift(scale(5))
				c.answer = func(string) error { return errRefused }
				held, requests := make(chan struct{}), 0
				defer close(held)
				c.before = func() { requests++; <-held }
				results := make(chan error, 3)
				ended := func() error {
					select {
					case err := <-results:
						return err
					case <-time.After(time.Minute):
						return errors.New("no sync ended")
					}
				}
				c.worker.Handle("", func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
					timeout, _ := time.ParseDuration(key.Name)
					ctx, cancel := context.WithTimeout(ctx, timeout)
					defer cancel()
					foo := c.foo.DeepCopy()
					foo.Name = key.Name
					controller.MarkLarge(foo, &corev1.PodSpec{Tolerations: make([]corev1.Toleration, test.tolerations)})
					results <- test.call(c, ctx, foo)
					return 0, nil
				})
				ctx, cancel := context.WithCancel(c.ctx)
				defer cancel()
				go func() { _ = c.worker.Run(ctx) }()
				for _, timeout := range []string{"50s", "40s", "20s"} {
					c.worker.Queue.Add(cache.NewObjectName("ns", timeout))
					if synctest.Wait(); timeout == "40s" && requests != test.want {
						t.Errorf("%d requests at once, want %d", requests, test.want)
					}
				}
				if time.Sleep(20 * time.Second); test.want == 1 && !errors.Is(ended(), context.DeadlineExceeded) {
					t.Error("the end of a sync that waits is not reported")
				}
				// A sync that fails makes way for the next one.
				for range test.want + 1 {
					select {
					case held <- struct{}{}:
					case <-time.After(time.Minute):
					}
					if err := ended(); !controller.IsRefusal(err) {
						t.Errorf("error %v", err)
					}
				}
			}, func(o *controller.WorkerOptions) { o.Workers = 3 })
		})
	}
}

func terminate(foo *v1alpha1.Foo) { foo.DeletionTimestamp = ptr.To(metav1.Now()) }

// TestInitialLists: when a process begins to lead, each owner is enqueued once, with low priority.
func TestInitialLists(t *testing.T) {
	inCluster(t, func(c *testCluster) {
		c.drift()
		changed := cache.NewObjectName("ns", "changed")
		c.foos.EventHandler().OnAdd(c.foo, true)
		c.deployments.EventHandler(func(name cache.ObjectName) { c.Errorf("rule 22: %s is enqueued as a name", name) }).OnAdd(c.cached(), true)
		c.foos.EventHandler().OnAdd(&v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Namespace: changed.Namespace, Name: changed.Name}}, false)
		for _, want := range []cache.ObjectName{changed, cache.MetaObjectToName(c.foo)} {
			if key, _ := c.worker.Queue.Get(); key != want {
				c.Errorf("rule 22: %s is next, not %s", key, want)
			}
		}
		fixture.Differ(t, "rule 22: enqueued once more", 0, c.worker.Queue.Len())
	})
}

// TestEventsOfOwners is about an update event of version 11 in place of version 10, or a delete event.
func TestEventsOfOwners(t *testing.T) {
	const never = -1
	status := func(foo *v1alpha1.Foo) { foo.Status.Replicas = 1 }
	for sentence, test := range map[string]struct {
		change func(foo *v1alpha1.Foo)
		// failed says that the last sync has failed.
		failed bool
		// after is when the Foo is enqueued.
		after time.Duration
		// backoff says that the failures still count.
		backoff bool
	}{
		"rule 19: a relist":                           {func(foo *v1alpha1.Foo) { foo.ResourceVersion = "10" }, false, never, false},
		"rule 19: a resync":                           {func(foo *v1alpha1.Foo) { foo.ResourceVersion = "10" }, true, 0, true},
		"rule 19: a status":                           {status, false, time.Second, false},
		"rule 11: a status, before a retry":           {status, true, 5 * time.Minute, true},
		"rule 12: another generation":                 {func(foo *v1alpha1.Foo) { foo.Generation++ }, true, 0, false},
		"rule 19: a deletion has begun":               {func(foo *v1alpha1.Foo) { terminate(foo) }, true, 0, true},
		"rule 19: an annotation that the cache keeps": {func(foo *v1alpha1.Foo) { foo.Annotations = map[string]string{"a": "b"} }, true, 0, true},
		"rule 19: a finalizer that the cache keeps":   {func(foo *v1alpha1.Foo) { foo.Finalizers = []string{"a"} }, true, 0, true},
		"rule 1: made anew":                           {func(foo *v1alpha1.Foo) { foo.UID = "anew" }, true, 0, false},
		"rule 1: gone":                                {nil, true, 0, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *testCluster) {
				key := cache.NewObjectName("ns", "foo")
				if test.failed {
					c.worker.Queue.AddRateLimited(key)
					fixture.Enqueued(c.worker, time.Minute)
				}
				if _, err := c.foos.UpdateStatus(c.ctx, c.foo, &v1alpha1.FooStatus{Replicas: 7}, false, metav1.Condition{}); err != nil {
					c.Fatal(err)
				}
				changed := c.foo.DeepCopy()
				changed.ResourceVersion = "11"
				if test.change == nil {
					c.foos.EventHandler().OnDelete(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: c.foo})
				} else {
					test.change(changed)
					c.foos.EventHandler().OnUpdate(c.foo, changed)
				}
				// The sync may have written for the next one.
				c.waits(true)
				for _, at := range []time.Duration{0, time.Second, 5 * time.Minute} {
					var enqueued []string
					if at == test.after {
						enqueued = []string{"foo"}
					}
					fixture.Differ(t, fmt.Sprintf("enqueued until %v", at), enqueued, fixture.Enqueued(c.worker, at))
				}
				if got := c.worker.Queue.NumRequeues(key); (got > 0) != test.backoff {
					t.Errorf("rule 12: %d failures count", got)
				}
			}, func(o *controller.WorkerOptions) { o.Resync = sentence == "rule 19: a resync" })
		})
	}
}
