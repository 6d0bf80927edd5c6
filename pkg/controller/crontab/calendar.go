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
	"time"
)

// starBit marks a field that was given as a star, in the parser's sets.
const starBit = 1 << 63

// calendar is a schedule of five fields, each the set of its values. A run is due
// whenever a clock on a wall in the zone shows a full minute that is in all sets:
// never at a time that is left out there as clocks go forward, and twice at one that
// is shown twice as they go back.
//
// The parser's library computes this too, but loses times where clocks change by half
// an hour, takes the first hours of a day without a midnight for some of the day
// before, and cannot look back.
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
		if wall := c.first(from.Add(offset), end.Add(offset)); !wall.IsZero() {
			return wall.Add(-offset)
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
		if wall := c.last(start.Add(offset), until.Add(offset)); !wall.IsZero() {
			return wall.Add(-offset)
		}
		until = start.Add(-time.Second)
	}
	return time.Time{}
}

// period returns a period around the time in which no clock of the zone changes, and
// how far clocks are ahead of UTC in it. A zero time means no beginning and no end.
func (c *calendar) period(at time.Time) (start, end time.Time, offset time.Duration) {
	local := at.In(c.zone)
	start, end = local.ZoneBounds()
	// Go ends a leap year a day early where it has to compute the changes, which is
	// after 2037. No clock changes in the hours that are left.
	if !end.IsZero() && !end.After(at) {
		end = at.Truncate(time.Hour).Add(time.Hour)
	}
	_, seconds := local.Zone()
	return start.UTC(), end.UTC(), time.Duration(seconds) * time.Second
}

// first returns the first time on the wall that is in all sets, not before from and
// before the end. Times on the wall are kept as if they were UTC.
func (c *calendar) first(from, end time.Time) time.Time {
	wall := from.Truncate(time.Minute)
	if wall.Before(from) {
		wall = wall.Add(time.Minute)
	}
	for wall.Before(end) {
		year, month, day := wall.Date()
		switch {
		case !has(c.month, int(month)):
			wall = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.hasDay(wall):
			wall = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case !has(c.hour, wall.Hour()):
			wall = wall.Truncate(time.Hour).Add(time.Hour)
		case !has(c.minute, wall.Minute()):
			wall = wall.Add(time.Minute)
		default:
			return wall
		}
	}
	return time.Time{}
}

// last returns the last time on the wall that is in all sets, not before from and
// not after until.
func (c *calendar) last(from, until time.Time) time.Time {
	wall := until.Truncate(time.Minute)
	for !wall.Before(from) {
		year, month, day := wall.Date()
		switch {
		case !has(c.month, int(month)):
			wall = time.Date(year, month, 1, 0, -1, 0, 0, time.UTC)
		case !c.hasDay(wall):
			wall = time.Date(year, month, day, 0, -1, 0, 0, time.UTC)
		case !has(c.hour, wall.Hour()):
			wall = wall.Truncate(time.Hour).Add(-time.Minute)
		case !has(c.minute, wall.Minute()):
			wall = wall.Add(-time.Minute)
		default:
			return wall
		}
	}
	return time.Time{}
}

// hasDay reports whether the day is in the sets. If the day of the month and the day
// of the week are both given, either of them will do, as in every cron.
func (c *calendar) hasDay(wall time.Time) bool {
	byMonth, byWeek := has(c.dayOfMonth, wall.Day()), has(c.dayOfWeek, int(wall.Weekday()))
	if c.dayOfMonth&starBit != 0 || c.dayOfWeek&starBit != 0 {
		return byMonth && byWeek
	}
	return byMonth || byWeek
}

func has(set uint64, value int) bool {
	return set&(1<<value) != 0
}
