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

package tenant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
)

// This file has the client of the external service, and writes the finalizer and the item. The UID of the Tenant is the
// ID of the item: a request that is repeated because its answer was lost finds the item of the first one, and a Tenant
// that is created anew under the same name has another item.

const (
	// finalizer keeps a Tenant until its item is deleted.
	finalizer = "tenancy.example.org/tenant"
	// endpointFlag is the flag with the URL of the external service.
	endpointFlag = "tenant-endpoint"
	// maxAnswer bounds what is read of an answer, in bytes: an endless one would fill the memory.
	maxAnswer = 1 << 20
	// itemTimeout bounds the requests of one sync to the external service.
	itemTimeout = 10 * time.Second
	// itemCheckPeriod is how often the item of a Tenant at rest is read.
	itemCheckPeriod = 10 * time.Minute
)

var (
	// errNotFound is returned for an item that the external service does not have.
	errNotFound  = errors.New("not found")
	errNoService = errors.New("the flag --" + endpointFlag + " is not set")
)

// problem is an error whose text is the same each time, so that the condition can repeat it.
type problem string

// Error implements error.
func (p problem) Error() string { return string(p) }

const errNotDeleted = problem("the external service still has it")

// Item is what the external service has for a Tenant.
type Item struct {
	// Owner is the namespace and the name of the Tenant.
	Owner       string `json:"owner"`
	DisplayName string `json:"displayName"`
}

// Service is a client of the external service, which answers GET, PUT and DELETE of ENDPOINT/ID. Each method may be
// repeated: it names the item by its ID.
type Service struct {
	endpoint string
	client   *http.Client
}

// validateEndpoint returns an error if that is no URL of an external service.
func validateEndpoint(endpoint string) error {
	address, err := url.Parse(endpoint)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return fmt.Errorf("%q is not a URL; set it to one such as https://example.com/items", endpoint)
	}
	return nil
}

