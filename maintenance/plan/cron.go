package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cron is the five fields of cron in a time zone: minute, hour, day of the month, month, day of the week. Each is a set of
// bits.
type cron struct {
	minutes, hours, days, months, weekdays uint64
	// eitherDay: both the day of the month and the day of the week are limited, so that one of them is enough.
	eitherDay bool
	zone      *time.Location
}

// field is what one of the five may hold.
type field struct {
	name     string
	min, max int
	names    []string // of the values from min on
}

func fields() [5]field {
	return [5]field{
		{"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day of the month", 1, 31, nil},
		{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
		{"day of the week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
	}
}

// parseCron reads five fields: *, numbers, ranges such as 1-5, steps such as */15 and 8-18/2, lists of these, and the English
// names of months and days by their first three letters. Sunday is 0 and 7.
func parseCron(text string, zone *time.Location) (cron, error) {
	parts := strings.Fields(text)
	if len(parts) != 5 {
		return cron{}, fmt.Errorf("has %d fields, want 5: minute, hour, day of the month, month, day of the week", len(parts))
	}
	var sets [5]uint64
	for i, f := range fields() {
		var err error
		if sets[i], err = f.parse(parts[i]); err != nil {
			return cron{}, fmt.Errorf("%s %q: %w", f.name, parts[i], err)
		}
	}
	const sunday, sundayToo = 1 << 0, 1 << 7
	if sets[4]&sundayToo != 0 {
		sets[4] = sets[4]&^sundayToo | sunday
	}
	c := cron{sets[0], sets[1], sets[2], sets[3], sets[4], parts[2][0] != '*' && parts[4][0] != '*', zone}
	if !c.comes() {
		return cron{}, errors.New("never comes: none of its months has one of its days")
	}
	return c, nil
}

func (f field) parse(text string) (uint64, error) {
	var set uint64
	for part := range strings.SplitSeq(text, ",") {
		from, to, step, err := f.span(part)
		if err != nil {
			return 0, err
		}
		for v := from; v <= to; v += step {
			set |= 1 << v
		}
	}
	return set, nil
}

// span reads one entry of a list.
func (f field) span(part string) (from, to, step int, err error) {
	base, by, stepped := strings.Cut(part, "/")
	first, last, ranged := strings.Cut(base, "-")
	from, to = f.min, f.max
	if base != "*" {
		if from, err = f.value(first); err != nil {
			return 0, 0, 0, err
		}
		to = from
		if ranged {
			if to, err = f.value(last); err != nil {
				return 0, 0, 0, err
			}
		}
	}
	if to < from {
		return 0, 0, 0, fmt.Errorf("%q ends before it begins", base)
	}
	if !stepped {
		return from, to, 1, nil
	}
	if base != "*" && !ranged {
		return 0, 0, 0, fmt.Errorf("the step of %q needs a range, such as %s-%d/%s", part, base, f.max, by)
	}
	if step, err = number(by); err != nil || step < 1 {
		return 0, 0, 0, fmt.Errorf("%q is no step, want a number from 1 on", by)
	}
	return from, to, step, nil
}

// value reads a number or a name.
func (f field) value(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.min + i, nil
	}
	v, err := number(text)
	if err != nil || v < f.min || v > f.max {
		return 0, fmt.Errorf("%q is no %s, want %d to %d", text, f.name, f.min, f.max)
	}
	return v, nil
}

// number reads digits alone, no sign.
func number(text string) (int, error) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.Atoi(text)
}

// comes says whether there is a day that fits. A limited day of the week is in every month.
func (c cron) comes() bool {
	if c.eitherDay {
		return true
	}
	for month := 1; month <= 12; month++ {
		longest := time.Date(2024, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
		if c.months>>month&1 != 0 && c.days&(1<<(longest+1)-1) != 0 {
			return true
		}
	}
	return false
}

// farthest is how many days ahead a day that fits is looked for. 29 February on a certain day of the week can be 40 years
// away where a century year is between.
const farthest = 41 * 366

// next is the first time after a moment. A time that the clocks leave out is left out, and one that comes twice counts the
// first time. Zero: there is none.
func (c cron) next(after time.Time) time.Time {
	year, month, day := after.In(c.zone).Date()
	for ahead := range farthest {
		date := time.Date(year, month, day+ahead, 0, 0, 0, 0, time.UTC)
		if !c.onDay(date) {
			continue
		}
		if at := c.nextOn(date, after); !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

func (c cron) onDay(date time.Time) bool {
	inMonth, inWeek := c.days>>date.Day()&1 != 0, c.weekdays>>date.Weekday()&1 != 0
	if c.months>>date.Month()&1 == 0 {
		return false
	}
	if c.eitherDay {
		return inMonth || inWeek
	}
	return inMonth && inWeek
}

// nextOn is the first time of a day after a moment, or zero.
func (c cron) nextOn(date, after time.Time) time.Time {
	year, month, day := date.Date()
	const mostChange = 2 * time.Hour // no clock is changed by more within a day
	for hour := range 24 {
		if c.hours>>hour&1 == 0 ||
			time.Date(year, month, day, hour+1, 0, 0, 0, c.zone).Add(mostChange).Before(after) {
			continue
		}
		for minute := range 60 {
			if c.minutes>>minute&1 == 0 {
				continue
			}
			at := time.Date(year, month, day, hour, minute, 0, 0, c.zone)
			if !at.After(after) {
				continue
			}
			if at, exists := first(at, hour, minute); exists && at.After(after) {
				return at
			}
		}
	}
	return time.Time{}
}

// first is the first of the moments at which clocks show that hour and minute, of which at is one if there is any.
func first(at time.Time, hour, minute int) (time.Time, bool) {
	if at.Hour() != hour || at.Minute() != minute {
		return time.Time{}, false
	}
	changed, _ := at.ZoneBounds()
	if changed.IsZero() {
		return at, true
	}
	_, now := at.Zone()
	_, before := changed.Add(-1).Zone()
	if earlier := at.Add(time.Duration(now-before) * time.Second); earlier.Before(changed) {
		return earlier, true
	}
	return at, true
}
