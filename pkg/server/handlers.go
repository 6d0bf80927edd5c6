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
	"net/http"
	"net/http/pprof"

	"k8s.io/apiserver/pkg/server/healthz"
)

// Check is a named health check.
type Check = healthz.HealthChecker

// NewHealthHandler serves /livez and /readyz, and each check under its own path, such as
// /readyz/crd, like the Kubernetes components: it answers 200 or 500, ?verbose lists the
// checks, ?exclude=NAME skips one.
func NewHealthHandler(live, ready []Check) http.Handler {
	mux := http.NewServeMux()
	healthz.InstallLivezHandler(mux, append([]Check{healthz.PingHealthz}, live...)...)
	healthz.InstallReadyzHandler(mux, append([]Check{healthz.PingHealthz}, ready...)...)
	return mux
}

// NewCheck returns a check that fails while check returns an error.
func NewCheck(name string, check func() error) Check {
	return healthz.NamedCheck(name, func(*http.Request) error { return check() })
}

// NewMetricsHandler serves metrics at /metrics and, with profiling, Go's profiles below
// /debug/pprof/.
func NewMetricsHandler(metrics http.Handler, profiling bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	if profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}
