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
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/test/kinds"
)

const (
	// waitTimeout bounds every wait. It is generous because only a failing test uses it up.
	waitTimeout = 180 * time.Second
	// commandInterval is longer than apiInterval because each poll starts a process.
	apiInterval     = 50 * time.Millisecond
	commandInterval = 200 * time.Millisecond
)

// suite has what all tests share: one cluster, its clients, and what is installed in it.
type suite struct {
	// work is the directory that hack/e2e.sh made and will remove.
	work string
	// root is the root of the repository.
	root string
	// callerHome is the home directory of the user who runs the tests.
	callerHome string
	// home is a home directory with the cluster's .kube/config.
	home string
	// environment is the environment of commands, without HOME.
	environment []string
	// kinds and dependents are those of install.yaml: see readKinds.
	kinds      []kind
	dependents []string
	// data are those in the testdata of the controllers.
	data []*kinds.Data

	config    *rest.Config
	kube      kubernetes.Interface
	clientset clientset.Interface
	dynamic   dynamic.Interface
	audit     auditLog
	names     atomic.Int64

	crdMu        sync.Mutex
	crdInstalled bool

	deployMu sync.Mutex
	// secrets is the directory with a Pod's secrets. It is empty until deploy has run.
	secrets string
}

var shared *suite

func TestMain(m *testing.M) {
	var err error
	if shared, err = newSuite(); err != nil {
		fmt.Fprintln(os.Stderr, "Setting up the end-to-end tests:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func newSuite() (*suite, error) {
	work := os.Getenv("TEST_WORK")
	if work == "" {
		return nil, errors.New("there is no cluster; run `make e2e` or hack/e2e.sh")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	s := &suite{work: work, root: root, home: filepath.Join(work, "home"), callerHome: os.Getenv("HOME")}
	// The path is explicit because the caller's KUBECONFIG may name another cluster.
	var errs [4]error
	s.config, errs[0] = clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	s.environment, errs[1] = commandEnvironment(work, root)
	s.kinds, s.dependents, errs[2] = readKinds(root)
	s.data, errs[3] = kinds.Read(root)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	s.config.QPS = -1
	s.kube, errs[0] = kubernetes.NewForConfig(s.config)
	s.clientset, errs[1] = clientset.NewForConfig(s.config)
	s.dynamic, errs[2] = dynamic.NewForConfig(s.config)
	return s, errors.Join(errs[:]...)
}

func (s *suite) kubeconfig() string {
	return filepath.Join(s.home, ".kube", "config")
}

// installCRD installs the CRD of Foos with the commands of walkthrough 2, once.
func (s *suite) installCRD(t *testing.T) {
	t.Helper()
	s.crdMu.Lock()
	defer s.crdMu.Unlock()
	if s.crdInstalled {
		return
	}
	output := sh(t, `kubectl apply -f artifacts/examples/crd.yaml`)
	mustContain(t, output, "customresourcedefinition.apiextensions.k8s.io/foos.samplecontroller.k8s.io created")
	sh(t, "kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io")
	s.crdInstalled = true
}

// removeCRD deletes the CRD of Foos. Only TestWalkthrough1 calls it, while no other test
// runs. (A new cluster has no CRD yet; with -count the previous run installed it.)
func (s *suite) removeCRD(t *testing.T) {
	t.Helper()
	s.crdMu.Lock()
	defer s.crdMu.Unlock()
	sh(t, "kubectl delete crd foos.samplecontroller.k8s.io --ignore-not-found")
	s.crdInstalled = false
}

// goEnvironment returns the settings that the go command derives from the home directory.
// Commands run with another home directory, where they would find an empty build cache.
func goEnvironment() ([]string, error) {
	variables := []string{"GOENV", "GOCACHE", "GOMODCACHE", "GOPATH"}
	output, err := exec.Command("go", append([]string{"env"}, variables...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	for i, value := range strings.Split(strings.TrimSuffix(string(output), "\n"), "\n") {
		variables[i] += "=" + value
	}
	return variables, nil
}

// unique returns a different name at each call.
func unique(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, shared.names.Add(1))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until check returns nil, and fails the test with check's last error if
// that takes longer than waitTimeout.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	poll(t, what, apiInterval, check)
}

func poll(t *testing.T, what string, interval time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), interval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v; last error: %v", what, err, last)
	}
}

// consistently fails the test if check returns an error within the period. It covers what
// must not happen, which no event announces.
func consistently(t *testing.T, what string, period time.Duration, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), period)
	defer cancel()
	var failure error
	// The poll's own error is the context's, after a period without a failure.
	_ = wait.PollUntilContextCancel(ctx, apiInterval, true, func(context.Context) (bool, error) {
		failure = check()
		return failure != nil, nil
	})
	if failure != nil {
		t.Fatalf("%s: %v", what, failure)
	}
}

