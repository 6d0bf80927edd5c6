//go:build compare

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

// Package compare compares the simulated API server of test/sim with a real one: etcd and kube-apiserver, whose
// controllers are stopped, so that nothing is asynchronous. A sequence of requests is one client's, in a namespace. It
// draws what the Foo controller and its users send, and what the garbage collector and the Deployment controller
// write. After each request the answers are the same, and the events of both watches up to that version. UIDs and
// versions are mapped, times are masked, texts of messages are not compared.
package compare

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/test/sim"
)

const (
	// userName is any user, controllerName the controller, refusedName the controller while a policy refuses its writes.
	userName       = "user"
	controllerName = "sample-controller"
	refusedName    = "refused"
	// waitTimeout bounds every wait. Only a failing test uses it up.
	waitTimeout = time.Minute
	// sequenceLength is the number of requests of a sequence.
	sequenceLength = 100
)

// server is the real API server.
type server struct {
	kube kubernetes.Interface
	// clients are by user and resource.
	clients map[string]map[string]rest.Interface
}

func newServer() (*server, error) {
	s, work := &server{clients: map[string]map[string]rest.Interface{}}, os.Getenv("TEST_WORK")
	if work == "" {
		return nil, errors.New("there is no cluster; run `make compare` or hack/e2e.sh compare")
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(work, "home", ".kube", "config"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	for _, name := range []string{userName, controllerName, refusedName} {
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters"}}
		if s.kube, err = kubernetes.NewForConfig(config); err != nil {
			return nil, err
		}
		generated, err := clientset.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		s.clients[name] = map[string]rest.Interface{
			sim.Foos: generated.SamplecontrollerV1alpha1().RESTClient(), sim.Deployments: s.kube.AppsV1().RESTClient(),
		}
	}
	return s, nil
}

// createNamespace creates a namespace whose label selects the policy.
func (s *server) createNamespace(ctx context.Context, policy string) (string, error) {
	metadata := metav1.ObjectMeta{GenerateName: "compare-", Labels: map[string]string{"policy": policy}}
	namespace, err := s.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metadata}, metav1.CreateOptions{})
	return namespace.GetName(), err
}

// send sends the user's request, in which UIDs and versions are the API server's, to the namespace.
func (s *server) send(ctx context.Context, user, namespace string, r *sim.Request) (sim.Object, error) {
	client := s.clients[user][r.Resource]
	request := map[string]func() *rest.Request{
		"get": client.Get, "create": client.Post, "update": client.Put, "delete": client.Delete,
		"patch": func() *rest.Request { return client.Patch(r.PatchType).Body(r.Patch) },
	}[r.Verb]().Namespace(namespace).Resource(r.Resource)
	switch r.Verb {
	case "create", "update":
		request.Body(r.Object)
	case "delete":
		request.Body(&r.Options)
	}
	if r.Verb != "create" {
		request.Name(r.Name)
	}
	if r.Verb != "get" && r.Verb != "delete" {
		request.Param("fieldManager", strings.Replace(user, refusedName, controllerName, 1))
	}
	if r.DryRun {
		request.Param("dryRun", metav1.DryRunAll)
	}
	if r.Subresource != "" {
		request.SubResource(r.Subresource)
	}
	answer, err := request.Do(ctx).Get()
	if err != nil || r.Verb == "delete" {
		return nil, err
	}
	return answer.(sim.Object), nil
}

// list is a request for a list, or for a watch.
func (s *server) list(namespace, resource string, options metav1.ListOptions) *rest.Request {
	request := s.clients[userName][resource].Get().Namespace(namespace).Resource(resource)
	return request.SpecificallyVersionedParams(&options, scheme.ParameterCodec, corev1.SchemeGroupVersion)
}

// awaitPolicies waits until the API server, which reads policies late, applies those of policies.yaml.
func (s *server) awaitPolicies(ctx context.Context) error {
	namespace, err := s.createNamespace(ctx, rewrite)
	if err != nil {
		return err
	}
	probe := &sim.Request{Verb: "create", Resource: sim.Deployments, Object: sim.ForeignDeployment("probe"), DryRun: true}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, waitTimeout, true, func(ctx context.Context) (bool, error) {
		_, refusal := s.send(ctx, refusedName, namespace, probe)
		object, err := s.send(ctx, userName, namespace, probe)
		if err != nil {
			return false, err
		}
		image := object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image
		return strings.HasPrefix(image, sim.Mirror) && apierrors.IsForbidden(refusal), nil
	})
}

// TestCompare sends the same requests to both API servers.
func TestCompare(t *testing.T) {
	requests, err := strconv.Atoi(os.Getenv("COMPARE_REQUESTS"))
	if err != nil {
		t.Fatalf("COMPARE_REQUESTS: %v", err)
	}
	s, err := newServer()
	if err == nil {
		err = s.awaitPolicies(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	table := &table{counts: map[cell]map[string]int{}}
	t.Run("sequences", func(t *testing.T) {
		for i := range requests / sequenceLength {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				newSequence(t, s, table, i).run()
			})
		}
	})
	t.Logf("\n%s", table)
	if requests >= 100_000 {
		table.check(t, 20)
	}
}

// TestExpired shows what the explorer's break of a watch stands for: 410 for a version that etcd has compacted.
func TestExpired(t *testing.T) {
	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := s.createNamespace(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.list(namespace, sim.Foos, metav1.ListOptions{}).Do(t.Context()).Get()
	if err != nil {
		t.Fatal(err)
	}
	body := strings.NewReader(`{"revision":"` + list.(metav1.ListInterface).GetResourceVersion() + `"}`)
	answer, err := http.Post(os.Getenv("COMPARE_ETCD")+"/v3/kv/compaction", "application/json", body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("compacting etcd: %+v, %v", answer, err)
	}
	defer answer.Body.Close()
	exact := metav1.ListOptions{ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if err := s.list(namespace, sim.Foos, exact).Do(t.Context()).Error(); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list was answered with %v", err)
	}
	w, err := s.list(namespace, sim.Foos, metav1.ListOptions{Watch: true, ResourceVersion: "1"}).Watch(t.Context())
	if err == nil {
		defer w.Stop()
		err = apierrors.FromObject((<-w.ResultChan()).Object)
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch was answered with %v", err)
	}
}
