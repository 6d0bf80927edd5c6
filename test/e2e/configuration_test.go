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
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// TestExits has the mistakes that the address or the API server shows. The others are in pkg/app and pkg/client.
func TestExits(t *testing.T) {
	t.Parallel()
	stranger := kubeconfigOf(t, &clientcmdapi.AuthInfo{Token: "bad"})
	for flags, says := range map[string][]string{
		"-master=https://127.0.0.1:1": {"127.0.0.1:1", "connection refused"},
		"-kubeconfig=" + stranger:     {strings.TrimPrefix(shared.config.Host, "https://"), "Unauthorized"},
	} {
		lines := errorLines(exits(t, 1, "sample-controller "+flags))
		if len(lines) != 1 {
			t.Fatalf("want one error, got %q", lines)
		}
		mustContain(t, lines[0], says...)
	}
}

// exits runs a command without a kubeconfig in its home directory that must exit with that code, promptly and
// without a stack trace, and returns its output. The controller waits 4 seconds for an API server.
func exits(t *testing.T, code int, command string) string {
	t.Helper()
	began := time.Now()
	p := start(t, t.TempDir(), command)
	if got := p.awaitExit(); got != code || time.Since(began) > 10*time.Second {
		t.Errorf("%s: exit code %d after %s, want %d:\n%s", command, got, time.Since(began), code, p.tail())
	}
	output := p.output()
	if strings.Contains(output, "goroutine ") {
		t.Errorf("%s: a stack trace", command)
	}
	return output
}

// errorLines returns the errors and fatal errors in a log of klog.
func errorLines(log string) []string {
	return regexp.MustCompile(`(?m)^[EF]\d{4} .*$`).FindAllString(log, -1)
}

// TestMissingRights starts controllers with too few rights, which wait for them, or for the lease, without
// which a controller ends. pkg/app tests the remedies of other variants.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.kubectl("create serviceaccount sample-controller")
	shOnCleanup(t, "kubectl delete serviceaccount sample-controller --namespace="+e.namespace)
	secrets := t.TempDir()
	e.must(shared.writeSecrets(t.Context(), cache.NewObjectName(e.namespace, serviceAccount), secrets))
	const remedy = "kubectl apply -k artifacts/deploy/namespaced"
	p := start(t, t.TempDir(), shared.asInPod(t, secrets, "sample-controller --namespace="+e.namespace))
	p.awaitOutput("Not allowed to fill a cache, waiting for the right", "in the namespace", remedy)
	for _, line := range errorLines(p.output()) {
		mustContain(t, line, `User \"`+serviceAccountIn(e.namespace)+`\" cannot`, " resource ", remedy)
	}
	if strings.Contains(p.output(), "Started workers") || !p.running() {
		t.Errorf("it does not wait:\n%s", p.tail())
	}
	e.kubectl("create role all-but-lease --verb=get,list,watch --resource=" + shared.resources())
	e.kubectl("create rolebinding all-but-lease --role=all-but-lease --serviceaccount=" + e.namespace + ":sample-controller")
	p.awaitOutput(startLines...)
	output := exits(t, 1, shared.asInPod(t, secrets, "sample-controller --leader-elect --namespace="+e.namespace))
	mustContain(t, output, "taking the lease: ", `cannot get resource \"leases\"`, remedy)
}

const (
	systemNamespace = "sample-controller-system"
	serviceAccount  = "sample-controller"
	// secretsDir is where a Pod finds its service account's token. secretsRoot is the
	// directory that asInPod covers with an empty file system to write them there.
	secretsDir  = "/var/run/secrets/kubernetes.io/serviceaccount"
	secretsRoot = "/var/run"
	// tokenSeconds is longer than the tests run.
	tokenSeconds = 6 * 60 * 60
	testImage    = "registry.example.com/sample-controller:dev"
)

// The cluster's nodes are simulated: the Pods of the manifests are admitted, scheduled and
// reported ready, but run no containers. The tests start the controllers themselves, with
// the service account and the rights of the manifests.

