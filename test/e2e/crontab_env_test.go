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
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	alphaclient "example.com/sample-controller/pkg/generated/clientset/versioned/typed/alpha/v1"
)

// cronTabFlags enable only the controller of CronTabs.
const cronTabFlags = "--controllers=crontab"

func (e *env) cronTabs() alphaclient.CronTabInterface {
	return shared.clientset.AlphaV1().CronTabs(e.namespace)
}

func (e *env) jobs() batchclient.JobInterface {
	return shared.kube.BatchV1().Jobs(e.namespace)
}

// createCronTab creates a CronTab. The cluster's simulated nodes complete its Pods.
func (e *env) createCronTab(name, schedule string, changes ...func(*alphav1.CronTabSpec)) *alphav1.CronTab {
	e.Helper()
	cronTab := &alphav1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: alphav1.CronTabSpec{
		Schedule: schedule,
		JobTemplate: corev1.PodSpec{
			Containers:    []corev1.Container{{Name: "backup", Image: "mybackupscript:v9"}},
			RestartPolicy: corev1.RestartPolicyNever,
		},
	}}
	for _, change := range changes {
		change(&cronTab.Spec)
	}
	return createObject(e, e.cronTabs(), cronTab)
}

// unschedulable selects a node that does not exist, so that Jobs stay active.
func unschedulable(spec *alphav1.CronTabSpec) {
	spec.JobTemplate.NodeSelector = map[string]string{"no-such": "node"}
}

func concurrency(policy alphav1.ConcurrencyPolicy) func(*alphav1.CronTabSpec) {
	return func(spec *alphav1.CronTabSpec) { spec.ConcurrencyPolicy = policy }
}

func suspend(suspend bool) func(*alphav1.CronTabSpec) {
	return func(spec *alphav1.CronTabSpec) { spec.Suspend = &suspend }
}

func (e *env) updateCronTab(name string, change func(*alphav1.CronTabSpec)) {
	e.Helper()
	updateObject(e, e.cronTabs(), name, func(cronTab *alphav1.CronTab) { change(&cronTab.Spec) })
}

// awaitCronTab waits until the CronTab's Ready condition is about its current generation and
// has that reason, and the CronTab passes the check. It returns the condition's message too.
func (e *env) awaitCronTab(name, reason string, check func(*alphav1.CronTab) error) (*alphav1.CronTab, string) {
	e.Helper()
	var message string
	cronTab := awaitObject(e, e.cronTabs(), name, reason, func(cronTab *alphav1.CronTab) error {
		ready, err := hasReason(reason, cronTab.Generation, cronTab.Status.ObservedGeneration, cronTab.Status.Conditions)
		if err != nil {
			return fmt.Errorf("%w, status %+v", err, cronTab.Status)
		}
		message = ready.Message
		if check != nil {
			return check(cronTab)
		}
		return nil
	})
	return cronTab, message
}

// jobsOf returns the Jobs that the CronTab controls.
func (e *env) jobsOf(cronTab *alphav1.CronTab) []*batchv1.Job {
	e.Helper()
	list, err := e.jobs().List(e.Context(), metav1.ListOptions{})
	e.must(err)
	var jobs []*batchv1.Job
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], cronTab) {
			jobs = append(jobs, &list.Items[i])
		}
	}
	return jobs
}

// nextJobName returns the name of the Job that the controller will create next, according
// to the status.
func nextJobName(cronTab *alphav1.CronTab) string {
	return fmt.Sprintf("%s-%d", cronTab.Name, cronTab.Status.NextScheduleTime.Unix())
}

// newForeignJob returns a Job that has no controller and runs no Pods.
func newForeignJob(name string) *batchv1.Job {
	suspended := true
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		Suspend: &suspended,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "foreign", Image: "foreign:1"}}, RestartPolicy: corev1.RestartPolicyNever,
		}},
	}}
}

