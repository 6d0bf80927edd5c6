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
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/sample-controller/pkg/client"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/test/bench/result"
)

const (
	namespace = "default"
	// creators is how many objects are created at the same time.
	creators = 32
	// patience bounds every wait; a local cluster on 2 cores needs a tenth.
	patience = 10 * time.Minute
)

// bench is what a measurement needs. hack/bench.sh tells by the environment which
// cluster and which controller it is about.
type bench struct {
	*testing.T

	kube     kubernetes.Interface
	foos     clientset.Interface
	metadata metadata.Interface
	// objects and workers are how many there are.
	objects, workers int
	// gogc is the controller's GOGC, "" for Go's default.
	gogc string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, objects: number(t, "BENCH_OBJECTS"), workers: number(t, "BENCH_WORKERS")}
	config, err := clientcmd.BuildConfigFromFlags("", b.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	// As fast as the API server allows, and in the same encoding as the controller.
	config.QPS = -1
	builtin := client.ForBuiltin(config)
	b.kube, err = kubernetes.NewForConfig(builtin)
	b.must(err)
	b.metadata, err = metadata.NewForConfig(rest.CopyConfig(builtin))
	b.must(err)
	b.foos, err = clientset.NewForConfig(config)
	b.must(err)
	return b
}

// number returns a number of the environment.
func number(t *testing.T, variable string) int {
	t.Helper()
	value, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		t.Fatalf("%s: %v; run `make bench` or hack/bench.sh", variable, err)
	}
	return value
}

// must ends the measurement if there is an error.
func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) kubeconfig() string {
	return filepath.Join(b.work(), "home", ".kube", "config")
}

func (b *bench) work() string {
	b.Helper()
	work := os.Getenv("TEST_WORK")
	if work == "" {
		b.Fatal("there is no cluster; run `make bench` or hack/bench.sh")
	}
	return work
}

// report writes down what was measured, for hack/bench.sh's table.
func (b *bench) report(row string, value float64, details map[string]float64) {
	b.Helper()
	who := os.Getenv("BENCH_WHO")
	b.Logf("%s of %s: %.3f %v", row, who, value, details)
	text, err := json.Marshal(result.Measured{Row: row, Who: who, Objects: b.objects, Workers: b.workers, Value: value, Details: details})
	b.must(err)
	file, err := os.OpenFile(filepath.Join(b.work(), "results"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	b.must(err)
	_, err = file.Write(append(text, '\n'))
	b.must(errors.Join(err, file.Close()))
}

// inParallel calls do for every number below count, so many at a time.
func (b *bench) inParallel(count, parallel int, do func(ctx context.Context, i int) error) {
	b.Helper()
	numbers := make(chan int, count)
	for i := range count {
		numbers <- i
	}
	close(numbers)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for i := range numbers {
				if err := do(b.Context(), i); err != nil {
					b.Errorf("number %d: %v", i, err)
					return
				}
			}
		})
	}
	workers.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// eventually waits until check returns nil.
func (b *bench) eventually(check func(ctx context.Context) error) {
	b.Helper()
	b.eventuallyEvery(100*time.Millisecond, check)
}

// eventuallyEvery waits until check returns nil, and calls it so often.
func (b *bench) eventuallyEvery(interval time.Duration, check func(ctx context.Context) error) {
	b.Helper()
	var last error
	err := wait.PollUntilContextTimeout(b.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		b.Fatal(errors.Join(err, last))
	}
}

// quantile returns the value that the part q of them does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(q*float64(len(sorted))+0.5)-1)]
}

// sorted returns them in ascending order.
func sorted(durations []time.Duration) []time.Duration {
	return slices.Sorted(slices.Values(durations))
}

// mean returns the arithmetic mean.
func mean(values ...float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}

// name returns that of the i-th object of those that begin like that.
func name(prefix string, i int) string {
	return fmt.Sprintf("%s-%05d", prefix, i)
}
