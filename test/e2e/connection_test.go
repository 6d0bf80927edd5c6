//go:build e2e

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

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCutConnection closes the controller's connections to the API server.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	proxy := startTCPProxy(t)
	e := newEnv(t)
	e.home, e.arguments = shared.home, "-kubeconfig=$HOME/.kube/config -master="+proxy.address()
	e.startController("")
	e.create("before")
	e.awaitReady("before")

	t.Run("the controller resumes a closed watch without a new list", func(t *testing.T) {
		mark := e.mark()
		if proxy.cut() == 0 {
			t.Fatal("there was no connection")
		}
		e.create("after")
		e.awaitReady("after")
		e.awaitResumedWatch(mark, "foos")
		e.awaitResumedWatch(mark, "deployments")
	})
	t.Run("after an outage the controller catches up", func(t *testing.T) {
		plug := proxy.unplug()
		e.create("during-outage")
		e.update("before", replicas(2))
		e.must(e.foos().Delete(t.Context(), "after", metav1.DeleteOptions{}))
		consistently(t, "the controller runs during the outage", 3*time.Second, func() error {
			if !e.controller.running() {
				return fmt.Errorf("it exited:\n%s", e.controller.tail())
			}
			return nil
		})
		plug()
		e.awaitReady("during-outage")
		if foo := e.awaitReady("before"); foo.Status.AvailableReplicas != 2 {
			t.Errorf("status %+v", foo.Status)
		}
		e.awaitGone("after")
	})
}

// awaitResumedWatch waits until the controller watches the resource again, and fails the test
// if the controller has listed the resource again.
func (e *env) awaitResumedWatch(since int, resource string) {
	e.Helper()
	e.eventually("the watch on "+resource+" is resumed", func(context.Context) error {
		resumed := false
		for _, r := range e.requests(since) {
			if r.ObjectRef.Resource != resource {
				continue
			}
			if r.Verb == "list" || strings.Contains(r.RequestURI, "sendInitialEvents=true") {
				e.Fatalf("the controller listed again: %s", r.RequestURI)
			}
			resumed = resumed || r.Verb == "watch" && regexp.MustCompile(`[?&]resourceVersion=[1-9]`).MatchString(r.RequestURI)
		}
		if !resumed {
			return fmt.Errorf("no watch with a resourceVersion among %v", e.requests(since))
		}
		return nil
	})
}
