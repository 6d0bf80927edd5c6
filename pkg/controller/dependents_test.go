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

func errRefused() error {
	return apierrors.NewForbidden(appsv1.Resource(deployments), "web", errors.New("denied"))
}

func TestCreate(t *testing.T) {
	for sentence, test := range map[string]func(*cluster){
		"rule 3: a first Deployment is created without a live read": func(c *cluster) {
			_, err := c.deployments.Create(c.ctx, c.foo, c.desired(c.foo))
			c.expect(err, nil, create)
			fixture.Differ(c.T, "rule 16: events", []string{"Normal Created"}, fixture.Recorded(c.events))
			if c.seen() {
				c.Error("rule 14: the next sync does not wait for the cache")
			}
			if c.see(); !c.seen() {
				c.Error("rule 14: the next sync waits although the cache shows the write")
			}
		},
		"rule 3: where the status knows of an earlier Deployment the Foo is read live": func(c *cluster) {
			c.existed = true
			c.expect(c.apply(), nil, readFoo, create)
		},
		"rule 3: where this process has created one in the last 10 minutes the Foo is read live": func(c *cluster) {
			for _, after := range []time.Duration{0, time.Minute, 10 * time.Minute} {
				time.Sleep(after)
				err := c.apply()
				want := []string{create}
				if after == time.Minute {
					want = []string{readFoo, create}
				}
				c.expect(err, nil, want...)
				c.remove(deployments)
				c.see()
			}
		},
		"rule 3: a Foo that is gone gets no Deployment": func(c *cluster) {
			c.existed = true
			c.remove(foos)
			_, err := c.deployments.Create(c.ctx, c.foo, c.desired(c.foo))
			c.expect(err, apierrors.IsConflict, readFoo)
		},
		"rule 3: of a Deployment that the cache does not show yet the version is read": func(c *cluster) {
			foo := c.foo
			c.drift()
			_, err := c.deployments.Create(c.ctx, foo, c.desired(foo))
			c.expect(err, isStale, create, read)
			if c.deploymentStore.Bookmark("10"); c.seen() {
				c.Error("rule 14: the next sync does not wait for the cache")
			}
			c.answer = refuse("get", apierrors.NewNotFound(appsv1.Resource(deployments), "web"))
			_, err = c.deployments.Create(c.ctx, foo, c.desired(foo))
			c.expect(err, apierrors.IsNotFound, create, read)
		},
		"rule 11: a creation that is refused leaves nothing behind": func(c *cluster) {
			c.answer = refuse("create", errRefused())
			c.expect(c.apply(), controller.IsRejection, create)
			c.expect(c.apply(), controller.IsRejection, create)
			fixture.Differ(c.T, "rule 16: events", []string(nil), fixture.Recorded(c.events))
		},
		"rule 8: a copy is made of the live source": func(c *cluster) {
			c.drift(image("b"))
			source := c.deployments.Get("ns", "web")
			_, err := c.deployments.CreateCopy(c.ctx, c.foo, source, func(live *appsv1.Deployment) *appsv1.Deployment {
				copied := c.desired(c.foo)
				copied.Name, copied.Spec.Template = "copy", live.Spec.Template
				return copied
			})
			c.expect(err, nil, read, "create deployments copy replicas=3 owner=uid-foo")
			c.remove(deployments)
			_, err = c.deployments.CreateCopy(c.ctx, c.foo, source, nil)
			c.expect(err, apierrors.IsConflict, read)
		},
	} {
		t.Run(sentence, func(t *testing.T) { inCluster(t, test) })
	}
}

