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

package faults

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
)

// Controllers as the manifests run them: their flags, their service account, and no
// rights but that one's.

const (
	systemNamespace = "sample-controller-system"
	serviceAccount  = "sample-controller"
	// tokenSeconds is longer than any run of the suite.
	tokenSeconds = 2 * 60 * 60
)

// build is a version of the controller, and how its manifests run it.
type build struct {
	program   string
	arguments []string
	// grace is after how long a kubelet kills what was told to end.
	grace time.Duration
}

// newBuild reads how the Deployment in that manifest runs the program.
func newBuild(program, manifest string) (*build, error) {
	deployment, err := readDeployment(manifest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manifest, err)
	}
	pod := &deployment.Spec.Template.Spec
	b := &build{program: program, grace: time.Duration(ptr.Deref(pod.TerminationGracePeriodSeconds, 30)) * time.Second}
	for _, argument := range pod.Containers[0].Args {
		if name, _, ok := strings.Cut(argument, "-bind-address="); ok {
			// Many replicas share this machine's ports.
			argument = name + "-bind-address=127.0.0.1:0"
		}
		b.arguments = append(b.arguments, argument)
	}
	// What a Pod would find out by itself; and more of the log.
	b.arguments = append(b.arguments, "--leader-elect-resource-namespace="+systemNamespace, "-v=2")
	return b, nil
}

func readDeployment(manifest string) (*appsv1.Deployment, error) {
	file, err := os.Open(manifest)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	documents := yaml.NewYAMLReader(bufio.NewReader(file))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it has no Deployment")
		}
		if err != nil {
			return nil, err
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, err
		}
		if kind.Kind == "Deployment" {
			deployment := &appsv1.Deployment{}
			return deployment, yaml.Unmarshal(document, deployment)
		}
	}
}

// retryPeriod returns what the flags say, or else the default.
func (b *build) retryPeriod() (time.Duration, error) {
	for _, argument := range b.arguments {
		if value, ok := strings.CutPrefix(argument, "--leader-elect-retry-period="); ok {
			return time.ParseDuration(value)
		}
	}
	return 2 * time.Second, nil
}

// identity is what a Pod of the manifests is given to show who it is, and what its
// tap shows to be believed.
type identity struct {
	tokenFile string
	tls       *tls.Config
	authority []byte
	// transport adds no rights to those of the caller.
	transport http.RoundTripper
}

func newIdentity(t *testing.T, answers *meter) (*identity, error) {
	token, err := shared.kube.CoreV1().ServiceAccounts(systemNamespace).CreateToken(t.Context(), serviceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token: %w", err)
	}
	i := &identity{tokenFile: filepath.Join(t.TempDir(), "token")}
	if err := os.WriteFile(i.tokenFile, []byte(token.Status.Token), 0o600); err != nil {
		return nil, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate just made: %w", err)
	}
	i.authority, i.tls = certificate, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(shared.config))
	if err != nil {
		return nil, err
	}
	i.transport = answers.wrap(transport)
	return i, nil
}

// kubeconfig writes one that leads to the tap.
func (i *identity) kubeconfig(t *testing.T, tap *tap) (string, error) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "pod",
"clusters": [{"name": "pod", "cluster": {"server": %q, "certificate-authority-data": %q}}],
"users": [{"name": "pod", "user": {"tokenFile": %q}}],
"contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}]}`,
		"https://"+tap.address, base64.StdEncoding.EncodeToString(i.authority), i.tokenFile)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// meter counts what Priority and Fairness made of somebody's requests.
type meter struct {
	mu sync.Mutex
	// flows counts answers by the flow schema that they tell, "" for none.
	flows map[types.UID]int
	// refused are the requests that were answered with 429.
	refused []string
}

func (m *meter) wrap(next http.RoundTripper) http.RoundTripper {
	return &metered{meter: m, next: next}
}

type metered struct {
	*meter

	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (m *metered) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := m.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flows == nil {
		m.flows = map[types.UID]int{}
	}
	m.flows[types.UID(response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID))]++
	if response.StatusCode == http.StatusTooManyRequests {
		m.refused = append(m.refused, request.Method+" "+request.URL.Path)
	}
	return response, nil
}

// refusals returns a copy of what was answered with 429.
func (m *meter) refusals() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.refused)
}
