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
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

// TestNewFails: an informer has its index already.
func TestNewFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestbed(t, "12:00", nil)
		_, err := New(f.ctx, f.options)
		fixture.Differ(t, "a second one is refused", true, err != nil && strings.Contains(err.Error(), "adding an index"))
	})
}

// TestDueRunsGoFirst: what waits already, such as the statuses of runs that were started, does not
// delay a run that is due. After a failure it does: the backoff adds the key as well.
func TestDueRunsGoFirst(t *testing.T) {
	for want, prepare := range map[string]func(*testbed){
		"rule C20: [backup 0 1 2]": func(*testbed) {}, "rule C20: [0 1 2 backup]": failing("patch", "crontabs", errServer()),
	} {
		synctest.Test(t, func(t *testing.T) {
			cronTab := hourly("11:00")
			f := newTestbed(t, "11:40", cronTab)
			f.fill(cronTab, nil)
			prepare(f)
			// Errors are the Worker's.
			delay, _ := f.syncHandler(f.ctx, testKey("backup"))
			for i := range 3 {
				f.Worker.Queue.Add(testKey(fmt.Sprint(i)))
			}
			f.Worker.Queue.AddAfter(testKey("backup"), delay)
			fixture.Differ(t, "the order", want, fmt.Sprintf("rule C20: %v", fixture.Enqueued(f.Worker, delay)))
		})
	}
}

// TestMetrics: a run of a CronTab with Replace is three seconds late, one with splaySeconds is not.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestbed(t, "12:00:03", hourly("11:00", replace, recordedAt("11:30", run("11:00"))), run("11:00"))
		stop := f.start()
		f.create("splayed", "0 * * * *", splays(3600))
		until("13:59")
		stop()
		const skew = "crontab_controller_job_creation_skew_duration_seconds"
		fixture.Differ(t, "rule C24: the sum of "+skew, map[string]float64{"": 3}, f.metric(skew))
		fixture.Differ(t, "by Ready", map[string]float64{"True Scheduled": 2}, f.metric("sample_controller_crontabs"))
		fixture.Differ(t, "writes", map[string]float64{"crontab crontabs/status patch": 4, "crontab jobs create": 3, "crontab jobs delete": 2}, f.metric("sample_controller_writes_total"))
	})
}

// TestLate: a suspended CronTab becomes late when time passes, is not after a run that a user asks for,
// and then becomes late again.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestbed(t, "12:00", nil)
		f.jobsTake = 20 * time.Second
		stop := f.start()
		f.create("backup", "@hourly", suspended, succeedsWithin(600))
		for _, step := range []struct {
			clock string
			want  []string
			late  float64
		}{
			{"12:10", nil, 0}, {"12:10:02", []string{"Warning Late"}, 1}, {"12:11:22", []string{"Created", "JobCompleted"}, 0},
			{"12:21:20", nil, 0}, {"12:21:22", []string{"Warning Late"}, 1}, {"14:00", nil, 1},
		} {
			until(step.clock)
			if step.clock == "12:10:02" {
				f.edit("backup", askedAt("12:11"))
			}
			fixture.Differ(t, "rule C23: events until "+step.clock, step.want, f.recorded())
			fixture.Differ(t, "rule C23: CronTabs that are late at "+step.clock, map[string]float64{"": step.late}, f.metric("sample_controller_crontabs_late"))
		}
		fixture.Differ(t, "rule C22: the runs", "asked 12:11", f.runs())
		stop()
	})
}

// TestPauseAfterDryRun: asking about the next run does not delay that run.
func TestPauseAfterDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := newMemory("uid-backup")
		known.refused[false] = refusedJob{generation: 1, delay: 4 * time.Minute}
		d := decision{tryNext: true, nextStart: moment("12:00")}
		newTestbed(t, "11:58", nil).noteRefusal(snapshot{cronTab: hourly("11:00"), memory: known, now: moment("11:58")}, &d, 0)
		fixture.Differ(t, "rule C16: the end of the pause", moment("12:00"), known.refused[false].until)
	})
}

