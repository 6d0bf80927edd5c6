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

package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
)

// returnRetryAfter wraps a transport so that a response with Retry-After reaches the
// caller at once, as an error for apierrors.SuggestsClientDelay. Otherwise client-go
// sleeps and resends up to ten times within one call, which blocks the worker.
func returnRetryAfter(next http.RoundTripper) http.RoundTripper {
	return &retryAfterReturner{next: next}
}

type retryAfterReturner struct {
	next http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &retryAfterReturner{}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper, so that client-go finds the
// wrapped transport.
func (r *retryAfterReturner) WrappedRoundTripper() http.RoundTripper {
	return r.next
}

// RoundTrip implements http.RoundTripper.
func (r *retryAfterReturner) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if seconds, ok := retryAfter(response); ok {
		return withDelayInBody(response, seconds)
	}
	return response, nil
}

// retryAfter returns the delay of a response after which client-go would resend the
// request.
func retryAfter(response *http.Response) (seconds int, ok bool) {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError {
		return 0, false
	}
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	// The field of a Status is an int32.
	return max(0, min(seconds, math.MaxInt32)), err == nil
}

// maxErrorBody limits how much of an error's body is read, in bytes.
const maxErrorBody = 64 << 10

// withDelayInBody moves the delay from the header to the body, a Status, which client-go
// returns to the caller as an error.
func withDelayInBody(response *http.Response, seconds int) (*http.Response, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil {
		return nil, fmt.Errorf("reading the body of a %s response: %w", response.Status, err)
	}
	// The API server answers in JSON or protobuf, as the client asked for, but API
	// Priority and Fairness answers in plain text.
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	status, ok := decoded.(*metav1.Status)
	if err != nil || !ok {
		status = &metav1.Status{Message: string(bytes.TrimSpace(body)), Reason: reasonOf(response.StatusCode)}
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status = metav1.StatusFailure
	status.Code = int32(response.StatusCode)
	if status.Details == nil {
		status.Details = &metav1.StatusDetails{}
	}
	status.Details.RetryAfterSeconds = int32(seconds)

	data, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding the status of a %s response: %w", response.Status, err)
	}
	changed := *response
	changed.Header = response.Header.Clone()
	changed.Header.Del("Retry-After")
	changed.Header.Del("Content-Encoding")
	changed.Header.Set("Content-Type", runtime.ContentTypeJSON)
	changed.Header.Set("Content-Length", strconv.Itoa(len(data)))
	changed.ContentLength = int64(len(data))
	changed.Body = io.NopCloser(bytes.NewReader(data))
	return &changed, nil
}

// reasonOf returns a reason with which apierrors.SuggestsClientDelay reads the delay.
func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	case http.StatusGatewayTimeout:
		return metav1.StatusReasonTimeout
	}
	return metav1.StatusReasonServerTimeout
}
