package plan

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	moment, err := time.Parse(time.RFC3339, text)
	expect.Must(t, err)
	return moment
}

func when(t testing.TB, text string) *metav1.Time {
	t.Helper()
	if text == "" {
		return nil
	}
	return &metav1.Time{Time: at(t, text)}
}

func TestMaintenanceWindow(t *testing.T) {
	nightly := &v1alpha1.Schedule{Cron: "0 22 * * *", Duration: metav1.Duration{Duration: 4 * time.Hour}}
	touching := &v1alpha1.Schedule{Cron: "0 8-17 * * mon-fri", Duration: metav1.Duration{Duration: time.Hour}}
	always := &v1alpha1.Schedule{Cron: "* * * * *", Duration: metav1.Duration{Duration: time.Hour}}
	for _, c := range []struct {
		name       string
		start, end string
		schedule   *v1alpha1.Schedule
		now        string
		open       bool
		next       string
	}{
		{"without a start and an end always", "", "", nil, "2026-05-04T12:00:00Z", true, ""},
		{"not before it was made", "", "", nil, "2026-04-30T23:59:59Z", false, "2026-05-01T00:00:00Z"},
		{"not before the start", "2026-06-01T00:00:00Z", "", nil, "2026-05-04T12:00:00Z", false, "2026-06-01T00:00:00Z"},
		{"from the start on", "2026-06-01T00:00:00Z", "", nil, "2026-06-01T00:00:00Z", true, ""},
		{"until the end", "", "2026-06-01T00:00:00Z", nil, "2026-05-31T23:59:59Z", true, ""},
		{"not at the end", "", "2026-06-01T00:00:00Z", nil, "2026-06-01T00:00:00Z", false, ""},
		{"never if it ends before it starts", "2026-06-02T00:00:00Z", "2026-06-01T00:00:00Z", nil, "2026-05-04T12:00:00Z", false, ""},
		{"not between the times of the schedule", "", "", nightly, "2026-05-04T12:00:00Z", false, "2026-05-04T22:00:00Z"},
		{"from the beginning of a time", "", "", nightly, "2026-05-04T22:00:00Z", true, ""},
		{"past midnight", "", "", nightly, "2026-05-05T01:59:59Z", true, ""},
		{"not at the end of a time", "", "", nightly, "2026-05-05T02:00:00Z", false, "2026-05-05T22:00:00Z"},
		{"within the schedule and after the start", "2026-05-04T23:00:00Z", "", nightly, "2026-05-04T22:30:00Z", false, "2026-05-04T23:00:00Z"},
		{"a start between two times waits for the next", "2026-05-04T03:00:00Z", "", nightly, "2026-05-04T02:30:00Z", false, "2026-05-04T22:00:00Z"},
		{"within the schedule and before the end", "", "2026-05-05T00:00:00Z", nightly, "2026-05-04T23:00:00Z", true, ""},
		{"never when it ends before the next time", "", "2026-05-05T20:00:00Z", nightly, "2026-05-05T03:00:00Z", false, ""},
		{"within times that touch each other", "", "", touching, "2026-05-04T09:30:00Z", true, ""},
		{"the week goes on after a weekend", "", "", touching, "2026-05-08T18:00:00Z", false, "2026-05-11T08:00:00Z"},
		{"within times without a gap", "", "", always, "2026-05-04T12:00:30Z", true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &v1alpha1.Window{Start: when(t, c.start), End: when(t, c.end), Schedule: c.schedule}
			open, next, err := Open(w, at(t, "2026-05-01T00:00:00Z"), at(t, c.now))
			if err != nil || open != c.open || !next.Equal(at(t, c.next)) {
				t.Errorf("got %v until %s, %v; want %v until %s", open, next, err, c.open, c.next)
			}
		})
	}
	if open, next, err := Open(nil, at(t, "2026-05-01T00:00:00Z"), at(t, "2026-04-01T00:00:00Z")); !open || !next.IsZero() || err != nil {
		t.Errorf("without a window: got %v until %s, %v; want it open for ever", open, next, err)
	}
}

// begins returns the next times at which a schedule begins.
func begins(t testing.TB, cron, zone string, after time.Time, count int) []string {
	t.Helper()
	var list []string
	w := &v1alpha1.Window{Schedule: &v1alpha1.Schedule{Cron: cron, TimeZone: zone, Duration: metav1.Duration{Duration: time.Minute}}}
	for range count {
		open, next, err := Open(w, time.Time{}, after)
		for ; open; open, next, err = Open(w, time.Time{}, after) {
			after = after.Add(time.Minute)
		}
		if err != nil || next.IsZero() {
			t.Fatalf("%q after %s: %v, next %s", cron, after, err, next)
		}
		after = next
		list = append(list, after.UTC().Format("2006-01-02T15:04Z"))
	}
	return list
}

