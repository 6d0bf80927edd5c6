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
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// describe logs the requests and the output of the controllers, and the state of the
// cluster.
func (r *run) describe() {
	var text strings.Builder
	for _, request := range r.proxy.recorded() {
		fmt.Fprintf(&text, "    %s (resource version %d) → %d\n", &request, request.resourceVersion, request.code)
	}
	for i, output := range r.processOutputs() {
		fmt.Fprintf(&text, "  Process %d printed:\n%s\n", i+1, output)
	}
	r.t.Logf("Namespace %s. The controller's requests:\n%s", r.namespace, text.String())
	r.describeCluster()
}

// describeCluster logs the objects of the namespace and what kube-controller-manager
// logged about them: the failure may be there.
func (r *run) describeCluster() {
	var text strings.Builder
	ctx := r.t.Context()
	gvrs := []schema.GroupVersionResource{appsv1.SchemeGroupVersion.WithResource("replicasets"), corev1.SchemeGroupVersion.WithResource(pods)}
	for _, gvr := range append(slices.Collect(maps.Values(r.scenario.suite.gvrs)), gvrs...) {
		list, err := cluster.dynamic.Resource(gvr).Namespace(r.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range list.Items {
			object := &list.Items[i]
			fmt.Fprintf(&text, "    %s %s, uid %s, version %s, generation %d, created %s, owners %+v: %s\n", object.GetKind(), object.GetName(), object.GetUID(), object.GetResourceVersion(),
				object.GetGeneration(), object.GetCreationTimestamp().UTC(), object.GetOwnerReferences(), mustEncode(object.Object["status"]))
		}
	}
	name := filepath.Join(cluster.work, "cluster", "logs", "kube-controller-manager.log")
	if file, err := os.Open(name); err == nil {
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if strings.Contains(lines.Text(), r.namespace+"/") || strings.Contains(lines.Text(), `"`+r.namespace+`"`) {
				fmt.Fprintf(&text, "    %s\n", lines.Text())
			}
		}
	}
	r.t.Logf("The objects in %s, and what kube-controller-manager logged about them:\n%s", r.namespace, text.String())
}