// deploy installs the controller as walkthrough 3 does, once, with the policy for its service account.
func (s *suite) deploy(t *testing.T) {
	t.Helper()
	s.deployMu.Lock()
	defer s.deployMu.Unlock()
	if s.secrets != "" {
		return
	}
	s.installCRD(t)
	sh(t, "make deploy IMG="+testImage)
	secrets := filepath.Join(s.work, "tmp", "serviceaccount")
	must(t, s.writeSecrets(t.Context(), cache.NewObjectName(systemNamespace, serviceAccount), secrets))
	s.secrets = secrets
}

// writeSecrets writes the files that the kubelet mounts into a Pod of that service account.
func (s *suite) writeSecrets(ctx context.Context, account cache.ObjectName, dir string) error {
	token, err := s.kube.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("requesting a token: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// The files are readable for all users because a container runs as another user.
	for name, data := range map[string][]byte{
		"token":     []byte(token.Status.Token),
		"ca.crt":    s.config.CAData,
		"namespace": []byte(account.Namespace),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// asInPod returns a command line that runs the given one as in a Pod with those secrets.
// On a machine that allows no private mounts, a kubeconfig names the token instead.
func (s *suite) asInPod(t *testing.T, secrets, command string) string {
	t.Helper()
	unshare, err := privateMounts()
	if err != nil {
		t.Logf("This machine allows no private mounts, using a kubeconfig: %v", err)
		kubeconfig := kubeconfigOf(t, &clientcmdapi.AuthInfo{TokenFile: filepath.Join(secrets, "token")})
		return fmt.Sprintf("exec %s --kubeconfig=%s --leader-elect-resource-namespace=$(cat %s/namespace)", command, kubeconfig, secrets)
	}
	address, err := url.Parse(s.config.Host)
	must(t, err)
	host, port, err := net.SplitHostPort(address.Host)
	must(t, err)
	inside := fmt.Sprintf(`mount -t tmpfs none "$(readlink -f %s)" && mkdir -p %s && cp "$SECRETS"/* %s && exec %s`, secretsRoot, secretsDir, secretsDir, command)
	return fmt.Sprintf("KUBERNETES_SERVICE_HOST=%s KUBERNETES_SERVICE_PORT=%s SECRETS='%s' exec %s bash -c '%s'", host, port, secrets, unshare, inside)
}

// privateMounts returns the command that gives a process its own mount namespace.
var privateMounts = sync.OnceValues(func() (string, error) {
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

// startInPod starts a controller with the service account of the manifests.
func startInPod(t *testing.T, flags string) *process {
	t.Helper()
	shared.deploy(t)
	return startWithSecrets(t, shared.secrets, flags)
}

// startWithSecrets starts the program in a Pod with those secrets. With E2E_IMAGE, CONTAINER_TOOL
// runs that image.
func startWithSecrets(t *testing.T, secrets, flags string) *process {
	t.Helper()
	image := os.Getenv("E2E_IMAGE")
	if image == "" {
		return start(t, t.TempDir(), shared.asInPod(t, secrets, "sample-controller "+flags))
	}
	address, err := url.Parse(shared.config.Host)
	must(t, err)
	// These options are the manifests' security context, and what the kubelet mounts.
	return start(t, shared.callerHome, fmt.Sprintf(`exec %s --name=%s --rm --label=%s --network=host --read-only --cap-drop=ALL --user=65532 --security-opt=no-new-privileges \
		--volume='%s':%s:ro --env=KUBERNETES_SERVICE_HOST=%s --env=KUBERNETES_SERVICE_PORT=%s %s %s`,
		os.Getenv("E2E_RUN"), unique(filepath.Base(shared.work)), filepath.Base(shared.work), secrets, secretsDir, address.Hostname(), address.Port(), image, flags))
}

// awaitServing waits until the process listens on that port, such as "metrics", and returns
// the address.
func (p *process) awaitServing(what string) string {
	p.t.Helper()
	var address string
	eventually(p.t, "the port of "+what+" is open", func(context.Context) error {
		if address = p.serving(what); address == "" {
			return errors.New("no such line in the log")
		}
		return nil
	})
	return address
}

// serving returns the address of that port, "" if the process does not listen on it yet.
func (p *process) serving(what string) string {
	p.t.Helper()
	found := regexp.MustCompile(`"Serving" what="` + what + `" address="([^"]+)"`).FindStringSubmatch(p.output())
	if found == nil {
		return ""
	}
	return found[1]
}
