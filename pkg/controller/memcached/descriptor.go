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

package memcached

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller/deployment"
)

// NewDescriptor returns the descriptor of the controller of Memcacheds.
func NewDescriptor() app.ControllerDescriptor {
	resource, interner := schema.GroupVersion(v1alpha1.GroupVersion).WithResource("memcacheds"), deployment.NewInterner()
	trimDeployment := func(d *appsv1.Deployment) *appsv1.Deployment { return TrimDeployment(d, interner) }
	return app.ControllerDescriptor{
		Name: "memcached", Kind: memcachedKind, Resource: resource, CRDManifest: "artifacts/examples/memcached-crd.yaml",
		Informers: []app.Informer{
			{Resource: resource, Trim: app.TypedTrim(TrimMemcached)},
			{Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Trim: app.TypedTrim(trimDeployment)},
			{Resource: corev1.SchemeGroupVersion.WithResource("services"), Trim: app.TypedTrim(TrimService)},
			{Resource: appsv1.SchemeGroupVersion.WithResource("replicasets"), Selector: NodeSelector, Trim: TrimNode},
			{Resource: corev1.SchemeGroupVersion.WithResource("pods"), Selector: NodeSelector, Trim: TrimNode},
		},
		New: func(ctx context.Context, c *app.ControllerContext) error {
			nodes := c.SelectedKubeInformers[NodeSelector]
			_, err := New(ctx, Options{
				KubeClient: c.KubeClient, Client: c.Client,
				Memcacheds: c.Informers.Cache().V1alpha1().Memcacheds(), Deployments: c.KubeInformers.Apps().V1().Deployments(),
				Services:    c.KubeInformers.Core().V1().Services(),
				ReplicaSets: nodes.Apps().V1().ReplicaSets(), Pods: nodes.Core().V1().Pods(),
				Options: c.Options,
			})
			return err
		},
	}
}
