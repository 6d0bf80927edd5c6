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
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
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
	// maxBody is the largest body of a request in bytes; a larger one gets 413. An object
	// of the API server has at most 3 MiB, and an AdmissionReview has two objects.
	maxBody = 16 << 20
	// maxSmallBody is the largest body that is read at once, such as the review of a Foo. The port has 128
	// connections of 8 requests, so small bodies take 32 MiB at most. A larger body waits for its turn.
	maxSmallBody = 32 << 10
	// maxReviews is how many reviews are decoded at a time: each takes several times its text. It is
	// more than the requests that wait for Lookups.MayGet at a time, at most 60 with its rate limit.
	maxReviews = 64
	// bodyTimeout is how long a client may take to send a small body, and to read the answer.
	bodyTimeout = 5 * time.Second
	// largeBodyTimeout is the same for a large body: others wait for it. The API server sends maxBody in
	// a fraction of it.
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

// server is the handler of all webhooks.
type server struct {
	*http.ServeMux
	Options

	// large is the turn of the one large body that is in memory.
	large *semaphore.Weighted
	// reviews are the turns of the reviews that are decoded.
	reviews *semaphore.Weighted
}

// NewHandler returns the handler of all webhooks.
func NewHandler(options Options) http.Handler {
	s := &server{http.NewServeMux(), options, semaphore.NewWeighted(1), semaphore.NewWeighted(maxReviews)}
	for path, reviewer := range map[string]reviewer{MutatePath: mutate, ValidatePath: s.validate, ConvertPath: s.convert} {
		s.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, reviewer) })
	}
	return s
}

// reviewer returns the answer to the body of a request, both a review. An httpError is
// the client's fault, any other error is ours.
type reviewer func(ctx context.Context, body []byte) (any, error)

// httpError is an error that is answered with an HTTP status code.
type httpError struct {
	error

	code int
}

func badRequest(format string, args ...any) error {
	return &httpError{fmt.Errorf(format, args...), http.StatusBadRequest}
}

func tooLarge() error {
	return &httpError{fmt.Errorf("the body is larger than %d bytes", maxBody), http.StatusRequestEntityTooLarge}
}

// serve answers, logs and counts a request.
func (s *server) serve(w http.ResponseWriter, r *http.Request, reviewer reviewer) {
	start := s.Clock.Now()
	logger := klog.FromContext(r.Context()).WithValues("webhook", r.URL.Path)
	code, err := http.StatusOK, s.answer(w, r, reviewer)
	if err != nil {
		// Callers are told nothing about failures of ours.
		says := "internal error: see the log of the webhooks"
		code = http.StatusInternalServerError
		if clientError := (*httpError)(nil); errors.As(err, &clientError) {
			code, says = clientError.code, err.Error()
			logger.V(2).Info("Refused a webhook request", "code", code, "err", err)
		} else {
			logger.Error(err, "Failed to answer a webhook request")
		}
		// Before net/http writes the answer it reads the rest of the body.
		s.limit(http.NewResponseController(w).SetReadDeadline, bodyTimeout)
		s.limit(http.NewResponseController(w).SetWriteDeadline, 2*bodyTimeout)
		http.Error(w, says, code)
	}
	took := s.Clock.Since(start)
	s.Metrics.requests.WithLabelValues(r.URL.Path, strconv.Itoa(code)).Observe(took.Seconds())
	logger.V(4).Info("Answered a webhook request", "code", code, "took", took)
}

// limit limits how long the client may take from now on.
func (s *server) limit(setDeadline func(time.Time) error, timeout time.Duration) {
	// The writers of tests do not support deadlines, those of net/http do.
	_ = setDeadline(s.Clock.Now().Add(timeout))
}

// answer writes the answer to a request, unless it returns an error. A panic becomes an error, so that
// the API server gets an answer and the panic is counted.
func (s *server) answer(w http.ResponseWriter, r *http.Request, reviewer reviewer) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			s.Metrics.panics.Inc()
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	if s.VerifyClient != nil && r.URL.Path != ConvertPath {
		if err := s.VerifyClient(r); err != nil {
			return &httpError{err, http.StatusUnauthorized}
		}
	}
	timeout, err := checkHeader(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	clientTimeout := bodyTimeout
	if r.ContentLength < 0 || r.ContentLength > maxSmallBody {
		if err := takeTurn(ctx, s.large); err != nil {
			return err
		}
		// Until the client has read the answer, which is not much larger than the body.
		defer s.large.Release(1)
		clientTimeout = largeBodyTimeout
	}
	connection := http.NewResponseController(w)
	s.limit(connection.SetReadDeadline, clientTimeout)
	body, err := read(w, r)
	if err != nil {
		return err
	}
	answer, err := s.review(ctx, body, reviewer)
	if err != nil {
		return err
	}
	s.limit(connection.SetWriteDeadline, clientTimeout)
	w.Header().Set("Content-Type", "application/json")
	// Write fails only if the client is gone or slow.
	_, _ = w.Write(answer)
	return nil
}

