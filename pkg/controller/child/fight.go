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
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/sample-controller/pkg/controller"
)

// A fight: another writer, such as a HorizontalPodAutoscaler that is set on the
// Deployment instead of its parent, undoes each repair. Two controllers could go on
// like that for ever, as fast as the API server lets them.

// restrain returns how long the Deployment is to be left alone because of a fight,
// and what the fight is about; 0 and "" without one.
func (k *Keeper[P]) restrain(ctx context.Context, parent P, name string, verdict Verdict) (time.Duration, string, error) {
	if verdict.Action != Mend && verdict.Action != None {
		return 0, "", nil
	}
	key := cache.MetaObjectToName(parent)
	pause, about, fighting := k.Gate.Fighting(key, parent.GetGeneration(), verdict.Action == Mend)
	if !fighting || about != "" || verdict.Action != Mend {
		return pause, about, nil
	}
	// The cache holds no managed fields, and they are wanted once a fight.
	live, err := k.Client.AppsV1().Deployments(parent.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, "", fmt.Errorf("reading Deployment %q: %w", name, err)
	}
	about = k.Kind.describeFight(live, verdict.Repair)
	k.Gate.FightAbout(key, about)
	return pause, about, nil
}

// describeFight says which fields are fought over, who changes them and what to
// do.
func (k Kind) describeFight(deployment *appsv1.Deployment, drift Repair) string {
	var fields []string
	for _, change := range drift.Changes {
		fields = append(fields, fmt.Sprintf("%s (by %s)", change.Field, otherManager(deployment, change.Path)))
	}
	return fmt.Sprintf("another writer keeps changing what this %s enforces on Deployment %q: %s; stop that writer, and scale or change the %s instead (a HorizontalPodAutoscaler belongs on the %s)",
		k.Kind, deployment.Name, strings.Join(fields, ", "), k.Kind, k.Kind)
}

// otherManager returns the name of the field manager that last set the field,
// and through which subresource. A writer that removed the field is not on
// record.
func otherManager(deployment *appsv1.Deployment, path fieldpath.Path) string {
	name, latest := "a writer that is not on record", time.Time{}
	for _, entry := range deployment.ManagedFields {
		if entry.Manager == controller.FieldManager {
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
