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

package crontab

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

// TestAdvice follows the advice of each message literally. No finished run is started again.
func TestAdvice(t *testing.T) {
	tests := map[string]struct {
		cronTab *alphav1.CronTab
		// reason is that of Ready before.
		reason string
		follow func(ctx context.Context, t *testing.T, f *fixture)
	}{
		"If this clock is wrong, correct it; if that time is wrong, docs/crontab.md says how to change it": {
			cronTab: newCronTab("14:00:00"), reason: alphav1.ReasonClockBehind,
			follow: func(ctx context.Context, t *testing.T, f *fixture) {
				text, err := os.ReadFile("../../../docs/crontab.md")
				if err != nil {
					t.Fatal(err)
				}
				command := regexp.MustCompile(`kubectl patch crontab backup --subresource=status --type=merge -p '(.+)'\n`).FindSubmatch(text)
				if command == nil {
					t.Fatal("docs/crontab.md has no such command")
				}
				patch := strings.ReplaceAll(string(command[1]), "'$now'", time.Now().UTC().Format(time.RFC3339))
				if _, err := f.client.AlphaV1().CronTabs("ns").Patch(ctx, "backup", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
					t.Fatal(err)
				}
			}},
		"%q names a time zone; set spec.timeZone": {
			cronTab: newCronTab("12:00:00", schedulesAt("TZ=UTC 0 * * * *")), reason: alphav1.ReasonInvalidSchedule,
			follow: func(ctx context.Context, t *testing.T, f *fixture) {
				f.edit(ctx, t, "backup", func(cronTab *alphav1.CronTab) {
					cronTab.Generation++
					cronTab.Spec.Schedule, cronTab.Spec.TimeZone = "0 * * * *", ptr.To("UTC")
				})
			}},
	}
	differ(t, "messages with advice", slices.Sorted(maps.Keys(tests)), messagesWithAdvice(t))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, "12:30:30", []*alphav1.CronTab{test.cronTab}, nil)
				stop := f.start(ctx, t)
				get := func() *alphav1.CronTab {
					synctest.Wait()
					cronTab, err := f.client.AlphaV1().CronTabs("ns").Get(ctx, "backup", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return cronTab
				}
				differ(t, "reason before", test.reason, controller.GetReady(get().Status.Conditions).Reason)
				template := get().Spec.JobTemplate
				test.follow(ctx, t, f)
				time.Sleep(time.Until(moment("13:00:10")))
				differ(t, "status", "last=13:00:00 missed= next=14:00:00 active=1 True/Scheduled", summary(get()))
				differ(t, "Jobs", []string{jobName("backup", moment("13:00:00"))}, f.names(ctx, t))
				differ(t, "Pod template", template, get().Spec.JobTemplate)
				stop()
			})
		})
	}
}

// messagesWithAdvice returns the messages of this package that ask a user to do something.
func messagesWithAdvice(t *testing.T) []string {
	t.Helper()
	asks := regexp.MustCompile(`kubectl|docs/|\b([Cc]orrect|[Ss]et|[Uu]nset|[Rr]emove|[Dd]elete|[Cc]hange|[Ee]dit) (it|the|that|this|spec)`)
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING && asks.MatchString(literal.Value) {
				found = append(found, strings.Trim(literal.Value, "\"`"))
			}
			return true
		})
	}
	slices.Sort(found)
	return found
}
