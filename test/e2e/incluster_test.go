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
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	systemNamespace = "sample-controller-system"
	serviceAccount  = "sample-controller"
	// secretsDir is where a Pod finds its service account's token, and
	// secretsRoot what may be hidden to put them there.
	secretsDir  = "/var/run/secrets/kubernetes.io/serviceaccount"
	secretsRoot = "/var/run"
	// tokenSeconds is longer than any run of the tests.
	tokenSeconds = 6 * 60 * 60
	testImage    = "registry.example.com/sample-controller:dev"
)

// The nodes of the test's cluster run no containers. What the manifests deploy is
// admitted, scheduled and called ready, and the controllers that work are started
// by the tests: as in a Pod, with that service account and the rights that the
// manifests give it, and with no other.

// deploy installs the controller as walkthrough 3 does.
func (s *suite) deploy(t *testing.T) {
	t.Helper()
	s.installCRD(t)
	s.deployment.Lock()
	defer s.deployment.Unlock()
	if s.secrets != "" {
		return
	}
	sh(t, "make deploy IMG="+testImage)
	secrets := filepath.Join(s.work, "tmp", "serviceaccount")
	if err := s.writeSecrets(t.Context(), systemNamespace, secrets); err != nil {
		t.Fatal(err)
	}
	s.secrets = secrets
}

// writeSecrets writes what a Pod of the Deployment in that namespace would be given.
func (s *suite) writeSecrets(ctx context.Context, namespace, dir string) error {
	token, err := s.kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("requesting a token: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Whoever runs in a container is another user.
	for name, data := range map[string][]byte{
		"token":     []byte(token.Status.Token),
		"ca.crt":    s.config.CAData,
		"namespace": []byte(namespace),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// asInPod returns a command line that runs the given one as in a Pod with those
// secrets. Where this machine allows no private view of the file system, a
// kubeconfig names them instead.
func (s *suite) asInPod(t *testing.T, secrets, command string) string {
	t.Helper()
	unshare, err := privateView()
	if err != nil {
		t.Logf("No Pod's file system on this machine, a kubeconfig instead: %v", err)
		return fmt.Sprintf("exec %s --kubeconfig=%s --leader-elect-resource-namespace=$(cat %s/namespace)", command, s.tokenKubeconfig(t, secrets), secrets)
	}
	address, err := url.Parse(s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(address.Host)
	if err != nil {
		t.Fatal(err)
	}
	inside := fmt.Sprintf(`mount -t tmpfs none "$(readlink -f %s)" && mkdir -p %s && cp "$SECRETS"/* %s && exec %s`, secretsRoot, secretsDir, secretsDir, command)
	return fmt.Sprintf("KUBERNETES_SERVICE_HOST=%s KUBERNETES_SERVICE_PORT=%s SECRETS='%s' exec %s bash -c '%s'", host, port, secrets, unshare, inside)
}

// privateView returns the command that gives a process a file system of its own.
var privateView = sync.OnceValues(func() (string, error) {
	var failures []error
	for _, unshare := range []string{"unshare --mount", "unshare --user --map-root-user --mount"} {
		output, err := exec.Command("bash", "-c", unshare+" mount -t tmpfs none "+os.TempDir()).CombinedOutput()
		if err == nil {
			return unshare, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w: %s", unshare, err, output))
	}
	return "", errors.Join(failures...)
})

// tokenKubeconfig writes a kubeconfig that points to the Pod's files.
func (s *suite) tokenKubeconfig(t *testing.T, secrets string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "pod",
"clusters": [{"name": "pod", "cluster": {"server": %q, "certificate-authority": %q}}],
"users": [{"name": "pod", "user": {"tokenFile": %q}}],
"contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}]}`,
		s.config.Host, filepath.Join(secrets, "ca.crt"), filepath.Join(secrets, "token"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startInPod starts a controller with the service account of the manifests. With
// E2E_IMAGE it is that image, in a container of CONTAINER_TOOL's.
func startInPod(t *testing.T, flags string) *process {
	t.Helper()
	shared.deploy(t)
	image := os.Getenv("E2E_IMAGE")
	if image == "" {
		return start(t, t.TempDir(), shared.asInPod(t, shared.secrets, "sample-controller "+flags))
	}
	container := unique(filepath.Base(shared.work))
	address, err := url.Parse(shared.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	// What the manifests' security context says, and what a kubelet would mount.
	p := start(t, shared.callerHome, fmt.Sprintf(`exec %s --name=%s --rm --label=%s --network=host --read-only --cap-drop=ALL --user=65532 --security-opt=no-new-privileges \
		--volume='%s':%s:ro --env=KUBERNETES_SERVICE_HOST=%s --env=KUBERNETES_SERVICE_PORT=%s %s %s`,
		os.Getenv("E2E_RUN"), container, filepath.Base(shared.work), shared.secrets, secretsDir, address.Hostname(), address.Port(), image, flags))
	p.container = container
	return p
}

// kill ends the process as a power failure would.
func (p *process) kill() {
	p.t.Helper()
	if p.container == "" {
		p.signal(syscall.SIGKILL)
	} else {
		sh(p.t, "HOME="+shared.callerHome+" "+os.Getenv("CONTAINER_TOOL")+" kill --signal=KILL "+p.container)
	}
	p.exited()
}

// served waits until the process serves that and returns the address.
func (p *process) served(what string) string {
	p.t.Helper()
	line := regexp.MustCompile(`"Serving" what="` + what + `" address="([^"]+)"`)
	var address string
	eventually(p.t, what+" is served", func(context.Context) error {
		found := line.FindStringSubmatch(p.output())
		if found == nil {
			return errors.New("no such line in the log")
		}
		address = found[1]
		return nil
	})
	return address
}
