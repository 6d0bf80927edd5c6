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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// request is an entry of the API server's audit log. The tests count the controller's
// writes there, because a superfluous write shows neither in the controller's log nor in the
// objects.
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
}

// String returns the request without its response, such as "patch foos/status x".
func (r *request) String() string {
	return fmt.Sprintf("%s %s %s", r.Verb, r.resource(), r.ObjectRef.Name)
}

func (r *request) resource() string {
	if r.ObjectRef.Subresource == "" {
		return r.ObjectRef.Resource
	}
	return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
}

// isWrite reports whether the request is something else than a list or a watch.
func (r *request) isWrite() bool {
	return r.Verb != "list" && r.Verb != "watch"
}

// right returns the right that allows the request.
func (r *request) right() string {
	return rightOf(r.Verb, r.ObjectRef.APIGroup, r.resource())
}

func rightOf(verb, group, resource string) string {
	if group != "" {
		resource = group + "/" + resource
	}
	return verb + " " + resource
}

// auditLog is the part of the audit log that has been read so far.
type auditLog struct {
	mu       sync.Mutex
	offset   int64
	requests []*request
}

// read returns all requests so far, in order.
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
			// The API server is still writing a line without a newline.
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

// mark returns the number of requests in the audit log, which include all that the API
// server has answered before the call.
func (e *env) mark() int {
	e.Helper()
	// The audit log does not contain names that the API server generates.
	marker, err := shared.kube.CoreV1().ConfigMaps(e.namespace).Create(e.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: unique("mark")},
	}, metav1.CreateOptions{})
	e.must(err)
	index := -1
	e.eventually("the mark is in the audit log", func(context.Context) error {
		requests, err := shared.audit.read()
		if err != nil {
			return err
		}
		index = slices.IndexFunc(requests, func(r *request) bool {
			return r.ObjectRef.Namespace == e.namespace && r.ObjectRef.Name == marker.Name
		})
		if index < 0 {
			return fmt.Errorf("not among %d requests", len(requests))
		}
		return nil
	})
	return index + 1
}

// requests returns the controller's requests in the env's namespace since the mark, in
// order.
func (e *env) requests(since int) []*request {
	e.Helper()
	end := e.mark()
	all, err := shared.audit.read()
	e.must(err)
	var found []*request
	for _, r := range all[since:end] {
		if strings.HasPrefix(r.UserAgent, "sample-controller/") && r.ObjectRef.Namespace == e.namespace {
			found = append(found, r)
		}
	}
	return found
}

// writes returns the controller's writes since the mark, in order, accepted and refused.
func (e *env) writes(since int) []string {
	e.Helper()
	var writes []string
	for _, r := range e.requests(since) {
		if r.isWrite() {
			writes = append(writes, r.String())
		}
	}
	return writes
}

// noWrites fails the test if the controller has written since the mark to the object.
func (e *env) noWrites(since int, resource, name string) {
	e.Helper()
	for _, r := range e.requests(since) {
		if r.isWrite() && r.ObjectRef.Resource == resource && r.ObjectRef.Name == name {
			e.Errorf("the controller sent %q (answer %d)", r, r.ResponseStatus.Code)
		}
	}
}
