//go:build faults

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

package failover

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
)

// Controllers as the manifests run them: with their flags and the rights of their service
// account.

const (
	systemNamespace = "sample-controller-system"
	serviceAccount  = "sample-controller"
	// tokenSeconds is longer than any run of the suite.
	tokenSeconds = 2 * 60 * 60
)

// build is a version of the controller and how its manifests run it.
type build struct {
	program   string
	arguments []string
	// gracePeriod is when a kubelet kills a container that was terminated.
	gracePeriod time.Duration
}

// readBuild reads how the Deployment in the manifest runs the program.
func readBuild(program, manifest string) (*build, error) {
	deployment, err := readDeployment(manifest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manifest, err)
	}
	pod := &deployment.Spec.Template.Spec
	b := &build{program: program, gracePeriod: time.Duration(ptr.Deref(pod.TerminationGracePeriodSeconds, 30)) * time.Second}
	for _, argument := range pod.Containers[0].Args {
		if name, _, ok := strings.Cut(argument, "-bind-address="); ok {
			// All replicas run on this machine, and cannot listen on the same port.
			argument = name + "-bind-address=127.0.0.1:0"
		}
		b.arguments = append(b.arguments, argument)
	}
	// A Pod reads its namespace from a file. -v=2 logs when workers start.
	b.arguments = append(b.arguments, "--leader-elect-resource-namespace="+systemNamespace, "-v=2")
	return b, nil
}

func readDeployment(manifest string) (*appsv1.Deployment, error) {
	file, err := os.Open(manifest)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		object, deployment := &unstructured.Unstructured{}, &appsv1.Deployment{}
		if err := documents.Decode(object); err != nil {
			return nil, fmt.Errorf("no Deployment: %w", err)
		}
		if object.GetKind() == "Deployment" {
			return deployment, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)
		}
	}
}

// retryPeriod returns the retry period of leader election: the flag, or else the default.
func (b *build) retryPeriod() (time.Duration, error) {
	for _, argument := range b.arguments {
		if value, ok := strings.CutPrefix(argument, "--leader-elect-retry-period="); ok {
			return time.ParseDuration(value)
		}
	}
	return 2 * time.Second, nil
}

// podIdentity has the credentials of a Pod of the manifests, and the certificate of its
// proxy.
type podIdentity struct {
	tokenFile   string
	tls         *tls.Config
	certificate []byte
	// transport sends the credentials of the caller only.
	transport http.RoundTripper
}

func (c *testCluster) newPodIdentity(t *testing.T, flows *flowCounter) (*podIdentity, error) {
	token, err := c.kube.CoreV1().ServiceAccounts(systemNamespace).CreateToken(t.Context(), serviceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token: %w", err)
	}
	i := &podIdentity{tokenFile: filepath.Join(t.TempDir(), "token")}
	if err := os.WriteFile(i.tokenFile, []byte(token.Status.Token), 0o600); err != nil {
		return nil, err
	}
	certificatePEM, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("generating a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificatePEM, key)
	if err != nil {
		return nil, fmt.Errorf("reading the generated certificate: %w", err)
	}
	i.certificate, i.tls = certificatePEM, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(c.config))
	if err != nil {
		return nil, err
	}
	i.transport = flows.wrap(transport)
	return i, nil
}

// kubeconfig writes a kubeconfig for the address of the proxy, and returns its path.
func (i *podIdentity) kubeconfig(t *testing.T, proxy *recordingProxy) (string, error) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "pod",
"clusters": [{"name": "pod", "cluster": {"server": %q, "certificate-authority-data": %q}}],
"users": [{"name": "pod", "user": {"tokenFile": %q}}],
"contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}]}`,
		"https://"+proxy.address, base64.StdEncoding.EncodeToString(i.certificate), i.tokenFile)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// flowCounter counts what API Priority and Fairness did with the requests of one client.
type flowCounter struct {
	mu sync.Mutex
	// flows counts responses by the UID of the flow schema in their header, "" for none.
	flows map[types.UID]int
}

func (c *flowCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return &flowRoundTripper{flowCounter: c, next: next}
}

type flowRoundTripper struct {
	*flowCounter

	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *flowRoundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flows == nil {
		c.flows = map[types.UID]int{}
	}
	c.flows[types.UID(response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID))]++
	return response, nil
}
