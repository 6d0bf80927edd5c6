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

// Package server has what the HTTP servers of the process share, and its leader election.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

const (
	// readHeaderTimeout limits the TLS handshake as well. The clients are in the cluster.
	readHeaderTimeout = 5 * time.Second
	// idleTimeout is that of k8s.io/apiserver.
	idleTimeout = 90 * time.Second
	// maxHeader is what a bearer token with many claims needs, several times.
	maxHeader = 16 << 10
	// closeTimeout is how long a shutdown waits for requests in progress.
	closeTimeout = time.Second
)

// Server serves one handler at one address. Create one with Listen.
type Server struct {
	name     string
	listener net.Listener
	handler  http.Handler
	tls      *tls.Config
}

// Listen returns a server that listens at the address, such as ":8080", but does not
// answer before Serve. It has TLS unless tlsConfig is nil. The error names the flag with the
// address.
func Listen(ctx context.Context, name, flag, address string, handler http.Handler, tlsConfig *tls.Config) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w; give an address of this machine with a free port, or \"\" for none", flag, err)
	}
	return &Server{name: name, listener: listener, handler: handler, tls: tlsConfig}, nil
}

// Address returns the address, with the port, that the server listens at.
func (s *Server) Address() string {
	return s.listener.Addr().String()
}

// Serve answers requests until ctx ends. It returns an error only if it stops for another reason.
func (s *Server) Serve(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	server := &http.Server{
		Handler:           noteAnswers(s.handler),
		TLSConfig:         s.tls,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       connContext,
		// The defaults of net/http would allow a connection 250 requests and 1 MiB of unread bodies.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          8,
			MaxReceiveBufferPerStream:     64 << 10,
			MaxReceiveBufferPerConnection: 256 << 10,
			WriteByteTimeout:              readHeaderTimeout,
		},
		// A client that fails its TLS handshake is not an error of this process.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(logger.V(4)), slog.LevelInfo),
	}
	closed := make(chan struct{})
	cancelShutdown := context.AfterFunc(ctx, func() {
		defer close(closed)
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(closeCtx) != nil {
			// A request still runs, such as a profile of 30 s: cut it off.
			_ = server.Close()
		}
	})
	listener := &connections{Listener: s.listener, limit: maxConnections}
	logger.Info("Serving", "what", s.name, "address", s.Address(), "tls", s.tls != nil)
	var err error
	if s.tls != nil {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !cancelShutdown() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving %s on %s: %w", s.name, s.Address(), err)
}
