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

// Package trace records what controllers do, as it shows from outside: their requests, in proxies, and every version of
// the objects in their namespace. Rules judge the two together.
package trace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Target is what the path of a request names.
type Target struct {
	schema.GroupVersionResource

	Namespace, Name, Subresource string
}

// ParsePath returns false for paths that name no resource, such as discovery.
func ParsePath(path string) (Target, bool) {
	all, core := sets.NewString("api", "apis"), sets.NewString("api")
	resolver := request.RequestInfoFactory{APIPrefixes: all, GrouplessAPIPrefixes: core}
	info, err := resolver.NewRequestInfo(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}})
	if err != nil || !info.IsResourceRequest {
		return Target{}, false
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	return Target{resource, info.Namespace, info.Name, info.Subresource}, true
}

// Request is a request of the controller about one object.
type Request struct {
	Target

	Verb string
	// Fields are those that a patch sets, and Body is the object that a request creates or applies.
	Fields string
	Body   map[string]any
	// Precondition is the resource version that the object must have, or else its UID; "" for any.
	Precondition string
	// At is when it came. Code is the answer of the API server, 0 for none, and Fault what was injected.
	At    time.Time
	Code  int
	Fault string
	// Shown is the UID of the object that the process last got of this name.
	Shown string
	// Made and Revision are the name and the resource version in the answer, and Deletes the UID of the deleted object.
	Made, Revision, Deletes string
}

// ReadRequest returns the request and its body. A body that nothing here can read is the API server's to judge. A dry
// run is a read.
func ReadRequest(incoming *http.Request, to Target) (*Request, []byte) {
	body, err := io.ReadAll(incoming.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r := NewRequest(incoming.Method, incoming.Header.Get("Content-Type"), to, body)
	if incoming.URL.Query().Has("dryRun") {
		r.Verb = http.MethodGet
	}
	return r, body
}

// NewRequest returns a request with that body.
func NewRequest(verb, contentType string, to Target, body []byte) *Request {
	r := &Request{Target: to, Verb: verb}
	switch verb {
	case http.MethodPatch:
		var patch any
		if json.Unmarshal(body, &patch) != nil && yaml.Unmarshal(body, &patch) != nil {
			break
		}
		if object, ok := patch.(map[string]any); ok {
			u := unstructured.Unstructured{Object: object}
			r.Precondition = cmp.Or(u.GetResourceVersion(), string(u.GetUID()))
			if strings.Contains(contentType, "apply-patch") {
				r.Body = object
			}
		}
		r.Fields = strings.Join(fieldsOf(patch), ",")
	case http.MethodDelete:
		options := &metav1.DeleteOptions{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, options); err == nil {
			p := ptr.Deref(options.Preconditions, metav1.Preconditions{})
			r.Precondition = cmp.Or(ptr.Deref(p.ResourceVersion, ""), string(ptr.Deref(p.UID, "")))
		}
	case http.MethodPost, http.MethodPut:
		object := DecodeObject(body)
		if object == nil {
			break
		}
		r.Precondition = cmp.Or(object.GetResourceVersion(), string(object.GetUID()))
		if verb == http.MethodPost && to.Name == "" {
			r.Name, r.Body = object.GetName(), object.Object
		}
	}
	return r
}

// IsWrite reports whether the request is to change something.
func (r *Request) IsWrite() bool { return r.Verb != http.MethodGet }

// Applied reports whether the API server has carried out the write.
func (r *Request) Applied() bool { return r.IsWrite() && r.Code >= 200 && r.Code < 300 }

// IsLost reports whether that is unknown: there is no answer, or etcd may have got the write before that failed.
func (r *Request) IsLost() bool { return r.IsWrite() && (r.Code == 0 || r.Code >= 500) }

// Answered notes the answer of the API server. It returns the object in the answer, nil for none.
func (r *Request) Answered(response *Response) *unstructured.Unstructured {
	if response == nil {
		return nil
	}
	r.Code = response.Code
	object := DecodeObject(response.Body)
	if object == nil || !r.Applied() && r.Verb != http.MethodGet {
		return nil
	}
	if r.Verb == http.MethodDelete {
		// A Status has it in its details.
		inStatus, _, _ := unstructured.NestedString(object.Object, "details", "uid")
		r.Deletes = cmp.Or(string(object.GetUID()), inStatus)
		return nil
	}
	r.Made, r.Revision = object.GetName(), object.GetResourceVersion()
	return object
}

// Class identifies the request across runs, in which names have aliases.
func (r *Request) Class(alias func(resource, name string) string) string {
	words := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		words += "/" + r.Subresource
	}
	words += " " + alias(r.Resource, r.Name)
	if r.Fields != "" {
		words += " {" + r.Fields + "}"
	}
	return words
}

