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
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

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
	s := &server{metrics: options.Metrics, clock: options.Clock, room: newRoom()}
	foos := admission{lookups: options.Lookups, metrics: options.Metrics}
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
	room    *room
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
	// If the body is refused unread, net/http reads on. Writers of tests do not support deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(start.Add(bodyTimeout))
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
	data, body, err := s.read(ctx, w, r)
	if err != nil {
		return err
	}
	// Until the client has read the answer, which is not much larger than the body.
	defer body.leave()
	var encoded []byte
	if err := body.decode(ctx, func() error {
		answer, err := reviewer(ctx, data)
		if err != nil {
			return err
		}
		encoded, err = encode(answer)
		return err
	}); err != nil {
		return withCode(err)
	}
	w.Header().Set("Content-Type", "application/json")
	write(ctx, w, body, encoded)
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

// write writes the answer, until ctx ends or the room gives the body up. It fails only if the client is
// gone or slow.
func write(ctx context.Context, w http.ResponseWriter, body *body, answer []byte) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer whenDone(ctx, http.NewResponseController(w).SetWriteDeadline)()
	body.awaitClient(giveUp)
	defer body.stopWaiting()
	_, _ = w.Write(answer)
}

// whenDone calls setDeadline with a deadline in the past when ctx ends, which ends a wait for the client. Call
// the function that it returns before the handler returns, after which the writer must not be used.
func whenDone(ctx context.Context, setDeadline func(time.Time) error) (stop func()) {
	called := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(called)
		// Writers of tests do not support deadlines.
		_ = setDeadline(time.Unix(1, 0))
	})
	return func() {
		if !cancel() {
			<-called
		}
	}
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

// read returns the bytes of the body, for which there is room until the body leaves it.
func (s *server) read(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]byte, *body, error) {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		return nil, nil, &httpError{http.StatusUnsupportedMediaType, fmt.Errorf("Content-Type: %q is not application/json", r.Header.Get("Content-Type"))}
	}
	if r.ContentLength > MaxBody {
		return nil, nil, tooLarge()
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	// From here on the room decides how long it may take.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	defer whenDone(ctx, http.NewResponseController(w).SetReadDeadline)()
	b := s.room.enter()
	data, err := b.read(ctx, giveUp, http.MaxBytesReader(w, r.Body, MaxBody), r.ContentLength)
	if err == nil {
		return data, b, nil
	}
	b.leave()
	// net/http would go on reading what it refused.
	giveUp(err)
	exceeded := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &exceeded):
		return nil, nil, tooLarge()
	case errors.Is(err, errNoRoom):
		return nil, nil, withCode(err)
	case errors.Is(err, errSlow):
		return nil, nil, &httpError{http.StatusRequestTimeout, err}
	}
	return nil, nil, &httpError{http.StatusBadRequest, fmt.Errorf("reading the body: %w", err)}
}

// withCode returns the error with the code of errNoRoom, if it is that.
func withCode(err error) error {
	if errors.Is(err, errNoRoom) {
		return &httpError{http.StatusServiceUnavailable, err}
	}
	return err
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
