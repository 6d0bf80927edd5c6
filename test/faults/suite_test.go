//go:build faults

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

package faults

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
)

const (
	// patience bounds every wait. It is generous because it costs time only where
	// something is wrong.
	patience = 180 * time.Second
	// interval paces the few waits that no watch serves.
	interval = 100 * time.Millisecond
)

// suite is what all runs share. There is one cluster for all of them.
type suite struct {
	// work is the directory that hack/faults.sh made and will remove.
	work string
	// environment is that of the controller.
	environment []string
	// server and transport lead to the API server with an administrator's rights.
	server    *url.URL
	transport http.RoundTripper
	config    *rest.Config
	access
	// recorder keeps the histories of TestFaults, whose cluster stands fast.
	recorder *recorder
	names    atomic.Int64
}

// access are clients with somebody's rights.
type access struct {
	kube kubernetes.Interface
	foos clientset.Interface
}

func newAccess(config *rest.Config) (a access, err error) {
	if a.kube, err = kubernetes.NewForConfig(config); err != nil {
		return a, err
	}
	a.foos, err = clientset.NewForConfig(config)
	return a, err
}

var shared *suite

func newSuite() (*suite, error) {
	work := os.Getenv("TEST_WORK")
	if work == "" {
		return nil, errors.New("there is no cluster; run `make faults`, hack/faults.sh, hack/outages.sh or hack/failover.sh")
	}
	s := &suite{work: work, environment: []string{"HOME=" + filepath.Join(work, "tmp")}}
	for _, variable := range os.Environ() {
		// What could lead the controller past its proxy.
		if !strings.HasPrefix(variable, "KUBE") && !strings.HasPrefix(variable, "HOME=") {
			s.environment = append(s.environment, variable)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(work, "home", ".kube", "config"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	if s.server, err = url.Parse(config.Host); err != nil {
		return nil, err
	}
	if s.transport, err = rest.TransportFor(config); err != nil {
		return nil, err
	}
	s.config = config
	s.access, err = newAccess(config)
	return s, err
}

// program is the controller under test.
func (s *suite) program() string {
	return filepath.Join(s.work, "bin", "sample-controller")
}

// unique returns a name that no other call returns.
func (s *suite) unique(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, s.names.Add(1))
}
