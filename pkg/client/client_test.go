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
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// file writes a file and returns its path.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// hasText reports whether the error has the text in it, or is nil for "".
func hasText(err error, text string) bool {
	return (err == nil) == (text == "") && (err == nil || strings.Contains(err.Error(), text))
}

// kubeconfig writes a kubeconfig for that server and returns its path.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	return file(t, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server))
}

func TestNewConfig(t *testing.T) {
	inPod := func(t *testing.T, _ *Options) {
		t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
		t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	}
	environment := func(t *testing.T, _ *Options) { t.Setenv("KUBECONFIG", kubeconfig(t, "https://environment:1")) }
	home := func(t *testing.T, _ *Options) { clientcmd.RecommendedHomeFile = kubeconfig(t, "https://home:1") }
	master := func(_ *testing.T, o *Options) { o.Master = "https://master:1" }
	flag := func(t *testing.T, o *Options) { o.Kubeconfig = kubeconfig(t, "https://flag:1") }
	content := func(text string) func(*testing.T, *Options) {
		return func(t *testing.T, o *Options) { o.Kubeconfig = file(t, text) }
	}
	type prepare []func(*testing.T, *Options)
	for _, test := range []struct {
		sentence string
		prepare  prepare
		// host and token are the result, unless err is a part of the error.
		host, token, err string
	}{
		{"-kubeconfig overrides KUBECONFIG", prepare{environment, flag}, "https://flag:1", "t", ""},
		{"-master overrides the kubeconfig's address", prepare{flag, master}, "https://master:1", "t", ""},
		{"-master alone is enough, and gets no credentials of another server", prepare{inPod, home, master}, "https://master:1", "", ""},
		{"KUBECONFIG is used, even in a Pod", prepare{inPod, environment, home}, "https://environment:1", "t", ""},
		{"the default file is used last", prepare{home}, "https://home:1", "t", ""},
		{"in a Pod the service account is used: the error shows it, without a token", prepare{inPod, home},
			"", "", "loading the in-cluster configuration: open /var/run/secrets"},
		{"without any configuration the error says what to set", nil, "", "", "set -kubeconfig or KUBECONFIG"},
		{"the error names a missing -kubeconfig", prepare{inPod, func(_ *testing.T, o *Options) { o.Kubeconfig = "no/such/file" }},
			"", "", "loading -kubeconfig no/such/file: stat no/such/file"},
		{"the error names an empty -kubeconfig", prepare{content("")}, "", "", "/config: it names no cluster"},
		{"the error names a KUBECONFIG without its context", prepare{func(t *testing.T, _ *Options) {
			t.Setenv("KUBECONFIG", file(t, "apiVersion: v1\nkind: Config\ncurrent-context: gone\n"))
		}}, "", "", "loading the kubeconfig from [/"},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			// What NewConfig would find a cluster by. clientcmd reads HOME once, when the program starts.
			old := clientcmd.RecommendedHomeFile
			clientcmd.RecommendedHomeFile = filepath.Join(t.TempDir(), "none")
			t.Cleanup(func() { clientcmd.RecommendedHomeFile = old })
			for _, variable := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
				t.Setenv(variable, "")
			}
			var options Options
			for _, prepare := range test.prepare {
				prepare(t, &options)
			}
			config, err := NewConfig(options)
			switch {
			case !hasText(err, test.err):
				t.Errorf("error %v, want %q in it", err, test.err)
			case err == nil && (config.Host != test.host || config.BearerToken != test.token):
				t.Errorf("host %s with the token %q", config.Host, config.BearerToken)
			}
		})
	}
}

