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

package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
)

// TestAwaitInformers stops an informer of client-go, once while it watches and once while
// the API server delays its list.
func TestAwaitInformers(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want time.Duration
	}{
		"an informer that watches stops at once":              {},
		"an informer whose list is delayed is not waited for": {err: apierrors.NewTooManyRequests("storage is (re)initializing", 1), want: informerStopTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				informing, cancel := context.WithCancel(ctx)
				tries := make(chan struct{}, 100)
				informer := cache.NewSharedIndexInformer(&cache.ListWatch{
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						tries <- struct{}{}
						return watch.NewFake(), test.err
					},
				}, &corev1.ConfigMap{}, 0, nil)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					informer.RunWithContext(informing)
				}()
				<-tries
				for range 5 {
					if test.err != nil {
						<-tries
					}
				}
				synctest.Wait()
				cancel()
				began := time.Now()
				AwaitInformers(ctx, func() { <-ended })
				if took := time.Since(began); took != test.want {
					t.Errorf("it took %s, not %s", took, test.want)
				}
				// It stops in the end.
				<-ended
			})
		})
	}
}
