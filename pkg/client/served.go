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
	// contactTimeout limits each request of IsServed, so that a user who starts the program with
	// a wrong address soon gets an error.
	contactTimeout = 4 * time.Second
	// fastPollInterval is the polling interval while no controller can start, and for a
	// controller that the user named; the message
	// is logged again after fastPollReminder polls.
	fastPollInterval = time.Second
	fastPollReminder = 60
	// slowPollInterval is the polling interval while other controllers run.
	slowPollInterval = 10 * time.Second
)

// IsServed reports whether the API server serves the resource. It returns an error if the
// API server cannot be reached within a few seconds or refuses the credentials.
func IsServed(ctx context.Context, client rest.Interface, resource schema.GroupVersionResource) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	found, err := serves(ctx, client, resource)
	if err != nil {
		return false, fmt.Errorf("contacting the API server at %s: %w", client.Get().URL().Host, err)
	}
	return found, nil
}

// WaitUntilServed returns when the API server serves the resource, or an error when ctx
// ends. install is the command that installs the CRD, for the log: it is logged once and,
// if pollFast, every minute.
func WaitUntilServed(ctx context.Context, client rest.Interface, resource schema.GroupVersionResource, install string, pollFast bool) error {
	logger := klog.FromContext(ctx)
	crd := resource.GroupResource().String()
	interval := slowPollInterval
	if pollFast {
		interval = fastPollInterval
	}
	polls, missing := 0, false
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		found, err := serves(ctx, client, resource)
		switch {
		case err != nil:
			logger.Error(err, "Failed to look for the CustomResourceDefinition, trying again", "crd", crd)
		case !found && (!missing || pollFast && polls%fastPollReminder == 0):
			logger.Info("Waiting for a CustomResourceDefinition that is not installed", "crd", crd, "version", resource.Version, "install", install)
		}
		polls++
		missing = missing || err == nil && !found
		return found, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the CustomResourceDefinition %s: %w", crd, err)
	}
	if missing {
		logger.Info("The CustomResourceDefinition is installed", "crd", crd)
	}
	return nil
}

// serves reads the discovery API, which RBAC allows to every authenticated user.
func serves(ctx context.Context, client rest.Interface, resource schema.GroupVersionResource) (bool, error) {
	list := &metav1.APIResourceList{}
	var code int
	err := client.Get().AbsPath("/apis", resource.Group, resource.Version).Do(ctx).StatusCode(&code).Into(list)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if code >= http.StatusBadRequest {
		// A proxy may refuse the request with an empty body.
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
