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
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

func TestExplainUnauthorized(t *testing.T) {
	certificate, _, err := cert.GenerateSelfSignedCertKey("client", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	issued := time.Now()
	late := issued.AddDate(100, 0, 0)
	file := func(data string) string {
		path := filepath.Join(t.TempDir(), "credential")
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmVk"
	}
	const unknown = "; the API server does not accept these credentials"
	tests := map[string]struct {
		config rest.Config
		now    time.Time
		want   string
	}{
		"a certificate that expired":           {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate}}, late, "; the client certificate expired at "},
		"a certificate in a file that expired": {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: file(string(certificate))}}, late, "; the client certificate expired at "},
		"a certificate that is valid":          {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate}}, issued, unknown},
		"an invalid certificate":               {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("none")}}, late, unknown},
		"a token that expired":                 {rest.Config{BearerToken: jwt(`{"exp": 86400}`)}, late, "; the token expired at 1970-01-02T00:00:00Z, get a new one"},
		"a token in a file that expired":       {rest.Config{BearerTokenFile: file(jwt(`{"exp": 86400}`) + "\n")}, late, "; the token expired at 1970-01-02T00:00:00Z"},
		"a token that is valid":                {rest.Config{BearerToken: jwt(`{"exp": 86400}`)}, time.Unix(86399, 0), unknown},
		"a token that never expires":           {rest.Config{BearerToken: jwt(`{}`)}, late, unknown},
		"a token with invalid claims":          {rest.Config{BearerToken: jwt(`[]`)}, late, unknown},
		"a token that is not base64":           {rest.Config{BearerToken: "a.?.c"}, late, unknown},
		"a token that is not a JSON Web Token": {rest.Config{BearerToken: "secret"}, late, unknown},
		"a missing token file":                 {rest.Config{BearerTokenFile: "/nonexistent"}, late, unknown},
		"no credentials":                       {rest.Config{}, late, unknown},
	}
	refusal := apierrors.NewUnauthorized("Unauthorized")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ExplainUnauthorized(refusal, &test.config, test.now)
			if !errors.Is(got, refusal) || !strings.HasPrefix(got.Error(), "Unauthorized"+test.want) {
				t.Errorf("error %q, want %q in it", got, test.want)
			}
		})
	}
	other := errors.New("other")
	if got := ExplainUnauthorized(other, &rest.Config{}, late); !errors.Is(got, other) || got.Error() != "other" {
		t.Errorf("another error became %v", got)
	}
}
