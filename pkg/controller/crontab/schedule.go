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
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // an image has no time zone database of its own

	"github.com/robfig/cron/v3"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// schedule computes when runs are due. Times are whole seconds in UTC; the zero time means none.
type schedule interface {
	// next returns the first time after the given one.
	next(after time.Time) time.Time
	// latest returns the last time that is after the first given and not after the second.
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
	// The cron library may panic at it.
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
	parsed, err := cron.ParseStandard(plain)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	// It has another type only for @every.
	return &calendar{fields: parsed.(*cron.SpecSchedule), zone: zone}, nil
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
		_, err := cron.ParseStandard(strings.Join(alone, " "))
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

// number returns how many times are not after the given one; less than one before the first.
func (e every) number(until time.Time) int64 {
	return (until.Unix() - e.anchor) / e.seconds
}

func (e every) at(number int64) time.Time {
	return time.Unix(e.anchor+number*e.seconds, 0).UTC()
}

// offsetOf returns how long after it is due each run of the CronTab is started: 0 without spec.splaySeconds,
// otherwise less than that. It follows from the UID, so it is the same in each process and for each run.
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

// starBit marks a field that was given as a star, in the sets of the cron library.
const starBit = 1 << 63

// calendar is a schedule of five fields, each a set of values. A run is due whenever the
// local time in the zone is a full minute that is in all sets: never at a time that is
// skipped when clocks go forward, and twice at a time that is repeated when they go back.
//
// SpecSchedule.Next of the cron library loses runs when clocks change by half an hour, takes the first hours of a
// day without a midnight for hours of the day before, and cannot look back.
type calendar struct {
	fields *cron.SpecSchedule
	zone   *time.Location
}

// horizonYears is how far ahead next looks. February 29th may be eight years off.
const horizonYears = 12

func (c *calendar) next(after time.Time) time.Time {
	from := time.Unix(after.Unix()+1, 0).UTC()
	for limit := from.AddDate(horizonYears, 0, 0); from.Before(limit); {
		_, end, offset := c.period(from)
		if end.IsZero() {
			end = limit
		}
		if local := c.first(from.Add(offset), end.Add(offset)); !local.IsZero() {
			return local.Add(-offset)
		}
		from = end
	}
	return time.Time{}
}

func (c *calendar) latest(after, until time.Time) time.Time {
	limit := time.Unix(after.Unix()+1, 0).UTC()
	for until = time.Unix(until.Unix(), 0).UTC(); !until.Before(limit); {
		start, _, offset := c.period(until)
		if start.Before(limit) {
			start = limit
		}
		if local := c.last(start.Add(offset), until.Add(offset)); !local.IsZero() {
			return local.Add(-offset)
		}
		until = start.Add(-time.Second)
	}
	return time.Time{}
}

// period returns a period around the time in which the zone's offset from UTC does not
// change, and that offset. A zero time means that the period has no start or no end.
func (c *calendar) period(at time.Time) (start, end time.Time, offset time.Duration) {
	local := at.In(c.zone)
	start, end = local.ZoneBounds()
	// After 2037, where ZoneBounds computes the changes from a rule, it ends a leap year a day early and may return
	// an end that is not after the time. No offset changes in the rest of that day.
	if !end.IsZero() && !end.After(at) {
		end = at.Truncate(time.Hour).Add(time.Hour)
	}
	_, seconds := local.Zone()
	return start.UTC(), end.UTC(), time.Duration(seconds) * time.Second
}

// first returns the first local time that is in all sets, not before from and before the
// end. Local times are represented as if they were UTC.
func (c *calendar) first(from, end time.Time) time.Time {
	local := from.Truncate(time.Minute)
	if local.Before(from) {
		local = local.Add(time.Minute)
	}
	for local.Before(end) {
		_, after := c.gap(local)
		if after.IsZero() {
			return local
		}
		local = after
	}
	return time.Time{}
}

// last returns the last local time that is in all sets, not before from and not after until.
func (c *calendar) last(from, until time.Time) time.Time {
	for local := until.Truncate(time.Minute); !local.Before(from); {
		start, _ := c.gap(local)
		if start.IsZero() {
			return local
		}
		local = start.Add(-time.Minute)
	}
	return time.Time{}
}

// gap returns start and end of the month, day, hour or minute of the local time in which no time is in all
// sets. Zero times mean that the local time is.
func (c *calendar) gap(local time.Time) (start, end time.Time) {
	year, month, day := local.Date()
	switch {
	case !has(c.fields.Month, int(month)):
		start = time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
		return start, start.AddDate(0, 1, 0)
	case !c.hasDay(local):
		start = time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		return start, start.AddDate(0, 0, 1)
	case !has(c.fields.Hour, local.Hour()):
		start = local.Truncate(time.Hour)
		return start, start.Add(time.Hour)
	case !has(c.fields.Minute, local.Minute()):
		return local, local.Add(time.Minute)
	}
	return time.Time{}, time.Time{}
}

// hasDay reports whether the day is in the sets. If the day of the month and the day of the
// week are both restricted, one of them is enough, as for a CronJob.
func (c *calendar) hasDay(local time.Time) bool {
	byMonth, byWeek := has(c.fields.Dom, local.Day()), has(c.fields.Dow, int(local.Weekday()))
	if c.fields.Dom&starBit != 0 || c.fields.Dow&starBit != 0 {
		return byMonth && byWeek
	}
	return byMonth || byWeek
}

func has(set uint64, value int) bool {
	return set&(1<<value) != 0
}

// later returns the latest of the times.
func later(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}
