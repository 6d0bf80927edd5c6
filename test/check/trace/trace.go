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
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// Version is one version of an object. Revisions order the versions of all objects of a cluster.
type Version struct {
	Resource string
	Object   *unstructured.Unstructured
	Revision int64
	Deleted  bool
	// At is when it was seen.
	At time.Time
}

// IsLive reports whether the object exists and nobody has deleted it.
func (v *Version) IsLive() bool { return !v.Deleted && v.Object.GetDeletionTimestamp() == nil }

// ByRevision orders versions of several resources.
func ByRevision(a, b Version) int { return cmp.Compare(a.Revision, b.Revision) }

// Latest returns the last version of each object, deleted ones included.
func Latest(versions []Version) map[types.UID]Version {
	last := map[types.UID]Version{}
	for _, v := range versions {
		last[v.Object.GetUID()] = v
	}
	return last
}

// History has every version of every recorded object in a namespace. Those of one resource are in order.
type History struct {
	mu         sync.Mutex
	versions   []Version
	lastChange time.Time
}

// NewHistory begins a history.
func NewHistory() *History { return &History{lastChange: Now()} }

// Add adds a version.
func (h *History) Add(resource string, object *unstructured.Unstructured, deleted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastChange = Now()
	// Etcd's revisions are numbers.
	revision, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	h.versions = append(h.versions, Version{resource, object, revision, deleted, h.lastChange})
}

// All returns the versions so far, and when the last one came.
func (h *History) All() ([]Version, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.versions), h.lastChange
}

// Await waits until the history has the version of the object or its deletion. Until then the former state would look
// like the final one.
func (h *History) Await(ctx context.Context, timeout time.Duration, object *unstructured.Unstructured, deletion bool) error {
	return Poll(ctx, timeout, func(context.Context) error {
		versions, _ := h.All()
		for i := range versions {
			v := &versions[i]
			if v.Object.GetUID() == object.GetUID() && (deletion && !v.IsLive() || !deletion && v.Object.GetResourceVersion() == object.GetResourceVersion()) {
				return nil
			}
		}
		return errors.New("the change is not seen")
	})
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
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var document runtime.RawExtension
		if err = decoder.Decode(&document); errors.Is(err, io.EOF) {
			return objects, nil
		}
		if object := new(unstructured.Unstructured); len(document.Raw) > 0 {
			// This keeps integers apart from other numbers.
			err, objects = errors.Join(err, object.UnmarshalJSON(document.Raw)), append(objects, object)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
}

// Process is one process of the controller, with its children.
type Process struct {
	*exec.Cmd

	// Done is closed when it has exited, and ExitedAt is when that was.
	Done     chan struct{}
	ExitedAt time.Time

	log string
}

// Start starts a command in a process group of its own. Its variables are beside those of this process that could not
// connect it to an API server past its proxy.
func Start(command *exec.Cmd) (*Process, error) { return start(command, func() {}) }

// StartRecorded starts a program whose output is in logs/NAME.log below the directory. As long as it runs its PID is in
// pids/NAME: if this process is killed, hack/lib.sh ends it.
func StartRecorded(dir, name string, variables []string, program string, arguments ...string) (*Process, error) {
	log, err := os.Create(filepath.Join(dir, "logs", name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	record := filepath.Join(dir, "pids", name)
	// The shell writes its PID before it becomes the program.
	shell := []string{"-c", `echo $$ >"$0" && exec "$@"`, record, program}
	command := exec.Command("bash", append(shell, arguments...)...)
	command.Env, command.Stdout, command.Stderr = variables, log, log
	p, err := start(command, func() { _ = os.Remove(record) })
	if err == nil {
		p.log = log.Name()
	}
	return p, err
}

// Output returns what a recorded process has printed so far.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func start(command *exec.Cmd, ended func()) (*Process, error) {
	p := &Process{Cmd: command, Done: make(chan struct{})}
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "KUBE") }), p.Env...)
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		// The state of the process says how it ended.
		_ = p.Wait()
		p.ExitedAt = Now()
		ended()
		close(p.Done)
	}()
	return p, nil
}

// Kill kills the process and its children, and returns once it has exited.
func (p *Process) Kill() {
	// It may have exited.
	_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	<-p.Done
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
	for name, values := range r.Header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(r.Code)
	// The client may be gone.
	_, _ = w.Write(r.Body)
}

// Forward sends the request to the API server. It does not cancel it when the client dies: the API server may have
// applied it, and the run must know.
func (u *Upstream) Forward(incoming *http.Request, body []byte) *Response {
	out := u.address(incoming.Clone(context.WithoutCancel(incoming.Context())))
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := u.Transport.RoundTrip(out)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil
	}
	return &Response{response.StatusCode, response.Header, data}
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
	const json = "application/json"
	as := strings.NewReplacer("application/vnd.kubernetes.protobuf", json, "application/cbor", json)
	header.Set("Accept", as.Replace(header.Get("Accept")))
}

// Event is a watch event on the wire.
type Event struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`

	ReceivedAt time.Time `json:"-"`
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
	if err != nil {
		panic(err)
	}
	return data
}

// Pause is for delays that are part of a fault, never for waiting.
func Pause(ctx context.Context, duration time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	<-ctx.Done()
}
