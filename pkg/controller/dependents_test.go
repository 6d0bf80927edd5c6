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

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

var errRefused = apierrors.NewForbidden(deployments.GroupResource(), "web", errors.New("denied"))

func TestCreate(t *testing.T) {
	inEachCluster(t, map[string]func(*cluster){
		"rule 14: the next sync waits until the cache shows the creation": func(c *cluster) {
			_, err := c.deployments.Create(c.ctx, c.foo, c.desired(c.foo))
			c.expect(err, nil, create)
			c.told("Normal Created")
			c.waits(true)
			c.see()
			c.waits(false)
		},
		"rule 3: where the status knows of an earlier Deployment the Foo is read live": func(c *cluster) {
			c.deployments.Existed = func(*v1alpha1.Foo) bool { return true }
			c.expect(c.apply(), nil, readFoo, create)
		},
		"rule 3: where this process has created one in the last 10 minutes the Foo is read live": func(c *cluster) {
			for _, after := range []time.Duration{0, time.Minute, 10 * time.Minute} {
				time.Sleep(after)
				want := []string{create}
				if after == time.Minute {
					want = []string{readFoo, create}
				}
				c.expect(c.apply(), nil, want...)
				c.remove(deployments)
				c.see()
			}
		},
		"rule 3: of a Deployment that the cache does not show yet the version is read": func(c *cluster) {
			foo := c.foo
			c.drift()
			_, err := c.deployments.Create(c.ctx, foo, c.desired(foo))
			c.expect(err, isStale, create, read)
			c.deploymentStore.Bookmark("10")
			c.waits(true)
			c.answer = refuse("get", apierrors.NewNotFound(deployments.GroupResource(), "web"))
			_, err = c.deployments.Create(c.ctx, foo, c.desired(foo))
			c.expect(err, apierrors.IsNotFound, create, read)
		},
	})
}

