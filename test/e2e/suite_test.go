//go:build e2e

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

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/test/kinds"
)

const (
	// waitTimeout bounds every wait. It is generous because only a failing test uses it up.
	waitTimeout = 180 * time.Second
	// commandInterval is longer than apiInterval because each poll starts a process.
	apiInterval     = 50 * time.Millisecond
	commandInterval = 200 * time.Millisecond
)

// suite has what all tests share: one cluster, its clients, and what is installed in it.
type suite struct {
	// work is the directory that hack/e2e.sh made and will remove.
	work string
	// root is the root of the repository.
	root string
	// callerHome is the home directory of the user who runs the tests.
	callerHome string
	// home is a home directory with the cluster's .kube/config.
	home string
	// environment is the environment of commands, without HOME.
	environment []string
	// kinds and dependents are those of install.yaml: see readKinds.
	kinds      []kind
	dependents []string
	// data are those in the testdata of the controllers.
	data []*kinds.Data

	config    *rest.Config
	kube      kubernetes.Interface
	clientset clientset.Interface
	dynamic   dynamic.Interface
	audit     auditLog
	names     atomic.Int64

	crdMu        sync.Mutex
	crdInstalled bool

	deployMu sync.Mutex
	// secrets is the directory with a Pod's secrets. It is empty until deploy has run.
	secrets string
}

var shared *suite

func TestMain(m *testing.M) {
	var err error
	if shared, err = newSuite(); err != nil {
		fmt.Fprintln(os.Stderr, "Setting up the end-to-end tests:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func newSuite() (*suite, error) {
	work := os.Getenv("TEST_WORK")
	if work == "" {
		return nil, errors.New("there is no cluster; run `make e2e` or hack/e2e.sh")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	s := &suite{work: work, root: root, home: filepath.Join(work, "home"), callerHome: os.Getenv("HOME")}
	if s.environment, err = commandEnvironment(work, root); err != nil {
		return nil, err
	}
	if s.kinds, s.dependents, err = readKinds(root); err != nil {
		return nil, err
	}
	if s.data, err = kinds.Read(root); err != nil {
		return nil, err
	}
	// The path is explicit because the caller's KUBECONFIG may name another cluster.
	if s.config, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig()); err != nil {
		return nil, err
	}
	s.config.QPS = -1
	if s.kube, err = kubernetes.NewForConfig(s.config); err != nil {
		return nil, err
	}
	if s.clientset, err = clientset.NewForConfig(s.config); err != nil {
		return nil, err
	}
	s.dynamic, err = dynamic.NewForConfig(s.config)
	return s, err
}

// minor returns the minor version of the API server. The tests also run with earlier ones.
func (s *suite) minor(t *testing.T) int {
	t.Helper()
	version, err := s.kube.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	minor, err := strconv.Atoi(version.Minor)
	if err != nil {
		t.Fatal(err)
	}
	return minor
}

func (s *suite) kubeconfig() string {
	return filepath.Join(s.home, ".kube", "config")
}

// installCRD installs the CRD of Foos with the commands of walkthrough 2, once.
func (s *suite) installCRD(t *testing.T) {
	t.Helper()
	s.crdMu.Lock()
	defer s.crdMu.Unlock()
	if s.crdInstalled {
		return
	}
	output := sh(t, `kubectl apply -f artifacts/examples/crd.yaml`)
	mustContain(t, output, "customresourcedefinition.apiextensions.k8s.io/foos.samplecontroller.k8s.io created")
	sh(t, "kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io")
	s.crdInstalled = true
}

// removeCRD deletes the CRD of Foos. Only TestWalkthrough1 calls it, while no other test
// runs. (A new cluster has no CRD yet; with -count the previous run installed it.)
func (s *suite) removeCRD(t *testing.T) {
	t.Helper()
	s.crdMu.Lock()
	defer s.crdMu.Unlock()
	sh(t, "kubectl delete crd foos.samplecontroller.k8s.io --ignore-not-found")
	s.crdInstalled = false
}

// goEnvironment returns the settings that the go command derives from the home directory.
// Commands run with another home directory, where they would find an empty build cache.
func goEnvironment() ([]string, error) {
	data, err := exec.Command("go", "env", "-json", "GOENV", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	values := map[string]string{}
	if err := json.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("reading the output of go env: %w", err)
	}
	var environment []string
	for name, value := range values {
		environment = append(environment, name+"="+value)
	}
	return environment, nil
}

// unique returns a different name at each call.
func unique(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, shared.names.Add(1))
}

// eventually waits until check returns nil, and fails the test with check's last error if
// that takes longer than waitTimeout.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	poll(t, what, apiInterval, check)
}

func poll(t *testing.T, what string, interval time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), interval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v; last error: %v", what, err, last)
	}
}

// consistently fails the test if check returns an error within the period. It covers what
// must not happen, which no event announces.
func consistently(t *testing.T, what string, period time.Duration, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), period)
	defer cancel()
	var failure error
	// The poll's own error is the context's, after a period without a failure.
	_ = wait.PollUntilContextCancel(ctx, apiInterval, true, func(context.Context) (bool, error) {
		failure = check()
		return failure != nil, nil
	})
	if failure != nil {
		t.Fatalf("%s: %v", what, failure)
	}
}
