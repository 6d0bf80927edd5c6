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
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWalkthrough3 runs two replicas with the service account of the manifests.
func TestWalkthrough3(t *testing.T) {
	shared.deploy(t)
	t.Run("the Pods are admitted", podsAreAdmitted)
	t.Run("one leads, the other takes over", handover)
}

func podsAreAdmitted(t *testing.T) {
	pods, err := shared.kube.CoreV1().Pods(systemNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=sample-controller"})
	must(t, err)
	if len(pods.Items) != 2 {
		t.Errorf("%d Pods, want 2", len(pods.Items))
	}
	for i := range pods.Items {
		if spec := &pods.Items[i].Spec; spec.Containers[0].Image != testImage || spec.ServiceAccountName != serviceAccount {
			t.Errorf("Pod %+v", spec)
		}
	}
	// The namespace enforces the restricted level, which this Pod violates.
	output := shFails(t, "kubectl run root --image=root --dry-run=server --namespace="+systemNamespace)
	mustContain(t, output, `violates PodSecurity "restricted:latest"`)
}

// deployedFlags returns the flags of the manifests, with free ports.
func deployedFlags(t *testing.T) string {
	t.Helper()
	var args []string
	text := sh(t, "kubectl get deployment sample-controller -o jsonpath='{.spec.template.spec.containers[0].args}' --namespace="+systemNamespace)
	must(t, json.Unmarshal([]byte(text), &args))
	return strings.Join(args, " ") + " --health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=127.0.0.1:0 -v=2"
}

func handover(t *testing.T) {
	flags := deployedFlags(t)
	first := startInPod(t, flags)
	first.awaitOutput(startLines...)
	second := startInPod(t, flags)
	second.awaitOutput("Standing by")
	for name, p := range map[string]*process{"leader": first, "standby": second} {
		address := p.awaitServing("health")
		for _, path := range []string{"/livez", "/readyz"} {
			if code, body := fetch(t, "http://"+address+path+"?verbose", ""); code != http.StatusOK {
				t.Errorf("%s of the %s: %d %s", path, name, code, body)
			}
		}
	}
	t.Run("walkthrough 2", func(t *testing.T) {
		// TestWalkthrough2 has left its objects in the namespace default.
		sh(t, "kubectl create namespace in-cluster && kubectl config set-context --current --namespace=in-cluster")
		defer sh(t, "kubectl config set-context --current --namespace=default")
		envIn(t, "in-cluster").script("walkthrough2")
		// +drop:memcached
		// The other controllers need objects too, for the metrics and the change of leader.
		sh(t, "kubectl apply -f artifacts/examples/memcached.yaml")
		// +drop:end
		// +drop:crontab
		// A run of the CronTab at midnight would be a write of the new leader.
		sh(t, "sed 's/@daily/0 0 29 2 */' artifacts/examples/backup.yaml | kubectl apply -f -")
		// +drop:end
		sh(t, "kubectl wait --for=condition=Ready --timeout=3m memcached/memcached-sample") // +drop:memcached
		sh(t, "kubectl wait --for=condition=Ready --timeout=3m crontab/backup")             // +drop:crontab
	})
	t.Run("metrics", func(t *testing.T) { scrape(t, first) })

	mark, signalled := len(auditedRequests(t)), time.Now()
	first.stop()
	second.awaitOutput(startLines[2:]...)
	t.Logf("SIGTERM: the other replica leads after %s", time.Since(signalled).Round(time.Millisecond))
	requireOnlyLeaseWrites(t, mark)
	second.stop()
}

// requireOnlyLeaseWrites checks rule 15: since the mark the new leader and the previous one
// have written nothing but their lease.
func requireOnlyLeaseWrites(t *testing.T, mark int) {
	t.Helper()
	// Once this Foo is ready, the controller has processed all earlier keys.
	const settled = "settled"
	sh(t, applyFoo(metav1.NamespaceDefault, settled, "spec: {deploymentName: settled}"))
	sh(t, "kubectl wait --for=condition=Ready --timeout=3m foo/"+settled)
	for _, r := range auditedRequests(t)[mark:] {
		switch r.Verb {
		case "get", "list", "watch":
			continue
		}
		ours := strings.HasPrefix(r.UserAgent, "sample-controller/") && r.ObjectRef.Resource != "leases"
		if ours && r.ObjectRef.Name != settled && !strings.HasPrefix(r.ObjectRef.Name, settled+".") {
			t.Errorf("rule 15: a new leader sent %q, though nothing had changed", r)
		}
	}
}

// auditedRequests returns all requests in the audit log.
func auditedRequests(t *testing.T) []*request {
	t.Helper()
	requests, err := shared.audit.read()
	must(t, err)
	return requests
}

// scrape reads the metrics as Prometheus does, with a service account that has the right to.
func scrape(t *testing.T, p *process) {
	address := "https://" + p.awaitServing("metrics") + "/metrics"
	if code, _ := fetch(t, address, ""); code != http.StatusUnauthorized {
		t.Errorf("without a token the answer is %d", code)
	}
	if code, _ := fetch(t, address, tokenOf(t, "stranger")); code != http.StatusForbidden {
		t.Errorf("without the right the answer is %d", code)
	}
	token := tokenOf(t, "scraper")
	sh(t, "kubectl create clusterrolebinding scraper --clusterrole=sample-controller-metrics-reader --serviceaccount=default:scraper")
	var metrics string
	eventually(t, "the API server allows the scraper", func(context.Context) error {
		metrics = ""
		for _, path := range []string{"", "/slis"} {
			code, body := fetch(t, address+path, token)
			if metrics += body; code != http.StatusOK {
				return fmt.Errorf("%d %s", code, body)
			}
		}
		return nil
	})
	for _, want := range []string{
		`leader_election_master_status{name="sample-controller"} 1`,
		`sample_controller_foos{ready="True",reason="DeploymentAvailable"}`,
		`sample_controller_memcacheds{ready="True",reason="DeploymentAvailable"} 1`, // +drop:memcached
		`sample_controller_crontabs{ready="True",reason="Scheduled"} 1`,             // +drop:crontab
		`sample_controller_writes_total{controller="foo",resource="deployments",verb="create"}`,
		`sample_controller_sync_duration_seconds_count{controller="foo",result="success"}`,
		`workqueue_depth{name="foo"}`,
		`rest_client_requests_total{code="201"`, `informer_queued_items{group="samplecontroller.k8s.io"`,
		"kubernetes_build_info{", "go_goroutines ", "process_resident_memory_bytes ",
		`kubernetes_healthcheck{name="leaderElection",type="livez"} 1`,
	} {
		if !strings.Contains(metrics, "\n"+want) {
			t.Errorf("no %s among the metrics", want)
		}
	}
	checkServed(t, metrics, "alerts.yaml")
	checkServed(t, metrics, "dashboard.json")
	checkDocumented(t, metrics)
}

// checkDocumented checks that operations.md describes every metric, except those of the Go
// runtime and of the process.
func checkDocumented(t *testing.T, metrics string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(shared.root, "docs/operations.md"))
	must(t, err)
	for line := range strings.Lines(metrics) {
		name, found := strings.CutPrefix(line, "# HELP ")
		if name, _, _ = strings.Cut(name, " "); !found || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		if !strings.Contains(string(data), "`"+name+"`") {
			t.Errorf("docs/operations.md does not describe %s", name)
		}
	}
}

// tokenOf returns a token of a new service account.
func tokenOf(t *testing.T, name string) string {
	t.Helper()
	sh(t, "kubectl create serviceaccount "+name+" --namespace=default")
	return requestToken(t, metav1.NamespaceDefault, name)
}

// metricName matches the controller's and the libraries' metrics in an expression.
var metricName = regexp.MustCompile(`\b(?:sample_controller|leader_election|workqueue|informer|rest_client|process|go)_[a-z0-9_]+`)

// checkServed checks that metrics has those of the file of monitoring.
func checkServed(t *testing.T, metrics, file string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(shared.root, "artifacts/deploy/monitoring", file))
	must(t, err)
	names := metricName.FindAllString(string(data), -1)
	if len(names) == 0 {
		t.Errorf("%s uses no metric", file)
	}
	for _, name := range names {
		if !strings.Contains(metrics, "\n"+name+"{") && !strings.Contains(metrics, "\n"+name+" ") {
			t.Errorf("%s uses %s, which is not served", file, name)
		}
	}
}

// fetch gets the URL with the token, and returns the status code and the body.
func fetch(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	// The controller signs its certificate itself.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(r)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(body)
}
