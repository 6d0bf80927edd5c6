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

package main

import (
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/webhook"
)

func newWebhookHandler(c app.WebhookContext) http.Handler {
	return webhook.NewHandler(webhook.Options{Lookups: newWebhookLookups(c), VerifyClient: c.VerifyClient, Metrics: webhook.NewMetrics(c.Metrics), Clock: c.Clock})
}

// newWebhookLookups returns what the webhooks look up in the caches of the Foo controller.
// They find nothing in a namespace that it does not work in.
func newWebhookLookups(c app.WebhookContext) webhook.Lookups {
	return webhook.Lookups{
		HasSynced: c.HasSynced,
		MayGet:    c.MayGet,
		Claimants: func(namespace, deploymentName string) []*v1alpha1.Foo {
			in := c.Namespace(namespace)
			if in == nil {
				return nil
			}
			foos := in.Informers.Samplecontroller().V1alpha1().Foos().TypedInformer().GetTypedIndexer()
			return controller.LookUp(foos, byDeploymentName, cache.NewObjectName(namespace, deploymentName).String())
		},
		Deployment: func(namespace, name string) *appsv1.Deployment {
			in := c.Namespace(namespace)
			if in == nil {
				return nil
			}
			// A lister of a cache returns no error but NotFound.
			found, _ := in.KubeInformers.Apps().V1().Deployments().Lister().Deployments(namespace).Get(name)
			return found
		},
	}
}