// TestAdmission is about what admission and the cache make of a write.
func TestAdmission(t *testing.T) {
	mirror := func(d *appsv1.Deployment) {
		if c := &d.Spec.Template.Spec.Containers[0]; !strings.HasPrefix(c.Image, "mirror/") {
			c.Image = "mirror/" + c.Image
		}
	}
	for sentence, test := range map[string]func(*cluster){
		"rule 4: what admission answered is not sent again, other drift is": func(c *cluster) {
			c.admit = mirror
			c.expect(c.apply(), nil, create)
			c.expect(c.apply(), nil)
			c.differences("image mirror/a in place of a", "")
			c.drift(scale(5))
			c.differences("image mirror/a in place of a", "replicas from 5 to 3")
			c.expect(c.apply(), nil, rescale(12))
			time.Sleep(time.Second)
			c.expect(c.apply(), nil)
			c.drift(image("x"))
			c.expect(c.apply(), nil, `patch deployments web {"metadata":{"resourceVersion":"14"},"spec":{"template":{"spec":{"containers":[{"image":"a","name":"c"}]}}}}`)
			c.differences("image mirror/a in place of a", "")
			c.drift(image("a"))
			c.differences("", "")
		},
		"rule 4: an answered value counts in place of the value that was sent alone": func(c *cluster) {
			c.admit = scale(2)
			c.expect(c.apply(), nil, create)
			c.expect(c.apply(), nil)
			c.replicas = 5
			c.expect(c.apply(), nil, `patch deployments web {"metadata":{"resourceVersion":"11"},"spec":{"replicas":5}}`)
			c.expect(c.apply(), nil)
		},
		"rule 4: a new generation sends it once more; without an effect there is no event and nothing to wait for": func(c *cluster) {
			c.admit = mirror
			c.expect(c.apply(), nil, create)
			c.edit(func(*v1alpha1.Foo) {})
			fixture.Recorded(c.events)
			if !c.seen() {
				c.Error("rule 14: the next sync waits although the cache shows the creation")
			}
			_, err := c.deployments.Apply(c.ctx, c.foo, c.deployments.Get("ns", "web"), c.desired)
			c.expect(err, nil, `patch deployments web {"metadata":{"resourceVersion":"11"},"spec":{"template":{"spec":{"containers":[{"image":"a","name":"c"}]}}}}`)
			c.deploymentStore.Bookmark("10")
			if !c.seen() {
				c.Error("rule 14: the next sync waits for a patch that changed nothing")
			}
			c.expect(c.apply(), nil)
			fixture.Differ(c.T, "rule 16: events", []string(nil), fixture.Recorded(c.events))
		},
		"rule 4: a creation sends what a later sync compares, and no more counts as answered": func(c *cluster) {
			empty := c.desired(c.foo)
			scale(0)(empty)
			_, err := c.deployments.Create(c.ctx, c.foo, empty)
			c.expect(err, nil, "create deployments web replicas=0 owner=uid-foo")
			c.see()
			c.expect(c.apply(), nil, rescale(11))
		},
		"rule 4: a repair that is not all that the Foo asks for is followed by the rest": func(c *cluster) {
			c.drift(scale(5), image("b"))
			current := c.deployments.Get("ns", "web")
			first := controller.NewPatch(current)
			first.CompareReplicas(current.Spec.Replicas, 0)
			_, err := c.deployments.Patch(c.ctx, c.foo, current, first)
			c.expect(err, nil, `patch deployments web {"metadata":{"resourceVersion":"11"},"spec":{"replicas":0}}`)
			c.see()
			c.expect(c.apply(), nil, `patch deployments web {"metadata":{"resourceVersion":"12"},"spec":{"replicas":3,"template":{"spec":{"containers":[{"image":"a","name":"c"}]}}}}`)
		},
		"rule 4: a field that the cache drops is not fought over, and an error in the log names it": func(c *cluster) {
			c.trim = func(d *appsv1.Deployment) *appsv1.Deployment {
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
		"rule 11: a Deployment whose owner reference admission removed is left alone in this generation": func(c *cluster) {
			c.admit = orphan
			c.expect(c.apply(), isOverridden, create)
			fixture.Differ(c.T, "metric", []string{"deployments create 1"}, c.written())
			c.expect(c.apply(), isOverridden)
			c.drift(func(d *appsv1.Deployment) { d.UID = "another" })
			c.expect(c.apply(), nil)
			c.drift(func(d *appsv1.Deployment) { d.UID = "uid-11" })
			c.expect(c.apply(), isOverridden)
			c.edit(func(*v1alpha1.Foo) {})
			c.expect(c.apply(), nil)
		},
		"rule 11: an owner reference that admission removes is a refusal, of a patch too; another change of it is accepted": func(c *cluster) {
			c.drift(scale(5))
			c.admit = orphan
			c.expect(c.apply(), isOverridden, rescale(11))
			c.expect(c.apply(), isOverridden)
			if report := c.deployments.Report(c.foo, nil); report != (controller.Report{}) {
				c.Errorf("rule 21: an overridden repair counts: %+v", report)
			}
			c.admit = func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil }
			c.drift(func(d *appsv1.Deployment) { d.OwnerReferences = c.desired(c.foo).OwnerReferences; scale(5)(d) })
			c.expect(c.apply(), nil, rescale(13))
			c.expect(c.apply(), nil)
			c.differences("owner reference", "")
		},
		"rule 5: a Deployment of another owner, or a terminating one, is left alone": func(c *cluster) {
			c.drift(func(d *appsv1.Deployment) { orphan(d); scale(5)(d) })
			c.expect(c.apply(), nil)
			c.drift(func(d *appsv1.Deployment) {
				d.OwnerReferences, d.DeletionTimestamp = c.desired(c.foo).OwnerReferences, ptr.To(metav1.Now())
			})
			c.expect(c.apply(), nil)
		},
	} {
		t.Run(sentence, func(t *testing.T) { inCluster(t, test) })
	}
}

// TestContested is rule 21: another writer undoes the repairs.
func TestContested(t *testing.T) {
	const scaler = `another writer keeps changing what this Foo enforces on Deployment "web": replicas (by scaler through scale); stop that writer, and change the Foo`
	says := func(c *cluster, message string, wait time.Duration) {
		c.Helper()
		report := c.deployments.Report(c.foo, nil)
		if left := max(0, time.Until(report.Next)); report.Contested != message || left != wait {
			c.Errorf("message %q for %v, want %q for %v", report.Contested, left, message, wait)
		}
	}
	// undo lets the other writer act, and says what that leads to: message, and for how long the next repair waits.
	undo := func(c *cluster, message string, wait time.Duration) {
		c.Helper()
		c.drift(scale(5), func(d *appsv1.Deployment) {
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "scaler", Subresource: "scale", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)}}
		})
		requests := []string{rescale(c.version)}
		if message != "" {
			requests = []string{read, requests[0]}
		}
		c.expect(c.apply(), nil, requests...)
		says(c, message, wait)
	}
	// contend lets the other writer act five times, after the pauses or when it is later.
	contend := func(c *cluster, later time.Duration) {
		c.Helper()
		for _, pause := range []time.Duration{1, 2, 4, 8} {
			undo(c, "", pause*time.Second)
			time.Sleep(max(later, pause*time.Second))
		}
		undo(c, scaler, 16*time.Second)
	}
	for sentence, test := range map[string]func(*cluster){
		"rule 21: pauses grow from 1 s to 5 min, and from the fifth repair on the writer is named": func(c *cluster) {
			contend(c, 0)
			pause := 16 * time.Second
			for _, next := range []time.Duration{32, 64, 128, 256, 300, 300} {
				time.Sleep(pause - 1)
				c.drift(scale(5))
				c.expect(c.apply(), nil)
				says(c, scaler, 1)
				time.Sleep(time.Nanosecond)
				pause = next * time.Second
				undo(c, scaler, pause)
			}
		},
		"rule 21: after the pause the message stays until a repair has held for 10 minutes": func(c *cluster) {
			contend(c, 0)
			time.Sleep(16 * time.Second)
			says(c, scaler, 10*time.Minute-16*time.Second)
			time.Sleep(10*time.Minute - 16*time.Second)
			says(c, "", 0)
			undo(c, "", time.Second)
		},
		"rule 21: a writer that acts every 5 minutes is seen after its fifth undoing": func(c *cluster) { contend(c, 5*time.Minute) },
		"rule 21: a new generation starts anew": func(c *cluster) {
			contend(c, 0)
			c.edit(func(*v1alpha1.Foo) {})
			undo(c, "", time.Second)
		},
		"rule 21: other wanted replicas start anew": func(c *cluster) {
			contend(c, 0)
			c.replicas = 4
			want := strings.Replace(rescale(c.version), "3}}", "4}}", 1)
			c.expect(c.apply(), nil, want)
			says(c, "", time.Second)
		},
		"rule 21: deletions and creations count": func(c *cluster) {
			c.expect(c.apply(), nil, create)
			for _, pause := range []time.Duration{1, 2, 4, 8, 16} {
				time.Sleep(pause * time.Second / 2)
				c.remove(deployments)
				c.see()
				c.expect(c.apply(), nil, readFoo, create)
				if pause < 16 {
					says(c, "", pause*time.Second)
				}
			}
			says(c, `another client keeps changing or deleting Deployment "web", and deleted it last; stop that client, and change or delete the Foo instead`, 16*time.Second)
			c.remove(deployments)
			time.Sleep(16*time.Second - 1)
			c.see()
			c.expect(c.apply(), nil)
		},
		"rule 21: a repair that is refused does not count": func(c *cluster) {
			c.drift(scale(5))
			c.answer = refuse("patch", errRefused())
			for range 10 {
				c.expect(c.apply(), controller.IsRejection, rescale(11))
			}
			says(c, "", 0)
		},
		"rule 12: while the writer cannot be read nothing is repaired": func(c *cluster) {
			for range 4 {
				c.drift(scale(5))
				c.expect(c.apply(), nil, rescale(c.version-1))
				time.Sleep(time.Minute)
			}
			c.drift(scale(5))
			c.answer = refuse("get", apierrors.NewInternalError(errors.New("oops")))
			c.expect(c.apply(), apierrors.IsInternalError, read)
		},
	} {
		t.Run(sentence, func(t *testing.T) { inCluster(t, test) })
	}
}

