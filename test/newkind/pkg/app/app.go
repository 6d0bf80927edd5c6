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

// Package app stands in for pkg/app beside the kinds that `make new-kind` copies: it has what their
// controllers use of that, with clients and informers of these kinds, which are in no program.
package app

import (
	"context"
	"flag"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"

	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
	clientset "example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned"
	"example.com/sample-controller/test/newkind/pkg/generated/informers/externalversions"
)

// ControllerDescriptor is as that of pkg/app.
type ControllerDescriptor struct {
	Name, Kind  string
	Resource    schema.GroupVersionResource
	CRDManifest string
	Informers   []Informer
	AddFlags    func(flags *flag.FlagSet)
	New         func(ctx context.Context, c *ControllerContext) error
}

// ControllerContext is as that of pkg/app.
type ControllerContext struct {
	KubeClient    kubernetes.Interface
	Client        clientset.Interface
	KubeInformers kubeinformers.SharedInformerFactory
	Informers     externalversions.SharedInformerFactory
	WrapTransport transport.WrapperFunc
	Options       controller.Options
}

// Informer is that of pkg/app.
type Informer = app.Informer

// TypedTrim is that of pkg/app.
func TypedTrim[T any](trim func(*T) *T) func(object any) any {
	return app.TypedTrim(trim)
}
