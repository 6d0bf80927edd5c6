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

package kinds

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
)

// Service is the external service of a kind: it answers GET, PUT and DELETE of an ID, which is the UID of an
// object.
type Service struct {
	url string
	mu  sync.Mutex
	// Items are encoded, by their IDs.
	Items map[string][]byte
}

// StartService starts the service of the kind, which ends with the context. It returns nil if the kind has none.
func (k *Data) StartService(ctx context.Context) *Service {
	if k.External == "" {
		return nil
	}
	s := &Service{Items: map[string][]byte{}}
	server := httptest.NewServer(s)
	context.AfterFunc(ctx, server.Close)
	s.url = server.URL
	return s
}

// Flags returns the flags that the controller of the kind needs for the service, which may be nil.
func (k *Data) Flags(s *Service) []string {
	if s == nil {
		return nil
	}
	return []string{"--" + k.External + "=" + s.url}
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		// The client is gone.
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := path.Base(r.URL.Path)
	item, there := s.Items[id]
	switch {
	case r.Method == http.MethodPut:
		s.Items[id] = body
	case !there:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(s.Items, id)
	default:
		// The client may be gone.
		_, _ = w.Write(item)
	}
}

// IDs returns the sorted IDs of the items.
func (s *Service) IDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.Items))
}
