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

// Package setting is the controller of Settings: it keeps a ConfigMap of the same name for each. docs/setting.md
// is its contract.
package setting

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/newkind/pkg/apis/tuning/v1alpha1"
	"example.com/sample-controller/test/newkind/pkg/app"
)

// Controller turns each Setting into a ConfigMap of its name.
//
// An event of a Setting or of a ConfigMap enqueues the key of the Setting that it concerns. A worker takes the
// key and calls syncHandler, which reads the caches, decides (setting.go), makes at most one write to the
// ConfigMap, and writes the Setting's status if it changed. The watch events of these writes enqueue the
// Setting again, and that sync finds nothing to do. A sync that fails is retried with backoff.
type Controller struct {
	// settings reads Settings and writes their status, configMaps reads and writes what they own. Both make
	// each write with all that belongs to it: a precondition, so that nothing is overwritten, a line in the
	// log, an event, a metric, and a note that makes the next sync wait until the cache shows the write.
	settings   *controller.Owners[*v1alpha1.Setting]
	configMaps *controller.Dependents[*v1alpha1.Setting, *corev1.ConfigMap]

	controller.Options
}

// New returns a Controller whose syncHandler and event handlers are registered with the Worker. It adds an
// index to the ConfigMap informer, and returns an error if that fails.
func New(in *app.ControllerContext) (*Controller, error) {
	c := &Controller{Options: in.Options}
	settings := in.Informers.Tuning().V1alpha1().Settings().TypedInformer()
	c.settings = controller.NewOwners(controller.OwnersOptions[*v1alpha1.Setting]{
		Options: c.Options, Kind: settingGVK(), Resource: v1alpha1.Resource("settings"), Informer: settings,
		Client: func(namespace string) controller.OwnerClient[*v1alpha1.Setting] {
			return in.Client.TuningV1alpha1().Settings(namespace)
		},
		LatestVersion: func(ctx context.Context) (string, error) {
			list, err := in.Client.TuningV1alpha1().Settings(c.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
			return list.ResourceVersion, err
		},
		Status: func(setting *v1alpha1.Setting) any { return &setting.Status },
	})
	var err error
	configMaps := in.KubeInformers.Core().V1().ConfigMaps().TypedInformer()
	c.configMaps, err = controller.NewDependents(c.settings, controller.DependentsOptions[*v1alpha1.Setting, *corev1.ConfigMap]{
		Kind: "ConfigMap", Resource: corev1.Resource("configmaps"), Informer: configMaps,
		Client: func(namespace string) controller.DependentClient[*corev1.ConfigMap] {
			return in.KubeClient.CoreV1().ConfigMaps(namespace)
		},
		Diff: diffConfigMap, Trim: TrimConfigMap, Existed: hadConfigMap, Advice: "and change the Setting instead",
	})
	if err != nil {
		return nil, err
	}
	controller.AddEventHandler(c.Worker, settingKind, settings, c.settings.EventHandler())
	controller.AddEventHandler(c.Worker, "ConfigMap", configMaps, c.configMaps.EventHandler(c.settings.Enqueue))
	c.Worker.Handle(c.Namespace, c.syncHandler)
	c.Metrics.CountByReady("Settings", settings.GetStore())
	return c, nil
}

// The admission plugin OwnerReferencesPermissionEnforcement requires update on settings/finalizers to set blockOwnerDeletion.
// +kubebuilder:rbac:groups=tuning.example.org,resources=settings,verbs=get;list;watch
// +kubebuilder:rbac:groups=tuning.example.org,resources=settings/status,verbs=patch
// +kubebuilder:rbac:groups=tuning.example.org,resources=settings/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch

// syncHandler brings the cluster one step closer to what the Setting of that name asks for. It returns after
// which time to sync again at the latest, 0 for only after an event, or the error for which to retry with
// backoff. It may be called at any time, and for any reason: it compares what is with what should be, and
// does not know which event has led to the call.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read from the caches. Until they show what the last sync wrote Get returns an error: a sync that acts
	// on an old cache repeats its writes.
	setting, exists, err := c.settings.Get(key)
	if err != nil || !exists {
		// The garbage collector deletes the ConfigMap of a Setting that is gone.
		return 0, err
	}
	current := c.configMaps.Get(key.Namespace, key.Name)

	// 2. Decide what the ConfigMap should be, from values alone: setting.go has no client and no clock.
	desired := newConfigMap(setting)

	// 3. Act: make at most one write to the ConfigMap.
	result := current
	switch {
	case validateSpec(setting) != "":
		// The controller cannot act upon this spec. The ConfigMap stays as it is, and the status says what is wrong.
	case current == nil:
		result, err = c.configMaps.Create(ctx, setting, desired)
	default:
		// This writes the fields that differ, and nothing if none does or the ConfigMap is another owner's.
		result, err = c.configMaps.Patch(ctx, setting, current, desired)
	}
	if err != nil && !controller.IsRefusal(err) {
		// The Worker retries after a failure. A refusal lasts until the object, a policy or a quota changes, so
		// the status reports it.
		return 0, err
	}

	// 4. Report: write the status if it differs, and record an event if there is news.
	now, writes := c.Clock.Now(), c.configMaps.Report(setting, result, desired)
	status := newStatus(setting, findings{result, err, writes}, metav1.NewTime(now))
	was, ready := controller.GetReady(setting.Status.Conditions), controller.GetReady(status.Conditions)
	// A report of progress may wait. That a Setting is no longer Ready, although its spec did not change, may not.
	isProgress := ready.Reason == v1alpha1.ReasonConfigMapProgressing && !controller.LostReady(was, ready, setting.Generation)
	event := controller.ReadyEvent(settingKind, was, ready,
		v1alpha1.ReasonConfigMapNotOwned, v1alpha1.ReasonConfigMapRejected, v1alpha1.ReasonConfigMapContested, v1alpha1.ReasonInvalidSpec)
	delayed, statusErr := c.settings.UpdateStatus(ctx, setting, &status, isProgress, ready, event)
	return controller.Earliest(now, delayed, writes.Next), errors.Join(err, statusErr)
}

// NewDescriptor returns the descriptor of the controller of Settings.
func NewDescriptor() app.ControllerDescriptor {
	resource := schema.GroupVersion(v1alpha1.GroupVersion).WithResource("settings")
	return app.ControllerDescriptor{
		Name: "setting", Kind: settingKind, Resource: resource, CRDManifest: "artifacts/examples/setting-crd.yaml",
		// The caches keep what the functions of Trim return. One that kept whole objects could be filled by a user.
		Informers: []app.Informer{
			{Resource: resource, Trim: app.TypedTrim(TrimSetting)},
			{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Trim: app.TypedTrim(TrimConfigMap)},
		},
		New: func(_ context.Context, in *app.ControllerContext) error {
			_, err := New(in)
			return err
		},
	}
}
