package plan

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// parseCron reads the five fields of cron in a time zone. Sunday is 0 and 7.
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
	schedule.Location = zone
	return once{schedule}, nil
}

// once leaves out the second of two times with the same hour and minute, which comes when clocks are set back. The library leaves
// out a time that the clocks skip.
type once struct{ *cron.SpecSchedule }

// Next is the first time after a moment. Zero: there is none in the next five years.
func (s once) Next(after time.Time) time.Time {
	for {
		at := s.SpecSchedule.Next(after)
		if at.IsZero() || !repeated(at.In(s.Location)) {
			return at
		}
		after = at
	}
}

// repeated says whether clocks showed the same hour and minute before the last change of the zone.
func repeated(at time.Time) bool {
	changed, _ := at.ZoneBounds()
	if changed.IsZero() {
		return false
	}
	_, offset := at.Zone()
	_, before := changed.Add(-1).Zone()
	return at.Add(time.Duration(offset-before) * time.Second).Before(changed)
}
