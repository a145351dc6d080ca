package delivery

import (
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

func TestRetryDelay(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	budget := []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: "web", Name: "b"}}
	deferred := schemas.Verdict{Outcome: schemas.Deferred}
	for _, c := range []struct {
		name     string
		verdict  schemas.Verdict
		free     bool
		attempts []int
		want     []time.Duration
	}{
		{"doubles up to ten minutes", deferred, false, []int{1, 2, 6, 7, 1000}, []time.Duration{
			15 * time.Second, 30 * time.Second, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute,
		}},
		{"begins at a second after an outage", schemas.Verdict{Outcome: schemas.Deferred, Reason: schemas.ReasonAPIUnavailable}, false,
			[]int{1, 2, 100}, []time.Duration{time.Second, 2 * time.Second, 10 * time.Minute}},
		{"begins at a second after a throttled call", schemas.Verdict{Outcome: schemas.Deferred, Reason: schemas.ReasonThrottled}, false,
			[]int{1}, []time.Duration{time.Second}},
		{"begins at a second after an expiry", schemas.Verdict{Outcome: schemas.Expired}, false, []int{1}, []time.Duration{time.Second}},
		{"time in the verdict", schemas.Verdict{Outcome: schemas.Deferred, Again: now.Add(time.Hour)}, false,
			[]int{1, 9}, []time.Duration{time.Hour, time.Hour}},
		{"is never in the past", schemas.Verdict{Outcome: schemas.Deferred, Again: now.Add(-time.Hour)}, false,
			[]int{1}, []time.Duration{freedRetry}},
		{"does not depend on a budget that allows nothing", schemas.Verdict{Outcome: schemas.Deferred, Blockers: budget}, false,
			[]int{1}, []time.Duration{FirstRetry}},
		{"is short for a budget that is free", schemas.Verdict{Outcome: schemas.Deferred, Blockers: budget}, true,
			[]int{1, 3, 100}, []time.Duration{freedRetry, time.Second, 10 * time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []time.Duration
			for _, attempt := range c.attempts {
				got = append(got, RetryDelay(c.verdict, attempt, func(_, _ string) bool { return c.free }, now))
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
