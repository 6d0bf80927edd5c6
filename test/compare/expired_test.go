//go:build compare

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

package compare

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
)

// TestExpired shows what the explorer's break of a watch stands for: a version that etcd has compacted is answered
// with 410, after which a client lists the present.
func TestExpired(t *testing.T) {
	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := s.createNamespace(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	created, err := s.send(t.Context(), userName, namespace, &sim.Request{Verb: "create", Resource: sim.Foos, Object: foo})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.compact(t.Context(), created.GetResourceVersion()); err != nil {
		t.Fatal(err)
	}
	options := metav1.ListOptions{ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if err := s.list(namespace, sim.Foos, options).Do(t.Context()).Error(); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list of a compacted version was answered with %v", err)
	}
	w, err := s.list(namespace, sim.Foos, metav1.ListOptions{Watch: true, ResourceVersion: "1"}).Watch(t.Context())
	if err == nil {
		defer w.Stop()
		e := <-w.ResultChan()
		if err = apierrors.FromObject(e.Object); e.Type != watch.Error {
			t.Errorf("a watch of a compacted version sent %s", e.Type)
		}
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch of a compacted version was answered with %v", err)
	}
	list, err := s.list(namespace, sim.Foos, metav1.ListOptions{}).Do(t.Context()).Get()
	if err != nil || len(list.(*v1alpha1.FooList).Items) != 1 {
		t.Errorf("the list afterwards is %+v, %v", list, err)
	}
}

// compact has etcd discard versions before that one, through its JSON gateway.
func (s *server) compact(ctx context.Context, version string) error {
	settings, err := os.ReadFile(filepath.Join(s.work, "cluster", ".kwok", "kwok.yaml"))
	if err != nil {
		return err
	}
	found := regexp.MustCompile(`etcdPort: (\d+)`).FindSubmatch(settings)
	if found == nil {
		return fmt.Errorf("no port of etcd in %s", settings)
	}
	body := bytes.NewReader(encode(map[string]any{"revision": version, "physical": true}))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%s/v3/kv/compaction", found[1]), body)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("compacting etcd: %s", response.Status)
	}
	return nil
}
