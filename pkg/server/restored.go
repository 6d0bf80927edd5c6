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

package server

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// errRestored means that the informers may wait for events that never come: the API server sends
// none up to the resourceVersion of their watches, which etcd has not reached again.
var errRestored = errors.New("the API server has an older state than before, as after a restore of etcd from a backup: the caches have to be filled again")

// comparedLeases compares the resourceVersion of each Lease that the API server returns with the
// highest so far. It reads Leases as etcd has them, so only a restore takes that number back.
type comparedLeases struct {
	coordinationclient.CoordinationV1Interface

	highest string
	// restored receives the first errRestored.
	restored chan error
}

// Leases implements coordinationclient.LeasesGetter.
func (c *comparedLeases) Leases(namespace string) coordinationclient.LeaseInterface {
	return &comparedLease{c.CoordinationV1Interface.Leases(namespace), c}
}

// compare returns the answer of the API server, or errRestored.
func (c *comparedLeases) compare(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	// A version that is no number, which Kubernetes does not return, says nothing (KEP-5504).
	order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, c.highest)
	if err == nil && order < 0 {
		err = fmt.Errorf("%w (resourceVersion %s after %s)", errRestored, lease.ResourceVersion, c.highest)
		sendFirst(c.restored, err)
		return nil, err
	}
	c.highest = lease.ResourceVersion
	return lease, nil
}

type comparedLease struct {
	coordinationclient.LeaseInterface

	all *comparedLeases
}

// Get implements coordinationclient.LeaseInterface.
func (c *comparedLease) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.all.compare(c.LeaseInterface.Get(ctx, name, options))
}

// Create implements coordinationclient.LeaseInterface.
func (c *comparedLease) Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.all.compare(c.LeaseInterface.Create(ctx, lease, options))
}

// Update implements coordinationclient.LeaseInterface.
func (c *comparedLease) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.all.compare(c.LeaseInterface.Update(ctx, lease, options))
}
