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

package child

import (
	appsv1 "k8s.io/api/apps/v1"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller"
)

// Handlers returns what is to be done about the events of Deployments: each wakes the
// parent of this kind that controls the Deployment, and those who ask for its name,
// which wakeAskers wakes.
func (k Kind) Handlers(loop *controller.Loop, wakeAskers func(deployment cache.ObjectName)) appsinformers.DeploymentHandlerFuncs {
	return appsinformers.DeploymentHandlerFuncs{
		AddFunc: func(deployment *appsv1.Deployment) {
			loop.EnqueueOwner(k.GroupKind(), deployment)
			wakeAskers(cache.MetaObjectToName(deployment))
		},
		UpdateFunc: func(old, deployment *appsv1.Deployment) {
			if old.ResourceVersion == deployment.ResourceVersion {
				return
			}
			loop.EnqueueOwner(k.GroupKind(), old)
			loop.EnqueueOwner(k.GroupKind(), deployment)
			wakeAskers(cache.MetaObjectToName(deployment))
		},
		DeleteFunc: func(gone appsinformers.DeletedDeployment) {
			if gone.OptionalObj != nil {
				loop.Gate.SawDelete(gone.OptionalObj.UID)
				loop.EnqueueOwner(k.GroupKind(), gone.OptionalObj)
			}
			wakeAskers(gone.GetObjectName())
		},
	}
}
