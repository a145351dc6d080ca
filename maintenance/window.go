package maintenance

import (
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// mostSpans bounds how many times of a schedule that follow each other without a gap are looked at.
const mostSpans = 200

// Open says whether nodes may be begun now by the window of a maintenance that was made at created, which is where a window
// without a start begins. next is when that changes; zero: never. For times of a schedule that follow each other without a
// gap for long, next is a moment at which to ask again, and nothing changes before it. It fails when the schedule cannot be
// read; then nothing is open, and never.
func Open(w *v1alpha1.Window, created, now time.Time) (open bool, next time.Time, err error) {
	if w == nil {
		return true, time.Time{}, nil
	}
	start, end := created, time.Time{}
	if w.Start != nil {
		start = w.Start.Time
	}
	if w.End != nil {
		end = w.End.Time
	}
	from := now
	if start.After(now) {
		from = start
	}
	openFrom, until := from, time.Time{}
	if w.Schedule != nil {
		if openFrom, until, err = span(*w.Schedule, from); err != nil {
			return false, time.Time{}, err
		}
	}
	if !end.IsZero() && !end.After(openFrom) || openFrom.IsZero() { // over, or never within the schedule any more
		return false, time.Time{}, nil
	}
	if openFrom.After(now) {
		return false, openFrom, nil
	}
	if until.IsZero() || !end.IsZero() && end.Before(until) {
		until = end
	}
	return true, until, nil
}

// span is the time of the schedule that contains a moment, from that moment on, or else the next one. Times that touch
// each other are one.
func span(s v1alpha1.Schedule, from time.Time) (begin, end time.Time, err error) {
	c, err := schedule(s)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	at := c.next(from.Add(-s.Duration.Duration))
	if at.IsZero() {
		return time.Time{}, time.Time{}, nil
	}
	begin, end = at, at.Add(s.Duration.Duration)
	if begin.Before(from) {
		begin = from
	}
	for range mostSpans {
		next := c.next(at)
		if next.IsZero() || next.After(end) {
			break
		}
		at, end = next, next.Add(s.Duration.Duration)
	}
	return begin, end, nil
}

// schedule reads a schedule. Its error is a [Problem].
func schedule(s v1alpha1.Schedule) (cron, error) {
	const field = "spec.window.schedule"
	if s.TimeZone == "Local" { // which is another one on every machine
		return cron{}, Problem{v1alpha1.ReasonInvalidTimeZone, field + ".timeZone",
			`"Local" is no time zone; want an IANA name such as Europe/Berlin`}
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return cron{}, Problem{v1alpha1.ReasonInvalidTimeZone, field + ".timeZone", fmt.Sprintf(
			"%q is not known; want an IANA name such as Europe/Berlin", s.TimeZone)}
	}
	if s.Duration.Duration < time.Minute {
		return cron{}, Problem{v1alpha1.ReasonInvalidSchedule, field + ".duration", fmt.Sprintf(
			"%s is too short; want at least 1m", s.Duration.Duration)}
	}
	c, err := parseCron(s.Cron, zone)
	if err != nil {
		return cron{}, Problem{v1alpha1.ReasonInvalidSchedule, field + ".cron", fmt.Sprintf("%q: %v", s.Cron, err)}
	}
	return c, nil
}
