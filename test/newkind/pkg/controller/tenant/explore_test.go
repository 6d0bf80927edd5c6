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

package tenant

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"example.com/sample-controller/test/explore"
	clientfake "example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/test/newkind/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/sim"
)

// exploredService is an external service that answers when the explorer lets it.
type exploredService struct{ explore.Env }

// Get implements Service.
func (s exploredService) Get(_ context.Context, id string) (item Item, err error) {
	object, err := s.Send(&sim.Request{Verb: "get", Resource: explore.Items, Name: id})
	if apierrors.IsNotFound(err) {
		return item, ErrNotFound
	}
	if err == nil {
		data := object.(*corev1.ConfigMap).Data
		item = Item{data["owner"], data["displayName"]}
	}
	return item, err
}

// Put implements Service.
func (s exploredService) Put(_ context.Context, id string, item Item) error {
	object := explore.Item(id, map[string]string{"owner": item.Owner, "displayName": item.DisplayName})
	_, err := s.Send(&sim.Request{Verb: "put", Resource: explore.Items, Name: id, Object: object})
	return err
}

// Delete implements Service.
func (s exploredService) Delete(_ context.Context, id string) error {
	_, err := s.Send(&sim.Request{Verb: "delete", Resource: explore.Items, Name: id})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// TestExplore explores what testdata/suites.yaml says of Tenants: every order in which watches, handlers, syncs and the
// garbage collector can go on after an operation of a user.
func TestExplore(t *testing.T) {
	owned := explore.ReadOwned(t, "../../..", "tenant", scheme.Scheme)
	owned.Kind.Build = func(ctx context.Context, env explore.Env) explore.Controller {
		kube, own := &kubefake.Clientset{}, &clientfake.Clientset{}
		env.Serve(scheme.Scheme, &kube.Fake, &own.Fake)
		kubeInformers, informers := kubeinformers.NewSharedInformerFactory(kube, 0), externalversions.NewSharedInformerFactory(own, 0)
		explore.Inform(env, NewDescriptor().Informers, kubeInformers)
		explore.Inform(env, NewDescriptor().Informers, informers)
		c, err := New(ctx, Options{
			KubeClient: kube, Client: own, Tenants: informers.Tenancy().V1alpha1().Tenants(), ConfigMaps: kubeInformers.Core().V1().ConfigMaps(),
			Service: exploredService{env}, Options: env.Options(tenantKind),
		})
		must(err)
		return explore.Controller{Memory: []any{c}, Ignored: map[string]string{
			"tenant.Controller.client": "it never changes", "tenant.Controller.service": "it never changes",
			"tenant.Controller.tenantIndexer": "a cache", "tenant.Controller.metrics": "no decision depends on it",
		}}
	}
	explore.Check(t, owned.Kind, owned.Starts(owned.All()...)...)
}
