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
	"cmp"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// returnRetryAfter wraps a transport so that it returns an error for a response with
// Retry-After. Otherwise client-go sleeps and resends up to ten times within one call, which
// blocks the worker. For a streaming list the error is not a 429: after that a Reflector repeats the request without a
// call of its watch error handler. After another error it sends an ordinary list, and the handler gets the error of that.
func returnRetryAfter(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err == nil && (response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError) {
			failure := errorOf(request.Method, response, seconds)
			if request.URL.Query().Get("sendInitialEvents") == "true" {
				failure = errors.New(failure.Error())
			}
			return nil, failure
		}
		return response, nil
	})
}

// errorOf reads a response and returns it as an error for apierrors.SuggestsClientDelay.
func errorOf(verb string, response *http.Response, seconds int) error {
	defer response.Body.Close()
	// Where the body breaks off, the code and the delay still count.
	body, _ := io.ReadAll(response.Body)
	// The field of a Status is an int32.
	seconds = max(0, min(seconds, math.MaxInt32))
	failure := apierrors.NewGenericServerResponse(response.StatusCode, verb, schema.GroupResource{}, "", string(bytes.TrimSpace(body)), seconds, true)
	// The API server answers in JSON or protobuf, as the client asked for, but API
	// Priority and Fairness answers in plain text.
	if decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if status, ok := decoded.(*metav1.Status); ok {
			failure.ErrStatus.Reason = cmp.Or(status.Reason, failure.ErrStatus.Reason)
			failure.ErrStatus.Message = cmp.Or(status.Message, failure.ErrStatus.Message)
		}
	}
	return failure
}
