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
	"strings"

	"k8s.io/client-go/transport"

	"example.com/sample-controller/pkg/controller"
)

const (
	// endpointFlag is the flag with the URL of the external service.
	endpointFlag = "tenant-endpoint"
	// maxAnswer bounds what is read of an answer, in bytes: an endless one would fill the memory.
	maxAnswer = 1 << 20
)

// ErrNotFound is returned for an item that the external service does not have.
var ErrNotFound = errors.New("not found")

var (
	errNoService  = errors.New("the flag --" + endpointFlag + " is not set")
	errNotDeleted = errors.New("the external service still has it")
)

// Service is the external service. Each method may be repeated: it names the item by its ID.
type Service interface {
	// Get returns the item, or ErrNotFound.
	Get(ctx context.Context, id string) (Item, error)
	// Put creates or replaces the item.
	Put(ctx context.Context, id string, item Item) error
	// Delete deletes the item, or asks for it to be deleted. It returns nil if there is none.
	Delete(ctx context.Context, id string) error
}

// Item is what the external service has for a Tenant.
type Item struct {
	// Owner is the namespace and the name of the Tenant.
	Owner       string `json:"owner"`
	DisplayName string `json:"displayName"`
}

// httpService is a Service that answers GET, PUT and DELETE of ENDPOINT/ID.
type httpService struct {
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

// newHTTPService returns the service at that URL, nil if it is "". wrap lets writes pass only while the process
// holds the lease.
func newHTTPService(endpoint string, wrap transport.WrapperFunc) Service {
	if endpoint == "" {
		return nil
	}
	return &httpService{endpoint: strings.TrimSuffix(endpoint, "/"), client: &http.Client{
		Transport: wrap(http.DefaultTransport),
		// After a redirect Go sends a GET in place of a PUT or a DELETE.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Get implements Service.
func (s *httpService) Get(ctx context.Context, id string) (item Item, err error) {
	return item, s.do(ctx, http.MethodGet, id, nil, &item)
}

// Put implements Service.
func (s *httpService) Put(ctx context.Context, id string, item Item) error {
	body, err := json.Marshal(item)
	if err != nil {
		return err
	}
	return s.do(ctx, http.MethodPut, id, body, nil)
}

// Delete implements Service.
func (s *httpService) Delete(ctx context.Context, id string) error {
	if err := s.do(ctx, http.MethodDelete, id, nil, nil); !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// do sends a request and decodes the answer into result unless that is nil.
func (s *httpService) do(ctx context.Context, method, id string, body []byte, result any) error {
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
		return ErrNotFound
	case response.StatusCode >= http.StatusMultipleChoices:
		return &statusError{code: response.StatusCode}
	case result == nil:
		return nil
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(result)
}

// statusError is an answer that tells of a failure.
type statusError struct {
	code int
}

// Error implements error.
func (e *statusError) Error() string {
	return fmt.Sprintf("the external service answered %d %s", e.code, http.StatusText(e.code))
}

// describeFailure says what failed and why. The text is the same each time, since each change of it would be a
// status write: the log has the error itself.
func describeFailure(what string, err error) string {
	var status *statusError
	why := "the external service cannot be reached"
	switch {
	case controller.IsRefusal(err):
		return controller.DescribeRefusal(tenantKind, err)
	case errors.Is(err, errNoService):
		return "the external service is not configured: start the controller with --" + endpointFlag
	case errors.As(err, &status):
		why = status.Error()
	case errors.Is(err, errNotDeleted):
		why = errNotDeleted.Error()
	case errors.Is(err, context.DeadlineExceeded):
		why = fmt.Sprintf("the external service did not answer within %s", itemTimeout)
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
