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

package setting

import (
	"context"
	"testing"

	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"example.com/sample-controller/test/explore"
	clientfake "example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/test/newkind/pkg/generated/informers/externalversions"
)

// TestExplore explores what testdata/suites.yaml says of Settings: every order in which watches, handlers, syncs and the
// garbage collector can go on after an operation of a user.
func TestExplore(t *testing.T) {
	owned := explore.ReadOwned(t, "../../..", "setting", scheme.Scheme)
	owned.Kind.Build = func(ctx context.Context, env explore.Env) explore.Controller {
		kube, own := &kubefake.Clientset{}, &clientfake.Clientset{}
		env.Serve(scheme.Scheme, &kube.Fake, &own.Fake)
		kubeInformers, informers := kubeinformers.NewSharedInformerFactory(kube, 0), externalversions.NewSharedInformerFactory(own, 0)
		explore.Inform(env, NewDescriptor().Informers, kubeInformers)
		explore.Inform(env, NewDescriptor().Informers, informers)
		c, err := New(ctx, Options{
			KubeClient: kube, Client: own, Settings: informers.Tuning().V1alpha1().Settings(), ConfigMaps: kubeInformers.Core().V1().ConfigMaps(),
			Options: env.Options(settingKind),
		})
		must(err)
		return explore.Controller{Memory: []any{c}}
	}
	explore.Check(t, owned.Kind, owned.Starts(owned.All()...)...)
}
