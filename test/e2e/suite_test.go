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

// Package e2e tests the controller's binary on a real API server: the walkthroughs by the
// commands that users type, and what only a real cluster shows. Run it with `make e2e` or
// hack/e2e.sh, which start a cluster and remove it. The tests have the build tag e2e.
package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// commandTimeout bounds every command. An undeploy deletes what the tests have left in hundreds of namespaces.
	commandTimeout = 10 * time.Minute
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
	// kinds are those of the controllers.
	kinds []*kinds.Data

	config    *rest.Config
	kube      kubernetes.Interface
	clientset clientset.Interface
	dynamic   dynamic.Interface
	audit     auditLog
	names     atomic.Int64

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
	var errs [3]error
	s.config, errs[0] = clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	s.environment, errs[1] = commandEnvironment(work, root)
	s.kinds, errs[2] = kinds.Read(root)
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

// installCRD installs the CRD of Foos with the commands of walkthrough 2.
func (s *suite) installCRD(t *testing.T) {
	t.Helper()
	sh(t, "kubectl apply -f artifacts/examples/crd.yaml")
	sh(t, "kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io")
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

// manifest has the fields of roles and bindings that tests read.
type manifest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

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

// crds returns the resources of the kinds, such as foos.samplecontroller.k8s.io, which are the names of their CRDs.
func (s *suite) crds() (names []string) {
	for _, k := range s.kinds {
		names = append(names, k.GVR().GroupResource().String())
	}
	return names
}

// groups returns a regular expression of the API groups of the kinds.
func (s *suite) groups() string {
	var groups []string
	for _, k := range s.kinds {
		groups = append(groups, regexp.QuoteMeta(k.GVR().Group))
	}
	return strings.Join(groups, "|")
}

// finalizersRight returns the right that the OwnerReferencesPermissionEnforcement
// admission plugin demands for owner references to this kind. No request shows it in the
// audit log.
func finalizersRight(k *kinds.Data) string {
	return rightOf("update", k.GVR().Group, k.Resource+"/finalizers")
}

// dependents returns the resources of what the controllers create, such as deployments.apps.
func (s *suite) dependents() []string {
	var names []string
	for _, k := range s.kinds {
		for _, owned := range append([]kinds.Object{k.Owns.Object}, k.Also...) {
			names = append(names, owned.GVR().GroupResource().String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// resources returns the resources of all kinds and of their dependents, as arguments of
// kubectl.
func (s *suite) resources() string {
	return strings.Join(slices.Concat(s.crds(), s.dependents()), ",")
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

// request is an entry of the API server's audit log. The tests count the controller's
// writes there, because a superfluous write shows neither in the controller's log nor in the
// objects.
type request struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Annotations map[string]string `json:"annotations"`
	ObjectRef   struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// String returns the request without its response, such as "patch foos/status x".
func (r *request) String() string {
	return fmt.Sprintf("%s %s %s", r.Verb, r.resource(), r.ObjectRef.Name)
}

func (r *request) resource() string {
	if r.ObjectRef.Subresource == "" {
		return r.ObjectRef.Resource
	}
	return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
}

// right returns the right that allows the request.
func (r *request) right() string {
	return rightOf(r.Verb, r.ObjectRef.APIGroup, r.resource())
}

func rightOf(verb, group, resource string) string {
	if group != "" {
		resource = group + "/" + resource
	}
	return verb + " " + resource
}

// auditLog is the part of the audit log that has been read so far.
type auditLog struct {
	mu       sync.Mutex
	offset   int64
	requests []*request
}

func auditFile() string { return filepath.Join(shared.work, "cluster", "logs", "audit.log") }

// read returns all requests so far, in order.
func (a *auditLog) read() ([]*request, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	file, err := os.Open(auditFile())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// The API server is still writing a line without a newline.
			return a.requests, nil
		}
		if err != nil {
			return nil, err
		}
		r := &request{}
		if err := json.Unmarshal(line, r); err != nil {
			return nil, fmt.Errorf("line %q of the audit log: %w", line, err)
		}
		a.requests = append(a.requests, r)
		a.offset += int64(len(line))
	}
}
