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

package child

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/controller"
)

// Reasons of the events about a parent.
const (
	eventCreated = "Created"
	eventUpdated = "Updated"
)

// Keeper carries verdicts out. All fields are required.
type Keeper[P controller.Object] struct {
	Kind        Kind
	Client      kubernetes.Interface
	Deployments appslisters.DeploymentLister
	Gate        *controller.Gate
	Metrics     controller.Counters
	Recorder    record.EventRecorder
	Clock       clock.PassiveClock
	// Decide returns the verdict on a Deployment, nil if there is none.
	Decide func(P, *appsv1.Deployment) Verdict
	// Confirm returns nil if the API server has the parent as the cache has it, and
	// controller.ErrCacheBehind if not.
	Confirm func(context.Context, P) error
}

// Cached returns the Deployment of that name, nil if the cache has none. One that this
// process has deleted is shown as terminating, although the cache does not know yet.
func (k *Keeper[P]) Cached(namespace, name string) (*appsv1.Deployment, error) {
	deployment, err := k.Deployments.Deployments(namespace).Get(name)
	switch {
	case err == nil:
	case apierrors.IsNotFound(err):
		return nil, nil
	default:
		return nil, fmt.Errorf("reading Deployment %q from the cache: %w", name, err)
	}
	if k.Gate.IsDeleted(deployment.UID) {
		terminating := *deployment
		terminating.DeletionTimestamp = ptr.To(metav1.NewTime(k.Clock.Now()))
		return &terminating, nil
	}
	return deployment, nil
}

// Act carries out the verdict on the Deployment of that name, cached being the one
// that the cache has, nil if there is none. It returns what is known of it
// afterwards: the API server's answer where there was a write, else cached.
func (k *Keeper[P]) Act(ctx context.Context, parent P, name string, cached *appsv1.Deployment, verdict Verdict) (Observation, error) {
	seen := Observation{Deployment: cached, Invalid: verdict.Invalid}
	var err error
	if seen.Pause, seen.Contested, err = k.restrain(ctx, parent, name, verdict); err != nil {
		return seen, err
	}
	if seen.Pause > 0 {
		return seen, nil
	}

	var written *appsv1.Deployment
	switch verdict.Action {
	case Create:
		written, err = k.create(ctx, parent, verdict.Create)
		if apierrors.IsAlreadyExists(err) {
			return k.actOnLive(ctx, parent, name)
		}
	case Mend:
		// Whoever undid the last repair may be another process of ours, which acts
		// on a newer spec than this cache has.
		if k.Gate.RepairedLately(cache.MetaObjectToName(parent), parent.GetGeneration()) {
			if err := k.Confirm(ctx, parent); err != nil {
				return seen, err
			}
		}
		written, err = k.repair(ctx, parent, cached, verdict.Repair)
	}
	if written != nil {
		seen.Deployment, seen.Fresh = written, true
	}
	return seen, err
}

// actOnLive acts where the cache is behind. What is there decides, and it is never
// created a second time: with a Deployment there is no such verdict.
func (k *Keeper[P]) actOnLive(ctx context.Context, parent P, name string) (Observation, error) {
	live, err := k.Client.AppsV1().Deployments(parent.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Observation{}, fmt.Errorf("reading Deployment %q: %w", name, err)
	}
	k.Gate.Wrote(cache.MetaObjectToName(parent), controller.Children, live.ResourceVersion)
	seen, err := k.Act(ctx, parent, name, live, k.Decide(parent, live))
	seen.Ahead = true
	return seen, err
}

func (k *Keeper[P]) create(ctx context.Context, parent P, deployment *appsv1.Deployment) (*appsv1.Deployment, error) {
	created, err := k.Client.AppsV1().Deployments(parent.GetNamespace()).Create(ctx, deployment, metav1.CreateOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("creating Deployment %q: %w", deployment.Name, err)
	}
	k.Metrics.Wrote("deployments", "create")
	k.Gate.Wrote(cache.MetaObjectToName(parent), controller.Children, created.ResourceVersion)
	if err := k.overridden(parent, created); err != nil {
		return created, fmt.Errorf("creating Deployment %q: %w", created.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Created Deployment", "deployment", klog.KObj(created))
	k.Recorder.Eventf(parent, corev1.EventTypeNormal, eventCreated, "Created Deployment %q", created.Name)
	return created, nil
}

func (k *Keeper[P]) repair(ctx context.Context, parent P, cached *appsv1.Deployment, drift Repair) (*appsv1.Deployment, error) {
	patched, err := k.Client.AppsV1().Deployments(parent.GetNamespace()).Patch(ctx, cached.Name, types.StrategicMergePatchType, drift.Patch(), metav1.PatchOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("updating Deployment %q: %w", cached.Name, err)
	}
	k.Metrics.Wrote("deployments", "patch")
	k.Gate.Wrote(cache.MetaObjectToName(parent), controller.Children, patched.ResourceVersion)
	if err := k.overridden(parent, patched); err != nil {
		return patched, fmt.Errorf("updating Deployment %q: %w", patched.Name, err)
	}
	k.Gate.Repaired(cache.MetaObjectToName(parent), parent.GetGeneration())
	klog.FromContext(ctx).V(2).Info("Updated Deployment", "deployment", klog.KObj(patched), "changes", drift.String())
	k.Recorder.Eventf(parent, corev1.EventTypeNormal, eventUpdated, "Updated Deployment %q: %s", patched.Name, drift)
	return patched, nil
}

// overridden returns an error if the API server's answer to a write is not what
// the parent asks for.
func (k *Keeper[P]) overridden(parent P, written *appsv1.Deployment) error {
	switch verdict := k.Decide(parent, written); verdict.Action {
	case Wait:
		return fmt.Errorf("owner reference: %w", controller.ErrOverridden)
	case Mend:
		return fmt.Errorf("%s: %w", verdict.Repair, controller.ErrOverridden)
	}
	return nil
}
