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
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// request is what the API server's audit log says of a request. The log is
// where the controller's writes are counted: neither the controller's own word
// nor the objects' present state tells of a write too many.
type request struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Annotations map[string]string `json:"annotations"`
	ObjectRef   struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	StageTimestamp metav1.MicroTime `json:"stageTimestamp"`
}

// at returns when the API server answered.
func (r *request) at() time.Time {
	return r.StageTimestamp.Time
}

// String gives the request without its outcome, such as "update foos/status x".
func (r *request) String() string {
	return fmt.Sprintf("%s %s %s", r.Verb, r.resource(), r.ObjectRef.Name)
}

func (r *request) resource() string {
	if r.ObjectRef.Subresource == "" {
		return r.ObjectRef.Resource
	}
	return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
}

// right returns what it takes to be allowed to make the request.
func (r *request) right() string {
	return rightOf(r.Verb, r.ObjectRef.APIGroup, r.resource())
}

func rightOf(verb, group, resource string) string {
	if group != "" {
		resource = group + "/" + resource
	}
	return verb + " " + resource
}

// auditLog is what has been read of the audit log so far.
type auditLog struct {
	mu       sync.Mutex
	offset   int64
	requests []*request
}

// read returns all requests that were answered so far, in order.
func (a *auditLog) read() ([]*request, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	file, err := os.Open(filepath.Join(shared.work, "cluster", "logs", "audit.log"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// A line without its end is still being written.
			return a.requests, nil
		}
		if err != nil {
			return nil, err
		}
		r := &request{}
		if err := json.Unmarshal(line, r); err != nil {
			return nil, fmt.Errorf("line %q of the audit log: %w", line, err)
		}
		a.requests = append(a.requests, r)
		a.offset += int64(len(line))
	}
}

// mark returns how many requests the audit log holds, all that were answered
// before among them.
func (s *scene) mark() int {
	s.Helper()
	// The audit log does not tell a name that the API server generates.
	marker, err := shared.kube.CoreV1().ConfigMaps(s.namespace).Create(s.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: unique("mark")},
	}, metav1.CreateOptions{})
	s.must(err)
	index := -1
	s.eventually("the mark is in the audit log", func(context.Context) error {
		requests, err := shared.audit.read()
		if err != nil {
			return err
		}
		index = slices.IndexFunc(requests, func(r *request) bool {
			return r.ObjectRef.Namespace == s.namespace && r.ObjectRef.Name == marker.Name
		})
		if index < 0 {
			return fmt.Errorf("it is not among %d requests", len(requests))
		}
		return nil
	})
	return index + 1
}

// requests returns what the controller asked of the API server in the scene's
// namespace since the mark, in order.
func (s *scene) requests(since int) []*request {
	s.Helper()
	end := s.mark()
	all, err := shared.audit.read()
	s.must(err)
	var found []*request
	for _, r := range all[since:end] {
		if strings.HasPrefix(r.UserAgent, "sample-controller/") && r.ObjectRef.Namespace == s.namespace {
			found = append(found, r)
		}
	}
	return found
}

// writes returns the controller's writes since the mark, in order, whether the
// API server accepted them or not.
func (s *scene) writes(since int) []string {
	s.Helper()
	var writes []string
	for _, r := range s.requests(since) {
		if r.Verb != "list" && r.Verb != "watch" {
			writes = append(writes, r.String())
		}
	}
	return writes
}

// accepted returns how often the API server has accepted that write since the
// mark. (One that comes too late is refused, since it carries a resourceVersion,
// and sent anew after another look.)
func (s *scene) accepted(since int, write string) int {
	s.Helper()
	return len(slices.DeleteFunc(s.requests(since), func(r *request) bool {
		return r.String() != write || r.ResponseStatus.Code >= http.StatusBadRequest
	}))
}

// noWrites fails the test if the controller has written since the mark to any
// object of that kind and name.
func (s *scene) noWrites(since int, resource, name string) {
	s.Helper()
	for _, r := range s.requests(since) {
		if r.Verb != "list" && r.Verb != "watch" && r.ObjectRef.Resource == resource && r.ObjectRef.Name == name {
			s.Errorf("the controller sent %q (answer %d)", r, r.ResponseStatus.Code)
		}
	}
}
