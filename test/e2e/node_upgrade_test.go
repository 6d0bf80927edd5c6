//go:build e2e && node

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
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodeUpgrade upgrades the former release (NODE_FORMER of hack/e2e-node.sh) to this version, rolls
// back to it, and upgrades again, with the manifests of each, while other Foos come and go. Replicas of
// both take part in one leader election meanwhile. No Pod of an object that nobody changes is replaced or
// restarted, no Foo fails, and renames that began in one version are completed by the other.
func TestNodeUpgrade(t *testing.T) {
	steady, churned := newEnv(t), newEnv(t)
	renamedBefore, renamedAfter := newEnv(t), newEnv(t)
	shOnCleanup(t, "make deploy IMG="+testImage)
	sh(t, "make undeploy")
	deploy, deployFormer := "make deploy IMG="+testImage, formerManifests()
	steady.roll(deployFormer, formerImage)

	steady.createWith("web", replicas(2))
	// +drop:memcached
	steady.applyMemcached("items", 2)
	steady.awaitMemcached("items", 2)
	// +drop:end
	// +drop:crontab
	steady.startRuns()
	// +drop:end
	steady.awaitReady("web")
	before := steady.steadyPods()
	mustStay := func() {
		if diff := cmp.Diff(before, steady.steadyPods()); diff != "" {
			t.Errorf("Pods have changed (-before +after):\n%s", diff)
		}
	}
	renamedBefore.beginRename()
	churn := startLoad(t, churned.serveOne)

	steady.roll(deploy, testImage)
	mustStay()
	renamedBefore.endRename()
	renamedAfter.beginRename()
	steady.roll(deployFormer, formerImage)
	mustStay()
	steady.roll(deploy, testImage)
	mustStay()
	t.Logf("%d Foos were served meanwhile", churn.stop())
	renamedAfter.endRename()
	// +drop:crontab
	steady.checkRuns()
	// +drop:end
}

// serveOne creates a Foo, scales it, and deletes it when its Deployment has followed.
func (e *env) serveOne(ctx context.Context, n int64) error {
	const follow = `
kubectl wait --for=condition=Ready foo/FOO --timeout=3m IN && kubectl scale foo FOO --replicas=0 IN &&
kubectl wait --for=condition=Ready foo/FOO --timeout=3m IN && kubectl wait --for=jsonpath='{.spec.replicas}'=0 deployment/FOO IN &&
kubectl delete foo FOO IN`
	name := fmt.Sprintf("churn-%d", n)
	command := "set -o errexit\n" + applyFoo(e.namespace, name, "spec: {deploymentName: FOO}") + follow
	output, err := tryIn(ctx, strings.NewReplacer("FOO", name, "IN", "--namespace="+e.namespace).Replace(command))
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

const formerImage = "registry.example.com/sample-controller:former"

// formerManifests returns the command that applies those of the former release.
func formerManifests() string {
	return "sed 's|image: sample-controller:latest|image: " + formerImage + "|' " + filepath.Join(shared.work, "former", "install.yaml") + " | kubectl apply -f -"
}

// roll installs a version, and waits until both controllers are of that version and one of them leads.
func (e *env) roll(install, image string) {
	e.Helper()
	began := time.Now()
	sh(e.T, install)
	sh(e.T, rolloutStatus)
	e.awaitControllers()
	e.eventually("a controller of "+image+" leads", func(ctx context.Context) error {
		pod, _, err := leader(ctx)
		if err == nil && pod.Spec.Containers[0].Image != image {
			err = errors.New("the leader is " + pod.Spec.Containers[0].Image)
		}
		return err
	})
	e.Logf("rolled to %s in %s", image, time.Since(began).Round(100*time.Millisecond))
}

// beginRename renames the Deployment of a Foo. A quota keeps the Pods of the new one from being created.
func (e *env) beginRename() {
	e.Helper()
	e.createWith("x", deploymentName("before"), replicas(2))
	e.awaitReady("x")
	e.kubectl("create quota pods --hard=pods=2")
	e.kubectl("wait --for=jsonpath='{.status.used.pods}'=2 --timeout=3m quota/pods")
	e.update(deploymentName("after"))
	e.kubectl("wait --for=create --timeout=3m deployment/after")
}

// endRename lets the Pods be created.
func (e *env) endRename() {
	e.Helper()
	e.kubectl("delete quota pods")
	e.kubectl("wait --for=delete --timeout=3m deployment/before")
	e.awaitReady("x")
	if available := sh(e.T, e.get("deployment/after", "{.status.availableReplicas}")); available != "2" {
		e.Errorf("%s Pods of the new Deployment are available", available)
	}
}

// steadyPods returns the Pods in the namespace but those of Jobs: by name, the UID and how often a
// container was restarted.
func (e *env) steadyPods() map[string]string {
	e.Helper()
	list, err := shared.kube.CoreV1().Pods(e.namespace).List(e.Context(), metav1.ListOptions{LabelSelector: "!job-name"})
	e.must(err)
	pods := map[string]string{}
	for _, pod := range list.Items {
		pods[pod.Name] = fmt.Sprintf("%s, %d restarts", pod.UID, restarts(&pod))
	}
	return pods
}

func restarts(pod *corev1.Pod) (count int32) {
	for _, status := range pod.Status.ContainerStatuses {
		count += status.RestartCount
	}
	return count
}

// TestNodeRelease installs a release from its files, as docs/release.md says, with kubectl and with Helm.
// The nodes run its image, which hack/e2e-node.sh has pushed to their registry.
func TestNodeRelease(t *testing.T) {
	e := newEnv(t)
	shOnCleanup(t, "make deploy IMG="+testImage)
	sh(t, "make undeploy")
	release := filepath.Join(shared.work, "release")
	chart := strings.TrimSpace(sh(t, "ls "+release+"/sample-controller-*.tgz"))
	version := "v" + strings.TrimSuffix(strings.TrimPrefix(filepath.Base(chart), "sample-controller-"), ".tgz")
	sh(t, "cd "+release+" && sha256sum --check SHA256SUMS")
	digest := strings.TrimSpace(sh(t, "jq --raw-output '.manifests[0].digest' "+filepath.Join(shared.work, "layout", "index.json")))

	installed := func(name string) {
		e.roll("true", "registry.example.com/sample-controller:"+version+"@"+digest)
		pods, err := runningPods(t.Context(), systemNamespace, controllerSelector)
		e.must(err)
		for _, pod := range pods {
			if image := pod.Status.ContainerStatuses[0].ImageID; !strings.HasSuffix(image, "@"+digest) {
				t.Errorf("the Pod %s runs %s, the digest of the release is %s", pod.Name, image, digest)
			}
		}
		mustContain(t, sh(t, "kubectl logs deployment/sample-controller --namespace="+systemNamespace), `version="sample-controller `+version+" (commit ")
		e.create(name)
		e.awaitReady(name)
	}
	sh(t, "kubectl apply -f "+release+"/install.yaml")
	installed("by-kubectl")
	sh(t, "make undeploy")

	helm := func(command string) {
		sh(t, "helm "+command+" --namespace="+systemNamespace+" --wait")
	}
	helm("install sample-controller " + chart + " --create-namespace")
	installed("by-helm")
	sh(t, "make uninstall")
	helm("uninstall sample-controller")
	sh(t, "kubectl delete namespace "+systemNamespace)
}
