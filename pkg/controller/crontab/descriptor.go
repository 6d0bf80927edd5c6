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
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/app"
)

const (
	// minIntervalFlag is the flag with the shortest interval of @every, to which shorter ones are raised.
	minIntervalFlag = "--crontab-min-interval"
	// defaultMinInterval bounds what one CronTab costs the cluster: a run is a Job and its
	// Pods, some ten writes.
	defaultMinInterval = 10 * time.Second
)

// NewDescriptor returns the descriptor of the controller of CronTabs.
func NewDescriptor() app.ControllerDescriptor {
	resource := schema.GroupVersion(alphav1.GroupVersion).WithResource("crontabs")
	minInterval := defaultMinInterval
	return app.ControllerDescriptor{
		Name: "crontab", Kind: cronTabGVK().Kind, Resource: resource, CRDManifest: "artifacts/examples/crontab-crd.yaml",
		Informers: []app.Informer{
			{Resource: resource, Trim: Trim},
			{Resource: batchv1.SchemeGroupVersion.WithResource("jobs"), Trim: Trim},
		},
		AddFlags: func(flags *flag.FlagSet) {
			flags.Var((*interval)(&minInterval), strings.TrimLeft(minIntervalFlag, "-"), "The shortest interval at which runs of a CronTab with @every are due. A shorter one in the schedule is raised to this, and the CronTab's condition says so.")
		},
		New: func(ctx context.Context, c *app.ControllerContext) error {
			_, err := New(ctx, Options{
				KubeClient: c.KubeClient, Client: c.Client,
				CronTabs: c.Informers.Alpha().V1().CronTabs(), Jobs: c.KubeInformers.Batch().V1().Jobs(),
				MinInterval: minInterval, Options: c.Options,
			})
			return err
		},
	}
}

// interval is the value of minIntervalFlag.
type interval time.Duration

// String implements flag.Value.
func (i *interval) String() string {
	return time.Duration(*i).String()
}

// Set implements flag.Value.
func (i *interval) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%w; give a duration such as %v", err, defaultMinInterval)
	}
	if parsed < time.Second {
		return errors.New("must be at least 1s, the shortest interval of a schedule")
	}
	*i = interval(parsed)
	return nil
}
