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

package client

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// ExplainUnauthorized adds to an Unauthorized error what is wrong with the credentials of
// config, such as an expired token; the API server does not say. It returns other errors
// unchanged.
func ExplainUnauthorized(err error, config *rest.Config, now time.Time) error {
	if !apierrors.IsUnauthorized(err) {
		return err
	}
	for _, credential := range []struct {
		name   string
		expiry time.Time
	}{
		{"client certificate", certificateExpiry(contents(string(config.CertData), config.CertFile))},
		{"token", tokenExpiry(contents(config.BearerToken, config.BearerTokenFile))},
	} {
		if !credential.expiry.IsZero() && credential.expiry.Before(now) {
			return fmt.Errorf("%w; the %s expired at %s, get a new one", err, credential.name, credential.expiry.UTC().Format(time.RFC3339))
		}
	}
	return fmt.Errorf("%w; the API server does not accept these credentials, check the user in the kubeconfig", err)
}

// contents returns data or, if that is empty, the content of the file, "" if it cannot be
// read.
func contents(data, path string) string {
	if data != "" || path == "" {
		return data
	}
	read, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(read)
}

// certificateExpiry returns when the certificate expires, zero if data is not a
// certificate.
func certificateExpiry(data string) time.Time {
	certificates, err := cert.ParseCertsPEM([]byte(data))
	if err != nil {
		return time.Time{}
	}
	return certificates[0].NotAfter
}

// tokenExpiry returns when a JSON Web Token expires, zero for other tokens and for those
// that do not expire.
func tokenExpiry(token string) time.Time {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expiry int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Expiry == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Expiry, 0)
}
