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

package app

import (
	"context"
	"flag"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"

	"example.com/sample-controller/pkg/controller"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
)

// Program is what main hands in.
type Program struct {
	// Description follows the name of the program in the usage.
	Description string
	// Controllers are all controllers that --controllers can enable.
	Controllers []ControllerDescriptor
	Webhooks    *Webhooks // +drop:webhooks
}

// names returns the names of all controllers.
func (p *Program) names() []string {
	var names []string
	for _, descriptor := range p.Controllers {
		names = append(names, descriptor.Name)
	}
	return names
}

// ControllerDescriptor is all that the process knows of a controller.
type ControllerDescriptor struct {
	// Name is the name in --controllers, such as foo.
	Name string
	// Kind and Resource are the API that the controller works for. The process starts
	// the controller when the API server serves the resource.
	Kind     string
	Resource schema.GroupVersionResource
	// CRDManifest is the path of the manifest that makes the API server serve it.
	CRDManifest string
	// Informers are the resources that the controller reads from caches.
	Informers []Informer
	// AddFlags declares the controller's own flags, nil for none. Their names begin with that
	// of the controller, and their values refuse what New could not work with.
	AddFlags func(flags *flag.FlagSet)
	// New builds the controller on the informers of c, and registers it with the worker
	// in c.Options. The process calls it at its start, once for each namespace that it works
	// in, and starts the informers when the API server serves the resource.
	New func(ctx context.Context, c *ControllerContext) error
}

// install returns the command that makes the API server serve the resource.
func (d *ControllerDescriptor) install() string {
	return "kubectl apply -f " + d.CRDManifest
}

// Informer is a resource that a controller reads from a cache of its own.
type Informer struct {
	Resource schema.GroupVersionResource
	// Selector is a label selector, "" for all objects.
	Selector string
	// Trim returns what the controller reads of the object, or nil if the object does not
	// concern it: then the cache keeps the identity and owners alone. Without a Trim the cache
	// keeps all that trim.Metadata leaves. A Trim must keep no field that users can
	// make large, unless the controller reads it (rule 24 of docs/contract.md).
	Trim func(object any) any
}

// ControllerContext is what a controller is built from, in one namespace or in all.
type ControllerContext struct {
	KubeClient kubernetes.Interface
	Client     clientset.Interface
	// KubeInformers and Informers have no selector.
	KubeInformers kubeinformers.SharedInformerFactory
	Informers     externalversions.SharedInformerFactory
	// SelectedKubeInformers are the informers of each selector, KubeInformers those of "".
	SelectedKubeInformers map[string]kubeinformers.SharedInformerFactory
	// WrapTransport is for clients of other services than the API server. Like those of
	// KubeClient and Client, their writes then pass only while the process holds the lease.
	WrapTransport transport.WrapperFunc
	// Options have the worker of the controller, and the namespace.
	Options controller.Options
}