// takeTurn waits for a turn, which the caller releases.
func takeTurn(ctx context.Context, turns *semaphore.Weighted) error {
	if err := turns.Acquire(ctx, 1); err != nil {
		return &httpError{fmt.Errorf("too many requests at the same time: %w", err), http.StatusServiceUnavailable}
	}
	return nil
}

// checkHeader refuses a request that need not be read. It returns how long the API server waits for the
// answer, which it sends in the query.
func checkHeader(r *http.Request) (time.Duration, error) {
	if r.ContentLength > maxBody {
		return 0, tooLarge()
	}
	text := r.URL.Query().Get("timeout")
	if text == "" {
		return maxTimeout, nil
	}
	// An invalid duration is parsed as 0.
	requested, _ := time.ParseDuration(text)
	if requested <= 0 {
		return 0, badRequest("timeout: %q is not a positive duration such as 10s", text)
	}
	return min(maxTimeout, requested), nil
}

// read returns the bytes of the body.
func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// Without this, net/http reads the rest of a body that is too slow or too large.
	defer r.Body.Close()
	var body bytes.Buffer
	body.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	exceeded := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &exceeded):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &httpError{errors.New("the body did not arrive in time"), http.StatusRequestTimeout}
	case err != nil:
		return nil, badRequest("reading the body: %w", err)
	}
	return body.Bytes(), nil
}

// decode returns the request of a review of that kind, which its answer has too.
func decode[R any](body []byte, want schema.GroupVersionKind) (*R, metav1.TypeMeta, error) {
	var review struct {
		metav1.TypeMeta
		Request *R `json:"request"`
	}
	if !utf8.Valid(body) {
		// Each byte of it would take three when it is decoded.
		return nil, review.TypeMeta, badRequest("the body is not UTF-8")
	}
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, review.TypeMeta, badRequest("decoding the body: %w", err)
	}
	if review.GroupVersionKind() != want || review.Request == nil {
		return nil, review.TypeMeta, badRequest("the body is not a request of kind %s", want)
	}
	return review.Request, review.TypeMeta, nil
}

// review returns the answer to a body as JSON.
func (s *server) review(ctx context.Context, body []byte, reviewer reviewer) ([]byte, error) {
	if err := takeTurn(ctx, s.reviews); err != nil {
		return nil, err
	}
	defer s.reviews.Release(1)
	answer, err := reviewer(ctx, body)
	if err != nil {
		return nil, err
	}
	// Escapes for HTML would take six times the text.
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(answer)
	return text.Bytes(), err
}

const namespace, subsystem = "sample_controller", "webhook"

// Metrics are the metrics of the webhooks. Create them with NewMetrics.
type Metrics struct {
	requests    *metrics.HistogramVec
	refusals    *metrics.Counter
	conversions *metrics.CounterVec
	panics      *metrics.Counter
}

// NewMetrics returns metrics that are registered with the registry.
func NewMetrics(registry metrics.KubeRegistry) *Metrics {
	m := &Metrics{
		requests: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "request_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Duration of the API server's requests to the webhooks in seconds, by path and HTTP status code.",
			Buckets: metrics.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"path", "code"}),
		refusals: counter("admission_refusals_total", "Number of Foos that were refused because the name of their Deployment is taken."),
		conversions: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "conversions_total", StabilityLevel: metrics.ALPHA,
			Help: "Number of objects in conversion requests, by result: success, failure.",
		}, []string{"result"}),
		panics: counter("panics_total", "Number of webhook requests that ended in a panic."),
	}
	registry.MustRegister(m.requests, m.refusals, m.conversions, m.panics)
	return m
}

func counter(name, help string) *metrics.Counter {
	return metrics.NewCounter(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	})
}
