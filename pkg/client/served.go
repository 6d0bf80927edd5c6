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
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// contactTimeout limits IsServed, so that a user who starts the program with a wrong address
// soon gets an error.
const contactTimeout = 4 * time.Second

// IsServed reports whether the API server serves the resource, by the discovery API, which
// RBAC allows to every authenticated user. The error names the address.
func IsServed(ctx context.Context, client rest.Interface, resource schema.GroupVersionResource) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	list, code := &metav1.APIResourceList{}, 0
	err := client.Get().AbsPath("/apis", resource.Group, resource.Version).Do(ctx).StatusCode(&code).Into(list)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case code >= http.StatusBadRequest:
		// A proxy may refuse the request with an empty body.
		err = fmt.Errorf("%d %s: %w", code, http.StatusText(code), err)
	}
	if err != nil {
		return false, fmt.Errorf("contacting the API server at %s: %w", client.Get().URL().Host, err)
	}
	return slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool { return served.Name == resource.Resource }), nil
}
