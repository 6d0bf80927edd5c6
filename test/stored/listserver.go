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

package stored

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	kubescheme "k8s.io/client-go/kubernetes/scheme"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	ownscheme "example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
)

// ListServer is an API server that streams Foos and Deployments to clients that list by
// watching (sendInitialEvents). It fails the test at any other request.
type ListServer struct {
	T testing.TB
	// Cancel ends the test's waiting for caches that are never filled.
	Cancel      context.CancelFunc
	Foos        iter.Seq[*v1alpha1.Foo]
	Deployments iter.Seq[*appsv1.Deployment]
	// JSONFoos and ProtobufDeployments count the streams by resource and content type.
	JSONFoos, ProtobufDeployments atomic.Int32
}

// ServeHTTP implements http.Handler.
func (s *ListServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if r.Method != http.MethodGet || query.Get("watch") == "" || query.Get("sendInitialEvents") != "true" {
		s.T.Errorf("the API server received a request that is no list by watching: %s %s", r.Method, r.URL)
		http.Error(w, "not implemented", http.StatusNotImplemented)
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/foos"):
		s.JSONFoos.Add(1)
		stream := newStream(s.T, w, ownscheme.Codecs, runtime.ContentTypeJSON)
		for foo := range s.Foos {
			stream.send(watch.Added, foo)
		}
		stream.send(watch.Bookmark, &v1alpha1.Foo{TypeMeta: typeOfFoo, ObjectMeta: endOfList()})
	case strings.HasSuffix(r.URL.Path, "/deployments") && strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf):
		s.ProtobufDeployments.Add(1)
		stream := newStream(s.T, w, kubescheme.Codecs, runtime.ContentTypeProtobuf)
		for deployment := range s.Deployments {
			stream.send(watch.Added, deployment)
		}
		stream.send(watch.Bookmark, &appsv1.Deployment{TypeMeta: typeOfDeployment, ObjectMeta: endOfList()})
	default:
		s.T.Errorf("ListServer has no stream for %s, accepting %s", r.URL, r.Header.Get("Accept"))
		s.Cancel()
	}
	<-r.Context().Done()
}

func endOfList() metav1.ObjectMeta {
	return metav1.ObjectMeta{ResourceVersion: "3000000", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
}

// stream is the response to a watch request.
type stream struct {
	t       testing.TB
	w       http.ResponseWriter
	objects runtime.Encoder
	frames  runtime.Encoder
	framer  runtime.Framer
}

func newStream(t testing.TB, w http.ResponseWriter, codecs serializer.CodecFactory, contentType string) *stream {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), contentType)
	if !ok {
		t.Fatalf("no serializer of %s", contentType)
	}
	w.Header().Set("Content-Type", contentType)
	return &stream{t: t, w: w, objects: info.Serializer, frames: info.StreamSerializer.Serializer, framer: info.StreamSerializer.Framer}
}

// send sends an event. The bookmark is the last one and flushes the response.
func (s *stream) send(event watch.EventType, object runtime.Object) {
	raw, err := runtime.Encode(s.objects, object)
	if err == nil {
		err = s.frames.Encode(&metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: raw}}, s.framer.NewFrameWriter(s.w))
	}
	if err != nil {
		s.t.Errorf("sending an event: %v", err)
	}
	if event == watch.Bookmark {
		s.w.(http.Flusher).Flush()
	}
}
