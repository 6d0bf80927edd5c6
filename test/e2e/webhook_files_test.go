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
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// TestWebhookClientCA builds overlays that mount the authorities of the API server's certificate.
func TestWebhookClientCA(t *testing.T) {
	t.Parallel()
	for _, components := range [][]string{{"webhook", "webhook-client-ca"}, {"webhook", "webhook-cert-manager", "webhook-client-ca"}} {
		mustContain(t, buildOverlay(t, components...), "--webhook-client-ca-file=/client-ca/ca.crt", "mountPath: /client-ca\n", "name: client-ca\n",
			"- configMap:\n          name: sample-controller-webhook-client-ca\n        name: client-ca\n")
	}
}

// files starts the webhooks with certificate files, as cert-manager writes them, and
// replaces the files while the webhooks serve the certificate.
func (w *webhookEnv) files(t *testing.T) {
	manifests := sh(t, "kubectl kustomize artifacts/deploy/with-webhook-cert-manager")
	mustContain(t, manifests, "cert-manager.io/inject-ca-from", "--webhook-tls-cert-file=/certificate/tls.crt", "kind: Certificate")
	if role := regexp.MustCompile(`kind: (Cluster)?Role(Binding)?\nmetadata:\n(  .*\n)*?  name: sample-controller-webhook\n`).FindString(manifests); role != "" {
		t.Errorf("the manifests grant rights that the program does not use with certificate files: %s", role)
	}
	var pairs [2][2][]byte
	var bundle []byte
	for i := range pairs {
		certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		must(t, err)
		pairs[i] = [2][]byte{certificate, key}
		bundle = append(bundle, certificate...)
	}
	w.server.stop()
	w.trust(t, bundle)
	directory := t.TempDir()
	certFile, keyFile := filepath.Join(directory, corev1.TLSCertKey), filepath.Join(directory, corev1.TLSPrivateKeyKey)
	replace := func(pair [2][]byte) {
		t.Helper()
		// Between the two renames the key does not match the certificate.
		for i, file := range []string{certFile, keyFile} {
			must(t, os.WriteFile(file+".new", pair[i], 0o600))
			must(t, os.Rename(file+".new", file))
		}
	}
	replace(pairs[0])
	w.server = start(w.t, w.t.TempDir(), shared.asInPod(w.t, w.secrets, fmt.Sprintf(
		"sample-controller -v=2 --webhooks-only --health-probe-bind-address=127.0.0.1:0 --webhook-bind-address=%s --webhook-tls-cert-file=%s --webhook-tls-private-key-file=%s", w.address, certFile, keyFile)))
	w.server.awaitReady()
	w.awaitWebhooks(t)
	first := w.servedCertificate(t)
	replace(pairs[1])
	eventually(t, "the controller serves the new certificate", func(context.Context) error {
		if bytes.Equal(w.servedCertificate(t), first) {
			return errors.New("it serves the old one")
		}
		return nil
	})
	w.awaitWebhooks(t)
	sh(t, w.apply("v1beta1", "by-files", "spec: {replicas: 0}"))
	w.server.stop()
	if strings.Contains(w.server.output(), "Published the certificate authorities") {
		t.Error("the controller has published the authorities, which cert-manager does")
	}
	w.start(w.address)
	w.awaitWebhooks(t)
}

// trust publishes the authorities, as cert-manager does.
func (w *webhookEnv) trust(t *testing.T, bundle []byte) {
	t.Helper()
	text := base64.StdEncoding.EncodeToString(bundle)
	sh(t, fmt.Sprintf(`kubectl patch crd foos.samplecontroller.k8s.io --type=json -p '[{"op":"add","path":"/spec/conversion/webhook/clientConfig/caBundle","value":%q}]'`, text))
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
		sh(t, fmt.Sprintf(`kubectl patch %s sample-controller-webhook --type=json -p '[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":%q}]'`, kind, text))
	}
}

// servedCertificate returns the certificate that the controller serves.
func (w *webhookEnv) servedCertificate(t *testing.T) []byte {
	t.Helper()
	// The caller compares the certificate instead of verifying it.
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	connection, err := dialer.DialContext(t.Context(), "tcp", w.address)
	must(t, err)
	defer func() { _ = connection.Close() }()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw
}
