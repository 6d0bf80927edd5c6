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
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const kubeconfigTemplate = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// kubeconfig writes a kubeconfig for that server and returns its path.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, fmt.Appendf(nil, kubeconfigTemplate, server), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// home makes an empty directory the user's home, and clears the environment variables from
// which NewConfig would find a cluster.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	return dir
}

func TestNewConfig(t *testing.T) {
	t.Run("-kubeconfig overrides KUBECONFIG", func(t *testing.T) {
		home(t)
		t.Setenv("KUBECONFIG", kubeconfig(t, "https://environment:1"))
		expectHost(t, Options{Kubeconfig: kubeconfig(t, "https://flag:1")}, "https://flag:1")
	})
	t.Run("-master overrides the kubeconfig's address", func(t *testing.T) {
		home(t)
		expectHost(t, Options{Kubeconfig: kubeconfig(t, "https://flag:1"), Master: "https://master:1"}, "https://master:1")
	})
	t.Run("-master alone is enough, and gets no credentials of another server", func(t *testing.T) {
		home(t)
		t.Setenv("KUBECONFIG", kubeconfig(t, "https://environment:1"))
		config, err := NewConfig(Options{Master: "https://master:1"})
		if err != nil {
			t.Fatal(err)
		}
		if config.Host != "https://master:1" || config.BearerToken != "" {
			t.Errorf("host %s with the token %q", config.Host, config.BearerToken)
		}
	})
	t.Run("KUBECONFIG is used, even in a Pod", func(t *testing.T) {
		home(t)
		t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
		t.Setenv("KUBERNETES_SERVICE_PORT", "443")
		t.Setenv("KUBECONFIG", kubeconfig(t, "https://environment:1"))
		expectHost(t, Options{}, "https://environment:1")
	})
	t.Run("the default path is used", func(t *testing.T) {
		dir := home(t)
		if err := os.Mkdir(filepath.Join(dir, ".kube"), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, ".kube", "config")
		if err := os.Rename(kubeconfig(t, "https://home:1"), path); err != nil {
			t.Fatal(err)
		}
		// clientcmd reads HOME once, when the program starts.
		old := clientcmd.RecommendedHomeFile
		clientcmd.RecommendedHomeFile = path
		t.Cleanup(func() { clientcmd.RecommendedHomeFile = old })
		expectHost(t, Options{}, "https://home:1")
	})
	t.Run("in a Pod the service account is used", func(t *testing.T) {
		home(t)
		t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
		t.Setenv("KUBERNETES_SERVICE_PORT", "443")
		// There is no token on this machine: the error shows the attempt.
		expectError(t, Options{}, "loading the in-cluster configuration: open /var/run/secrets/kubernetes.io/serviceaccount/token")
	})
	t.Run("without any configuration the error says what to set", func(t *testing.T) {
		home(t)
		expectError(t, Options{}, "set -kubeconfig or KUBECONFIG")
	})
	t.Run("the error names a missing -kubeconfig", func(t *testing.T) {
		home(t)
		expectError(t, Options{Kubeconfig: "no/such/file"}, "loading -kubeconfig no/such/file: stat no/such/file")
	})
	t.Run("the error names a malformed -kubeconfig", func(t *testing.T) {
		home(t)
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		expectError(t, Options{Kubeconfig: path}, "loading -kubeconfig "+path)
	})
	t.Run("the error names an empty -kubeconfig", func(t *testing.T) {
		home(t)
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		expectError(t, Options{Kubeconfig: path}, "loading -kubeconfig "+path+": it names no cluster")
	})
	t.Run("the error names a KUBECONFIG without its context", func(t *testing.T) {
		home(t)
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\ncurrent-context: gone\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUBECONFIG", path)
		expectError(t, Options{}, path)
	})
}

func expectHost(t *testing.T, options Options, want string) {
	t.Helper()
	config, err := NewConfig(options)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != want {
		t.Errorf("host %s, want %s", config.Host, want)
	}
}

func expectError(t *testing.T, options Options, want string) {
	t.Helper()
	if _, err := NewConfig(options); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q in it", err, want)
	}
}

