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

// Command sample-controller runs the controller of Foos, and those of other kinds.
package main

import (
	"context"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller/crontab"
	"example.com/sample-controller/pkg/controller/memcached"
)

func main() {
	os.Exit(app.Run(newProgram(), os.Args[1:]))
}

// newProgram returns what the program consists of.
func newProgram() *app.Program {
	return &app.Program{
		Description: "runs the controller of Foos, and those of other kinds.",
		Controllers: []app.ControllerDescriptor{
			crontab.NewDescriptor(), // +drop:crontab
			newFooDescriptor(),
			memcached.NewDescriptor(), // +drop:memcached
		},
		Webhooks: &app.Webhooks{Controller: "foo", NewHandler: newWebhookHandler}, // +drop:webhooks
	}
}

func newFooDescriptor() app.ControllerDescriptor {
	resource, trim := schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos"), newTrimmer()
	return app.ControllerDescriptor{
		Name: "foo", Kind: fooKind, Resource: resource, CRDManifest: "artifacts/examples/crd.yaml",
		Informers: []app.Informer{
			{Resource: resource, Trim: app.TypedTrim(trim.trimFoo)},
			{Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Trim: app.TypedTrim(trim.trimDeployment)},
		},
		New: func(ctx context.Context, c *app.ControllerContext) error {
			_, err := NewController(ctx, ControllerOptions{
				KubeClient: c.KubeClient, FooClient: c.Client,
				Deployments: c.KubeInformers.Apps().V1().Deployments(), Foos: c.Informers.Samplecontroller().V1alpha1().Foos(),
				Options: c.Options,
			})
			return err
		},
	}
}
