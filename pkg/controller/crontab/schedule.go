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
	"hash/fnv"
	"strings"
	"time"
	_ "time/tzdata" // an image has no time zone database of its own

	"github.com/robfig/cron/v3"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// schedule computes when runs are due. Times are whole seconds in UTC; the zero time means
// none.
type schedule interface {
	// next returns the first time after the given one.
	next(after time.Time) time.Time
	// latest returns the last time that is after the first given and not after the
	// second.
	latest(after, until time.Time) time.Time
}

// count returns how many times are after the first given and not after the second, at most
// the limit: counting the runs of a long downtime would take seconds.
func count(s schedule, after, until time.Time, limit int) int {
	found := 0
	for due := s.next(after); found < limit && !due.IsZero() && !due.After(until); due = s.next(due) {
		found++
	}
	return found
}

// loadZone returns the time zone of the name, UTC if that is empty.
func loadZone(name string) (*time.Location, error) {
	if strings.EqualFold(name, "Local") {
		return nil, errors.New("a schedule cannot use the time zone of the machine that the controller runs on")
	}
	return time.LoadLocation(name)
}

// parse parses a schedule. The zone is that of the five fields, the anchor the time from
// which @every counts. The error names the faulty field.
func parse(text string, zone *time.Location, anchor time.Time) (schedule, error) {
	if strings.Contains(text, "TZ=") {
		return nil, fmt.Errorf("%q names a time zone; set spec.timeZone", text)
	}
	fields := strings.Fields(text)
	plain := strings.Join(fields, " ")
	if len(fields) > 0 && fields[0] == "@every" {
		return parseEvery(text, strings.TrimPrefix(plain, "@every "), anchor)
	}
	if !strings.HasPrefix(plain, "@") {
		if err := checkFields(text, fields); err != nil {
			return nil, err
		}
	}
	parsed, err := parseStandard(plain)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return &calendar{
		minute: parsed.Minute, hour: parsed.Hour, dayOfMonth: parsed.Dom, month: parsed.Month, dayOfWeek: parsed.Dow,
		zone: zone,
	}, nil
}

// parseStandard is cron.ParseStandard for all but @every, for which that returns another type, and
// TZ=, at which it may panic.
func parseStandard(text string) (*cron.SpecSchedule, error) {
	times, err := cron.ParseStandard(text)
	if err != nil {
		return nil, err
	}
	return times.(*cron.SpecSchedule), nil
}

// checkFields parses each field by itself, so that an error can name the field.
func checkFields(text string, fields []string) error {
	names := []string{"minute", "hour", "day of month", "month", "day of week"}
	if len(fields) != len(names) {
		return fmt.Errorf("the number of fields in %q is %d and not five: %s", text, len(fields), strings.Join(names, ", "))
	}
	for i, field := range fields {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = field
		_, err := parseStandard(strings.Join(alone, " "))
		if strings.Trim(field, ",") == "" {
			err = errors.New("there is no value in it")
		}
		if err != nil {
			return fmt.Errorf("field %d (%s) of %q: %w", i+1, names[i], text, err)
		}
	}
	return nil
}

// parseEvery parses the duration of @every. It returns an error unless that is a number of
// whole seconds; the cron library would round it.
func parseEvery(text, duration string, anchor time.Time) (schedule, error) {
	delay, err := time.ParseDuration(duration)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the duration of %q: %w", text, err)
	case delay < time.Second || delay%time.Second != 0:
		return nil, fmt.Errorf("the duration of %q is not one or more whole seconds", text)
	}
	return every{anchor: anchor.Unix(), seconds: int64(delay / time.Second)}, nil
}

// every is the schedule of @every. Its times are the anchor plus multiples of the delay, so
// neither a late run nor a restart shifts them.
type every struct {
	anchor, seconds int64
}

func (e every) next(after time.Time) time.Time {
	return e.at(max(e.number(after)+1, 1))
}

func (e every) latest(after, until time.Time) time.Time {
	number := e.number(until)
	if found := e.at(number); number >= 1 && found.After(after) {
		return found
	}
	return time.Time{}
}

// number returns how many times are not after the given one; less than one before the
// first.
func (e every) number(until time.Time) int64 {
	return (until.Unix() - e.anchor) / e.seconds
}

func (e every) at(number int64) time.Time {
	return time.Unix(e.anchor+number*e.seconds, 0).UTC()
}

// offsetOf returns how long after it is due each run of the CronTab is started: 0 without
// spec.splaySeconds, otherwise less than that. It follows from the UID, so it is the same in
// each process and for each run.
func offsetOf(cronTab *alphav1.CronTab) time.Duration {
	splay := ptr.Deref(cronTab.Spec.SplaySeconds, 0)
	if splay <= 0 {
		return 0
	}
	hash := fnv.New32a()
	// The error is always nil.
	_, _ = hash.Write([]byte(cronTab.UID))
	return time.Duration(hash.Sum32()%uint32(splay)) * time.Second
}