func TestAdoptAndDelete(t *testing.T) {
	adopt := func(c *cluster, d *appsv1.Deployment) error {
		_, err := c.deployments.Adopt(c.ctx, c.foo, d, v1alpha1.AdoptByAnnotation)
		return err
	}
	remove := func(c *cluster, d *appsv1.Deployment) error {
		return c.deployments.Delete(c.ctx, c.foo, d, metav1.DeletePropagationForeground, "it is not needed")
	}
	const (
		adoption = `patch deployments web {"metadata":{"annotations":{"samplecontroller.k8s.io/adopt-by":null},"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"11"}}`
		deletion = "delete deployments web uid=uid-11 version=11 Foreground"
	)
	asking := func(d *appsv1.Deployment) {
		orphan(d)
		d.Annotations = map[string]string{v1alpha1.AdoptByAnnotation: "foo"}
	}
	for sentence, test := range map[string]func(*cluster){
		"rule 10: an adoption is one patch after a live read of the Foo; the next sync compares the Deployment": func(c *cluster) {
			c.drift(asking, scale(5))
			c.expect(adopt(c, c.deployments.Get("ns", "web")), isStale, readFoo, adoption)
			if c.seen() {
				c.Error("rule 14: the next sync does not wait for the cache")
			}
			c.see()
			c.expect(c.apply(), nil, rescale(12))
			fixture.Differ(c.T, "rule 16: events", []string{"Normal Adopted", "Normal Updated"}, fixture.Recorded(c.events))
		},
		"rule 10: a Foo that is gone adopts nothing": func(c *cluster) {
			c.drift(asking)
			c.remove(foos)
			c.expect(adopt(c, c.deployments.Get("ns", "web")), apierrors.IsConflict, readFoo)
		},
		"rule 11: admission keeps the owner reference out, once in a generation": func(c *cluster) {
			c.drift(asking)
			c.admit = orphan
			c.expect(adopt(c, c.deployments.Get("ns", "web")), isOverridden, readFoo, adoption)
			c.see()
			c.expect(adopt(c, c.deployments.Get("ns", "web")), isOverridden)
			fixture.Differ(c.T, "rule 16: events", []string(nil), fixture.Recorded(c.events))
		},
		"rule 8: a delete has preconditions, and the Deployment is terminating until its event": func(c *cluster) {
			c.drift()
			c.expect(remove(c, c.deployments.Get("ns", "web")), nil, readFoo, deletion)
			terminating := func() bool {
				got, all := c.deployments.Get("ns", "web"), c.deployments.Of(c.foo)
				return got.DeletionTimestamp != nil && all[0].DeletionTimestamp != nil
			}
			if !terminating() {
				c.Error("rule 14: it is not terminating")
			}
			c.deployments.EventHandler(func(cache.ObjectName) {}).OnDelete(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: c.deployments.Get("ns", "web")})
			if terminating() {
				c.Error("rule 14: it is terminating after its delete event")
			}
			fixture.Differ(c.T, "rule 16: events", []string{"Normal Deleted"}, fixture.Recorded(c.events))
			fixture.Differ(c.T, "metric", []string{"deployments delete 1"}, c.written())
		},
		"rule 8: a Deployment that is gone needs no delete": func(c *cluster) {
			c.drift()
			c.remove(deployments)
			c.expect(remove(c, c.deployments.Get("ns", "web")), nil, readFoo, deletion)
			if c.deployments.Get("ns", "web").DeletionTimestamp == nil {
				c.Error("rule 14: it is not terminating")
			}
			fixture.Differ(c.T, "rule 16: events", []string(nil), fixture.Recorded(c.events))
		},
		"rule 8: a Foo that is gone, and a delete that is refused": func(c *cluster) {
			c.drift()
			c.answer = refuse("delete", errRefused())
			c.expect(remove(c, c.deployments.Get("ns", "web")), controller.IsRejection, readFoo, deletion)
			c.remove(foos)
			c.expect(remove(c, c.deployments.Get("ns", "web")), apierrors.IsConflict, readFoo)
		},
	} {
		t.Run(sentence, func(t *testing.T) { inCluster(t, test) })
	}
}

