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
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	// largeAnnotation is close to what the API server accepts: 256 KiB of annotations.
	largeAnnotation = 250_000
	// podLimitMiB is the memory limit of the controller's Pod.
	podLimitMiB = 256
)

// TestHostileMemory measures rule 24: a controller takes no more memory for objects with large
// annotations than for small ones. They are Foos and other people's Deployments, and those of further
// kinds.
func TestHostileMemory(t *testing.T) {
	t.Parallel()
	count := 40
	if os.Getenv("HOSTILE") == "full" {
		count = 300
	}
	e := newEnv(t)
	e.environment = fmt.Sprintf("MEMORY_LIMIT=%d", podLimitMiB<<20)
	resources := []schema.GroupVersionResource{schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos"), appsv1.SchemeGroupVersion.WithResource("deployments")}
	e.eachFoo(count, func(name string) error {
		foo := newFoo(name, replicas(0))
		if _, err := e.foos().Create(t.Context(), foo, metav1.CreateOptions{}); err != nil {
			return err
		}
		theirs := stockDeployment(foo, "nginx")
		theirs.Name, theirs.OwnerReferences = "their-"+name, nil
		_, err := e.deployments().Create(t.Context(), theirs, metav1.CreateOptions{})
		return err
	})
	// +drop:crontab
	resources = append(resources, createIdleCronTabs(e, count)...)
	// +drop:end
	small := e.peakOfController()
	large := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/large":%q}}}`, strings.Repeat("x", largeAnnotation))
	total := 0
	for _, resource := range resources {
		objects := shared.dynamic.Resource(resource).Namespace(e.namespace)
		list, err := objects.List(t.Context(), metav1.ListOptions{})
		e.must(err)
		for i := range list.Items {
			_, err := objects.Patch(t.Context(), list.Items[i].GetName(), types.MergePatchType, large, metav1.PatchOptions{})
			e.must(err)
			total++
		}
	}
	peak := e.peakOfController()
	held := total * largeAnnotation >> 20
	t.Logf("%d objects with %d kB of annotations each, %d MiB in all: the process took at most %d MiB, and %d MiB when they had none", total, largeAnnotation/1000, held, peak, small)
	if peak-small > held/3 || peak > podLimitMiB {
		t.Errorf("rule 24: the process took %d MiB, and %d MiB without annotations", peak, small)
	}
}

// peakOfController runs a controller until it has synced all Foos, and returns the most memory that
// it has had, in MiB.
func (e *env) peakOfController() int {
	e.Helper()
	e.startController("--metrics-bind-address=127.0.0.1:0 --metrics-secure=false")
	// Before that the queues are empty, too.
	for _, k := range shared.kinds {
		e.controller.awaitOutput(`"Started workers" controller="` + k.Names.Singular + `"`)
	}
	e.eventually("all Foos are ready", func(ctx context.Context) error {
		foos, err := e.foos().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range foos.Items {
			if foo := &foos.Items[i]; !meta.IsStatusConditionTrue(foo.Status.Conditions, "Ready") {
				return fmt.Errorf("Foo %s: %+v", foo.Name, foo.Status)
			}
		}
		return nil
	})
	e.awaitQueueDepth(e.controller.awaitServing("metrics"), "no", func(depth int) bool { return depth == 0 })
	defer e.controller.stop()
	return e.controller.peakMiB()
}

// peakMiB returns the most memory that the process has had, in MiB.
func (p *process) peakMiB() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	match := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		p.t.Fatalf("no peak in %s", status)
	}
	kib, err := strconv.Atoi(string(match[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return kib / 1024
}