// DecodeObject decodes an object or a Status, in JSON or of a built-in kind. It returns nil if it cannot.
func DecodeObject(data []byte) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if object.UnmarshalJSON(data) == nil {
		return object
	}
	typed, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil
	}
	object.Object = fields
	object.SetGroupVersionKind(*gvk)
	return object
}

var identity = regexp.MustCompile("^/(kind|apiVersion|metadata/(name|namespace|resourceVersion|uid))$")

// fieldsOf returns the fields that a patch sets, without preconditions and identity.
func fieldsOf(patch any) []string {
	found := map[string]any{}
	if operations, ok := patch.([]any); ok {
		for _, operation := range operations {
			if o, ok := operation.(map[string]any); ok && o["op"] != "test" {
				found[fmt.Sprint(o["path"])] = nil
			}
		}
	} else {
		found = Flatten(patch)
	}
	maps.DeleteFunc(found, func(path string, _ any) bool { return identity.MatchString(path) })
	return slices.Sorted(maps.Keys(found))
}

// Flatten returns the scalars in a value by JSON pointer. An empty map or list counts as a scalar.
func Flatten(value any) map[string]any {
	leaves := map[string]any{}
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var walk func(string, any)
	walk = func(path string, value any) {
		fields, _ := value.(map[string]any)
		elements, _ := value.([]any)
		for key, field := range fields {
			walk(path+"/"+escape.Replace(key), field)
		}
		for i, element := range elements {
			walk(path+"/"+strconv.Itoa(i), element)
		}
		if len(fields)+len(elements) == 0 {
			leaves[path] = value
		}
	}
	walk("", value)
	return leaves
}

// Now returns the time.
func Now() time.Time { return clock.RealClock{}.Now() }

// Poll waits until check returns nil, and returns its last error if it never does.
func Poll(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// ReadObjects reads the objects in a YAML file.
func ReadObjects(file string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var document runtime.RawExtension
		if err = decoder.Decode(&document); errors.Is(err, io.EOF) {
			return objects, nil
		}
		if object := new(unstructured.Unstructured); err == nil && len(document.Raw) > 0 {
			// This keeps integers apart from other numbers.
			err, objects = object.UnmarshalJSON(document.Raw), append(objects, object)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
}

// Upstream is the API server behind a proxy.
type Upstream struct {
	URL       *url.URL
	Transport http.RoundTripper
}

// NewServer returns a server of a proxy, to be started.
func NewServer(proxy http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(proxy)
	server.EnableHTTP2 = true
	// It would report each connection of a killed client.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	return server
}

// WriteKubeconfig writes the kubeconfig of a controller, whose only cluster is the proxy.
func WriteKubeconfig(file string, proxy *httptest.Server, token, namespace string) error {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	return os.WriteFile(file, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: proxy\n"+
		"clusters: [{name: proxy, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"contexts: [{name: proxy, context: {cluster: proxy, user: controller, namespace: %s}}]\n"+
		"users: [{name: controller, user: {token: %q}}]\n",
		proxy.URL, base64.StdEncoding.EncodeToString(ca), namespace, token), 0o600)
}

// Close stops the server, also if clients wait for it.
func Close(server *httptest.Server) {
	server.CloseClientConnections()
	server.Close()
}

// Response is a complete response of the API server, nil for none.
type Response struct {
	Code   int
	Header http.Header
	Body   []byte
}

// Write sends the response to a client, or breaks its connection.
func (r *Response) Write(w http.ResponseWriter) {
	if r == nil {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), r.Header)
	w.Header().Del("Content-Length")
	w.WriteHeader(r.Code)
	// The client may be gone.
	_, _ = w.Write(r.Body)
}

