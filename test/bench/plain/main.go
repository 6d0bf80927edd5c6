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

// Command plain is the plain client with which test/bench compares the controller. It sends
// the requests that the controller sends for a Foo, and has none of its logic: it creates the
// Deployment of each Foo, patches it when the Foo's spec changes, copies its availability into
// the Foo's status once that is complete, and sends two events. It looks at nothing twice and
// repeats only a status that conflicts.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/sample-controller/pkg/client"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
)

// queueSize is the number of requests that can wait. A full queue would delay the watch.
const queueSize = 1 << 17

func main() {
	workers := flag.Int("workers", 8, "Number of concurrent requests.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *workers)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run works until the context ends or a request fails.
func run(ctx context.Context, workers int) error {
	config, err := client.NewConfig(client.Options{QPS: client.Unlimited})
	if err != nil {
		return err
	}
	p, err := newPlain(config)
	if err != nil {
		return err
	}
	if err := p.watch(ctx); err != nil {
		return err
	}
	failed := make(chan error)
	go p.sendEvents(ctx)
	for range workers {
		go p.work(ctx, failed)
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// newPlain returns a client with the encodings and the limit of events of the controller.
func newPlain(config *rest.Config) (*plain, error) {
	p := &plain{backlog: make(chan request, queueSize), changes: make(chan request, queueSize), events: make(chan happened, queueSize)}
	var err error
	if p.kube, err = kubernetes.NewForConfig(client.ForBuiltin(config)); err != nil {
		return nil, err
	}
	if p.foos, err = clientset.NewForConfig(config); err != nil {
		return nil, err
	}
	p.limited, err = kubernetes.NewForConfig(client.ForEvents(config))
	return p, err
}
