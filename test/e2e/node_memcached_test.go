//go:build e2e && node

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

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodeMemcached stores an item in each node that the Service of a Memcached names, and reads it.
func TestNodeMemcached(t *testing.T) {
	e := newEnv(t)
	e.apply("{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {name: items}, spec: {size: 2}}")
	e.kubectl("wait --for=condition=Ready --timeout=3m memcached/items")
	var addresses []string
	e.eventually("the Service has two endpoints", func(ctx context.Context) error {
		slices, err := shared.kube.DiscoveryV1().EndpointSlices(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=items"})
		if err != nil {
			return err
		}
		addresses = nil
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				addresses = append(addresses, net.JoinHostPort(endpoint.Addresses[0], fmt.Sprint(*slice.Ports[0].Port)))
			}
		}
		if len(addresses) != 2 {
			return fmt.Errorf("endpoints %q", addresses)
		}
		return nil
	})
	for _, address := range addresses {
		e.eventually(address+" answers", func(ctx context.Context) error { return storeItem(ctx, address) })
	}
}

// storeItem sets an item and gets it, and returns an error if it is not the same.
func storeItem(ctx context.Context, address string) error {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := connection.Write([]byte("set a 0 0 5\r\nhello\r\nget a\r\nquit\r\n")); err != nil {
		return err
	}
	var answer strings.Builder
	if _, err := bufio.NewReader(connection).WriteTo(&answer); err != nil {
		return err
	}
	if answer.String() != "STORED\r\nVALUE a 0 5\r\nhello\r\nEND\r\n" {
		return errors.New("it answered " + answer.String())
	}
	return nil
}
