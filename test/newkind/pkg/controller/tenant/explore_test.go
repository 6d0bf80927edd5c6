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
	"net/http" // +external
	"testing"

	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1" // +external

	"example.com/sample-controller/test/explore"
	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/newkind/pkg/app"
	clientset "example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned"
	"example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/test/newkind/pkg/generated/informers/externalversions"
)

// TestExplore explores what testdata/suites.yaml says of Tenants: every order in which watches, handlers, syncs and
// the garbage collector can go on after an operation of a user.
//
// rule Z1: a sync for a Tenant that is gone costs no request.
// rule Z10: at rest nothing is written.
// rule Z14: what no event enqueued would stay as it is, which is seen there.
func TestExplore(t *testing.T) {
	owned := explore.ReadOwned(t, "../../..", "tenant", scheme.Scheme)
	owned.Kind.Build = func(_ context.Context, env explore.Env) explore.Controller {
		kube, own := kubernetes.NewForConfigOrDie(env.Config()), clientset.NewForConfigOrDie(env.Config())
		kubeInformers, informers := kubeinformers.NewSharedInformerFactory(kube, 0), externalversions.NewSharedInformerFactory(own, 0)
		explore.Inform(env, NewDescriptor().Informers, kubeInformers)
		explore.Inform(env, NewDescriptor().Informers, informers)
		c, err := New(&app.ControllerContext{KubeClient: kube, Client: own, KubeInformers: kubeInformers, Informers: informers, Options: env.Options(tenantKind)})
		fixture.Must(err)
		c.service = newService("http://service/items", func(http.RoundTripper) http.RoundTripper { return env }) // +external
		return explore.Controller{
			Ignored: map[string]string{"tenant.Controller.service": "it never changes"}, // +external
			Memory:  []any{c},
		}
	}
	starts := owned.Starts(owned.All()...)
	// +external:begin
	create, remove := []explore.Operation{owned.Create()}, []explore.Operation{owned.Remove("tenants", metav1.DeletePropagationBackground)}
	starts = append(starts,
		explore.Start{Name: "rule Z22: each request for a new Tenant fails, is lost, or is late", Part: "1+1", All: "1+1", Then: create},
		explore.Start{Name: "rule Z22: and those for one that is deleted", IsLarge: true, Part: "1+1", All: "1+1", Operations: create, Then: remove},
	)
	// +external:end
	explore.Check(t, owned.Kind, starts...)
}