// Forward sends the request to the API server. It does not cancel it when the client dies: the API server may have
// applied it, and the run must know.
func (u *Upstream) Forward(incoming *http.Request, body []byte) *Response {
	out := u.address(incoming.Clone(context.WithoutCancel(incoming.Context())))
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if response, err := u.Transport.RoundTrip(out); err == nil {
		defer response.Body.Close()
		if body, err = io.ReadAll(response.Body); err == nil {
			return &Response{response.StatusCode, response.Header, body}
		}
	}
	return nil
}

// address addresses the request. Without Accept-Encoding the transport asks for gzip and also decompresses.
func (u *Upstream) address(out *http.Request) *http.Request {
	out.RequestURI, out.Host = "", ""
	out.URL.Scheme, out.URL.Host = u.URL.Scheme, u.URL.Host
	out.Header.Del("Accept-Encoding")
	return out
}

// AsJSON makes the client accept JSON in place of what cannot be read here. The parameters as, g and v stay.
func AsJSON(header http.Header) {
	unreadable := regexp.MustCompile("application/(vnd.kubernetes.protobuf|cbor)")
	header.Set("Accept", unreadable.ReplaceAllString(header.Get("Accept"), "application/json"))
}

// Event is a watch event on the wire.
type Event struct {
	Type       watch.EventType `json:"type"`
	Object     json.RawMessage `json:"object"`
	ReceivedAt time.Time       `json:"-"`
}

// Watch forwards a watch in JSON. It calls opened with the code of the answer, and each with the events in their order,
// until that returns false. Events are received while earlier ones are held.
func (u *Upstream) Watch(w http.ResponseWriter, incoming *http.Request, opened func(code int), each func(*Event) bool) {
	out := u.address(incoming.Clone(incoming.Context()))
	AsJSON(out.Header)
	response, err := u.Transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	opened(response.StatusCode)
	if response.StatusCode != http.StatusOK {
		// The client may be gone.
		_, _ = io.Copy(w, response.Body)
		return
	}
	Send(w, nil)
	events := make(chan Event, 1000)
	go func(from *json.Decoder) {
		defer close(events)
		for err == nil {
			var e Event
			if err = from.Decode(&e); err == nil {
				e.ReceivedAt = Now()
				select {
				case events <- e:
				case <-incoming.Context().Done():
					return
				}
			}
		}
	}(json.NewDecoder(response.Body))
	for e := range events {
		if !each(&e) {
			return
		}
	}
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler)
	}
}

// Send sends data of a watch to the client, which may be gone.
func Send(w http.ResponseWriter, data []byte) {
	_, _ = w.Write(data)
	_ = http.NewResponseController(w).Flush()
}

// Respond answers in place of the API server.
func Respond(w http.ResponseWriter, failure *apierrors.StatusError) {
	header := http.Header{"Content-Type": {"application/json"}}
	if seconds, ok := apierrors.SuggestsClientDelay(failure); ok {
		header.Set("Retry-After", strconv.Itoa(seconds))
	}
	(&Response{int(failure.ErrStatus.Code), header, EncodeStatus(failure)}).Write(w)
}

// EncodeStatus encodes the Status of a failure.
func EncodeStatus(failure *apierrors.StatusError) []byte {
	status := failure.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	return MustEncode(status)
}

// MustEncode encodes a value that can be encoded.
func MustEncode(value any) []byte {
	data, err := json.Marshal(value)
	utilruntime.Must(err)
	return data
}

// Pause is for delays that are part of a fault, never for waiting.
func Pause(ctx context.Context, duration time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	<-ctx.Done()
}
