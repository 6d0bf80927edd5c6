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
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// FuzzRetryAfter checks for any code, header and body that the delay reaches the caller in
// a Status, and that a response without a delay is not changed.
func FuzzRetryAfter(f *testing.F) {
	f.Add(429, "1", []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests"}`))
	f.Add(429, "7", []byte("Too many requests, please try again later."))
	f.Add(503, "-1", []byte(nil))
	f.Add(500, "99999999999999999999", []byte{0x6b, 0x38, 0x73, 0})
	f.Add(504, "2147483648", []byte(`{"kind":"Pod","apiVersion":"v1"}`))
	f.Add(200, "1", []byte("fine"))
	f.Fuzz(func(t *testing.T, code int, header string, body []byte) {
		response := &http.Response{StatusCode: code, Header: http.Header{"Retry-After": {header}}, Body: io.NopCloser(strings.NewReader(string(body)))}
		answer, err := returnRetryAfter(roundTripper(func() *http.Response { return response })).RoundTrip(&http.Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		seconds, ok := retryAfter(response)
		if !ok {
			if answer != response {
				t.Errorf("a response without a delay was changed: %d, %q", code, header)
			}
			return
		}
		if answer.Header.Get("Retry-After") != "" || answer.StatusCode != code {
			t.Errorf("client-go would wait: %d, %v", answer.StatusCode, answer.Header)
		}
		data, err := io.ReadAll(answer.Body)
		if err != nil || int64(len(data)) != answer.ContentLength {
			t.Errorf("%d bytes of %d, error %v", len(data), answer.ContentLength, err)
		}
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		status, isStatus := decoded.(*metav1.Status)
		if err != nil || !isStatus || status.Status != metav1.StatusFailure || int(status.Code) != code {
			t.Fatalf("the body became %s (error %v)", data, err)
		}
		if got := status.Details.RetryAfterSeconds; int(got) != seconds {
			t.Errorf("a delay of %d s became %d s", seconds, got)
		}
		var statusError *apierrors.StatusError
		if !errors.As(apierrors.FromObject(status), &statusError) {
			t.Errorf("the caller gets %v", apierrors.FromObject(status))
		}
	})
}

type roundTripper func() *http.Response

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(*http.Request) (*http.Response, error) { return r(), nil }
