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
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/test/sim"
	"example.com/sample-controller/test/stored"
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
		return strings.HasPrefix(image, stored.Mirror) && apierrors.IsForbidden(refusal), nil
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
	answer, err := http.Post(os.Getenv("TEST_ETCD")+"/v3/kv/compaction", "application/json", body)
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

// The controllers of the control plane.
const (
	collector = "garbage collector"
	roller    = "Deployment controller"
)

var (
	fooVerbs = []sim.Verb{
		sim.CreateFoo, sim.CreateFoo, sim.CreateFoo, sim.CreateFoo, sim.ScaleFoo, sim.SetImage,
		sim.Rename, sim.Swap, // +drop:rename
		sim.DeleteFoo, sim.DeleteFoo, sim.RecreateFoo, sim.AddCondition,
	}
	deploymentVerbs = []sim.Verb{
		sim.CreateForeign, sim.CreateForeign, sim.CopyDeployment, sim.CopyDeployment, sim.DeleteDeployment, sim.DeleteDeployment,
		sim.EditDeployment,
	}
	edits = []sim.Edit{
		sim.EditReplicas, sim.EditImage, sim.EditUnlabel, sim.EditOtherFields, sim.EditPause, sim.EditResume, sim.EditRecreate,
		sim.EditRelease, sim.EditHandOver, sim.EditNoController, sim.EditUnblock, sim.EditAddFinalizer, sim.EditRemoveFinalizer,
		sim.EditAskAdoption, sim.EditLargeAnnotation,
	}
)

func (s *sequence) drawOperation() sim.Op {
	verbs := slices.Concat(fooVerbs, deploymentVerbs, slices.Repeat([]sim.Verb{sim.EditDeployment}, 12))
	op := sim.Op{
		Verb: draw(s.random, verbs...), Foo: s.name(sim.Foos), Deployment: s.name(sim.Deployments), Replicas: s.random.Int32N(4),
		NewImage: draw(s.random, images...), Propagation: draw(s.random, propagations...), Edit: draw(s.random, edits...),
	}
	if s.isEnding() && s.chance(50) {
		op.Verb = draw(s.random, sim.CreateFoo, sim.CreateForeign)
	}
	switch op.Verb {
	case sim.CreateFoo:
		op.Deployment = draw(s.random, append(deploymentNames, deploymentNames[0], "")...)
		op.NewImage = draw(s.random, "", op.NewImage)
	case sim.Swap: // +drop:rename
		op.Other = draw(s.random, fooNames...) // +drop:rename
	case sim.CopyDeployment:
		op.Other = draw(s.random, deploymentNames...)
	}
	return op
}

// operate does what a user does.
func (s *sequence) operate(op sim.Op) {
	c := cell{verb: string(op.Verb), resource: sim.Foos, precondition: none, state: s.state(sim.Foos, op.Foo)}
	if slices.Contains(deploymentVerbs, op.Verb) {
		c.resource, c.state = sim.Deployments, s.state(sim.Deployments, op.Deployment)
	}
	if op.Verb == sim.EditDeployment && s.policy != rewrite {
		c.verb = editing(op.Edit)
	}
	s.sent = append(s.sent, fmt.Sprintf("%+v: %s", op, c.state))
	s.store.Do(op)
	u := &user{sequence: s}
	op.Do(u)
	text := answer(u.err)
	if u.err == nil && s.settled == len(s.history) {
		if text = "no change"; slices.ContainsFunc(u.answers, s.isReordered) {
			text = reordered
		}
	}
	s.settle()
	s.table.add(s.inForce(c), text)
}

// user sends requests to the real API server: it reads an object, changes it and writes it. It stops at an error.
type user struct {
	*sequence

	answers []sim.Object
	err     error
}

func (u *user) send(r *sim.Request) (object sim.Object) {
	if u.err != nil {
		return nil
	}
	if object, u.err = u.server.send(u.Context(), userName, u.namespace, r); object != nil {
		u.answers = append(u.answers, object)
	}
	return object
}

// Get implements sim.User.
func (u *user) Get(resource, name string) sim.Object {
	return u.send(&sim.Request{Verb: "get", Resource: resource, Name: name})
}

// Create implements sim.User.
func (u *user) Create(resource string, object sim.Object) {
	u.send(&sim.Request{Verb: "create", Resource: resource, Object: object})
}

// Delete implements sim.User.
func (u *user) Delete(resource, name string, propagation metav1.DeletionPropagation) {
	u.send(&sim.Request{Verb: "delete", Resource: resource, Name: name, Options: metav1.DeleteOptions{PropagationPolicy: &propagation}})
}

// Change writes the object, whose owners the change may take from the store.
func (u *user) Change(path, name string, change func(sim.Object)) {
	resource, subresource, _ := strings.Cut(path, "/")
	if object := u.Get(resource, name); object != nil {
		change(object)
		refs := object.GetOwnerReferences()
		for i := range refs {
			refs[i].UID = types.UID(cmp.Or(u.real[string(refs[i].UID)], string(refs[i].UID)))
		}
		u.send(&sim.Request{Verb: "update", Resource: resource, Name: name, Subresource: subresource, Object: object})
	}
}

// Now implements sim.User.
func (u *user) Now() metav1.Time { return now() }

// controlPlane lets the garbage collector or the Deployment controller of the simulated cluster write about one
// object, and sends the same to the real API server.
func (s *sequence) controlPlane() {
	c := cell{verb: draw(s.random, collector, collector, roller), resource: draw(s.random, sim.Foos, sim.Deployments)}
	if c.verb == roller {
		c.resource = sim.Deployments
	}
	name := s.name(c.resource)
	c.state = s.state(c.resource, name)
	s.sent = append(s.sent, fmt.Sprintf("%s %s %s", c.verb, c.resource, name))
	if c.verb == collector {
		s.store.Collect(c.resource, name)
	} else {
		s.store.RollOut(name)
	}
	text := "no change"
	for _, e := range s.history[s.settled:] {
		u, before := &user{sequence: s}, s.present[e.name()]
		switch {
		case c.verb == roller:
			u.Change(e.resource+"/status", name, func(o sim.Object) { o.(*appsv1.Deployment).Status = e.Object.(*appsv1.Deployment).Status })
		case before.GetDeletionTimestamp() == nil && (e.Type == watch.Deleted || e.Object.GetDeletionTimestamp() != nil):
			u.Delete(e.resource, before.GetName(), metav1.DeletePropagationBackground)
		default:
			u.Change(e.resource, before.GetName(), func(o sim.Object) {
				o.SetOwnerReferences(slices.Clone(e.Object.GetOwnerReferences()))
				if o.SetFinalizers(e.Object.GetFinalizers()); e.Type == watch.Deleted {
					o.SetFinalizers(nil)
				}
			})
		}
		text = answer(u.err)
		s.must(u.err)
	}
	s.settle()
	s.table.add(s.inForce(c), text)
}
