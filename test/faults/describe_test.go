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
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
	if list, err := cluster.kube.AppsV1().Deployments(r.namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, d := range list.Items {
			fmt.Fprintf(&text, "    Deployment %s, uid %s, version %s, generation %d, created %s: %+v\n", d.Name, d.UID, d.ResourceVersion, d.Generation, d.CreationTimestamp.UTC(), d.Status)
		}
	}
	if list, err := cluster.kube.AppsV1().ReplicaSets(r.namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, s := range list.Items {
			fmt.Fprintf(&text, "    ReplicaSet %s of %+v, replicas %d, created %s: %+v\n", s.Name, s.OwnerReferences, ptr.Deref(s.Spec.Replicas, 1), s.CreationTimestamp.UTC(), s.Status)
		}
	}
	if list, err := cluster.kube.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, p := range list.Items {
			fmt.Fprintf(&text, "    Pod %s on %q, %s, created %s\n", p.Name, p.Spec.NodeName, p.Status.Phase, p.CreationTimestamp.UTC())
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
