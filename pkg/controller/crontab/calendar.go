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

import "time"

// starBit marks a field that was given as a star, in the sets of the cron library.
const starBit = 1 << 63

// calendar is a schedule of five fields, each a set of values. A run is due whenever the
// local time in the zone is a full minute that is in all sets: never at a time that is
// skipped when clocks go forward, and twice at a time that is repeated when they go back.
//
// SpecSchedule.Next of the cron library loses runs when clocks change by half an hour,
// takes the first hours of a day without a midnight for hours of the day before, and cannot
// look back. docs/decisions/2026-11-22-crontab-calendar.md has figures.
type calendar struct {
	minute, hour, dayOfMonth, month, dayOfWeek uint64
	zone                                       *time.Location
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
	// After 2037, where ZoneBounds computes the changes from a rule, it ends a leap year a
	// day early and may return an end that is not after the time. No offset changes in the
	// rest of that day.
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

// last returns the last local time that is in all sets, not before from and not after
// until.
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
	case !has(c.month, int(month)):
		start = time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
		return start, start.AddDate(0, 1, 0)
	case !c.hasDay(local):
		start = time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		return start, start.AddDate(0, 0, 1)
	case !has(c.hour, local.Hour()):
		start = local.Truncate(time.Hour)
		return start, start.Add(time.Hour)
	case !has(c.minute, local.Minute()):
		return local, local.Add(time.Minute)
	}
	return time.Time{}, time.Time{}
}

// hasDay reports whether the day is in the sets. If the day of the month and the day of the
// week are both restricted, one of them is enough, as for a CronJob.
func (c *calendar) hasDay(local time.Time) bool {
	byMonth, byWeek := has(c.dayOfMonth, local.Day()), has(c.dayOfWeek, int(local.Weekday()))
	if c.dayOfMonth&starBit != 0 || c.dayOfWeek&starBit != 0 {
		return byMonth && byWeek
	}
	return byMonth || byWeek
}

func has(set uint64, value int) bool {
	return set&(1<<value) != 0
}
