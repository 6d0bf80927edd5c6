//go:build e2e

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
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hostile has clients that hold connections to the webhooks, while Foos are created. None may fail, nor a probe;
// of the requests on new connections one in a hundred may. HOSTILE=full has more clients and requests (make hostile).
func (w *webhookEnv) hostile(t *testing.T) {
	clients, requests := 200, int64(250)
	if os.Getenv("HOSTILE") == "full" {
		clients, requests = 1000, 3000
	}
	ignored := ignoredWebhookFailures(t)
	ctx, cancel := context.WithCancel(t.Context())
	var attacking sync.WaitGroup
	var connected atomic.Int64
	for i := range clients {
		attacking.Go(func() {
			// A client that reconnects at once would measure the machine's rate of TLS handshakes.
			for wait := time.NewTicker(5 * time.Second); ctx.Err() == nil; <-wait.C {
				w.attack(ctx, i, &connected)
			}
		})
	}
	others, load := w.startOthers(t), startWebhookLoad(t, w.namespace)
	eventually(t, "all hostile clients have connected, and Foos are created", func(context.Context) error {
		if n, answered := connected.Load(), load.answered.Load(); n < int64(clients) || answered < requests {
			return fmt.Errorf("%d connections, %d requests", n, answered)
		}
		return nil
	})
	load.stop()
	others()
	cancel()
	attacking.Wait()
	if more := ignoredWebhookFailures(t) - ignored; more > 0 {
		t.Errorf("the API server admitted %d Foos without an answer of a webhook", more)
	}
	if peak := w.server.peakMiB(); peak > 256 {
		t.Errorf("the process took %d MiB, and its Pod's limit is 256 MiB", peak)
	}
}

// startOthers probes the process and asks for a conversion, each time on a new connection, until the
// function that it returns is called, which judges the answers.
func (w *webhookEnv) startOthers(t *testing.T) (stop func()) {
	t.Helper()
	const review = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"x","desiredAPIVersion":"samplecontroller.k8s.io/v1beta1",` +
		`"objects":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","spec":{"deploymentName":"x"}}]}}`
	// As the kubelet by our Deployment, and the API server by our configurations.
	probe := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ready := "http://" + w.server.awaitServing("health") + "/readyz"
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	var asked, failed, probed, unready atomic.Int64
	every := func(period time.Duration, all, failures *atomic.Int64, ask func() (*http.Response, error)) {
		asking.Go(func() {
			for ticker := time.NewTicker(period); ctx.Err() == nil; <-ticker.C {
				asking.Go(func() {
					all.Add(1)
					response, err := ask()
					if err != nil || response.StatusCode != http.StatusOK || response.Body.Close() != nil {
						failures.Add(1)
					}
				})
			}
		})
	}
	every(time.Second/2, &probed, &unready, func() (*http.Response, error) { return probe.Get(ready) })
	every(time.Second/20, &asked, &failed, func() (*http.Response, error) {
		return client.Post("https://"+w.address+"/convert-foo", "application/json", strings.NewReader(review))
	})
	return func() {
		cancel()
		asking.Wait()
		t.Logf("%d of %d requests on new connections and %d of %d probes failed", failed.Load(), asked.Load(), unready.Load(), probed.Load())
		if failed.Load()*100 > asked.Load() || unready.Load() > 0 {
			t.Errorf("hostile clients keep others out")
		}
	}
}

// attacks are what hostile clients send over TLS: an announced body of which one byte arrives, a
// header that does not end, a large body that is no review, one whose objects are many numbers, and
// nothing.
func attacks() []string {
	review := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"x","objects":[1` + strings.Repeat(",1", 500_000) + "]}}"
	post := "POST /convert-foo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	return []string{
		post + "Content-Length: 16777216\r\n\r\n[",
		post + "X-Padding: " + strings.Repeat("x", 1<<20),
		post + "Content-Length: 1000000\r\n\r\n" + strings.Repeat("[", 1000000),
		fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", post, len(review), review),
		"",
	}
}

// attack makes a connection, and holds it until the webhooks close it.
func (w *webhookEnv) attack(ctx context.Context, i int, connected *atomic.Int64) {
	all := attacks()
	// Not the API server's address.
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	connection, err := (&tls.Dialer{NetDialer: dialer, Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", w.address)
	connected.Add(1)
	if err != nil {
		// The limit of connections.
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	defer func() { _ = connection.Close() }()
	if _, err := io.WriteString(connection, all[i%len(all)]); err == nil {
		_, _ = io.Copy(io.Discard, connection)
	}
}
