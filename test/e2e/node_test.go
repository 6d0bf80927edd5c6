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
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// hack/e2e-node.sh runs these tests, on two nodes that run containers. The processes of all Pods are in
// the PID namespace of the tests, and their addresses can be reached from here.

// runningPods returns the Pods that match the selector and are ready and not being deleted.
func runningPods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	list, err := shared.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var running []corev1.Pod
	for _, pod := range list.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				running = append(running, pod)
			}
		}
	}
	return running, nil
}

// requestPage returns the page at that URL, and an error unless the answer is 200.
func requestPage(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	// Each request has its own connection, as those of many clients.
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

const nginxPage = "Welcome to nginx"

func (e *env) awaitPage(url string) {
	e.Helper()
	e.eventually(url+" answers", func(ctx context.Context) error {
		page, err := requestPage(ctx, url)
		if err == nil && !strings.Contains(page, nginxPage) {
			err = fmt.Errorf("no %q in %s", nginxPage, page)
		}
		return err
	})
}

// get returns the command that prints that field.
func (e *env) get(object, field string) string {
	return "kubectl --namespace=" + e.namespace + " get " + object + " --output=jsonpath='" + field + "'"
}

// TestNodeFoo reaches nginx over the address of the Pod and over a Service, and uses what simulated
// nodes lack.
func TestNodeFoo(t *testing.T) {
	e := newEnv(t)
	e.createWith("web", replicas(2))
	e.awaitReady("web")
	pods, err := runningPods(t.Context(), e.namespace, "controller=web")
	e.must(err)
	if len(pods) != 2 {
		t.Fatalf("%d Pods are ready", len(pods))
	}
	for _, pod := range pods {
		e.awaitPage("http://" + pod.Status.PodIP)
	}
	e.kubectl("expose deployment/web --port=80")
	e.awaitPage("http://" + sh(t, e.get("service/web", "{.spec.clusterIP}")))

	mustContain(t, sh(t, "kubectl logs deployment/web --all-pods --namespace="+e.namespace), "GET / HTTP/1.1")
	mustContain(t, sh(t, "kubectl exec deployment/web --namespace="+e.namespace+" -- cat /etc/nginx/nginx.conf"), "listen 80")
	forward := start(t, shared.home, "kubectl --namespace="+e.namespace+" port-forward deployment/web :80")
	forward.awaitOutput("Forwarding from 127.0.0.1:")
	_, rest, _ := strings.Cut(forward.output(), "127.0.0.1:")
	port, _, _ := strings.Cut(rest, " ")
	e.awaitPage("http://127.0.0.1:" + port)
}

// TestNodePods follows what a Foo says of Pods that do not become ready. Its Deployment has one Pod
// more during a rolling update, and the former Pod serves on.
func TestNodePods(t *testing.T) {
	e := newEnv(t)
	for name, change := range map[string]string{
		"no-image": `{"name": "nginx", "image": "nginx:none"}`,
		"crashing": `{"name": "nginx", "command": ["false"]}`,
		"unready":  `{"name": "nginx", "readinessProbe": {"httpGet": {"path": "/none", "port": 80}, "periodSeconds": 1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := e.in(t)
			f.create(name)
			f.awaitReady(name)
			f.kubectl(fmt.Sprintf(`patch deployment %s --patch '{"spec": {"template": {"spec": {"containers": [%s]}}}}'`, name, change))
			f.awaitReason(name, v1alpha1.ReasonDeploymentProgressing, "0 updated Pods are available, 1 are wanted")
			// A container without a readiness probe counts as ready while it runs, so a crashing one
			// may have replaced the former.
			if name != "crashing" {
				pods, err := runningPods(t.Context(), f.namespace, "controller="+name)
				f.must(err)
				if len(pods) != 1 {
					t.Fatalf("%d Pods are ready", len(pods))
				}
				f.awaitPage("http://" + pods[0].Status.PodIP)
			}
			f.kubectl("rollout undo deployment/" + name)
			f.awaitReady(name)
		})
	}
}

// TestNodeRename renames the Deployment of a Foo under load. Users have given its Pods a preStop hook,
// since the nodes route requests to a Pod that terminates until they see that it does.
func TestNodeRename(t *testing.T) {
	e := newEnv(t)
	e.createWith("x", deploymentName("before"), replicas(2))
	e.awaitReady("x")
	e.kubectl(`patch deployment before --patch '{"spec": {"template": {"spec": {"containers": [{"name": "nginx", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}]}}}}'`)
	e.kubectl("rollout status deployment/before --timeout=3m")
	e.awaitReady("x")
	e.apply("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {controller: x}, ports: [{port: 80}]}}")
	url := "http://" + sh(t, e.get("service/web", "{.spec.clusterIP}"))
	e.awaitPage(url)

	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	load := startLoad(t, func(ctx context.Context, _ int64) error {
		<-pause.C
		_, err := requestPage(ctx, url)
		return err
	})
	e.update(deploymentName("after"))
	e.kubectl("wait --for=delete deployment/before --timeout=3m")
	e.awaitReady("x")
	e.eventually("the Pods of the former Deployment are gone", func(ctx context.Context) error {
		list, err := shared.kube.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: "controller=x"})
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("%d Pods", len(list.Items))
		}
		return err
	})
	t.Logf("%d requests during the rename", load.stop())
	mustContain(t, sh(t, "kubectl get deployment after --output=yaml --namespace="+e.namespace), "preStop:", "seconds: 5")
}

// +drop:memcached

// awaitMemcached waits until that many Pods of the Memcached are ready.
func (e *env) awaitMemcached(name string, size int) {
	e.Helper()
	e.kubectl(fmt.Sprintf("wait --for=jsonpath='{.status.readyReplicas}'=%d --timeout=3m memcached/%s", size, name))
}

// endpointsOf prints the addresses of the Pods that are ready, of a Service.
const endpointsOf = "kubectl get endpointslices -o jsonpath='{.items[*].endpoints[?(@.conditions.ready)].addresses[*]}' --selector=kubernetes.io/service-name="

// TestNodeMemcached stores an item in each node that the Service of a Memcached names, and reads it.
func TestNodeMemcached(t *testing.T) {
	e := newEnv(t)
	e.applyMemcached("items", 2)
	e.awaitMemcached("items", 2)
	shUntil(t, endpointsOf+"items --namespace="+e.namespace, `^\S+ \S+$`)
	for address := range strings.FieldsSeq(sh(t, endpointsOf+"items --namespace="+e.namespace)) {
		shUntil(t, `exec 3<>/dev/tcp/`+address+`/11211 && printf 'set a 0 0 5\r\nhello\r\nget a\r\nquit\r\n' >&3 && timeout 5 cat <&3`,
			`^STORED\r\nVALUE a 0 5\r\nhello\r\nEND\r\n$`)
	}
}

// +drop:end

// +drop:crontab

// runNow starts a run as docs/crontab.md tells.
func (e *env) runNow(name string) {
	e.Helper()
	e.kubectl("annotate crontab " + name + " alpha.ianlewis.org/run-at=" + time.Now().UTC().Format(time.RFC3339) + " --overwrite")
}

// TestNodeCronTab starts runs that complete, fail and are replaced.
func TestNodeCronTab(t *testing.T) {
	e := newEnv(t)
	for name, command := range map[string]string{"completes": "true", "fails": "false", "long": "sleep"} {
		e.applyCronTab(name, `schedule: "@yearly", concurrencyPolicy: Replace, jobOptions: {backoffLimit: 0}`,
			fmt.Sprintf(`terminationGracePeriodSeconds: 1, containers: [{name: job, image: busybox, command: [%q, "3600"]}]`, command))
		e.runNow(name)
	}
	shUntil(t, e.get("crontab/completes", "{.status.lastSuccessfulTime}"), `^20\d\d-`)
	shUntil(t, e.get("crontab/fails", "{.status.lastFailedTime}"), `^20\d\d-`)

	const active = `{.status.active[*].name}`
	shUntil(t, e.get("crontab/long", active), `^long-\S+$`)
	first := sh(t, e.get("crontab/long", active))
	e.kubectl("wait --for=condition=Ready --timeout=3m pod --selector=batch.kubernetes.io/job-name=" + first)
	e.runNow("long")
	e.kubectl("wait --for=delete --timeout=3m job/" + first)
	e.kubectl("wait --for=delete --timeout=3m pod --selector=batch.kubernetes.io/job-name=" + first)
	shUntil(t, e.get("crontab/long", active), `^long-\S+$`)
}

// startRuns creates a CronTab that starts a Job every ten seconds.
func (e *env) startRuns() {
	e.Helper()
	e.applyCronTab("often", `schedule: "@every 10s", successfulJobsHistoryLimit: 1000`, `containers: [{name: job, image: busybox, command: ["true"]}]`)
	shUntil(e.T, e.get("crontab/often", "{.status.lastScheduleTime}"), `^20\d\d-`)
}

// checkRuns fails unless each run since the first was started once, up to one that is due from now on.
func (e *env) checkRuns() {
	e.Helper()
	began := time.Now()
	var due []time.Time
	e.eventually("another run is started", func(context.Context) error {
		due = nil
		for text := range strings.FieldsSeq(sh(e.T, e.get("jobs", `{.items[*].metadata.annotations.alpha\.ianlewis\.org/scheduled-time}`))) {
			at, err := time.Parse(time.RFC3339, text)
			e.must(err)
			due = append(due, at)
		}
		slices.SortFunc(due, time.Time.Compare)
		if len(due) == 0 || due[len(due)-1].Before(began) {
			return fmt.Errorf("runs %s", due)
		}
		return nil
	})
	for i := 1; i < len(due); i++ {
		if between := due[i].Sub(due[i-1]); between != 10*time.Second {
			e.Errorf("the run after that of %s is due %s later", due[i-1], between)
		}
	}
	e.Logf("%d runs", len(due))
}

// +drop:end