// TestRetryAfter is rule 12: client-go must not block a worker by resending a request within
// one call.
func TestRetryAfter(t *testing.T) {
	const json, text, protobufType = "application/json", "text/plain", "application/vnd.kubernetes.protobuf"
	status := func(fields string) string {
		return `{"kind":"Status","apiVersion":"v1","status":"Failure",` + fields + `}`
	}
	encoded, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonServerTimeout, Message: "etcd is down",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		sentence                  string
		code                      int
		header, contentType, body string
		delay                     int
		reason                    metav1.StatusReason
		message                   string
	}{
		{"429 with a Status", 429, "7", json, status(`"reason":"TooManyRequests","message":"slow down","code":429`),
			7, metav1.StatusReasonTooManyRequests, "slow down"},
		{"500 with a Status in protobuf", 500, "7", protobufType, string(encoded), 7, metav1.StatusReasonServerTimeout, "etcd is down"},
		{"500 with an object that is no Status", 500, "7", json, `{"kind":"Pod","apiVersion":"v1"}`,
			7, metav1.StatusReasonInternalError, "an error on the server"},
		{"429 of Priority and Fairness, in plain text, with a delay that a Status cannot hold", 429, "2147483648", text, "Too many requests",
			2147483647, metav1.StatusReasonTooManyRequests, "the server has received too many requests"},
		{"a negative delay", 500, "-1", json, status(`"reason":"ServerTimeout","code":500`), 0, metav1.StatusReasonServerTimeout, "an error on the server"},
		{"500 without Retry-After", 500, "", json, status(`"message":"as it was","code":500`), 0, "", "as it was"},
		{"404 with Retry-After", 404, "7", json, status(`"reason":"NotFound","message":"as it was","code":404`),
			0, metav1.StatusReasonNotFound, "as it was"},
	} {
		t.Run("rule 12: "+test.sentence, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				if accept := r.Header.Get("Accept"); !strings.HasPrefix(accept, runtime.ContentTypeProtobuf) {
					t.Errorf("a client of built-in types accepts %s", accept)
				}
				if test.header != "" {
					w.Header().Set("Retry-After", test.header)
				}
				w.Header().Set("Content-Type", test.contentType)
				w.WriteHeader(test.code)
				fmt.Fprint(w, test.body)
			}))
			defer server.Close()
			config, err := NewConfig(Options{Master: server.URL, QPS: Unlimited, Burst: 1})
			if err != nil {
				t.Fatal(err)
			}
			_, err = kubernetes.NewForConfigOrDie(ForBuiltin(config)).AppsV1().Deployments("ns").Get(t.Context(), "web", metav1.GetOptions{})
			seconds, _ := apierrors.SuggestsClientDelay(err)
			if reason, sent := apierrors.ReasonForError(err), requests.Load(); seconds != test.delay || reason != test.reason || sent != 1 {
				t.Errorf("suggested delay %d, want %d, reason %q, want %q, %d requests inside one call, want 1: %v",
					seconds, test.delay, reason, test.reason, sent, err)
			}
			if err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("error %v, want %q", err, test.message)
			}
		})
	}
}

// TestStreamingListFails: the watch error handler of an informer gets the error of the list when the API server
// refuses the streaming list with 429, as it does while it cannot fill its own cache.
func TestStreamingListFails(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w.Header().Set("Retry-After", "1"); r.URL.Query().Get("sendInitialEvents") == "true" {
			w.WriteHeader(http.StatusTooManyRequests)
		} else {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, "conversion webhook failed")
		}
	}))
	defer server.Close()
	config, err := NewConfig(Options{Master: server.URL, QPS: Unlimited, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	informer := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0).Apps().V1().Deployments().Informer()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("the informer told of no failure"))
	defer cancel()
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		cancel()
		if !strings.Contains(err.Error(), "conversion webhook failed") {
			t.Errorf("error %v", err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	informer.RunWithContext(ctx)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		t.Error(cause)
	}
}

const (
	testRenewDeadline = 10 * time.Second
	testLeaseDuration = 15 * time.Second
)