// createForeignJobFirst holds the controller's next request to create a Job back, creates
// a foreign Job with the same name, and then lets the request go on.
func (e *env) createForeignJobFirst(proxy *httpProxy, cronTab string) *batchv1.Job {
	e.Helper()
	arrived, resume := proxy.hold(createsJob)
	<-arrived
	// The controller updates the status after it has created the Job, so that the status
	// still names this one.
	foreign := createObject(e, e.jobs(), newForeignJob(nextJobName(getObject(e, e.cronTabs(), cronTab))))
	resume()
	return foreign
}

func createsJob(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/jobs") && !r.URL.Query().Has("dryRun")
}

// startProxiedCronTabEnv starts the CronTab controller with its service account's token and
// a proxy between the controller and the API server.
func startProxiedCronTabEnv(t *testing.T) (*env, *httpProxy) {
	t.Helper()
	proxy, e := startHTTPProxy(t), newEnv(t)
	user := &clientcmdapi.AuthInfo{TokenFile: filepath.Join(shared.secrets, "token")}
	command := fmt.Sprintf("sample-controller --kubeconfig=%s --namespace=%s -v=2 %s", proxy.kubeconfig(user), e.namespace, cronTabFlags)
	e.controller = start(t, t.TempDir(), command)
	e.controller.awaitOutput("Started workers")
	return e, proxy
}

// kubeconfig returns a kubeconfig that names the proxy and the user. It uses TLS, because
// client-go sends credentials over TLS only.
func (p *httpProxy) kubeconfig(user *clientcmdapi.AuthInfo) string {
	p.t.Helper()
	server := httptest.NewTLSServer(p.server.Config.Handler)
	p.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return writeKubeconfig(p.t, func(config *clientcmdapi.Config) {
		setUser(config, user)
		for _, cluster := range config.Clusters {
			cluster.Server = server.URL
			cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		}
	})
}

// keepCronTabsBusy creates a CronTab whose runs replace each other, if the missing right is
// one of that controller.
func keepCronTabsBusy(e *env, missing, token string) (flags string) {
	e.Helper()
	// It patches no Job. The controller of another kind may.
	if strings.HasPrefix(missing, "patch ") && strings.Contains(missing, "/jobs") || !strings.Contains(missing, "/crontabs") && !strings.Contains(missing, "/jobs") {
		return ""
	}
	e.createCronTab("crontab-busy", "@every 10s", unschedulable, concurrency(alphav1.ReplaceConcurrent))
	flags = " " + cronTabFlags
	if missing != "get batch/jobs" {
		return flags
	}
	// The controller reads a Job live only if the Job exists when the controller creates it.
	proxy := startHTTPProxy(e.T)
	proxy.add(func(_ http.ResponseWriter, r *http.Request) bool {
		if createsJob(r) {
			cronTab, err := e.cronTabs().Get(r.Context(), "crontab-busy", metav1.GetOptions{})
			if err == nil {
				_, _ = e.jobs().Create(r.Context(), newForeignJob(nextJobName(cronTab)), metav1.CreateOptions{})
			}
		}
		return false
	})
	return flags + " --kubeconfig=" + proxy.kubeconfig(&clientcmdapi.AuthInfo{Token: token})
}

// cronTabPolicy tries the limits of crontab-policy.yaml.
func cronTabPolicy(t *testing.T, limited, registries string) {
	t.Helper()
	apply := func(image, initImage string, parallelism int) string {
		return fmt.Sprintf(`kubectl apply --namespace=%s -f - << EOF
apiVersion: alpha.ianlewis.org/v1
kind: CronTab
metadata: {name: limited}
spec:
  schedule: "@yearly"
  jobOptions: {parallelism: %d}
  jobTemplate:
    restartPolicy: Never
    initContainers: [{name: first, image: %s}]
    containers: [{name: backup, image: %s}]
EOF`, limited, parallelism, initImage, image)
	}
	const allowed = "registry.example.com/backup"
	sh(t, apply(allowed, allowed, 10))
	mustContain(t, shFails(t, apply(allowed, allowed, 11)), "spec.jobOptions.parallelism: more than the 10 that ConfigMap foo-limits allows")
	mustContain(t, shFails(t, apply("busybox", allowed, 1)), "an image of busybox, "+allowed+registries)
	mustContain(t, shFails(t, apply(allowed, "busybox", 1)), "an image of "+allowed+", busybox"+registries)
}
