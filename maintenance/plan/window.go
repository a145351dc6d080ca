package plan

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Open reports whether nodes may be begun now according to the window of a maintenance that was created at created,
// which is also the start of a window without one. next is the time when a closed window opens, or zero for never. It
// fails for an invalid schedule.
func Open(w *v1alpha1.Window, created, now time.Time) (open bool, next time.Time, err error) {
	if w == nil {
		return true, time.Time{}, nil
	}
	opens := created
	if w.Start != nil {
		opens = w.Start.Time
	}
	if opens.Before(now) {
		opens = now
	}
	if w.Schedule != nil {
		if opens, err = scheduled(*w.Schedule, opens); err != nil {
			return false, time.Time{}, err
		}
	}
	switch {
	case opens.IsZero(), w.End != nil && !w.End.After(opens): // never again within the schedule, or over
		return false, time.Time{}, nil
	case opens.After(now):
		return false, opens, nil
	}
	return true, time.Time{}, nil
}

// scheduled returns the first moment from one on that is within the schedule, or zero.
func scheduled(s v1alpha1.Schedule, from time.Time) (time.Time, error) {
	c, err := schedule(s)
	if err != nil {
		return time.Time{}, err
	}
	begin := c.Next(from.Add(-s.Duration.Duration))
	if !begin.IsZero() && begin.Before(from) {
		begin = from
	}
	return begin, nil
}

// schedule parses a schedule. Its error is a [Problem].
func schedule(s v1alpha1.Schedule) (cron.Schedule, error) {
	const field = "spec.window.schedule"
	if s.TimeZone == "Local" { // it differs between machines
		return nil, Problem{v1alpha1.ReasonInvalidTimeZone, field + ".timeZone",
			`"Local" is no time zone; want an IANA name such as Europe/Berlin`}
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return nil, Problem{v1alpha1.ReasonInvalidTimeZone, field + ".timeZone", fmt.Sprintf(
			"%q is not known; want an IANA name such as Europe/Berlin", s.TimeZone)}
	}
	if s.Duration.Duration < time.Minute {
		return nil, Problem{v1alpha1.ReasonInvalidSchedule, field + ".duration", fmt.Sprintf(
			"%s is too short; want at least 1m", s.Duration.Duration)}
	}
	c, err := parseCron(s.Cron, zone)
	if err != nil {
		return nil, Problem{v1alpha1.ReasonInvalidSchedule, field + ".cron", fmt.Sprintf("%q: %v", s.Cron, err)}
	}
	return c, nil
}

// parseCron parses the five fields of cron in a time zone. Sunday is 0 and 7.
func parseCron(text string, zone *time.Location) (cron.Schedule, error) {
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return nil, fmt.Errorf("has %d fields, want 5: minute, hour, day of the month, month, day of the week", len(fields))
	}
	days := strings.Split(fields[4], ",")
	for i, day := range days { // the library has no day 7
		if first, ends := strings.CutSuffix(day, "-7"); ends {
			days[i] = first + "-6,0"
		} else if day == "7" {
			days[i] = "0"
		}
	}
	fields[4] = strings.Join(days, ",")
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, err
	}
	schedule, is := parsed.(*cron.SpecSchedule)
	if !is || schedule.Next(time.Unix(0, 0)).IsZero() {
		return nil, errors.New("never comes: none of its months has one of its days")
	}
	schedule.Location = time.UTC
	return wallClock{schedule, zone}, nil
}

// wallClock is a schedule in a time zone. The library computes with a clock that never changes; its own arithmetic
// counts a time twice when clocks are set back, and misses times when they are set back by half an hour.
type wallClock struct {
	schedule cron.Schedule
	zone     *time.Location
}

// Next returns the first time after a moment, or zero if there is none in the next five years. It omits times that
// clocks skip, and counts a repeated time only the first time.
func (s wallClock) Next(after time.Time) time.Time {
	const mostChange = 3 * time.Hour // clocks are never set back by more
	local := after.In(s.zone)
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC).Add(-mostChange)
	for {
		if wall = s.schedule.Next(wall); wall.IsZero() {
			return wall
		}
		at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, s.zone)
		if at.Hour() != wall.Hour() || at.Minute() != wall.Minute() {
			continue
		}
		if at = firstOf(at); at.After(after) {
			return at
		}
	}
}

// firstOf returns the first of the two moments at which clocks show a time before and after they are set back.
func firstOf(at time.Time) time.Time {
	changed, _ := at.ZoneBounds()
	if changed.IsZero() {
		return at
	}
	_, offset := at.Zone()
	_, before := changed.Add(-1).Zone()
	if earlier := at.Add(time.Duration(offset-before) * time.Second); earlier.Before(changed) {
		return earlier
	}
	return at
}

// Grace is how long a claimed node may take to be seen cordoned before it is released, a pod to be gone after its grace
// period, and an uncordoned node to be cordoned again.
const Grace = time.Minute

// Settle is how long a maintenance is kept at the stage Complete, until the last changes of its nodes are seen and can
// be undone.
const Settle = 10 * time.Second

// Deadline returns the end of spec.deadline, which starts when the node was cordoned, or at the stage Drain if that was
// later. It is zero if there is none or it has not started.
func Deadline(m *v1alpha1.NodeMaintenance, n v1alpha1.NodeStatus) time.Time {
	if m.Spec.Deadline == nil || n.Start == nil {
		return time.Time{}
	}
	if from, drains := drainStart(m, n); drains {
		return from.Add(m.Spec.Deadline.Duration)
	}
	return time.Time{}
}

// drainStart returns the time when the node was cordoned, or the start of the stage Drain if that was later, and whether
// that stage has started.
func drainStart(m *v1alpha1.NodeMaintenance, n v1alpha1.NodeStatus) (from time.Time, drains bool) {
	from = n.Start.Time
	for _, s := range m.Status.Stages {
		if s.Stage == v1alpha1.Drain {
			if s.Start.After(from) {
				from = s.Start.Time
			}
			return from, true
		}
	}
	return from, false
}
