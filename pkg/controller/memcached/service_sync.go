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

package memcached

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
)

// This file makes the calls about the Service, in the order in which a sync does; service.go
// decides. They are those about the Deployment in controller.go.

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch

// syncService creates the Service of memcached's name, or repairs it, with at most one write.
// current is that Service, nil if there is none. An error is in the result, because the status
// reports the Deployment all the same.
func (c *Controller) syncService(ctx context.Context, memcached *v1alpha1.Memcached, current *corev1.Service) serviceResult {
	d := decideService(memcached, current, c.serviceAdmitted.Get(cache.MetaObjectToName(memcached), memcached.Generation)...)
	r := serviceResult{service: current, impossible: d.impossible}
	if r.contention, r.err = c.checkServiceContention(ctx, memcached, d); r.err != nil || r.contention.HoldsBack() {
		return r
	}
	var answer *corev1.Service
	switch {
	case d.create != nil:
		if answer, r.err = c.createService(ctx, memcached, d.create); apierrors.IsAlreadyExists(r.err) {
			return c.syncLiveService(ctx, memcached)
		}
	case !d.patch.IsEmpty():
		answer, r.err = c.patchService(ctx, memcached, current, d.patch)
	}
	if answer != nil {
		r.service = answer
	}
	return r
}

// syncLiveService decides again on a live read: see syncLiveDeployment.
func (c *Controller) syncLiveService(ctx context.Context, memcached *v1alpha1.Memcached) serviceResult {
	live, err := c.kubeClient.CoreV1().Services(memcached.Namespace).Get(ctx, memcached.Name, metav1.GetOptions{})
	if err != nil {
		return serviceResult{err: fmt.Errorf("reading Service %q: %w", memcached.Name, err)}
	}
	// The next sync must not read the cache before it shows what was read here.
	c.consistency.WroteAt(cache.MetaObjectToName(memcached), memcached.UID, corev1.Resource("services"), live.ResourceVersion)
	r := c.syncService(ctx, memcached, live)
	r.cacheBehind = true
	return r
}

// checkServiceContention tells whether another writer undoes what this controller would do to
// the Service now: see checkContention.
func (c *Controller) checkServiceContention(ctx context.Context, memcached *v1alpha1.Memcached, d serviceDecision) (controller.Contention, error) {
	key := cache.MetaObjectToName(memcached)
	contention := c.serviceContention.Check(key, memcached.Generation, d.drifted()...)
	if len(contention.Undone) == 0 || contention.Message != "" {
		return contention, nil
	}
	if d.create != nil {
		contention.Message = describeServiceDeletions(memcached)
	} else {
		live, err := c.kubeClient.CoreV1().Services(memcached.Namespace).Get(ctx, memcached.Name, metav1.GetOptions{})
		if err != nil {
			return contention, fmt.Errorf("reading Service %q: %w", memcached.Name, err)
		}
		contention.Message = describeServiceContention(live, d.patch, contention.Undone)
	}
	c.serviceContention.Describe(key, contention.Message)
	return contention, nil
}

// createService creates the Service and returns the API server's answer, and an error as well
// if admission replaced the owner reference: see createDeployment.
func (c *Controller) createService(ctx context.Context, memcached *v1alpha1.Memcached, desired *corev1.Service) (*corev1.Service, error) {
	if hadDeployment(memcached) {
		if err := c.checkLiveMemcached(ctx, memcached); err != nil {
			return nil, err
		}
	}
	created, err := c.kubeClient.CoreV1().Services(memcached.Namespace).Create(ctx, desired, metav1.CreateOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("creating Service %q: %w", desired.Name, err)
	}
	key := cache.MetaObjectToName(memcached)
	c.metrics.Wrote("services", "create")
	c.consistency.WroteAt(key, memcached.UID, corev1.Resource("services"), created.ResourceVersion)
	admitted, err := checkAdmittedService(memcached, created)
	c.serviceContention.Created(key, memcached.Generation, false, admitted...)
	if err != nil {
		return created, fmt.Errorf("creating Service %q: %w", created.Name, err)
	}
	c.serviceAdmitted.Set(key, memcached.Generation, admitted)
	klog.FromContext(ctx).V(2).Info("Created Service", "service", klog.KObj(created))
	c.recorder.Eventf(memcached, corev1.EventTypeNormal, deployment.EventCreated, "Created Service %q", created.Name)
	return created, nil
}

// patchService repairs the fields that have drifted and returns the API server's answer, and an
// error as well if admission replaced the owner reference: see patchDeployment.
func (c *Controller) patchService(ctx context.Context, memcached *v1alpha1.Memcached, current *corev1.Service, patch controller.Patch) (*corev1.Service, error) {
	key := cache.MetaObjectToName(memcached)
	if c.serviceContention.RepairedRecently(key, memcached.Generation) {
		if err := c.checkLiveMemcached(ctx, memcached); err != nil {
			return nil, err
		}
	}
	patched, err := c.kubeClient.CoreV1().Services(memcached.Namespace).Patch(ctx, current.Name, types.StrategicMergePatchType, patch.JSON(), metav1.PatchOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("updating Service %q: %w", current.Name, err)
	}
	c.metrics.Wrote("services", "patch")
	if patched.ResourceVersion != current.ResourceVersion {
		// A patch without an effect causes no event, and so no sync that would drop the record.
		c.consistency.WroteAt(key, memcached.UID, corev1.Resource("services"), patched.ResourceVersion)
	}
	c.serviceContention.Repaired(key, memcached.Generation, patch.Fields()...)
	admitted, err := checkAdmittedService(memcached, patched)
	if err != nil {
		return patched, fmt.Errorf("updating Service %q: %w", patched.Name, err)
	}
	c.serviceAdmitted.Set(key, memcached.Generation, admitted)
	klog.FromContext(ctx).V(2).Info("Patched Service", "service", klog.KObj(patched), "changes", patch.String())
	if effective := patch.Effective(admitted); !effective.IsEmpty() {
		c.recorder.Eventf(memcached, corev1.EventTypeNormal, deployment.EventUpdated, "Updated Service %q: %s", patched.Name, effective)
	}
	return patched, nil
}
