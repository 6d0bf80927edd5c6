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

package client

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// informerStopTimeout bounds the end of informers, which takes milliseconds.
const informerStopTimeout = 2 * time.Second

// AwaitInformers returns when wait does, or after 2 s. wait waits for informers whose context is cancelled to
// stop. While the API server delays an initial list that is streamed, client-go does not notice that for up to
// a minute (Reflector.watchList). Such an informer holds nothing that must be released before the exit.
func AwaitInformers(ctx context.Context, wait func()) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		wait()
	}()
	select {
	case <-stopped:
	case <-time.After(informerStopTimeout):
		klog.FromContext(ctx).Info("Stopped waiting for an informer whose initial list is delayed", "after", informerStopTimeout)
	}
}
