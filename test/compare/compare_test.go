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

package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	controllerName = "sample-controller"
	// policyLabel is the label of namespaces that selects the policies of policies.yaml.
	policyLabel = "policy"
	// waitTimeout bounds every wait. Only a failing test uses it up.
	waitTimeout = time.Minute
	// sequenceLength is the number of requests of a sequence, each of which has a namespace.
	sequenceLength = 100
)

// server is the real API server.
type server struct {
	work string
	kube kubernetes.Interface
	// user and controller have the clients of users and of the controller, by resource.
	user, controller map[string]rest.Interface
}

func newServer() (*server, error) {
	s := &server{work: os.Getenv("TEST_WORK")}
	if s.work == "" {
		return nil, errors.New("there is no cluster; run `make compare` or hack/e2e.sh compare")
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.work, "home", ".kube", "config"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	if s.user, s.kube, err = clients(config); err != nil {
		return nil, err
	}
	// The policies know the controller by its name.
	config.Impersonate = rest.ImpersonationConfig{UserName: controllerName, Groups: []string{"system:masters"}}
	s.controller, _, err = clients(config)
	return s, err
}

func clients(config *rest.Config) (map[string]rest.Interface, kubernetes.Interface, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	foos, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	return map[string]rest.Interface{sim.Foos: foos.SamplecontrollerV1alpha1().RESTClient(), sim.Deployments: kube.AppsV1().RESTClient()}, kube, nil
}

// createNamespace creates a namespace with that policy, none if it is "".
func (s *server) createNamespace(ctx context.Context, policy string) (name string, err error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "compare-", Labels: map[string]string{policyLabel: policy}}}
	namespace, err = s.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return namespace.GetName(), err
}

// send sends the request, in which UIDs and versions are the API server's, to the namespace.
func (s *server) send(ctx context.Context, clients map[string]rest.Interface, namespace string, r *sim.Request) (sim.Object, error) {
	client := clients[r.Resource]
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
	if r.Subresource != "" {
		request.SubResource(r.Subresource)
	}
	if r.Verb != "get" && r.Verb != "delete" {
		manager := controllerName
		if client != s.controller[r.Resource] {
			manager = "user"
		}
		request.Param("fieldManager", manager)
	}
	answer, err := request.Do(ctx).Get()
	if err != nil || r.Verb == "delete" {
		return nil, err
	}
	return answer.(sim.Object), nil
}

// list is a request for a list, or for a watch.
func (s *server) list(namespace, resource string, options metav1.ListOptions) *rest.Request {
	return s.user[resource].Get().Namespace(namespace).Resource(resource).SpecificallyVersionedParams(&options, scheme.ParameterCodec, corev1.SchemeGroupVersion)
}

// awaitPolicies waits until the API server, which reads policies late, applies those of policies.yaml.
func (s *server) awaitPolicies(ctx context.Context) error {
	for _, policy := range []string{rewrite, refuse} {
		namespace, err := s.createNamespace(ctx, policy)
		if err != nil {
			return err
		}
		probe := &sim.Request{Verb: "create", Resource: sim.Deployments, Object: sim.ForeignDeployment("probe")}
		err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, waitTimeout, true, func(ctx context.Context) (bool, error) {
			object, err := s.send(ctx, s.controller, namespace, probe)
			if err != nil || policy == refuse {
				return err != nil, nil
			}
			image := imageOf(object)
			_, err = s.send(ctx, s.controller, namespace, &sim.Request{Verb: "delete", Resource: sim.Deployments, Name: "probe"})
			return image == sim.Mirror+imageOf(probe.Object), err
		})
		if err != nil {
			return fmt.Errorf("the policy %s is not in force: %w", policy, err)
		}
	}
	return nil
}

func imageOf(o sim.Object) string {
	return o.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image
}

// requests returns how many requests TestCompare sends.
func requests(t *testing.T) int {
	count, err := strconv.Atoi(os.Getenv("COMPARE_REQUESTS"))
	if err != nil {
		t.Fatalf("COMPARE_REQUESTS: %v", err)
	}
	return count
}

// TestCompare sends the same requests to both API servers.
func TestCompare(t *testing.T) {
	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.awaitPolicies(t.Context()); err != nil {
		t.Fatal(err)
	}
	table := &table{counts: map[cell]map[string]int{}}
	t.Run("sequences", func(t *testing.T) {
		for i := range requests(t) / sequenceLength {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				newSequence(t, s, table, i).run()
			})
		}
	})
	t.Logf("\n%s", table)
	if !t.Failed() {
		table.check(t, requests(t)/5000)
	}
}
