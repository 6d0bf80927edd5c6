//go:build bench

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

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"example.com/sample-controller/pkg/client"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/test/bench/result"
)

const (
	namespace = "default"
	// creators is the number of concurrent requests of clients that only prepare a measurement.
	creators = 32
	// timeout bounds every wait. A local cluster on 2 cores needs a tenth of it.
	timeout = 10 * time.Minute
)

// env is the cluster and the measured program of one turn. hack/bench.sh selects both through
// environment variables.
type env struct {
	*testing.T

	kube     kubernetes.Interface
	foos     clientset.Interface
	metadata metadata.Interface
	// who is the measured program: result.Ours, result.Peer or result.Plain.
	who string
	// objects is the number of objects to create. workers is the number of the program's
	// workers.
	objects, workers int
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{T: t, who: os.Getenv("BENCH_WHO"), objects: intFromEnv(t, "BENCH_OBJECTS"), workers: intFromEnv(t, "BENCH_WORKERS")}
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig())
	e.must(err)
	// The clients have no rate limit and use the controller's encodings, so that they reach
	// what the API server allows.
	config.QPS = -1
	builtin := client.ForBuiltin(config)
	e.kube, err = kubernetes.NewForConfig(builtin)
	e.must(err)
	e.metadata, err = metadata.NewForConfig(rest.CopyConfig(builtin))
	e.must(err)
	e.foos, err = clientset.NewForConfig(config)
	e.must(err)
	return e
}

func intFromEnv(t *testing.T, variable string) int {
	t.Helper()
	value, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		t.Fatalf("%s: %v; run `make bench` or hack/bench.sh", variable, err)
	}
	return value
}

// must fails the measurement if err is not nil.
func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) kubeconfig() string {
	return filepath.Join(e.workDir(), "home", ".kube", "config")
}

// workDir returns the temporary directory of hack/bench.sh; hack/lib.sh lists its contents.
func (e *env) workDir() string {
	e.Helper()
	dir := os.Getenv("TEST_WORK")
	if dir == "" {
		e.Fatal("there is no cluster; run `make bench` or hack/bench.sh")
	}
	return dir
}

// record appends one figure to the file from which hack/bench.sh prints its table.
func (e *env) record(row string, value float64, details map[string]float64) {
	e.Helper()
	e.Logf("%s of %s: %.3f %v", row, e.who, value, details)
	text, err := json.Marshal(result.Measurement{
		Row: row, Who: e.who, Round: intFromEnv(e.T, "BENCH_ROUND"), Objects: e.objects, Workers: e.workers, Value: value, Details: details,
	})
	e.must(err)
	file, err := os.OpenFile(filepath.Join(e.workDir(), "results"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	e.must(err)
	_, err = file.Write(append(text, '\n'))
	e.must(errors.Join(err, file.Close()))
}

// inParallel calls do for each number below count, with as many concurrent calls as there are
// creators. It fails the measurement if a call fails.
func (e *env) inParallel(count int, do func(ctx context.Context, i int) error) {
	e.Helper()
	workqueue.ParallelizeUntil(e.Context(), creators, count, func(i int) {
		if e.Failed() {
			return
		}
		if err := do(e.Context(), i); err != nil {
			e.Errorf("object %d: %v", i, err)
		}
	})
	if e.Failed() {
		e.FailNow()
	}
}

// eventually waits until check returns nil.
func (e *env) eventually(check func(ctx context.Context) error) {
	e.Helper()
	var last error
	err := wait.PollUntilContextTimeout(e.Context(), 100*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		if e.Failed() {
			return false, errors.New("the measurement has failed")
		}
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		e.Fatal(errors.Join(err, last))
	}
}

// waitForCount waits until count returns at least want. what names the counted objects.
func (e *env) waitForCount(what string, want int, count func() int) {
	e.Helper()
	e.eventually(func(context.Context) error {
		if got := count(); got < want {
			return fmt.Errorf("%d of %d %s", got, want, what)
		}
		return nil
	})
}

// quantile returns the q-quantile in seconds of durations in ascending order.
func quantile(ascending []time.Duration, q float64) float64 {
	return ascending[max(0, int(q*float64(len(ascending))+0.5)-1)].Seconds()
}

// sorted returns the durations in ascending order.
func sorted(durations []time.Duration) []time.Duration {
	return slices.Sorted(slices.Values(durations))
}

func mean(values ...float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}

// name returns the name of the i-th object of a group.
func name(prefix string, i int) string {
	return fmt.Sprintf("%s-%05d", prefix, i)
}