// TestAdmission is about what admission and the cache make of a write.
func TestAdmission(t *testing.T) {
	mirror := func(d metav1.Object) { image("mirror/a")(d) }
	inEachCluster(t, map[string]func(*cluster){
		"rule 4: what admission answered is not sent again, other drift is": func(c *cluster) {
			c.admit = mirror
			c.expect(c.apply(), nil, create)
			c.expect(c.apply(), nil)
			c.differences("image mirror/a in place of a", "")
			c.drift(scale(5))
			c.differences("image mirror/a in place of a", "replicas from 5 to 3")
			c.expect(c.apply(), nil, rescale(12))
			time.Sleep(time.Second)
			c.drift(image("x"))
			c.expect(c.apply(), nil, patchOf(14, reimage))
			c.differences("image mirror/a in place of a", "")
		},
		"rule 4: an answered value counts in place of the value that was sent alone": func(c *cluster) {
			c.admit = scale(2)
			c.expect(c.apply(), nil, create)
			c.expect(c.apply(), nil)
			c.replicas = 5
			c.expect(c.apply(), nil, patchOf(11, `"replicas":5`))
			c.expect(c.apply(), nil)
		},
		"rule 4: a new generation sends it once more; without an effect there is no event and nothing to wait for": func(c *cluster) {
			c.admit = mirror
			c.expect(c.apply(), nil, create)
			c.edit()
			c.told("Normal Created")
			c.waits(false)
			_, err := c.deployments.Apply(c.ctx, c.foo, c.cached(), c.desired)
			c.expect(err, nil, patchOf(11, reimage))
			c.deploymentStore.Bookmark("10")
			c.waits(false)
			c.expect(c.apply(), nil)
			c.told()
		},
		"rule 4: what was not sent does not count as answered": func(c *cluster) {
			empty := c.desired(c.foo)
			scale(0)(empty)
			_, err := c.deployments.Create(c.ctx, c.foo, empty)
			c.expect(err, nil, "create deployments web replicas=0 owner=uid-foo")
			c.see()
			c.expect(c.apply(), nil, rescale(11))
			c.drift(scale(5), image("b"))
			first := controller.NewPatch(c.cached())
			first.CompareReplicas(c.cached().Spec.Replicas, 0)
			_, err = c.deployments.Patch(c.ctx, c.foo, c.cached(), first)
			c.expect(err, nil, patchOf(13, `"replicas":0`))
			c.see()
			c.expect(c.apply(), nil, patchOf(14, `"replicas":3,`+reimage))
		},
		"rule 4: a field that the cache drops is not fought over, and an error in the log names it": func(c *cluster) {
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
		"rule 11: a Deployment whose owner reference admission removes is left alone in this generation": func(c *cluster) {
			c.admit = orphan
			c.expect(c.apply(), isOverridden, create)
			c.expect(c.apply(), isOverridden)
			c.drift(func(d metav1.Object) { d.SetUID("another") })
			c.expect(c.apply(), nil)
			c.drift(func(d metav1.Object) { d.SetUID("uid-11") })
			c.edit()
			c.expect(c.apply(), nil)
		},
		"rule 11: so is one that a patch or an adoption has taken from the Foo; another change of the reference is accepted": func(c *cluster) {
			adopt := func() error {
				_, err := c.deployments.Adopt(c.ctx, c.foo, c.cached(), v1alpha1.AdoptByAnnotation)
				return err
			}
			c.drift(scale(5))
			c.admit = orphan
			c.expect(c.apply(), isOverridden, rescale(11))
			c.expect(c.apply(), isOverridden)
			if report := c.deployments.Report(c.foo, nil); report != (controller.Report{}) {
				c.Errorf("rule 21: an overridden repair counts: %+v", report)
			}
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
			c.differences("owner reference", "")
		},
	})
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
	// contend lets the other writer act five times, after the pauses or when it is later.
	contend := func(c *cluster, later time.Duration) {
		c.Helper()
		for _, pause := range []time.Duration{1, 2, 4, 8} {
			undo(c, "", pause*time.Second)
			time.Sleep(max(later, pause*time.Second))
		}
		undo(c, scaler, 16*time.Second)
	}
	inEachCluster(t, map[string]func(*cluster){
		"rule 21: pauses grow from 1 s to 5 min, and the writer is named until a repair has held for 10 minutes": func(c *cluster) {
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
			time.Sleep(pause)
			says(c, scaler, 5*time.Minute)
			time.Sleep(5 * time.Minute)
			says(c, "", 0)
			undo(c, "", time.Second)
		},
		"rule 21: a writer that acts every 5 minutes is seen after its fifth undoing; a new generation starts anew": func(c *cluster) {
			contend(c, 5*time.Minute)
			c.edit()
			undo(c, "", time.Second)
		},
		"rule 21: other wanted replicas start anew": func(c *cluster) {
			contend(c, 0)
			c.replicas = 4
			c.expect(c.apply(), nil, patchOf(c.version-1, `"replicas":4`))
			says(c, "", time.Second)
		},
		"rule 21: deletions and creations count": func(c *cluster) {
			c.expect(c.apply(), nil, create)
			for _, pause := range []time.Duration{1, 2, 4, 8, 16} {
				time.Sleep(pause * time.Second / 2)
				c.remove(deployments)
				c.see()
				c.expect(c.apply(), nil, readFoo, create)
			}
			says(c, `another client keeps changing or deleting Deployment "web", and deleted it last; stop that client, and change or delete the Foo instead`, 16*time.Second)
			c.remove(deployments)
			time.Sleep(16*time.Second - 1)
			c.see()
			c.expect(c.apply(), nil)
		},
		"rule 12: a repair that is refused does not count, and while the writer cannot be read nothing is repaired": func(c *cluster) {
			for i := range 14 {
				c.drift(scale(5))
				if c.answer = refuse("patch", errRefused); i < 10 {
					c.expect(c.apply(), controller.IsRejection, rescale(c.version))
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
	deletesWeb := func(c *cluster) {
		c.Helper()
		web := c.cached()
		err := c.deployments.Delete(c.ctx, c.foo, web, metav1.DeletePropagationForeground, "it is not needed")
		c.expect(err, nil, readFoo, "delete deployments web uid=uid-11 version=11 Foreground")
	}
	terminates := func(c *cluster, want bool) {
		c.Helper()
		if got := c.deployments.Of(c.foo)[0]; (got.DeletionTimestamp != nil) != want || (c.cached().DeletionTimestamp != nil) != want {
			c.Errorf("rule 14: the deleted Deployment should count as terminating: %v", want)
		}
	}
	inEachCluster(t, map[string]func(*cluster){
		"rule 8: a delete has preconditions, and the Deployment is terminating until its event": func(c *cluster) {
			c.drift()
			deletesWeb(c)
			c.told("Normal Deleted")
			terminates(c, true)
			c.deployments.EventHandler(func(cache.ObjectName) {}).OnDelete(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: c.cached()})
			terminates(c, false)
		},
		"rule 8: a Deployment that is gone needs no delete, and counts as terminating for 30 seconds": func(c *cluster) {
			c.drift()
			c.remove(deployments)
			deletesWeb(c)
			c.told()
			time.Sleep(30*time.Second - 1)
			terminates(c, true)
			time.Sleep(time.Nanosecond)
			terminates(c, false)
		},
	})
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
		"rule 24: a live read": {450000, 1, func(c *cluster, ctx context.Context, d *appsv1.Deployment) (*appsv1.Deployment, error) {
			return c.deployments.Live(ctx, c.foo, d)
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.deployments.Trim = func(d *appsv1.Deployment) *appsv1.Deployment {
					trimmed := d.DeepCopy()
					controller.MarkLarge(trimmed, &corev1.PodSpec{Tolerations: make([]corev1.Toleration, test.tolerations)})
					return trimmed
				}
				c.drift(scale(5))
				c.answer = func(string) error { return errRefused }
				held, results, requests, client := make(chan struct{}), make(chan error, 3), 0, c.deployments.Client
				c.deployments.Client = func(namespace string) controller.DependentClient[*appsv1.Deployment] {
					requests++
					<-held
					return client(namespace)
				}
				d := c.cached()
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
