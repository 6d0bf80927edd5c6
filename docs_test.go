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
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	foolisters "example.com/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/webhook"
)

const operations = "docs/operations.md"

var updateDocs = flag.Bool("update-docs", false, "Write what is derived into "+operations+" instead of comparing it.")

// TestOperationsDoc compares what docs/operations.md says of flags and metrics with
// the flags and metrics that there are. `make generate` writes it anew.
func TestOperationsDoc(t *testing.T) {
	data, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, table := range map[string]string{"flags": flagTable(), "metrics": metricTable(t)} {
		section := regexp.MustCompile(`(?s)(<!-- begin ` + name + ` -->\n).*(<!-- end ` + name + ` -->)`)
		if !section.MatchString(text) {
			t.Fatalf("%s has no section for the %s", operations, name)
		}
		text = section.ReplaceAllStringFunc(text, func(found string) string {
			parts := section.FindStringSubmatch(found)
			return parts[1] + table + parts[2]
		})
	}
	if *updateDocs {
		if err := os.WriteFile(operations, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	differ(t, operations+" is out of date, run 'make generate'", text, string(data))
}

// cell keeps a text from ending a table's cell.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
}

// flagTable returns all flags but klog's own, which are for those who know them.
func flagTable() string {
	o, flags := newOptions(), flag.NewFlagSet("", flag.ContinueOnError)
	klogs := o.addFlags(flags)
	var table strings.Builder
	table.WriteString("| flag | default | what it does |\n|---|---|---|\n")
	flags.VisitAll(func(f *flag.Flag) {
		if klogs[f.Name] {
			return
		}
		value := f.DefValue
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&table, "| `--%s` | %s | %s |\n", f.Name, value, cell(f.Usage))
	})
	return table.String()
}

// metricTable returns the metrics of our own.
func metricTable(t *testing.T) string {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	m := controller.NewMetrics(registry)
	// Those with labels exist once they were counted.
	m.Of(fooKind).Synced("success", 0)
	m.Of(fooKind).Wrote("deployments", "create")
	var counted []string
	for _, plural := range []string{"CronTabs", "Foos", "Memcacheds"} {
		controller.CountByReady(m, plural, listerOf(newFoo()).List, conditionsOf)
		counted = append(counted, strings.TrimSuffix(strings.ToLower(plural), "s"))
	}
	differ(t, "the kinds in metricTable, and --controllers", controllerNames(), counted)
	servedOnce(webhook.NewMetrics(registry))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		var labels []string
		for _, pair := range family.Metric[0].Label {
			labels = append(labels, "`"+pair.GetName()+"`")
		}
		help := strings.TrimPrefix(family.GetHelp(), "[ALPHA] ")
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |\n", family.GetName(), strings.ToLower(family.GetType().String()), strings.Join(labels, ", "), cell(help)))
	}
	slices.Sort(lines)
	return "| metric | type | labels | what it tells |\n|---|---|---|---|\n" + strings.Join(lines, "")
}

// servedOnce has a request of the webhooks counted.
func servedOnce(m *webhook.Metrics) {
	review := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{}}`
	request := httptest.NewRequest(http.MethodPost, webhook.ConvertPath, strings.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	webhook.NewHandler(webhook.Options{Metrics: m, Clock: clock.RealClock{}}).ServeHTTP(httptest.NewRecorder(), request)
}

// listerOf returns a cache that holds the Foos.
func listerOf(foos ...*v1alpha1.Foo) foolisters.FooLister {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, foo := range foos {
		if err := indexer.Add(foo); err != nil {
			panic(err)
		}
	}
	return foolisters.NewFooLister(indexer)
}