func TestCronSchedule(t *testing.T) {
	for _, c := range []struct{ name, cron, zone, after, want string }{
		{"every day", "30 4 * * *", "", "2026-05-04T12:00:00Z", "[2026-05-05T04:30Z 2026-05-06T04:30Z]"},
		{"lists and ranges", "0,30 8-9 * * *", "", "2026-05-04T08:10:00Z", "[2026-05-04T08:30Z 2026-05-04T09:00Z 2026-05-04T09:30Z 2026-05-05T08:00Z]"},
		{"steps", "*/20 */12 * * *", "", "2026-05-04T00:30:00Z", "[2026-05-04T00:40Z 2026-05-04T12:00Z 2026-05-04T12:20Z]"},
		{"steps in a range", "0 1-7/3 * * *", "", "2026-05-04T00:00:00Z", "[2026-05-04T01:00Z 2026-05-04T04:00Z 2026-05-04T07:00Z 2026-05-05T01:00Z]"},
		{"names in any case", "0 0 1 JAN,jul *", "", "2026-05-04T00:00:00Z", "[2026-07-01T00:00Z 2027-01-01T00:00Z]"},
		{"Sunday is 0", "0 0 * * 0", "", "2026-05-04T00:00:00Z", "[2026-05-10T00:00Z 2026-05-17T00:00Z]"},
		{"and 7", "0 0 * * 6-7", "", "2026-05-04T00:00:00Z", "[2026-05-09T00:00Z 2026-05-10T00:00Z 2026-05-16T00:00Z]"},
		{"a day of the month or of the week", "0 0 13 * fri", "", "2026-05-04T00:00:00Z", "[2026-05-08T00:00Z 2026-05-13T00:00Z 2026-05-15T00:00Z]"},
		{"the last days of short months are left out", "0 0 31 * *", "", "2026-05-31T12:00:00Z", "[2026-07-31T00:00Z 2026-08-31T00:00Z]"},
		{"29 February", "0 0 29 2 *", "", "2026-03-01T00:00:00Z", "[2028-02-29T00:00Z 2032-02-29T00:00Z]"},
		{"in a time zone", "0 22 * * *", "Asia/Kolkata", "2026-05-04T12:00:00Z", "[2026-05-04T16:30Z 2026-05-05T16:30Z]"},
		{"across the change of the clocks", "0 22 * * *", "Europe/Berlin", "2026-03-27T22:00:00Z", "[2026-03-28T21:00Z 2026-03-29T20:00Z]"},
		{"a time that does not exist is left out", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "[2026-03-30T00:30Z 2026-03-31T00:30Z]"},
		{"one that comes twice counts the first time", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "[2026-10-25T00:30Z 2026-10-26T01:30Z]"},
		{"the second time is not the next one", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:00:00Z", "[2026-10-26T01:30Z]"},
		{"a whole hour that comes twice counts once", "*/30 2-3 * * *", "Europe/Berlin", "2026-10-24T23:59:00Z",
			"[2026-10-25T00:00Z 2026-10-25T00:30Z 2026-10-25T02:00Z 2026-10-25T02:30Z 2026-10-26T01:00Z]"},
		{"clocks that change by half an hour", "45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z", "[2026-04-04T14:45Z 2026-04-05T15:15Z]"},
		{"after clocks change by half an hour", "14 0 * * *", "Australia/Lord_Howe", "2026-04-04T20:00:00Z", "[2026-04-05T13:44Z 2026-04-06T13:44Z]"},
		{"midnight that does not exist", "0 0 * * *", "Africa/Cairo", "2026-04-22T23:00:00Z", "[2026-04-24T21:00Z 2026-04-25T21:00Z]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			count := 1
			for _, r := range want {
				if r == ' ' {
					count++
				}
			}
			expect.Equal(t, "begins", fmt.Sprint(begins(t, c.cron, c.zone, at(t, c.after), count)), want)
		})
	}
}

// The test finds the same times by checking the clock at every minute of the zone.
func TestScheduleAcrossClockChanges(t *testing.T) {
	r := randtest.New(t)
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Santiago", "UTC"}
	for range 60 {
		zoneName := zones[r.IntN(len(zones))]
		zone, err := time.LoadLocation(zoneName)
		expect.Must(t, err)
		minute, hour := r.IntN(60), r.IntN(5)
		cron := fmt.Sprintf("%d %d * * *", minute, hour)
		from := time.Date(2026, time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), 0, 0, 0, time.UTC)
		var want []string
		seen := map[string]bool{}
		for m := from.Add(-26 * time.Hour); len(want) < 35; m = m.Add(time.Minute) {
			local := m.In(zone)
			if local.Hour() != hour || local.Minute() != minute || seen[local.Format(time.DateOnly)] {
				continue
			}
			seen[local.Format(time.DateOnly)] = true
			if m.After(from) {
				want = append(want, m.UTC().Format("2006-01-02T15:04Z"))
			}
		}
		if got := begins(t, cron, zoneName, from, len(want)); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q in %s after %s:\ngot  %s\nwant %s", cron, zoneName, from, got, want)
		}
	}
}

