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
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a changed copy of the suite's kubeconfig and returns its path.
func writeKubeconfig(t *testing.T, change func(*clientcmdapi.Config)) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(shared.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubeconfigOf writes a kubeconfig with the user's credentials and returns its path.
func kubeconfigOf(t *testing.T, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	return writeKubeconfig(t, func(config *clientcmdapi.Config) { setUser(config, user) })
}

func setUser(config *clientcmdapi.Config, user *clientcmdapi.AuthInfo) {
	for name := range config.AuthInfos {
		config.AuthInfos[name] = user
	}
}

// requestToken requests a token of the service account from the API server.
func requestToken(t *testing.T, namespace, account string) string {
	t.Helper()
	request, err := shared.kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}