func TestLive(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(*appsv1.Deployment)
		fails  func(error) bool
	}{
		"rule 24: what is large is not kept": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Hostname, d.Status.Replicas = "large", 7 }, nil},
		"rule 8: another generation":         {func(d *appsv1.Deployment) { d.Generation++ }, apierrors.IsConflict},
		"rule 8: another owner":              {orphan, apierrors.IsConflict},
		"rule 8: gone":                       {nil, apierrors.IsConflict},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.trim = func(d *appsv1.Deployment) *appsv1.Deployment {
					trimmed := d.DeepCopy()
					trimmed.Spec.Template.Spec.Hostname = ""
					return trimmed
				}
				c.drift()
				cached := c.deployments.Get("ns", "web")
				if test.change == nil {
					c.remove(deployments)
				} else {
					c.drift(test.change)
				}
				live, err := c.deployments.Live(c.ctx, c.foo, cached)
				c.expect(err, test.fails, read)
				if err == nil && (live.Spec.Template.Spec.Hostname != "" || live.Status.Replicas != 7) {
					c.Errorf("got %+v", live)
				}
			})
		})
	}
}

// TestLargeObjects is rule 24: what takes much memory is not read by two syncs at once.
func TestLargeObjects(t *testing.T) {
	patch := func(c *cluster, ctx context.Context, d *appsv1.Deployment) (*appsv1.Deployment, error) {
		return c.deployments.Patch(ctx, c.foo, d, c.diff(c.foo, d))
	}
	for sentence, test := range map[string]struct {
		tolerations, want int
		call              func(*cluster, context.Context, *appsv1.Deployment) (*appsv1.Deployment, error)
	}{
		"rule 24: ordinary objects do not wait": {1, 2, patch},
		"rule 24: a patch":                      {450000, 1, patch},
		"rule 24: a live read, also of what is copied": {450000, 1, func(c *cluster, ctx context.Context, d *appsv1.Deployment) (*appsv1.Deployment, error) {
			return c.deployments.CreateCopy(ctx, c.foo, d, nil)
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.trim = func(d *appsv1.Deployment) *appsv1.Deployment {
					trimmed := d.DeepCopy()
					controller.MarkLarge(trimmed, &corev1.PodSpec{Tolerations: make([]corev1.Toleration, test.tolerations)})
					return trimmed
				}
				c.drift(scale(5))
				c.answer = func(string) error { return errRefused() }
				held, results, requests := make(chan struct{}), make(chan error, 3), 0
				c.hold = func() {
					requests++
					<-held
				}
				d := c.deployments.Get("ns", "web")
				for _, after := range []time.Duration{2 * time.Hour, time.Hour, time.Minute} {
					ctx, cancel := context.WithTimeout(c.ctx, after)
					defer cancel()
					go func() {
						_, err := test.call(c, ctx, d)
						results <- err
					}()
					if synctest.Wait(); after == time.Hour && requests != test.want {
						t.Errorf("%d requests about the Deployment at once, want %d", requests, test.want)
					}
				}
				if time.Sleep(time.Minute); test.want == 1 {
					if err := <-results; !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("error %v, want the end of the sync", err)
					}
				}
				// A request that fails makes way for the next one.
				for range test.want + 1 {
					held <- struct{}{}
					if err := <-results; !controller.IsRejection(err) {
						t.Errorf("error %v", err)
					}
				}
			})
		})
	}
}