func TestFence(t *testing.T) {
	const past = testRenewDeadline
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	reads := []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	const all, dryRun = "/api/v1/pods?fieldManager=me", "/api/v1/pods?dryRun=All&fieldManager=me"
	for _, test := range []struct {
		sentence string
		// monotonic and wall are the time since the last renewal, by these clocks.
		monotonic, wall time.Duration
		methods         []string
		uri             string
		// err is a part of the error, "" if the request passes.
		err string
	}{
		{"a write passes while the last renewal is younger than the renew deadline", past - 1, past - 1, writes, all, ""},
		{"no write passes once the last renewal is as old as the renew deadline, although the wall clock is set back", past, -past, writes, all,
			"the lease is not held: the last renewal was sent 10s ago, the renew deadline is 10s"},
		{"time counts although the monotonic clock stands still", 0, past, writes, all, "10s ago"},
		{"reads pass without a lease", past, past, reads, all, ""},
		{"dry runs pass without a lease", past, past, writes, dryRun, ""},
	} {
		t.Run("rule 20: "+test.sentence, func(t *testing.T) {
			for _, method := range test.methods {
				start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
				monotonic, wall := clocktesting.NewFakeClock(start), clocktesting.NewFakePassiveClock(start)
				f := NewFence(monotonic, wall, testRenewDeadline, testLeaseDuration)
				f.Renewed(f.Now())
				monotonic.Step(test.monotonic)
				wall.SetTime(start.Add(test.wall))
				closed, passed := false, false
				request := httptest.NewRequestWithContext(t.Context(), method, test.uri, nil)
				request.Body = &cancellingBody{ReadCloser: http.NoBody, cancel: func() { closed = true }}
				response, err := f.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
					passed = true
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				})).RoundTrip(request)
				if err == nil {
					_ = response.Body.Close()
				}
				if !hasText(err, test.err) || err != nil && !errors.Is(err, ErrFenced) {
					t.Errorf("%s: error %v, want %q", method, err, test.err)
				}
				if (err == nil) != passed || err != nil && !closed {
					t.Errorf("%s: error %v, passed: %t, body closed: %t", method, err, passed, closed)
				}
			}
		})
	}
}

// frozenClock freezes the process for that time each time it has been read.
type frozenClock struct {
	clock.RealClock

	frozen time.Duration
}

func (c *frozenClock) Now() time.Time {
	defer time.Sleep(c.frozen)
	return c.RealClock.Now()
}

// TestDeadlineOfWrites: no write can be executed once another process may have the lease.
func TestDeadlineOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence(clock.RealClock{}, clock.RealClock{}, testRenewDeadline, testLeaseDuration)
		// The API server answers after that time, unless the context of the write ends before.
		var write context.Context
		// unread is the error of that context before the response is read.
		send := func(after time.Duration) (unread, err error) {
			response, err := f.Wrap(roundTripper(func(request *http.Request) (*http.Response, error) {
				write = request.Context()
				select {
				case <-write.Done():
					return nil, context.Cause(write)
				case <-time.After(after):
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})).RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil))
			if err != nil {
				return nil, err
			}
			unread = write.Err()
			return unread, response.Body.Close()
		}
		renewed := time.Now()
		f.Renewed(f.Now())
		time.Sleep(testRenewDeadline - time.Second)
		_, err := send(time.Hour)
		if took := time.Since(renewed); !errors.Is(err, ErrFenced) || took != testLeaseDuration {
			t.Errorf("rule 20: a write that hangs ended %s after the renewal with %v, want ErrFenced", took, err)
		}
		f.Renewed(f.Now())
		if _, err := send(0); !errors.Is(err, ErrFenced) {
			t.Errorf("rule 20: a renewal after the lease has expired opens the fence again: error %v", err)
		}
		wall := &frozenClock{}
		f = NewFence(clock.RealClock{}, wall, testRenewDeadline, testLeaseDuration)
		f.Renewed(f.Now())
		wall.frozen = time.Hour
		if _, err := send(time.Second); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrFenced) {
			t.Errorf("rule 20: a write of a process that is frozen before it is sent: error %v", err)
		}
		f = NewFence(clock.RealClock{}, clock.RealClock{}, testRenewDeadline, testLeaseDuration)
		f.Renewed(f.Now())
		if unread, err := send(time.Second); unread != nil || write.Err() == nil || err != nil {
			t.Errorf("the context of a write ends with %v before its response is read, %v after, error %v", unread, write.Err(), err)
		}
	})
}

// TestAwaitInformers: an informer that does not stop is not waited for.
func TestAwaitInformers(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: informerStopTimeout} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			if AwaitInformers(t.Context(), func() { time.Sleep(takes) }); time.Since(begun) != want {
				t.Errorf("rule 20: it took %s, want %s", time.Since(begun), want)
			}
			time.Sleep(time.Minute)
		})
	}
}
