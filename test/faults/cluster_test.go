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
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
)

const (
	// waitTimeout bounds every wait. It is generous because only a failing test waits so
	// long.
	waitTimeout = 180 * time.Second
	// pollInterval is for waits that no watch serves.
	pollInterval = 100 * time.Millisecond
)

// testCluster is the local cluster that all runs of a test share.
type testCluster struct {
	// work is the directory that the script in hack creates and removes.
	work string
	// environment is the environment of the controllers.
	environment []string
	// server is the address of the API server, transport connects to it as administrator.
	server    *url.URL
	transport http.RoundTripper
	config    *rest.Config
	clientSet
	// recorder is set by TestFaults, which never restarts the API server.
	recorder *recorder
	names    atomic.Int64
}

// clientSet are the clients of one user.
type clientSet struct {
	kube    kubernetes.Interface
	foos    clientset.Interface
	dynamic dynamic.Interface
}

func newClients(config *rest.Config) (a clientSet, err error) {
	if a.kube, err = kubernetes.NewForConfig(config); err != nil {
		return a, err
	}
	if a.foos, err = clientset.NewForConfig(config); err != nil {
		return a, err
	}
	a.dynamic, err = dynamic.NewForConfig(config)
	return a, err
}

var cluster *testCluster

func newTestCluster() (*testCluster, error) {
	work := os.Getenv("TEST_WORK")
	if work == "" {
		return nil, errors.New("there is no cluster; run `make faults`, hack/e2e.sh faults, hack/e2e.sh outages or hack/e2e.sh failover")
	}
	c := &testCluster{work: work, environment: []string{"HOME=" + filepath.Join(work, "tmp")}}
	for _, variable := range os.Environ() {
		// These variables could connect the controller to the API server past its proxy.
		if !strings.HasPrefix(variable, "KUBE") && !strings.HasPrefix(variable, "HOME=") {
			c.environment = append(c.environment, variable)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(work, "home", ".kube", "config"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	if c.server, err = url.Parse(config.Host); err != nil {
		return nil, err
	}
	if c.transport, err = rest.TransportFor(config); err != nil {
		return nil, err
	}
	c.config = config
	c.clientSet, err = newClients(config)
	return c, err
}

func (c *testCluster) controllerBinary() string {
	return filepath.Join(c.work, "bin", "sample-controller")
}

// pause returns after the duration, or when the context ends. It is for delays that are
// part of a fault or of the behaviour of a user, never for waiting.
func pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// uniqueName returns a name that no other call returns.
func (c *testCluster) uniqueName(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, c.names.Add(1))
}

// touch sets a label to a new value. That enqueues the object and leaves its spec as it
// is.
func (c *testCluster) touch(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, touchedLabel, c.uniqueName("touch"))
	_, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