// TestManyUnrecorded: the controller remembers a thousand runs that no status records.
func TestManyUnrecorded(t *testing.T) {
	known := newMemory("uid-backup")
	last, asked := dueRun{}, dueRun{moment("11:00"), true}
	known.addStarted(asked)
	for second := range 1000 {
		fixture.Differ(t, "rule C15: runs that the controller remembers", second+1, len(known.started))
		last = dueRun{at: moment("12:00").Add(time.Duration(second) * time.Second)}
		known.addStarted(last)
	}
	fixture.Differ(t, "rule C15: of more it remembers the latest, and that by annotation", true, maps.Equal(known.started, map[dueRun]time.Time{asked: {}, last: {}}))
}

// TestNeverCreated: the API server refuses Jobs for a day, with another message each time.
func TestNeverCreated(t *testing.T) {
	for _, test := range []struct {
		sentence, schedule string
		cronTabs           int
		// edited is when a user changes the CronTabs, not at all if "".
		edited string
		// dryRuns says that dry runs are counted, and not creations.
		dryRuns     bool
		from, until string
		// atLeast and atMost are the bounds of the number of tries.
		atLeast, atMost int
	}{
		{"rule C16: delays as of a CronJob, up to 1000 s", "0 12 * * *", 1, "", false, "12:00", "22T11:59:59", 100, 105},
		{"rule C16: a change is tried at once, with new delays", "0 12 * * *", 1, "18:00", false, "18:00", "18:01", 10, 15},
		{"rule C16: what a dry run refuses, every 5 minutes", "0 12 1 1 *", 1, "", true, "12:00", "22T11:59:59", 288, 290},
		{"rule 25: a namespace of many refusals is slower", "0 12 * * *", 300, "", false, "12:00", "12:00:10", 480, 510},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTestbed(t, "11:00:30", nil)
				tries, message := 0, "exceeded quota: "
				if test.dryRuns {
					message = "denied"
				}
				f.prepend("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
					if isDryRun(action) == test.dryRuns && !time.Now().Before(moment(test.from)) {
						tries++
					}
					return true, nil, apierrors.NewForbidden(jobsGroup, "backup", errors.New(message+strings.Repeat("!", tries)))
				})
				stop := f.start()
				for number := range test.cronTabs {
					f.create(fmt.Sprint("c", number), test.schedule)
				}
				if test.edited != "" {
					until(test.edited)
					f.edit("c0")
				}
				time.Sleep(time.Until(moment(test.until)))
				stop()
				if tries < test.atLeast || tries > test.atMost {
					t.Errorf("%d tries, and not %d to %d", tries, test.atLeast, test.atMost)
				}
			})
		})
	}
}

// TestRefusedRuns: a run by annotation that is refused for hours delays no run of the schedule, the refusal is reported
// once, and the delays of one run go on with the next.
func TestRefusedRuns(t *testing.T) {
	isManual := func(action clienttesting.Action) bool {
		return strings.Contains(action.(clienttesting.CreateActionImpl).GetObject().(*batchv1.Job).Name, "-m")
	}
	beforeOne := func(clienttesting.Action) bool { return time.Now().Before(moment("12:55")) }
	beforeHeld := func(clienttesting.Action) bool { return time.Now().Before(moment("13:00:05")) }
	onTheHour := func(clienttesting.Action) bool { return time.Now().Equal(time.Now().Truncate(time.Hour)) }
	refusing := func(condition func(clienttesting.Action) bool) func(*testbed) {
		return failingIf("create", "jobs", condition, errQuota())
	}
	for sentence, test := range map[string]struct {
		schedule string
		prepare  func(*testbed)
		options  []cronTabOption
		// runs were started, tries and statuses are sent from 13:10 to 14:10, and events tell of refusals.
		runs                    string
		tries, statuses, events int
	}{
		"rule C22: a policy against such Jobs": {"0 * * * *", refusing(isManual), nil, "12:00, 13:00, 14:00", 4, 1, 1},
		"rule C16: a quota that is free again": {"0 * * * *", refusing(beforeOne), []cronTabOption{deadline(60)}, "13:00, 14:00, asked 11:40 at 13:08:30.715", 1, 1, 2},
		"rule C24: a run that is held":         {"0 * * * *", refusing(beforeHeld), []cronTabOption{deadline(60), splays(60)}, "13:00 at 13:00:10, 14:00 at 14:00:10, asked 11:40 at 13:08:30.715", 1, 1, 2},
		"rule C15: no answer":                  {"0 * * * *", failing("create", "jobs", io.ErrUnexpectedEOF), nil, "", 9, 2, 0},
		"rule C15: no answer but refusals": {"0 * * * *", func(f *testbed) {
			refusing(nil)(f)
			failingIf("create", "jobs", onTheHour, io.ErrUnexpectedEOF)(f)
		}, nil, "", 5, 3, 4},
		"rule C16: a suspended CronTab": {"0 * * * *", refusing(nil), []cronTabOption{suspended}, "", 3, 0, 1},
		"rule C16: Jobs of each minute": {"* * * * *", refusing(nil), nil, "", 63, 60, 161},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTestbed(t, "11:30", nil)
				test.prepare(f)
				f.listen()
				stop := f.start()
				f.create("backup", test.schedule, test.options...)
				f.edit("backup", askedAt("11:40"))
				until("13:10")
				f.requests()
				until("14:10")
				stop()
				fixture.Differ(t, "events of refusals", test.events, strings.Count(strings.Join(f.recorded(), ","), "Warning JobRejected"))
				tries, statuses := 0, 0
				for _, request := range f.requests() {
					switch verb := strings.Fields(request)[0]; verb {
					case "create":
						tries++
					case "live", "try":
					default:
						statuses++
					}
				}
				fixture.Differ(t, "runs that were started", test.runs, f.runs())
				fixture.Differ(t, "tries and statuses in an hour", [2]int{test.tries, test.statuses}, [2]int{tries, statuses})
			})
		})
	}
}

