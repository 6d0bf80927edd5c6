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

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/controller"
	fooscheme "example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
)

// crowd is an API server with many objects. It streams them to whoever lists by
// watching, and answers nothing else.
type crowd struct {
	t testing.TB
	// foos is the number of Foos, each of which has its Deployment, foreign that of
	// others' Deployments.
	foos, foreign int
	// streamed counts the streams, by the type of their content.
	protobuf, json atomic.Int32
}

// ServeHTTP implements http.Handler.
func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if r.Method != http.MethodGet || query.Get("watch") == "" || query.Get("sendInitialEvents") != "true" {
		c.t.Errorf("the API server was asked for something else than a list by watching: %s %s", r.Method, r.URL)
		http.Error(w, "not here", http.StatusNotImplemented)
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/foos"):
		c.json.Add(1)
		s := newStream(c.t, w, fooscheme.Codecs, apiruntime.ContentTypeJSON)
		for i := range c.foos {
			foo, _ := realReady(i)
			s.send(watch.Added, foo)
		}
		s.send(watch.Bookmark, &v1alpha1.Foo{TypeMeta: realFoo(0).TypeMeta, ObjectMeta: endOfList()})
	case strings.HasSuffix(r.URL.Path, "/deployments") && strings.HasPrefix(r.Header.Get("Accept"), apiruntime.ContentTypeProtobuf):
		c.protobuf.Add(1)
		s := newStream(c.t, w, kubescheme.Codecs, apiruntime.ContentTypeProtobuf)
		for i := range c.foos {
			_, deployment := realReady(i)
			s.send(watch.Added, deployment)
		}
		for i := range c.foreign {
			s.send(watch.Added, realForeign(i))
		}
		s.send(watch.Bookmark, &appsv1.Deployment{TypeMeta: realForeign(0).TypeMeta, ObjectMeta: endOfList()})
	default:
		c.t.Errorf("unexpected stream: %s, accepting %s", r.URL, r.Header.Get("Accept"))
	}
	<-r.Context().Done()
}

func endOfList() metav1.ObjectMeta {
	return metav1.ObjectMeta{ResourceVersion: "3000000", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
}

// stream is the answer to a watch.
type stream struct {
	t       testing.TB
	w       http.ResponseWriter
	objects apiruntime.Encoder
	frames  apiruntime.Encoder
	framer  apiruntime.Framer
}

func newStream(t testing.TB, w http.ResponseWriter, codecs serializer.CodecFactory, contentType string) *stream {
	info, ok := apiruntime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), contentType)
	if !ok {
		t.Fatalf("no serializer of %s", contentType)
	}
	w.Header().Set("Content-Type", contentType)
	return &stream{t: t, w: w, objects: info.Serializer, frames: info.StreamSerializer.Serializer, framer: info.StreamSerializer.Framer}
}

// send sends an event, the last one being a bookmark.
func (s *stream) send(event watch.EventType, object apiruntime.Object) {
	raw, err := apiruntime.Encode(s.objects, object)
	if err == nil {
		err = s.frames.Encode(&metav1.WatchEvent{Type: string(event), Object: apiruntime.RawExtension{Raw: raw}}, s.framer.NewFrameWriter(s.w))
	}
	if err != nil {
		s.t.Errorf("sending an event: %v", err)
	}
	if event == watch.Bookmark {
		s.w.(http.Flusher).Flush()
	}
}

// connect returns a controller with empty caches, and what has the program's own
// informers fill them from the crowd and returns when everything is at rest.
func (c *crowd) connect(ctx context.Context) (controller *Controller, fill func()) {
	c.t.Helper()
	server := httptest.NewServer(c)
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	options := &options{master: server.URL, qps: client.Unlimited}
	clients, err := newClients(options)
	if err != nil {
		c.t.Fatal(err)
	}
	informers, err := newInformers(clients, options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		cancel()
		informers.shutdown(context.Background())
		server.Close()
		cache.ResetInformerNamesForTesting()
	})
	controller = newQuiet(ctx, c.t, clients, informers.deployments, informers.foos)

	return controller, func() {
		if _, err := informers.start(ctx, nil, nil); err != nil {
			c.t.Fatal(err)
		}
		if err := controller.WaitForCaches(ctx); err != nil {
			c.t.Fatal(err)
		}
		for controller.Queue.Len() > 0 {
			key, _ := controller.Queue.Get()
			if again, err := controller.syncHandler(ctx, key); again != 0 || err != nil {
				c.t.Fatalf("%s is not at rest: to be synced after %v, %v", key, again, err)
			}
			controller.Queue.Forget(key)
			controller.Queue.Done(key)
		}
	}
}

// newQuiet returns a controller that says nothing, for measurements.
func newQuiet(ctx context.Context, t testing.TB, clients *clients, deployments appsinformers.TypedDeploymentInformer, foos fooinformers.TypedFooInformer) *Controller {
	t.Helper()
	c, err := NewController(klog.NewContext(ctx, logr.Discard()), ControllerOptions{
		KubeClient: clients.kube, FooClient: clients.foo, Deployments: deployments, Foos: foos,
		Options: controller.Options{
			Recorder: &record.FakeRecorder{}, Clock: clock.RealClock{}, Metrics: controller.NewMetrics(metrics.NewKubeRegistry()), Workers: 1,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Queue.ShutDown)
	return c
}

// TestCachesAreFilled is about the ways to the API server: lists are streams, and those
// of built-in types are in protobuf. A Foo at rest asks for nothing else.
func TestCachesAreFilled(t *testing.T) {
	few := &crowd{t: t, foos: 3, foreign: 2}
	c, fill := few.connect(t.Context())
	fill()
	if few.protobuf.Load() != 1 || few.json.Load() != 1 {
		t.Errorf("%d streams of Deployments in protobuf and %d of Foos, want one each", few.protobuf.Load(), few.json.Load())
	}
	if foos, deployments := len(c.fooIndex.List()), len(c.deploymentIndex.List()); foos != 3 || deployments != 5 {
		t.Errorf("the caches have %d Foos and %d Deployments, want 3 and 5", foos, deployments)
	}
}
