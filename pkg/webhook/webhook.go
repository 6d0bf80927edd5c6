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

// Package webhook answers the API server: what to fill in to a Foo and whether to admit it
// (AdmissionReview v1), and what it looks like in another version (ConversionReview v1).
//
// One request goes through one file: serve, here, takes any request and answers whatever
// is wrong with it as such; admission.go and conversion.go know the reviews; foo.go
// decides about Foos, from values alone.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Paths of the three webhooks, for their configurations.
const (
	MutatePath   = "/mutate-foo"
	ValidatePath = "/validate-foo"
	ConvertPath  = "/convert-foo"
)

// What requests may cost.
const (
	// MaxBody bounds a request. An object has 3 MiB at most at the API server, and an
	// AdmissionReview has two of them. Whoever sends more gets 413.
	MaxBody = 16 << 20
	// maxBodies bounds all requests that are worked on at the same time; others wait.
	// What is decoded takes several times as much.
	maxBodies = 2 * MaxBody
	// maxTimeout is how long a request may take that brings no timeout of its own. It is
	// the longest that the API server waits for a webhook.
	maxTimeout = 30 * time.Second
)

// Options are what a handler needs. All are required.
type Options struct {
	// Foos is what the caches know.
	Foos    Foos
	Metrics *Metrics
	Clock   clock.PassiveClock
}

// NewHandler returns what serves all webhooks.
func NewHandler(options Options) http.Handler {
	s := &server{metrics: options.Metrics, clock: options.Clock, bodies: semaphore.NewWeighted(maxBodies)}
	foos := admission{foos: options.Foos, metrics: options.Metrics}
	mux := http.NewServeMux()
	for path, review := range map[string]review{
		MutatePath:   foos.mutate,
		ValidatePath: foos.validate,
		ConvertPath:  conversions{metrics: options.Metrics}.convert,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, path, review) })
	}
	return mux
}

// review answers a review with another one. An error says what is wrong with the
// request.
type review func(ctx context.Context, body []byte) (any, error)

// server is what requests have in common.
type server struct {
	metrics *Metrics
	clock   clock.PassiveClock
	// bodies are the bytes that there is room for.
	bodies *semaphore.Weighted
}

// refusal is what is wrong with a request, as a code of HTTP.
type refusal struct {
	code int
	err  error
}

// Error implements error.
func (r *refusal) Error() string { return r.err.Error() }

// Unwrap implements the like of errors.Is.
func (r *refusal) Unwrap() error { return r.err }

// serve answers one request, and counts it.
func (s *server) serve(w http.ResponseWriter, r *http.Request, path string, review review) {
	began := s.clock.Now()
	logger := klog.FromContext(r.Context()).WithValues("webhook", path)
	code := http.StatusOK
	answer, err := s.answer(w, r, review)
	if err != nil {
		code = http.StatusInternalServerError
		if wrong := (*refusal)(nil); errors.As(err, &wrong) {
			code = wrong.code
		}
		if code == http.StatusInternalServerError {
			logger.Error(err, "Answering a webhook failed")
		} else {
			logger.V(2).Info("Refused a webhook's request", "code", code, "err", err)
		}
		http.Error(w, err.Error(), code)
	} else {
		w.Header().Set("Content-Type", "application/json")
		// The client may be gone, which is no matter.
		_, _ = w.Write(answer)
	}
	took := s.clock.Since(began)
	s.metrics.served(path, strconv.Itoa(code), took)
	logger.V(4).Info("Answered a webhook", "code", code, "took", took)
}

// answer reads the request, has it reviewed and encodes the answer, all of it within
// the time that the API server waits. A panic is an error of this one request.
func (s *server) answer(w http.ResponseWriter, r *http.Request, review review) (_ []byte, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			s.metrics.panicked()
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		return nil, err
	}
	defer cancel()
	body, release, err := s.read(ctx, w, r)
	if err != nil {
		return nil, err
	}
	defer release()
	answer, err := review(ctx, body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// withTimeout returns the context of a request: it ends when the API server waits no
// more, which it says in the query.
func withTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	timeout := maxTimeout
	if text := r.URL.Query().Get("timeout"); text != "" {
		// What is no duration is 0.
		asked, _ := time.ParseDuration(text)
		if asked <= 0 {
			return nil, nil, &refusal{http.StatusBadRequest, fmt.Errorf("timeout: %q is not a positive duration such as 10s", text)}
		}
		timeout = min(timeout, asked)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	return ctx, cancel, nil
}

// read returns the body once there is room for it, and how to give the room back.
func (s *server) read(ctx context.Context, w http.ResponseWriter, r *http.Request) (_ []byte, release func(), err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, nil, &refusal{http.StatusUnsupportedMediaType, fmt.Errorf("Content-Type: %q is not application/json", r.Header.Get("Content-Type"))}
	}
	if r.ContentLength > MaxBody {
		return nil, nil, tooLarge()
	}
	room := r.ContentLength
	if room < 0 {
		// It does not say how much it is going to send.
		room = MaxBody
	}
	if err := s.bodies.Acquire(ctx, room); err != nil {
		return nil, nil, &refusal{http.StatusServiceUnavailable, fmt.Errorf("too many requests at the same time: %w", err)}
	}
	defer func() {
		if err != nil {
			s.bodies.Release(room)
		}
	}()
	// One that sends its body slowly keeps the room no longer. Not all writers can.
	deadline, _ := ctx.Deadline()
	_ = http.NewResponseController(w).SetReadDeadline(deadline)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if tooMany := (*http.MaxBytesError)(nil); errors.As(err, &tooMany) {
		return nil, nil, tooLarge()
	}
	if err != nil {
		return nil, nil, &refusal{http.StatusBadRequest, fmt.Errorf("reading the body: %w", err)}
	}
	return body, func() { s.bodies.Release(room) }, nil
}

func tooLarge() error {
	return &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", MaxBody)}
}

// decode decodes a review. An error is the client's.
func decode(body []byte, review any) error {
	if err := json.Unmarshal(body, review); err != nil {
		return malformed("decoding the body: %w", err)
	}
	return nil
}

func malformed(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Errorf(format, args...)}
}
