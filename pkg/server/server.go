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

// Package server has what a controller's process shows to the outside, beside its
// work: health, metrics, and who leads.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

const (
	// readHeaderTimeout and idleTimeout keep slow or forgotten clients from holding
	// connections. They are those of the API server's own machinery.
	readHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second
	// closeTimeout bounds the answers in progress at the end.
	closeTimeout = time.Second
)

// Server serves one handler on one address. Create one with Listen.
type Server struct {
	name     string
	listener net.Listener
}

// Listen returns a server that has its address, such as ":8080", but does not
// answer yet. The error names the flag that the address came from.
func Listen(ctx context.Context, name, flag, address string) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w; give an address of this machine with a free port, or \"\" for none", flag, err)
	}
	return &Server{name: name, listener: listener}, nil
}

// Address returns where the server listens, the port included.
func (s *Server) Address() string {
	return s.listener.Addr().String()
}

// Close gives up the address of a server that never served.
func (s *Server) Close() {
	// It is closed already if it did serve.
	_ = s.listener.Close()
}

// Serve answers requests until ctx ends, with TLS if that is configured. It
// returns an error only if it ended for another reason.
func (s *Server) Serve(ctx context.Context, handler http.Handler, tlsConfig *tls.Config) error {
	logger := klog.FromContext(ctx)
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		// What a client does wrong in its handshake is no error of ours.
		ErrorLog: stdlog.New(logWriter{logger.V(4)}, "", 0),
	}
	ended := make(chan struct{})
	stopped := context.AfterFunc(ctx, func() {
		defer close(ended)
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(closeCtx) != nil {
			// Whoever still waits for an answer, a profile say, waits in vain.
			_ = server.Close()
		}
	})
	logger.Info("Serving", "what", s.name, "address", s.Address(), "tls", tlsConfig != nil)
	var err error
	if tlsConfig != nil {
		err = server.ServeTLS(s.listener, "", "")
	} else {
		err = server.Serve(s.listener)
	}
	if !stopped() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving %s on %s: %w", s.name, s.Address(), err)
}

// logWriter passes on what net/http logs.
type logWriter struct {
	logger klog.Logger
}

// Write implements io.Writer.
func (w logWriter) Write(line []byte) (int, error) {
	w.logger.Info("net/http says", "line", string(line))
	return len(line), nil
}
