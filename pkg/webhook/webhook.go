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

// Package webhook serves the admission webhooks of Foos (AdmissionReview v1) and their
// conversion webhook (ConversionReview v1).
//
// server.serve handles HTTP for all of them; admission.go and conversion.go decode and
// encode the reviews; foo.go decides about Foos, from values alone.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Paths of the webhooks, for their configurations.
const (
	MutatePath   = "/mutate-foo"
	ValidatePath = "/validate-foo"
	ConvertPath  = "/convert-foo"
)

const (
	// maxTimeout limits a request that names no timeout. It is the longest timeout that a
	// webhook configuration may have.
	maxTimeout = 30 * time.Second
	// MaxBody is the largest body of a request in bytes; a larger one gets 413. An object
	// of the API server has at most 3 MiB, and an AdmissionReview has two objects.
	MaxBody = 16 << 20
	// maxSmallBody is the size up to which bodies, such as the review of one Foo, take no turns. 256
	// connections with 8 requests each hold 64 MiB of them.
	maxSmallBody = 32 << 10
	// bodyTimeout is how long a client may take to send a body, and to read the answer.
	bodyTimeout = 5 * time.Second
	// largeBodyTimeout is the same for a body whose turn it is: others wait for it. The API server
	// sends MaxBody in a fraction of it.
	largeBodyTimeout = time.Second
)

// Options are the dependencies of the webhooks. All but VerifyClient are required.
type Options struct {
	Lookups Lookups
	// VerifyClient returns an error for requests for admission that do not come from the API server.
	// Without it they may come from any client. Those for a conversion always may: the API server
	// shows no certificate for them.
	VerifyClient func(*http.Request) error
	Metrics      *Metrics
	Clock        clock.PassiveClock
}

// NewHandler returns the handler of all webhooks.
func NewHandler(options Options) http.Handler {
	s := newServer(options.Clock, options.Metrics)
	foos := admission{lookups: options.Lookups, metrics: options.Metrics, asking: semaphore.NewWeighted(maxMayGet)}
	mux := http.NewServeMux()
	for path, reviewer := range map[string]reviewer{
		MutatePath:   foos.mutate,
		ValidatePath: foos.validate,
		ConvertPath:  converter{metrics: options.Metrics}.convert,
	} {
		verify := options.VerifyClient
		if path == ConvertPath || verify == nil {
			verify = func(*http.Request) error { return nil }
		}
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			s.serve(w, r, path, verify, reviewer)
		})
	}
	return mux
}

// reviewer returns the answer to the body of a request, both a review. An httpError is
// the client's fault, any other error is ours.
type reviewer func(ctx context.Context, body []byte) (any, error)

// server is shared by all requests.
type server struct {
	metrics *Metrics
	clock   clock.PassiveClock
	// large is held by the one request whose body is larger than maxSmallBody, or of unknown length,
	// until its client has read the answer. The others wait for it.
	large *semaphore.Weighted
}

func newServer(clock clock.PassiveClock, metrics *Metrics) *server {
	return &server{metrics: metrics, clock: clock, large: semaphore.NewWeighted(1)}
}

// httpError is an error that is answered with an HTTP status code.
type httpError struct {
	code int
	err  error
}

// Error implements error.
func (e *httpError) Error() string { return e.err.Error() }

// Unwrap returns the error without the code, for errors.Is and errors.As.
func (e *httpError) Unwrap() error { return e.err }

// serve answers, logs and counts a request.
func (s *server) serve(w http.ResponseWriter, r *http.Request, path string, verify func(*http.Request) error, reviewer reviewer) {
	start := s.clock.Now()
	logger := klog.FromContext(r.Context()).WithValues("webhook", path)
	// If the body is refused unread, net/http reads on.
	setReadDeadline(w, start.Add(bodyTimeout))
	code, err := http.StatusOK, verify(r)
	if err != nil {
		err = &httpError{http.StatusUnauthorized, err}
	} else {
		err = s.answer(w, r, reviewer)
	}
	if err != nil {
		// Callers are told nothing about failures of ours.
		says := "internal error: see the log of the webhooks"
		code = http.StatusInternalServerError
		if clientError := (*httpError)(nil); errors.As(err, &clientError) {
			code, says = clientError.code, err.Error()
		}
		if code == http.StatusInternalServerError {
			logger.Error(err, "Failed to answer a webhook request")
		} else {
			logger.V(2).Info("Refused a webhook request", "code", code, "err", err)
		}
		http.Error(w, says, code)
	}
	took := s.clock.Since(start)
	s.metrics.served(path, strconv.Itoa(code), took)
	logger.V(4).Info("Answered a webhook request", "code", code, "took", took)
}