// newService returns the service at that URL, nil if it is "". wrap lets writes pass only while the process
// holds the lease.
func newService(endpoint string, wrap transport.WrapperFunc) *Service {
	if endpoint == "" {
		return nil
	}
	return &Service{endpoint: strings.TrimSuffix(endpoint, "/"), client: &http.Client{
		Transport: wrap(http.DefaultTransport),
		// After a redirect Go sends a GET in place of a PUT or a DELETE.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Get returns the item, or errNotFound.
func (s *Service) Get(ctx context.Context, id string) (item Item, err error) {
	return item, s.do(ctx, http.MethodGet, id, nil, &item)
}

// Put creates or replaces the item.
func (s *Service) Put(ctx context.Context, id string, item Item) error {
	body, err := json.Marshal(item)
	if err != nil {
		return err
	}
	return s.do(ctx, http.MethodPut, id, body, nil)
}

// Delete deletes the item, or asks for it to be deleted. It returns nil if there is none.
func (s *Service) Delete(ctx context.Context, id string) error {
	if err := s.do(ctx, http.MethodDelete, id, nil, nil); !errors.Is(err, errNotFound) {
		return err
	}
	return nil
}

// do sends a request and decodes the answer into result unless that is nil.
func (s *Service) do(ctx context.Context, method, id string, body []byte, result any) error {
	request, err := http.NewRequestWithContext(ctx, method, s.endpoint+"/"+url.PathEscape(id), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound && method != http.MethodPut:
		return errNotFound
	case response.StatusCode >= http.StatusMultipleChoices:
		return problem(fmt.Sprintf("the external service answered %d %s", response.StatusCode, http.StatusText(response.StatusCode)))
	case result == nil:
		return nil
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(result)
}

// describeFailure says what failed and why. The text is the same each time, since each change of it would be a
// status write: the log has the error itself.
func describeFailure(what string, err error) string {
	why := problem("the external service cannot be reached")
	switch {
	case controller.IsRefusal(err):
		return controller.DescribeRefusal(tenantKind, err)
	case errors.Is(err, errNoService):
		return "the external service is not configured: start the controller with --" + endpointFlag
	case errors.As(err, &why):
	case errors.Is(err, context.DeadlineExceeded):
		why = problem(fmt.Sprintf("the external service did not answer within %s", itemTimeout))
	}
	return fmt.Sprintf("%s failed: %s; it is tried again at least every 30 seconds", what, why)
}

// retryable returns the error for which to retry, nil for one that only a new start of the process mends.
func retryable(err error) error {
	if errors.Is(err, errNoService) {
		return nil
	}
	return err
}

func hasFinalizer(tenant *v1alpha1.Tenant) bool {
	return slices.Contains(tenant.Finalizers, finalizer)
}

// newItem returns the item that the Tenant asks for.
func newItem(tenant *v1alpha1.Tenant) Item {
	return Item{Owner: tenant.Namespace + "/" + tenant.Name, DisplayName: tenant.Spec.DisplayName}
}

// syncItem adds the finalizer, or makes the external service have the item. The findings say why the service does not
// have it, and its ID if it does. err is an error of the API server. ends says that the finalizer was added: the sync
// after the event of that write goes on.
func (c *Controller) syncItem(ctx context.Context, tenant *v1alpha1.Tenant, f *findings) (ends bool, err error) {
	switch {
	case c.service == nil:
		f.item = errNoService
	case !hasFinalizer(tenant):
		// Without it a Tenant that is deleted meanwhile would leave its item behind.
		err = c.setFinalizer(ctx, tenant, true)
		return err == nil, err
	default:
		if f.item, err = c.writeItem(ctx, tenant, newItem(tenant)); f.item == nil && err == nil {
			f.itemID = string(tenant.UID)
		}
	}
	return false, err
}

// writeItem makes the external service have the item, with at most one write. failed is why the service does not
// have it, err is an error of the API server.
func (c *Controller) writeItem(ctx context.Context, tenant *v1alpha1.Tenant, item Item) (failed, err error) {
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	id := string(tenant.UID)
	got, err := c.service.Get(ctx, id)
	switch {
	case err == nil && got == item:
		return nil, nil
	case err != nil && !errors.Is(err, errNotFound):
		return fmt.Errorf("reading the item %q: %w", id, err), nil
	}
	// A former leader may have deleted the item together with the Tenant, and this cache may not show that yet: an
	// item that is written now would stay for ever.
	if err := c.tenants.CheckLive(ctx, tenant); err != nil {
		return nil, err
	}
	if err := c.service.Put(ctx, id, item); err != nil {
		return fmt.Errorf("writing the item %q: %w", id, err), nil
	}
	klog.FromContext(ctx).V(2).Info("Wrote item", "id", id)
	return nil, nil
}

// finalize deletes the item of a terminating Tenant, and then lets the Tenant go. If the external service does not
// delete the item, or the API server refuses to let the Tenant go, the condition says so and the sync is retried.
func (c *Controller) finalize(ctx context.Context, tenant *v1alpha1.Tenant) (time.Duration, error) {
	failed := c.deleteItem(ctx, tenant)
	if failed == nil {
		if failed = c.setFinalizer(ctx, tenant, false); !controller.IsRefusal(failed) {
			return 0, failed
		}
	}
	delay, err := c.updateTenantStatus(ctx, tenant, findings{deletion: failed})
	return delay, errors.Join(retryable(failed), err)
}

// deleteItem returns nil once the external service does not have the item any more.
func (c *Controller) deleteItem(ctx context.Context, tenant *v1alpha1.Tenant) error {
	if c.service == nil {
		return errNoService
	}
	ctx, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	id := string(tenant.UID)
	if err := c.service.Delete(ctx, id); err != nil {
		return fmt.Errorf("deleting the item %q: %w", id, err)
	}
	// A service that answers 202 has not deleted it yet, and may fail to.
	switch _, err := c.service.Get(ctx, id); {
	case err == nil:
		return fmt.Errorf("deleting the item %q: %w", id, errNotDeleted)
	case !errors.Is(err, errNotFound):
		return fmt.Errorf("reading the item %q: %w", id, err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted item", "id", id)
	return nil
}

// setFinalizer adds the finalizer or removes it. The patch replaces the whole list, of which the cache does not
// hold the finalizers of others, so it is read live, and the patch has the version that was read.
func (c *Controller) setFinalizer(ctx context.Context, tenant *v1alpha1.Tenant, wanted bool) error {
	live, err := c.tenants.Live(ctx, tenant)
	if err != nil {
		return err
	}
	finalizers := slices.DeleteFunc(slices.Clone(live.Finalizers), func(name string) bool { return name == finalizer })
	if wanted {
		finalizers = append(finalizers, finalizer)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": live.ResourceVersion, "finalizers": finalizers}})
	if err != nil {
		return fmt.Errorf("encoding finalizers: %w", err)
	}
	patched, err := c.tenants.Client(live.Namespace).Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return fmt.Errorf("updating the finalizers of Tenant: %w", err)
	}
	c.Metrics.Wrote(tenantKind, "tenants", "patch")
	c.tenants.Await(tenant, c.tenants.Informer.GetIndexer(), patched.ResourceVersion)
	return nil
}
