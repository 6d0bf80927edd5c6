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

// TestCutConnection cuts the controller off the API server.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	s := newStage(t)
	s.home, s.arguments = shared.home, "-kubeconfig=$HOME/.kube/config -master="+w.address()
	s.startController("")
	s.create("before")
	s.ready("before")

	t.Run("a cut watch is resumed where it was, without a new list", func(t *testing.T) {
		mark := s.mark()
		if w.cut() == 0 {
			t.Fatal("there was no connection to cut")
		}
		s.create("after")
		s.ready("after")
		s.resumed(mark, "foos")
		s.resumed(mark, "deployments")
	})
	t.Run("after an outage the controller catches up", func(t *testing.T) {
		plug := w.unplug()
		s.create("meanwhile")
		s.update("before", replicas(2))
		s.must(s.foos().Delete(t.Context(), "after", metav1.DeleteOptions{}))
		throughout(t, "the controller outlives it", 3*time.Second, func() error {
			if !s.controller.running() {
				return fmt.Errorf("it ended:\n%s", s.controller.tail())
			}
			return nil
		})
		plug()
		s.ready("meanwhile")
		if foo := s.ready("before"); foo.Status.AvailableReplicas != 2 {
			t.Errorf("status %+v", foo.Status)
		}
		s.awaitGone("after")
	})
}

// resumed waits until the controller watches the resource again, and fails the
// test if it has listed it anew.
func (s *scene) resumed(since int, resource string) {
	s.Helper()
	s.eventually("the watch on "+resource+" is resumed", func(context.Context) error {
		resumed := false
		for _, r := range s.requests(since) {
			if r.ObjectRef.Resource != resource {
				continue
			}
			if r.Verb == "list" || strings.Contains(r.RequestURI, "sendInitialEvents=true") {
				s.Fatalf("it was listed anew: %s", r.RequestURI)
			}
			resumed = resumed || r.Verb == "watch" && regexp.MustCompile(`[?&]resourceVersion=[1-9]`).MatchString(r.RequestURI)
		}
		if !resumed {
			return fmt.Errorf("no watch with a resourceVersion among %v", s.requests(since))
		}
		return nil
	})
}
