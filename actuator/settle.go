package actuator

import (
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// overBy returns the end of a move, or nil if it goes on. The caller holds mu.
func (s *session) overBy(x *inFlight, now time.Time) *ended {
	w := s.moves.workloads[x.at.workload]
	if x.replacement != "" {
		if p, known := s.cfg.View.Pod(x.replacement); !known || p.Leaving {
			delete(w.replacements, x.replacement)
			x.replacement = ""
		}
	}
	s.await(x)
	var by cluster.Pod
	if x.replacement != "" {
		by, _ = s.cfg.View.Pod(x.replacement)
	}
	if by.Node != "" {
		s.releaseCapacity(x)
	}
	pod, _ := s.cfg.View.Pod(x.uid())
	e, over := settled(x, s.traits(x), pod, by, s.cfg.View.Tally(x.at.workload), now)
	if !over {
		return nil
	}
	return &e
}

const (
	// failsFor is how long the steps of a move may fail with permanent errors. An API server that starts has its rights and
	// kinds within minutes, and an hour leaves time to restore a right that was removed.
	failsFor = time.Hour
	// followFor limits how long a move is followed after its pod left. It allows for an image pull and the start of a new
	// node.
	followFor = 10 * time.Minute
	// replacedWithin is the time within which a controller creates a replacement. It usually needs milliseconds.
	replacedWithin = 30 * time.Second
)

// stepFailed schedules the next step after a failed one. After failsFor it cancels the move, so that the method undoes it.
// If that fails, too, the move ends. Only the time between two permanent errors counts, see [move.Permanent]: an outage
// of the API server ends no move. A new leader begins with zero. The caller holds mu.
func (s *session) stepFailed(x *inFlight, err error, now time.Time) {
	last := x.failed
	if x.failed = (time.Time{}); move.Permanent(err) {
		if x.failed = now; !last.IsZero() {
			x.failing += now.Sub(last)
		}
	}
	switch {
	case x.failed.IsZero() || x.failing < failsFor:
		s.cfg.Log.Warn("cannot follow a move; retrying", "pod", x.Intent.Pod.String(), "method", x.Method, "error", err)
		s.queues.inFlight.AddAfter(x.uid(), trackEvery)
	case !x.Canceled:
		s.cfg.Log.Warn("move canceled: its steps fail", "pod", x.Intent.Pod.String(), "method", x.Method, "error", err)
		x.Canceled, x.Failure = true, err.Error()
		s.remember(x, now)
		s.queues.inFlight.Add(x.uid())
	default:
		message := fmt.Sprintf("the steps of the move failed for %s, and it was not undone: %v", failsFor, err)
		s.arrive(x, ended{schemas.ReasonMoveFailed, message, schemas.Settlement{Seconds: now.Sub(x.Moved).Seconds()}}, now)
	}
}

// arrive ends a move in flight: it frees the limits that the move counts against, and publishes the end. The caller
// holds mu.
func (s *session) arrive(x *inFlight, e ended, now time.Time) {
	s.moves.remove(x)
	s.releaseCapacity(x)
	s.entries.stepped(x, now)
	s.clusterDue = true // one pending replacement less, or one that is no longer followed
	s.releaseFor(x.at)
	s.landed(x, e, now)
	x.Settled, x.Replacement, x.Pending = true, x.replacement, e.pending(now.Sub(x.leftAt()))
	s.publishEnd(x, e)
	if e := s.entries.front(x.uid()); e != nil {
		s.enqueue(e)
	}
}

// isPending reports whether the replacement of a move that is no longer followed is still not ready.
func (s *session) isPending(x *inFlight) bool {
	if uid := x.Replacement; uid != "" {
		p, known := s.cfg.View.Pod(uid)
		return known && !p.Ready && !p.Ended && !p.Leaving
	}
	_, known := s.cfg.View.Pod(x.uid())
	tally := s.cfg.View.Tally(x.at.workload)
	return known || tally.Ready < tally.Wanted
}

// ended is the end of a move.
type ended struct {
	reason     schemas.ReasonCode
	message    string
	settlement schemas.Settlement
}

// pending reports whether a move ended although its replacement is not ready, that long after its pod left.
func (e ended) pending(waited time.Duration) bool {
	return e.reason == schemas.ReasonReplacementPending || e.reason == schemas.ReasonNotReplaced && waited >= followFor
}

// settled reports whether a move is over at the time now, and how. pod is the moved pod, or the zero value if it is
// gone; replacement is the zero value if there is none.
func settled(x *inFlight, of policy.Traits, pod, replacement cluster.Pod, tally cluster.Tally, now time.Time) (ended, bool) {
	var e ended
	since, waited := now.Sub(x.Moved), now.Sub(x.leftAt())
	if replacement.Ref.UID == "" {
		e.reason, e.message = unreplaced(x, pod, tally, waited)
	} else {
		e.reason, e.message = replaced(x, of, replacement, since, waited)
		e.settlement.Replacement, e.settlement.Node = &replacement.Ref, replacement.Node
	}
	if e.reason == "" {
		return ended{}, false
	}
	e.settlement.Seconds = since.Seconds()
	return e, true
}

// replaced returns the end of a move with a replacement. Empty means that it is not over. since counts from the
// acceptance of the move, waited from the time when its pod left.
func replaced(x *inFlight, of policy.Traits, by cluster.Pod, since, waited time.Duration) (schemas.ReasonCode, string) {
	arrived := fmt.Sprintf("%s runs on %s, after %v", by.Ref, by.Node, since.Round(time.Millisecond))
	switch {
	case (by.Ready || by.Ended) && by.Node == x.Intent.Node && !of.RenewsPods:
		return schemas.ReasonCameBack, arrived
	case by.Ready || by.Ended:
		return schemas.ReasonReplaced, arrived
	case waited >= followFor:
		return schemas.ReasonReplacementPending, by.Ref.String() + " is not ready: " + by.Why
	}
	return "", ""
}

// unreplaced returns the end of a move without a replacement. Empty means that it is not over. waited counts from
// the time when its pod left.
func unreplaced(x *inFlight, pod cluster.Pod, tally cluster.Tally, waited time.Duration) (schemas.ReasonCode, string) {
	switch gone := pod.Ref.UID == "" || pod.Ended; {
	case gone && x.at.workload == "":
		return schemas.ReasonNotReplaced, "the pod is gone and has no controller to replace it"
	case gone && tally.Ready >= tally.Wanted && waited >= replacedWithin:
		return schemas.ReasonNotReplaced,
			fmt.Sprintf("no pod replaced it; %d of %d pods are ready", tally.Ready, tally.Wanted)
	case gone && waited >= followFor:
		return schemas.ReasonNotReplaced, "no replacement was made"
	case waited >= followFor:
		return schemas.ReasonReplacementPending, "the pod is still being deleted"
	}
	return "", ""
}

// verdict returns the verdict that ends a move.
func (x *inFlight) verdict(e ended) schemas.Verdict {
	v := x.Intent.Verdict(schemas.Settled, e.reason, e.message)
	v.Method, v.Instead, v.Workload, v.Settlement = x.Method, x.Instead, x.Workload, &e.settlement
	return v
}