func TestEventsOfDependents(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(*appsv1.Deployment)
		// owners are enqueued; named says that others may ask for the name.
		owners []string
		named  bool
	}{
		"rule 19: no change":          {func(d *appsv1.Deployment) { d.ResourceVersion = "11" }, nil, false},
		"rule 19: a status":           {func(d *appsv1.Deployment) { d.Status.Replicas = 7 }, []string{"foo"}, false},
		"rule 19: another controller": {func(d *appsv1.Deployment) { d.OwnerReferences[0].Name = "bar" }, []string{"foo", "bar"}, true},
		"rule 17: another kind":       {func(d *appsv1.Deployment) { d.OwnerReferences[0].Kind = "Bar" }, []string{"foo"}, true},
		"rule 19: terminating":        {func(d *appsv1.Deployment) { d.DeletionTimestamp = ptr.To(metav1.Now()) }, []string{"foo"}, true},
		"rule 19: made anew":          {func(d *appsv1.Deployment) { d.UID = "another" }, []string{"foo"}, true},
		"rule 10: annotated":          {func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }, []string{"foo"}, true},
		"rule 8: written by this program": {func(d *appsv1.Deployment) {
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: controller.FieldManager}}
		}, []string{"foo"}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				named := 0
				handler := c.deployments.EventHandler(func(cache.ObjectName) { named++ })
				old := c.desired(c.foo)
				old.UID, old.ResourceVersion = "uid", "11"
				changed := old.DeepCopy()
				changed.ResourceVersion = "12"
				test.change(changed)
				handler.OnUpdate(old, changed)
				fixture.Differ(t, "enqueued", test.owners, fixture.Enqueued(c.worker, 0))
				if (named > 0) != test.named {
					t.Errorf("other owners may ask for the name: %v, want %v", named > 0, test.named)
				}
				for _, event := range []func(){func() { handler.OnAdd(old, false) }, func() { handler.OnDelete(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: old}) }} {
					named = 0
					event()
					fixture.Differ(t, "enqueued when it comes or goes", []string{"foo"}, fixture.Enqueued(c.worker, 0))
					if named != 1 {
						t.Error("the name of one that comes or goes is not told")
					}
				}
			})
		})
	}
}
