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
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
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
				CronTabs: c.Informers.Alpha().V1().CronTabs(), Jobs: c.KubeInformers.Batch().V1().Jobs(), Options: c.Options,
			})
			return err
		},
	}
}

// RegisterMetrics registers the metrics of this controller, once, and returns the histogram of
// the skew. Its name and buckets are those of the CronJob controller's, with this kind's name.
// The CronTabs of the store that are late are counted.
func RegisterMetrics(registered *controller.Metrics, cronTabs cache.Store) *metrics.Histogram {
	const help = "Number of CronTabs in this process's cache whose " + alphav1.CronTabLate + " condition is True. Every replica reports all."
	registered.CountStored("crontabs_"+strings.ToLower(alphav1.CronTabLate), help, nil, cronTabs, func(objects []any, found func(float64, ...string)) {
		late := 0.0
		for _, object := range objects {
			if meta.IsStatusConditionTrue(object.(controller.Conditioned).GetConditions(), alphav1.CronTabLate) {
				late++
			}
		}
		found(late)
	})
	return controller.Shared(registered, "crontabs_skew", func(registry controller.MetricsRegistry) *metrics.Histogram {
		skew := metrics.NewHistogram(&metrics.HistogramOpts{
			Subsystem: "crontab_controller", Name: "job_creation_skew_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time between when a run of a CronTab is to be started, and when its Job is created.",
			Buckets: metrics.ExponentialBuckets(1, 2, 10),
		})
		registry.MustRegister(skew)
		return skew
	})
}
