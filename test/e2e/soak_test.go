//go:build e2e && soak

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
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// soak is how long many Foos are left alone.
	soak         = 10 * time.Minute
	soakFoos     = 200
	soakRestarts = 3
)

// TestSoak is rule 15: many Foos without changes cause no writes, over resyncs and restarts. Run it with `make soak`.
func TestSoak(t *testing.T) {
	const flags = "--resync-period=1m"
	e := startEnv(t, flags)
	for i := range soakFoos {
		e.create(fmt.Sprintf("x-%03d", i))
	}
	e.eventually("all are ready, and all events are sent", func(ctx context.Context) error {
		list, err := shared.kube.CoreV1().Events(e.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Synced"})
		if err == nil && len(list.Items) < soakFoos {
			err = fmt.Errorf("%d events", len(list.Items))
		}
		return err
	})
	writes := func() []*request {
		return slices.DeleteFunc(slices.Clone(auditedRequests(t)), func(r *request) bool {
			return r.Verb == "list" || r.Verb == "watch" || r.ObjectRef.Namespace != e.namespace || !strings.HasPrefix(r.UserAgent, "sample-controller/")
		})
	}
	// A Deployment, a status and two events of each Foo.
	before := writes()
	if len(before) < 4*soakFoos {
		t.Fatalf("the audit log has %d writes for %d Foos", len(before), soakFoos)
	}
	for run := range soakRestarts + 1 {
		if run > 0 {
			e.controller.stop()
			e.startController(flags)
		}
		select {
		case <-time.After(soak / (soakRestarts + 1)):
		case <-t.Context().Done():
		}
	}
	if after := writes()[len(before):]; len(after) > 0 {
		t.Errorf("the controller wrote, though nothing had changed: %v", after)
	}
}
