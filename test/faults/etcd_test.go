//go:build faults

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

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Where the API server keeps what the controller works with.
const (
	deploymentKeys = "/registry/deployments/"
	fooKeys        = "/registry/samplecontroller.k8s.io/foos/"
)

// etcd speaks with etcd through its JSON gateway, which leaves etcd's client out
// of this module. What etcd tells is complete, whatever became of API servers.
type etcd struct {
	url string
}

// etcdEvent is a change of a key.
type etcdEvent struct {
	Type     string   `json:"type"`
	KV       keyValue `json:"kv"`
	Previous keyValue `json:"prev_kv"`
}

type keyValue struct {
	Key         []byte `json:"key"`
	Value       []byte `json:"value"`
	ModRevision int64  `json:"mod_revision,string"`
}

// watchAnswer is what a watch tells at a time.
type watchAnswer struct {
	Result struct {
		Canceled     bool        `json:"canceled"`
		CancelReason string      `json:"cancel_reason"`
		Compacted    string      `json:"compact_revision"`
		Events       []etcdEvent `json:"events"`
	} `json:"result"`
}

func (e *etcd) post(ctx context.Context, path string, question any) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, bytes.NewReader(mustEncode(question)))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	return response, nil
}

// revision returns the present one. It is there when etcd works.
func (e *etcd) revision(ctx context.Context) (int64, error) {
	response, err := e.post(ctx, "/v3/kv/range", map[string]any{"key": []byte(deploymentKeys), "count_only": true})
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	err = json.NewDecoder(response.Body).Decode(&answer)
	return answer.Header.Revision, err
}

// compact forgets what was before the revision.
func (e *etcd) compact(ctx context.Context, revision int64) error {
	response, err := e.post(ctx, "/v3/kv/compaction", map[string]any{"revision": strconv.FormatInt(revision, 10), "physical": true})
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// changes calls each for every change below the prefix from that revision on, in
// order, until it has been called for the key that ends in last.
func (e *etcd) changes(ctx context.Context, prefix string, from int64, last string, each func(etcdEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := []byte(prefix)
	end[len(end)-1]++
	response, err := e.post(ctx, "/v3/watch", map[string]any{"create_request": map[string]any{
		"key": []byte(prefix), "range_end": end, "start_revision": strconv.FormatInt(from, 10), "prev_kv": true,
	}})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answers := json.NewDecoder(response.Body)
	for {
		var answer watchAnswer
		if err := answers.Decode(&answer); err != nil {
			return fmt.Errorf("watching %s: %w", prefix, err)
		}
		if answer.Result.Canceled {
			return fmt.Errorf("watching %s: %s (compacted: %s)", prefix, answer.Result.CancelReason, answer.Result.Compacted)
		}
		for _, event := range answer.Result.Events {
			if err := each(event); err != nil {
				return fmt.Errorf("%s: %w", event.KV.Key, err)
			}
			if strings.HasSuffix(string(event.KV.Key), last) {
				return nil
			}
		}
	}
}

// append adds what etcd knows of the namespace from that revision on, up to the
// Foo with the name that ends it all, and returns that one's revision. A
// Deployment of that name was made after it.
func (h *history) append(ctx context.Context, e *etcd, namespace string, from int64, last string) (upTo int64, err error) {
	err = e.changes(ctx, fooKeys, from, "/"+last, func(event etcdEvent) error {
		upTo = event.KV.ModRevision
		foo := &v1alpha1.Foo{}
		add, gone, err := stored(event, fooKeys+namespace, func(value []byte) error { return json.Unmarshal(value, foo) })
		if err == nil && add {
			foo.ResourceVersion = strconv.FormatInt(event.KV.ModRevision, 10)
			h.foos = append(h.foos, version[*v1alpha1.Foo]{object: foo, number: event.KV.ModRevision, gone: gone})
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	err = e.changes(ctx, deploymentKeys, from, "/"+last, func(event etcdEvent) error {
		if event.KV.ModRevision > upTo {
			return nil
		}
		deployment := &appsv1.Deployment{}
		add, gone, err := stored(event, deploymentKeys+namespace, func(value []byte) error {
			_, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, deployment)
			return err
		})
		if err == nil && add {
			deployment.ResourceVersion = strconv.FormatInt(event.KV.ModRevision, 10)
			h.deployments = append(h.deployments, version[*appsv1.Deployment]{object: deployment, number: event.KV.ModRevision, gone: gone})
		}
		return err
	})
	return upTo, err
}

// stored decodes what an event is about, if that is in the directory. Of what is
// gone etcd tells how it was before.
func stored(event etcdEvent, directory string, decode func([]byte) error) (ours, gone bool, err error) {
	if !strings.HasPrefix(string(event.KV.Key), directory+"/") {
		return false, false, nil
	}
	value := event.KV.Value
	if event.Type == "DELETE" {
		gone, value = true, event.Previous.Value
	}
	return true, gone, decode(value)
}