// TestAdvice follows the advice of each message literally. No finished run is started again.
func TestAdvice(t *testing.T) {
	tests := map[string]struct {
		cronTab *alphav1.CronTab
		// reason is that of Ready before.
		reason string
		follow func(f *testbed)
	}{
		"If this clock is wrong, correct it; if that time is wrong, docs/crontab.md says how to change it": {hourly("14:00"), alphav1.ReasonClockBehind, func(f *testbed) {
			text, err := os.ReadFile("../../../docs/crontab.md")
			fixture.Must(err)
			command := regexp.MustCompile(`kubectl patch crontab backup --subresource=status --type=merge -p '(.+)'\n`).FindSubmatch(text)
			patch := strings.ReplaceAll(string(command[1]), "'$now'", time.Now().UTC().Format(time.RFC3339))
			patch = strings.Replace(patch, "{", `{"metadata":{"resourceVersion":"`+f.get("backup").ResourceVersion+`"},`, 1)
			_, err = f.client.AlphaV1().CronTabs("ns").Patch(f.ctx, "backup", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
			fixture.Must(err)
		}},
		"names a time zone; set spec.timeZone": {hourly("12:00", runsAt("TZ=UTC 0 * * * *")), alphav1.ReasonInvalidSchedule, func(f *testbed) {
			f.edit("backup", func(cronTab *alphav1.CronTab) {
				cronTab.Spec.Schedule, cronTab.Spec.TimeZone = "0 * * * *", ptr.To("UTC")
			})
		}},
	}
	asks := regexp.MustCompile(`"[^"\n]*(kubectl|docs/|\b([Cc]orrect|[Ss]et|[Uu]nset|[Rr]emove|[Dd]elete|[Cc]hange|[Ee]dit) (it|the|that|this|spec))[^"\n]*"`)
	paths, err := filepath.Glob("*.go")
	for _, path := range paths {
		source, readErr := os.ReadFile(path)
		if err = errors.Join(err, readErr); err != nil || strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, message := range asks.FindAllString(string(source), -1) {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(tests)), func(advice string) bool { return strings.Contains(message, advice) }) {
				t.Errorf("%s: no case follows the advice of %s", path, message)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for advice, test := range tests {
		t.Run(advice, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTestbed(t, "12:30:30", test.cronTab)
				stop := f.start()
				if ready := controller.GetReady(f.get("backup").Status.Conditions); ready.Reason != test.reason || !strings.Contains(ready.Message, advice) {
					t.Errorf("before: %s, and no such advice: %s", ready.Reason, ready.Message)
				}
				template := f.get("backup").Spec.JobTemplate
				test.follow(f)
				until("13:00:10")
				fixture.Differ(t, "status", "last=13:00 active=1", describeStatus(&f.get("backup").Status))
				fixture.Differ(t, "runs", "13:00", f.runs())
				fixture.Differ(t, "Pod template", template, f.get("backup").Spec.JobTemplate)
				stop()
			})
		})
	}
}
