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

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// get returns the status code and the body.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// startServer serves the handler, with TLS if secure, until stop is called.
func startServer(t *testing.T, secure bool, handler http.HandlerFunc) (url string, stop func() error) {
	t.Helper()
	var config *tls.Config
	scheme, err := "http://", error(nil)
	if secure {
		scheme = "https://"
		if config, err = NewTLSConfig(t.Context(), "", ""); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Listen(t.Context(), "test", "test-bind-address", "127.0.0.1:0", handler, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Serve(ctx) }()
	return scheme + s.Address(), func() error {
		cancel()
		return <-result
	}
}

func TestServeCutsOffARequestThatHangs(t *testing.T) {
	arrived, answered := make(chan struct{}), make(chan bool, 1)
	url, stop := startServer(t, false, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	go func() {
		response, err := http.Get(url)
		if err == nil {
			response.Body.Close()
		}
		answered <- err == nil
	}()
	<-arrived
	if err := stop(); err != nil {
		t.Errorf("the end is reported as %v", err)
	}
	if <-answered {
		t.Error("the request was answered")
	}
}

func TestHandlers(t *testing.T) {
	check := func(name string, err error) []Check { return []Check{NewCheck(name, func() error { return err })} }
	starting := NewHealthHandler(check("workers", nil), check("crd", errors.New("not yet")))
	stuck := NewHealthHandler(check("workers", errors.New("stuck")), check("crd", nil))
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })
	plain, profiling := NewMetricsHandler(metrics, false), NewMetricsHandler(metrics, true)
	for _, test := range []struct {
		sentence string
		handler  http.Handler
		url      string
		code     int
		body     string
	}{
		{"alive from the start", starting, "/livez", http.StatusOK, "ok"},
		{"not ready while a check fails", starting, "/readyz", http.StatusInternalServerError, "[-]crd failed"},
		{"each check has a path", starting, "/readyz/crd", http.StatusInternalServerError, "not yet"},
		{"ready when no check fails", stuck, "/readyz?verbose", http.StatusOK, "[+]crd ok"},
		{"not alive when a check fails", stuck, "/livez?verbose", http.StatusInternalServerError, "[-]workers failed"},
		{"metrics", plain, "/metrics", http.StatusOK, "metrics"},
		{"no profiles", plain, "/debug/pprof/", http.StatusNotFound, ""},
		{"a list of profiles", profiling, "/debug/pprof/", http.StatusOK, "goroutine"},
		{"the command line", profiling, "/debug/pprof/cmdline", http.StatusOK, "test"},
		{"symbols", profiling, "/debug/pprof/symbol", http.StatusOK, "num_symbols"},
		{"a profile", profiling, "/debug/pprof/heap", http.StatusOK, ""},
		{"nothing else", profiling, "/", http.StatusNotFound, ""},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			w := httptest.NewRecorder()
			test.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, test.url, nil))
			if w.Code != test.code || !strings.Contains(w.Body.String(), test.body) {
				t.Errorf("answer %d %q, want %d with %q", w.Code, w.Body, test.code, test.body)
			}
		})
	}
}