// answer writes the answer to a request. A panic becomes an error, so that the API server
// gets an answer and the panic is counted.
func (s *server) answer(w http.ResponseWriter, r *http.Request, reviewer reviewer) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			s.metrics.panicked()
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		return err
	}
	defer cancel()
	if err := checkHeader(r); err != nil {
		return err
	}
	size, timeout := int64(maxSmallBody), bodyTimeout
	if r.ContentLength < 0 || r.ContentLength > maxSmallBody {
		size, timeout = MaxBody, largeBodyTimeout
		// The time until its turn does not count.
		setReadDeadline(w, time.Time{})
		err := s.large.Acquire(ctx, 1)
		setReadDeadline(w, s.clock.Now().Add(timeout))
		if err != nil {
			return &httpError{http.StatusServiceUnavailable, fmt.Errorf("too many large requests at the same time: %w", err)}
		}
		defer s.large.Release(1)
	}
	body, err := read(w, r, size)
	if err != nil {
		return err
	}
	answer, err := reviewer(ctx, body)
	if err != nil {
		return err
	}
	encoded, err := encode(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(s.clock.Now().Add(timeout))
	// It fails only if the client is gone or slow.
	_, _ = w.Write(encoded)
	return nil
}

// encode returns the JSON without escapes for HTML, which take six times the text.
func encode(answer any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(answer)
	return text.Bytes(), err
}

// withTimeout returns a context that ends when the API server stops waiting for the
// answer. The API server sends its timeout in the query.
func withTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	timeout := maxTimeout
	if text := r.URL.Query().Get("timeout"); text != "" {
		// An invalid duration is parsed as 0.
		requested, _ := time.ParseDuration(text)
		if requested <= 0 {
			return nil, nil, &httpError{http.StatusBadRequest, fmt.Errorf("timeout: %q is not a positive duration such as 10s", text)}
		}
		timeout = min(timeout, requested)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	return ctx, cancel, nil
}

// checkHeader refuses what need not be read.
func checkHeader(r *http.Request) error {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		return &httpError{http.StatusUnsupportedMediaType, fmt.Errorf("Content-Type: %q is not application/json", r.Header.Get("Content-Type"))}
	}
	if r.ContentLength > MaxBody {
		return tooLarge()
	}
	return nil
}

// read returns the body, of that size at most.
func read(w http.ResponseWriter, r *http.Request, size int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, size))
	exceeded := (*http.MaxBytesError)(nil)
	switch {
	case err == nil:
		// net/http takes a later failure for that of the connection.
		setReadDeadline(w, time.Time{})
		return body, nil
	case errors.As(err, &exceeded):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &httpError{http.StatusRequestTimeout, errors.New("the body did not arrive in time")}
	}
	return nil, &httpError{http.StatusBadRequest, fmt.Errorf("reading the body: %w", err)}
}

// setReadDeadline makes the body arrive until that time. Writers of tests do not support it.
func setReadDeadline(w http.ResponseWriter, deadline time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(deadline)
}

func tooLarge() error {
	return &httpError{http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", MaxBody)}
}

func decode(body []byte, review any) error {
	if err := json.Unmarshal(body, review); err != nil {
		return &httpError{http.StatusBadRequest, fmt.Errorf("decoding the body: %w", err)}
	}
	return nil
}

func noRequest(want schema.GroupVersionKind) error {
	return &httpError{http.StatusBadRequest, fmt.Errorf("the body is not a request of kind %s", want)}
}