func TestConfigsForClients(t *testing.T) {
	home(t)
	config, err := NewConfig(Options{Master: "http://master:1", QPS: Unlimited, Burst: 7})
	if err != nil {
		t.Fatal(err)
	}
	if config.QPS != -1 || config.Burst != 7 {
		t.Errorf("config %+v", config)
	}
	if got := ForBuiltin(config); got.ContentType != "application/vnd.kubernetes.protobuf" || got.QPS != -1 || config.ContentType != "" {
		t.Errorf("for built-in types %+v", got)
	}
}

// TestEventLimit is rule 16: events have their own rate limit, until the shutdown.
func TestEventLimit(t *testing.T) {
	home(t)
	config, err := NewConfig(Options{Master: "http://master:1", QPS: Unlimited, Burst: 7})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		limited, unlimit := ForEvents(config)
		took := func(requests int, accept func()) time.Duration {
			begun := time.Now()
			for range requests {
				accept()
			}
			return time.Since(begun)
		}
		wait := func() {
			if err := limited.RateLimiter.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got, want := took(eventBurst+eventQPS, wait), time.Second; got != want {
			t.Errorf("rule 16: %d requests more than the burst take %v, want %v", eventQPS, got, want)
		}
		if limited.RateLimiter.TryAccept() {
			t.Error("rule 16: one more is accepted at once")
		}
		unlimit()
		if got := took(1000, wait) + took(1000, limited.RateLimiter.Accept); got != 0 || !limited.RateLimiter.TryAccept() {
			t.Errorf("rule 20: without the limit, 2000 requests take %v", got)
		}
	})
}

// client returns a client, configured as in the controller, of the handler.
func client(t *testing.T, handler http.HandlerFunc) *kubernetes.Clientset {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	home(t)
	config, err := NewConfig(Options{Master: server.URL, QPS: Unlimited, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(ForBuiltin(config))
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

// protobufStatus is the API server's response to a client that asked for protobuf.
func protobufStatus(t *testing.T, message string) string {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("no serializer for protobuf")
	}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: message, Code: 500}
	var body bytes.Buffer
	if err := info.Serializer.Encode(status, &body); err != nil {
		t.Fatal(err)
	}
	return body.String()
}

// TestRetryAfterReachesTheCaller is rule 12: client-go must not block a worker by resending
// a request within one call.
func TestRetryAfterReachesTheCaller(t *testing.T) {
	tests := map[string]struct {
		code        int
		contentType string
		body        string
		reason      metav1.StatusReason
		message     string
	}{
		"rule 12: 429 of Priority and Fairness, in plain text": {
			429, "text/plain", "Too many requests, please try again later.\n", metav1.StatusReasonTooManyRequests, "Too many requests, please try again later."},
		"rule 12: 429 with a Status": {
			429, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","message":"slow down","code":429}`, metav1.StatusReasonTooManyRequests, "slow down"},
		"rule 12: 500 with a Status in protobuf": {
			500, "application/vnd.kubernetes.protobuf", protobufStatus(t, "etcd is down"), metav1.StatusReasonInternalError, "etcd is down"},
		"rule 12: 500": {500, "text/plain", "", metav1.StatusReasonServerTimeout, ""},
		"rule 12: 503": {503, "text/plain", "away", metav1.StatusReasonServiceUnavailable, "away"},
		"rule 12: 504": {504, "text/html", "<html>", metav1.StatusReasonTimeout, "<html>"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			kube := client(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Content-Type", test.contentType)
				w.WriteHeader(test.code)
				fmt.Fprint(w, test.body)
			})
			_, err := kube.AppsV1().Deployments("ns").Get(t.Context(), "web", metav1.GetOptions{})
			if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 7 {
				t.Errorf("suggested delay %d, %v, want 7: %v", seconds, ok, err)
			}
			if got := apierrors.ReasonForError(err); got != test.reason {
				t.Errorf("reason %q, want %q", got, test.reason)
			}
			if err == nil || err.Error() != test.message {
				t.Errorf("error %v, want %q", err, test.message)
			}
			if got := requests.Load(); got != 1 {
				t.Errorf("%d requests inside one call, want 1", got)
			}
		})
	}
}

