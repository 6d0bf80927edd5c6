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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// contactTimeout bounds the first request: whoever started the program is
	// waiting for an answer.
	contactTimeout = 4 * time.Second
	// servedInterval is the pause between two looks for a resource that is not
	// served, servedReminder the number of looks between two log lines about it.
	servedInterval = time.Second
	servedReminder = 60
)

// WaitUntilServed waits until the API server serves the resource. It returns an
// error at once if the API server cannot be reached or does not accept the
// credentials, and when ctx ends. install tells the reader of the log how to get
// the resource served.
func WaitUntilServed(ctx context.Context, client rest.Interface, resource schema.GroupVersionResource, install string) error {
	logger := klog.FromContext(ctx)
	address := client.Get().URL().Host

	firstCtx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	found, err := serves(firstCtx, client, resource)
	if err != nil {
		return fmt.Errorf("contacting the API server at %s: %w", address, err)
	}
	if found {
		return nil
	}

	crd := resource.GroupResource().String()
	looks := 0
	err = wait.PollUntilContextCancel(ctx, servedInterval, true, func(ctx context.Context) (bool, error) {
		if looks%servedReminder == 0 {
			logger.Info("Waiting for a CustomResourceDefinition that is not installed", "crd", crd, "version", resource.Version, "install", install)
		}
		looks++
		found, err := serves(ctx, client, resource)
		if err != nil {
			logger.Error(err, "Looking for the CustomResourceDefinition failed, trying again", "crd", crd)
		}
		return found, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the CustomResourceDefinition %s: %w", crd, err)
	}
	logger.Info("The CustomResourceDefinition is installed", "crd", crd)
	return nil
}

// serves asks discovery, which every authenticated client may read.
func serves(ctx context.Context, client rest.Interface, resource schema.GroupVersionResource) (bool, error) {
	list := &metav1.APIResourceList{}
	var code int
	err := client.Get().AbsPath("/apis", resource.Group, resource.Version).Do(ctx).StatusCode(&code).Into(list)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if code >= http.StatusBadRequest {
		// A proxy in between may refuse without a word.
		return false, fmt.Errorf("%d %s: %w", code, http.StatusText(code), err)
	}
	if err != nil {
		return false, err
	}
	for _, served := range list.APIResources {
		if served.Name == resource.Resource {
			return true, nil
		}
	}
	return false, nil
}
