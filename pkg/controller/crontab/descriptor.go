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

package crontab

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/app"
)

// NewDescriptor returns the descriptor of the controller of CronTabs.
func NewDescriptor() app.ControllerDescriptor {
	resource := schema.GroupVersion(alphav1.GroupVersion).WithResource("crontabs")
	return app.ControllerDescriptor{
		Name: "crontab", Kind: cronTabGVK().Kind, Resource: resource, CRDManifest: "artifacts/examples/crontab-crd.yaml",
		Informers: []app.Informer{
			{Resource: resource, Trim: Trim},
			{Resource: batchv1.SchemeGroupVersion.WithResource("jobs"), Trim: Trim},
		},
		New: func(ctx context.Context, c *app.ControllerContext) error {
			_, err := New(ctx, Options{
				KubeClient: c.KubeClient, Client: c.Client,
				CronTabs: c.Informers.Alpha().V1().CronTabs(), Jobs: c.KubeInformers.Batch().V1().Jobs(),
				Options: c.Options,
			})
			return err
		},
	}
}