// kind is a kind that the controller reconciles, as its CRD describes it.
type kind struct {
	Group string
	Names struct {
		Kind, Plural, Singular string
	}
}

// crd returns the name of the CRD, such as foos.samplecontroller.k8s.io.
func (k kind) crd() string {
	return k.Names.Plural + "." + k.Group
}

// finalizersRight returns the right that the OwnerReferencesPermissionEnforcement
// admission plugin demands for owner references to this kind. No request shows it in the
// audit log.
func (k kind) finalizersRight() string {
	return rightOf("update", k.Group, k.Names.Plural+"/finalizers")
}

// manifest has the fields of CRDs, roles and bindings that tests read.
type manifest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec     kind
	Rules    []rbacv1.PolicyRule
	RoleRef  rbacv1.RoleRef
	Subjects []rbacv1.Subject
}

// readManifests returns the objects in the text.
func readManifests(text io.Reader) (manifests []manifest, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(text, 4096)
	for err == nil {
		object := manifest{}
		if err = decoder.Decode(&object); err == nil {
			manifests = append(manifests, object)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return manifests, err
}

// readKinds returns the kinds whose CRDs install.yaml has, and the resources of their
// dependents, such as deployments.apps: those that its roles allow to create and watch.
func readKinds(root string) (kinds []kind, dependents []string, err error) {
	file, err := os.Open(filepath.Join(root, "artifacts/deploy/install.yaml"))
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	manifests, err := readManifests(file)
	if err != nil {
		return nil, nil, err
	}
	var rules []rbacv1.PolicyRule
	for _, object := range manifests {
		if object.Kind == "CustomResourceDefinition" {
			kinds = append(kinds, object.Spec)
		}
		rules = append(rules, object.Rules...)
	}
	ours := func(group string) bool {
		return slices.ContainsFunc(kinds, func(k kind) bool { return k.Group == group })
	}
	verbs := map[schema.GroupResource][]string{}
	for _, rule := range singleRules(rules...) {
		resource := schema.GroupResource{Group: rule.APIGroups[0], Resource: rule.Resources[0]}
		verbs[resource] = append(verbs[resource], rule.Verbs[0])
	}
	for resource, verbs := range verbs {
		if slices.Contains(verbs, "create") && slices.Contains(verbs, "watch") && !ours(resource.Group) {
			dependents = append(dependents, resource.String())
		}
	}
	slices.Sort(dependents)
	if len(kinds) == 0 || len(dependents) == 0 {
		return nil, nil, errors.New("install.yaml has no CRDs, or no rights to what the controller creates")
	}
	return kinds, dependents, nil
}

// kindOfObject returns the kind whose name in lower case begins the object's name, as
// those of TestEveryRightIsMissed do.
func (s *suite) kindOfObject(name string) kind {
	i := slices.IndexFunc(s.kinds, func(k kind) bool { return strings.HasPrefix(name, k.Names.Singular+"-") })
	if i < 0 {
		return kind{}
	}
	return s.kinds[i]
}

// resources returns the resources of all kinds and of their dependents, as arguments of
// kubectl.
func (s *suite) resources() string {
	var names []string
	for _, k := range s.kinds {
		names = append(names, k.crd())
	}
	return strings.Join(append(names, s.dependents...), ",")
}

// kubeconfigOf writes a kubeconfig with the user's credentials and returns its path.
func kubeconfigOf(t *testing.T, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(shared.kubeconfig())
	must(t, err)
	for name := range config.AuthInfos {
		config.AuthInfos[name] = user
	}
	path := filepath.Join(t.TempDir(), "config")
	must(t, clientcmd.WriteToFile(*config, path))
	return path
}

// requestToken requests a token of the service account from the API server.
func requestToken(t *testing.T, namespace, account string) string {
	t.Helper()
	request, err := shared.kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return request.Status.Token
}