func TestInvalidScheduleError(t *testing.T) {
	for _, c := range []struct{ cron, zone, reason, want string }{
		{"0 22 * *", "", "InvalidSchedule", `.cron: "0 22 * *": has 4 fields, want 5: minute, hour, day of the month, month, day of the week`},
		{"@daily", "", "InvalidSchedule", `.cron: "@daily": has 1 fields, want 5: minute, hour, day of the month, month, day of the week`},
		{"60 * * * *", "", "InvalidSchedule", `.cron: "60 * * * *": end of range (60) above maximum (59): 60`},
		{"-1 * * * *", "", "InvalidSchedule", `.cron: "-1 * * * *": failed to parse int from : strconv.Atoi: parsing "": invalid syntax`},
		{"5-1 * * * *", "", "InvalidSchedule", `.cron: "5-1 * * * *": beginning of range (5) beyond end of range (1): 5-1`},
		{"*/0 * * * *", "", "InvalidSchedule", `.cron: "*/0 * * * *": step of range should be a positive number: */0`},
		{"0 0 * * someday", "", "InvalidSchedule", `.cron: "0 0 * * someday": failed to parse int from someday: strconv.Atoi: parsing "someday": invalid syntax`},
		{"0 0 30 2 *", "", "InvalidSchedule", `.cron: "0 0 30 2 *": never comes: none of its months has one of its days`},
		{"0 0 * * *", "Mars/Olympus", "InvalidTimeZone", `.timeZone: "Mars/Olympus" is not known; want an IANA name such as Europe/Berlin`},
		{"0 0 * * *", "Local", "InvalidTimeZone", `.timeZone: "Local" is no time zone; want an IANA name such as Europe/Berlin`},
	} {
		w := &v1alpha1.Window{Schedule: &v1alpha1.Schedule{Cron: c.cron, TimeZone: c.zone, Duration: metav1.Duration{Duration: time.Hour}}}
		open, next, err := Open(w, time.Time{}, at(t, "2026-05-04T12:00:00Z"))
		var p Problem
		if !errors.As(err, &p) || p.Reason != c.reason || p.Error() != "spec.window.schedule"+c.want || open || !next.IsZero() {
			t.Errorf("%q in %q: got %v, %s, %v; want %s", c.cron, c.zone, open, next, err, c.want)
		}
	}
	short := &v1alpha1.Window{Schedule: &v1alpha1.Schedule{Cron: "0 0 * * *", Duration: metav1.Duration{Duration: time.Second}}}
	if _, _, err := Open(short, time.Time{}, time.Time{}); err == nil ||
		err.Error() != "spec.window.schedule.duration: 1s is too short; want at least 1m" {
		t.Errorf("got %v", err)
	}
}

// For any schedule, it must be rejected, or it must open after it was closed, and neither may take long.
func FuzzOpen(f *testing.F) {
	f.Add("0 22 * * sat,sun", "Europe/Berlin", int64(6*time.Hour), int64(1_790_000_000))
	f.Add("*/5 * * * *", "", int64(time.Hour), int64(0))
	f.Add("0 0 29 2 mon", "America/New_York", int64(time.Minute), int64(4_000_000_000))
	f.Fuzz(func(t *testing.T, cron, zone string, duration, now int64) {
		if now < -1<<40 || now > 1<<40 {
			return
		}
		w := &v1alpha1.Window{Schedule: &v1alpha1.Schedule{Cron: cron, TimeZone: zone, Duration: metav1.Duration{Duration: time.Duration(duration)}}}
		moment := time.Unix(now, 0)
		open, next, err := Open(w, time.Time{}, moment)
		if err != nil {
			if open || !next.IsZero() {
				t.Errorf("got %v until %s with %v", open, next, err)
			}
			return
		}
		if !next.IsZero() && !next.After(moment) {
			t.Errorf("next is %s, which is not after %s", next, moment)
		}
		if !open && !next.IsZero() {
			if opens, _, err := Open(w, time.Time{}, next); !opens || err != nil {
				t.Errorf("closed until %s, and closed then: %v", next, err)
			}
		}
	})
}