// TestRetryAfterOfAnyLength is rule 12 with delays that a Status cannot hold, or that are
// negative.
func TestRetryAfterOfAnyLength(t *testing.T) {
	for header, want := range map[string]int{"0": 0, "-1": 0, "2147483647": 2147483647, "2147483648": 2147483647} {
		response := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {header}}}
		if seconds, ok := retryAfter(response); !ok || seconds != want {
			t.Errorf("rule 12: Retry-After: %s means %d seconds (%v), want %d", header, seconds, ok, want)
		}
	}
}

func TestOtherResponsesPassUnchanged(t *testing.T) {
	for _, code := range []int{200, 404, 409, 500} {
		kube := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as it was","code":%d}`, code)
		})
		_, err := kube.AppsV1().Deployments("ns").Get(t.Context(), "web", metav1.GetOptions{})
		if code != 200 && (err == nil || err.Error() != "as it was") {
			t.Errorf("code %d: error %v", code, err)
		}
		if _, ok := apierrors.SuggestsClientDelay(err); ok {
			t.Errorf("code %d suggests a delay", code)
		}
	}
}

func TestWaitUntilServed(t *testing.T) {
	things := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	const group = "/apis/example.com/v1"
	list := func(w http.ResponseWriter, resources ...string) {
		answer := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "example.com/v1"}
		for _, resource := range resources {
			answer.APIResources = append(answer.APIResources, metav1.APIResource{Name: resource})
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}
	wait := func(t *testing.T, handler http.HandlerFunc) error {
		return WaitUntilServed(t.Context(), client(t, handler).AppsV1().RESTClient(), things, "kubectl apply -f things.yaml", true)
	}

	t.Run("served at once", func(t *testing.T) {
		if err := wait(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != group {
				t.Errorf("asked for %s", r.URL.Path)
			}
			list(w, "others", "things")
		}); err != nil {
			t.Error(err)
		}
	})
	t.Run("served later: the group is missing, then empty, then fails, then is there", func(t *testing.T) {
		var polls atomic.Int32
		if err := wait(t, func(w http.ResponseWriter, _ *http.Request) {
			switch polls.Add(1) {
			case 1:
				http.NotFound(w, nil)
			case 2:
				list(w, "things/status")
			case 3:
				http.Error(w, "oops", http.StatusInternalServerError)
			default:
				list(w, "things")
			}
		}); err != nil {
			t.Error(err)
		}
		if got := polls.Load(); got != 4 {
			t.Errorf("%d polls, want 4", got)
		}
	})
	t.Run("not served before ctx ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := WaitUntilServed(ctx, client(t, func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			list(w)
		}).AppsV1().RESTClient(), things, "", false)
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "CustomResourceDefinition things.example.com") {
			t.Errorf("error %v", err)
		}
	})
}

func TestIsServed(t *testing.T) {
	things := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	is := func(t *testing.T, handler http.HandlerFunc) (bool, error) {
		return IsServed(t.Context(), client(t, handler).AppsV1().RESTClient(), things)
	}
	t.Run("not served", func(t *testing.T) {
		if served, err := is(t, http.NotFound); served || err != nil {
			t.Errorf("%v, error %v", served, err)
		}
	})
	t.Run("refused: the error names the address", func(t *testing.T) {
		_, err := is(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you", http.StatusUnauthorized) })
		if !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), "contacting the API server at 127.0.0.1:") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("refused with an empty body: the error has the code", func(t *testing.T) {
		_, err := is(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "403 Forbidden") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("connection refused: the error names the address", func(t *testing.T) {
		server := httptest.NewServer(nil)
		server.Close()
		kube := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})
		_, err := IsServed(t.Context(), kube.AppsV1().RESTClient(), things)
		if err == nil || !strings.Contains(err.Error(), "contacting the API server at "+strings.TrimPrefix(server.URL, "http://")) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("error %v", err)
		}
	})
}
