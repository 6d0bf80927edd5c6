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

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A fight: another writer, such as a HorizontalPodAutoscaler that is set on the
// Deployment instead of the Foo, undoes each repair. Two controllers could go on
// like that for ever, as fast as the API server lets them.

// restrain returns how long the Foo's Deployment is to be left alone because of a
// fight, and what the fight is about; 0 and "" without one.
func (c *Controller) restrain(ctx context.Context, foo *v1alpha1.Foo, verdict decision) (time.Duration, string, error) {
	if verdict.action != actRepair && verdict.action != actNone {
		return 0, "", nil
	}
	key := cache.MetaObjectToName(foo)
	pause, about, fighting := c.gate.fighting(key, foo.Generation, verdict.action == actRepair)
	if !fighting || about != "" || verdict.action != actRepair {
		return pause, about, nil
	}
	// The cache holds no managed fields, and they are wanted once a fight.
	live, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Get(ctx, foo.Spec.DeploymentName, metav1.GetOptions{})
	if err != nil {
		return 0, "", fmt.Errorf("reading Deployment %q: %w", foo.Spec.DeploymentName, err)
	}
	about = describeFight(live, verdict.repair)
	c.gate.fightAbout(key, about)
	return pause, about, nil
}

// describeFight says which fields are fought over, who changes them and what to
// do.
func describeFight(deployment *appsv1.Deployment, drift repair) string {
	var fields []string
	for _, change := range drift.changes {
		fields = append(fields, fmt.Sprintf("%s (by %s)", change.field, otherManager(deployment, change.field)))
	}
	return fmt.Sprintf("another writer keeps changing what this Foo enforces on Deployment %q: %s; stop that writer, and scale or change the Foo instead (a HorizontalPodAutoscaler belongs on the Foo)",
		deployment.Name, strings.Join(fields, ", "))
}

// otherManager returns the name of the field manager that last set the field,
// and through which subresource. A writer that removed the field is not on
// record.
func otherManager(deployment *appsv1.Deployment, field ownedField) string {
	path := pathOf(field)
	name, latest := "a writer that is not on record", time.Time{}
	for _, entry := range deployment.ManagedFields {
		if entry.Manager == controllerName {
			continue
		}
		var set fieldpath.Set
		if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil || !set.Has(path) {
			continue
		}
		if entry.Time != nil && entry.Time.Time.Before(latest) {
			continue
		}
		if entry.Time != nil {
			latest = entry.Time.Time
		}
		name = entry.Manager
		if entry.Subresource != "" {
			name += " through " + entry.Subresource
		}
	}
	return name
}

// pathOf returns where managed fields record the field.
func pathOf(field ownedField) fieldpath.Path {
	switch field {
	case fieldReplicas:
		return fieldpath.MakePathOrDie("spec", "replicas")
	case fieldImage:
		return fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", containerName), "image")
	case fieldLabel:
		return fieldpath.MakePathOrDie("metadata", "labels", managedByLabel)
	}
	return fieldpath.MakePathOrDie("metadata", "ownerReferences")
}
