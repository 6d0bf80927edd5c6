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

package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The prefixes under which the API server stores the objects.
const (
	deploymentKeys = "/registry/deployments/"
	fooKeys        = "/registry/samplecontroller.k8s.io/foos/"
)

// etcdClient calls etcd through its JSON gateway, which avoids a dependency on etcd's Go
// client. A watch of the API server could miss versions while the API server is down.
type etcdClient struct {
	url string
}

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

// etcdWatchResponse is one message of a watch.
type etcdWatchResponse struct {
	Result struct {
		Canceled     bool        `json:"canceled"`
		CancelReason string      `json:"cancel_reason"`
		Compacted    string      `json:"compact_revision"`
		Events       []etcdEvent `json:"events"`
	} `json:"result"`
}

func (c *etcdClient) post(ctx context.Context, path string, question any) (*http.Response, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
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

// revision returns the current revision, an error while etcd does not work.
func (c *etcdClient) revision(ctx context.Context) (int64, error) {
	response, err := c.post(ctx, "/v3/kv/range", map[string]any{"key": []byte(deploymentKeys), "count_only": true})
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

// compact discards versions before the revision.
func (c *etcdClient) compact(ctx context.Context, revision int64) error {
	response, err := c.post(ctx, "/v3/kv/compaction", map[string]any{"revision": strconv.FormatInt(revision, 10), "physical": true})
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// watchPrefix calls each for every change of a key with the prefix from that revision on,
// in order. It returns after the first key that ends with last.
func (c *etcdClient) watchPrefix(ctx context.Context, prefix string, from int64, last string, each func(etcdEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := []byte(prefix)
	end[len(end)-1]++
	response, err := c.post(ctx, "/v3/watch", map[string]any{"create_request": map[string]any{
		"key": []byte(prefix), "range_end": end, "start_revision": strconv.FormatInt(from, 10), "prev_kv": true,
	}})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answers := json.NewDecoder(response.Body)
	for {
		var answer etcdWatchResponse
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

// appendFromEtcd appends the versions of Foos and Deployments in the namespace from that
// revision on, up to the Foo with the name last, and returns the revision of that Foo.
// The test creates a Deployment of the same name after it, which ends the second watch.
func (h *history) appendFromEtcd(ctx context.Context, e *etcdClient, namespace string, from int64, last string) (upTo int64, err error) {
	foos, upTo, err := readVersions(ctx, e, fooKeys, namespace, from, last, func(value []byte) (*v1alpha1.Foo, error) {
		foo := &v1alpha1.Foo{}
		return foo, json.Unmarshal(value, foo)
	})
	if err != nil {
		return 0, err
	}
	deployments, _, err := readVersions(ctx, e, deploymentKeys, namespace, from, last, func(value []byte) (*appsv1.Deployment, error) {
		deployment := &appsv1.Deployment{}
		_, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, deployment)
		return deployment, err
	})
	h.foos = append(h.foos, foos...)
	h.deployments = append(h.deployments, slices.DeleteFunc(deployments, func(v version[*appsv1.Deployment]) bool { return v.revision > upTo })...)
	return upTo, err
}

// readVersions returns the versions of the objects in the namespace from that revision
// on, and the revision of the last event. The version of a deleted object is its last
// state.
func readVersions[T metav1.Object](ctx context.Context, e *etcdClient, prefix, namespace string, from int64, last string, decode func([]byte) (T, error)) (versions []version[T], upTo int64, err error) {
	err = e.watchPrefix(ctx, prefix, from, "/"+last, func(event etcdEvent) error {
		upTo = event.KV.ModRevision
		if !strings.HasPrefix(string(event.KV.Key), prefix+namespace+"/") {
			return nil
		}
		value, deleted := event.KV.Value, event.Type == "DELETE"
		if deleted {
			value = event.Previous.Value
		}
		object, err := decode(value)
		if err != nil {
			return err
		}
		object.SetResourceVersion(strconv.FormatInt(upTo, 10))
		versions = append(versions, version[T]{object: object, revision: upTo, deleted: deleted})
		return nil
	})
	return versions, upTo, err
}

// version is one version of an object. Revisions order the versions of all objects: the
// cluster has one etcd, and resource versions are its revisions.
type version[T metav1.Object] struct {
	object   T
	revision int64
	// deleted marks the deletion; object is then the last state.
	deleted bool
}

// history has every version of the Foos and Deployments of a namespace, in order.
type history struct {
	foos        []version[*v1alpha1.Foo]
	deployments []version[*appsv1.Deployment]
}

// existing returns the objects that exist now, by name.
func existing[T metav1.Object](versions []version[T]) map[string]T {
	return existingBefore(versions, math.MaxInt64)
}

// existingBefore returns the objects that existed just before that revision, by name.
func existingBefore[T metav1.Object](versions []version[T], revision int64) map[string]T {
	objects := map[string]T{}
	for _, v := range versions {
		switch {
		case v.revision >= revision:
			return objects
		case v.deleted:
			delete(objects, v.object.GetName())
		default:
			objects[v.object.GetName()] = v.object
		}
	}
	return objects
}

// supersededAt returns the revision of the next version, false if there is none.
func supersededAt[T metav1.Object](versions []version[T], index int) (int64, bool) {
	if v := nextVersion(versions, index); v != nil {
		return v.revision, true
	}
	return 0, false
}

// nextVersion returns the next version of the same object, nil if there is none.
func nextVersion[T metav1.Object](versions []version[T], index int) *version[T] {
	uid := versions[index].object.GetUID()
	for i := index + 1; i < len(versions); i++ {
		if versions[i].object.GetUID() == uid {
			return &versions[i]
		}
	}
	return nil
}
