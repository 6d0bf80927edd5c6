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
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	alphaclient "example.com/sample-controller/pkg/generated/clientset/versioned/typed/alpha/v1"
)

func (s *scene) cronTabs() alphaclient.CronTabInterface {
	return shared.foos.AlphaV1().CronTabs(s.namespace)
}

func (s *scene) jobs() batchclient.JobInterface {
	return shared.kube.BatchV1().Jobs(s.namespace)
}

// createCronTab creates a CronTab. The nodes of the test's cluster complete its Pods.
func (s *scene) createCronTab(name, schedule string, changes ...func(*alphav1.CronTabSpec)) *alphav1.CronTab {
	s.Helper()
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
	created, err := s.cronTabs().Create(s.Context(), cronTab, metav1.CreateOptions{})
	s.must(err)
	return created
}

// neverEnds asks for a node that there is not, so that Jobs stay under way.
func neverEnds(spec *alphav1.CronTabSpec) {
	spec.JobTemplate.NodeSelector = map[string]string{"there-is": "none"}
}

func concurrency(policy alphav1.ConcurrencyPolicy) func(*alphav1.CronTabSpec) {
	return func(spec *alphav1.CronTabSpec) { spec.ConcurrencyPolicy = policy }
}

func suspend(suspend bool) func(*alphav1.CronTabSpec) {
	return func(spec *alphav1.CronTabSpec) { spec.Suspend = &suspend }
}

func (s *scene) updateCronTab(name string, change func(*alphav1.CronTabSpec)) {
	s.Helper()
	s.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cronTab, err := s.cronTabs().Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&cronTab.Spec)
		_, err = s.cronTabs().Update(s.Context(), cronTab, metav1.UpdateOptions{})
		return err
	}))
}

// awaitCronTab waits until the CronTab's Ready condition tells of its present generation
// and has that reason, and the CronTab passes the check.
func (s *scene) awaitCronTab(name, reason string, check func(*alphav1.CronTab) error) (*alphav1.CronTab, string) {
	s.Helper()
	var cronTab *alphav1.CronTab
	var message string
	s.eventually(fmt.Sprintf("CronTab %s has the reason %s", name, reason), func(ctx context.Context) error {
		var err error
		if cronTab, err = s.cronTabs().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(cronTab.Status.Conditions, alphav1.CronTabReady)
		if ready == nil || ready.Reason != reason || ready.ObservedGeneration != cronTab.Generation {
			return fmt.Errorf("generation %d, status %+v", cronTab.Generation, cronTab.Status)
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
func (s *scene) jobsOf(cronTab *alphav1.CronTab) []*batchv1.Job {
	s.Helper()
	list, err := s.jobs().List(s.Context(), metav1.ListOptions{})
	s.must(err)
	var jobs []*batchv1.Job
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], cronTab) {
			jobs = append(jobs, &list.Items[i])
		}
	}
	return jobs
}

// nextJob returns the name of the next Job that the status announces.
func nextJob(cronTab *alphav1.CronTab) string {
	number := cronTab.Status.NextScheduleTime.Unix()
	if number%60 == 0 {
		number /= 60
	}
	return fmt.Sprintf("%s-%d", cronTab.Name, number)
}

// newForeignJob returns a Job that belongs to nobody and has nothing to do.
func newForeignJob(name string) *batchv1.Job {
	suspended := true
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		Suspend: &suspended,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "foreign", Image: "foreign:1"}}, RestartPolicy: corev1.RestartPolicyNever,
		}},
	}}
}

func (s *scene) foreignJob(name string) *batchv1.Job {
	s.Helper()
	job, err := s.jobs().Create(s.Context(), newForeignJob(name), metav1.CreateOptions{})
	s.must(err)
	return job
}

// awaitEvent waits for an event with that reason about the CronTab.
func (s *scene) awaitEvent(cronTab *alphav1.CronTab, reason string) {
	s.Helper()
	selector := fields.Set{"involvedObject.uid": string(cronTab.UID), "reason": reason}
	s.eventually("an event "+reason, func(ctx context.Context) error {
		list, err := shared.kube.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// raceForJob waits until the controller behind the gate creates the CronTab's next Job,
// and is faster with one of that name.
func (s *scene) raceForJob(g *gate, name string) *batchv1.Job {
	s.Helper()
	arrived, release := g.hold(createsJob)
	<-arrived
	cronTab, err := s.cronTabs().Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	// The status is written after the Job, so that it still announces this one.
	foreign := s.foreignJob(nextJob(cronTab))
	release()
	return foreign
}

func createsJob(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/jobs")
}

// newGatedScene makes a scene with a gate between the API server and its controller,
// which has the service account's rights all the same.
func newGatedScene(t *testing.T) (*scene, *gate) {
	t.Helper()
	g, s := newGate(t), newStage(t)
	user := &clientcmdapi.AuthInfo{TokenFile: filepath.Join(shared.secrets, "token")}
	command := fmt.Sprintf("sample-controller --kubeconfig=%s --namespace=%s --controllers=crontab -v=2", g.kubeconfig(user), s.namespace)
	s.controller = start(t, t.TempDir(), command)
	s.controller.prints("Started workers")
	return s, g
}

// cronTabFinalizersRight is asked for by an admission plugin, which the audit log does
// not tell.
const cronTabFinalizersRight = "update alpha.ianlewis.org/crontabs/finalizers"

// keepCronTabsBusy makes work that shows the rights to CronTabs and Jobs, if one of them
// is missing: a run that replaces another, or one whose Job is there when it is created.
// It returns the flags for the controller.
func (s *scene) keepCronTabsBusy(missing, token string) (flags string) {
	s.Helper()
	if !strings.Contains(missing, "/crontabs") && !strings.Contains(missing, "/jobs") {
		return ""
	}
	s.createCronTab("busy", "@every 2s", neverEnds, concurrency(alphav1.ReplaceConcurrent))
	flags = " --controllers=crontab"
	if missing != "get batch/jobs" {
		return flags
	}
	g := newGate(s.T)
	g.add(func(_ http.ResponseWriter, r *http.Request) bool {
		if createsJob(r) {
			cronTab, err := s.cronTabs().Get(r.Context(), "busy", metav1.GetOptions{})
			if err == nil {
				_, _ = s.jobs().Create(r.Context(), newForeignJob(nextJob(cronTab)), metav1.CreateOptions{})
			}
		}
		return false
	})
	return flags + " --kubeconfig=" + g.kubeconfig(&clientcmdapi.AuthInfo{Token: token})
}

// kubeconfig returns a kubeconfig that leads to the gate as that user. Credentials are
// sent over TLS only.
func (g *gate) kubeconfig(user *clientcmdapi.AuthInfo) string {
	g.t.Helper()
	server := httptest.NewTLSServer(g.server.Config.Handler)
	g.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	path := kubeconfigOf(g.t, user)
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		g.t.Fatal(err)
	}
	return path
}
