package delivery

import (
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// The longest delays before a pod that did not move is evaluated again. Each attempt doubles the delay, up to lastRetry. Most
// blockers are watched and change earlier, but not all, such as the quota of another system.
const (
	FirstRetry = 15 * time.Second
	lastRetry  = 10 * time.Minute
	// freedRetry is the first delay if the budget that blocked the pod allows a disruption by the time of the verdict. Its status
	// can differ from the state that the API server enforces.
	freedRetry = 250 * time.Millisecond
	// outageRetry is the first delay if the API server was busy or unavailable, or if the intent expired, because no event ends
	// that.
	outageRetry = time.Second
)

// RetryDelay returns the longest delay after a verdict that began no move. attempt is the number of such verdicts on the pod,
// from 1. free reports whether a PodDisruptionBudget allows a disruption now.
func RetryDelay(v schemas.Verdict, attempt int, free func(namespace, name string) bool, now time.Time) time.Duration {
	first := FirstRetry
	if v.Outcome == schemas.Expired || v.Reason.IsOutage() {
		first = outageRetry
	}
	delay := doubled(first, attempt)
	if !v.Again.IsZero() {
		delay = max(v.Again.Sub(now), freedRetry)
	}
	for _, by := range v.Blockers {
		if v.Outcome == schemas.Deferred && by.Kind == "PodDisruptionBudget" && free(by.Namespace, by.Name) {
			delay = min(delay, doubled(freedRetry, attempt))
		}
	}
	return delay
}

// doubled returns first, doubled for each attempt after the first, at most lastRetry.
func doubled(first time.Duration, attempt int) time.Duration {
	return min(first<<min(attempt-1, 20), lastRetry)
}

// Freed returns the objects whose limits the end of a move can free: its node, its namespace, and its workload, with any UID.
func Freed(v schemas.Verdict) []schemas.ObjectRef {
	by := []schemas.ObjectRef{{Kind: "Node", Name: v.Intent.Node}, {Kind: "Namespace", Name: v.Intent.Pod.Namespace}}
	if v.Workload != nil {
		by = append(by, v.Workload.Named())
	}
	return by
}
