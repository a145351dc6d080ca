package actuator

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/workload"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// followFor is how long a move is followed. A replacement that is not ready by then, with its image to be pulled and its
	// node perhaps to be made first, waits for something that waiting does not bring.
	followFor = 10 * time.Minute
	// replacedWithin is how long after the pod is gone a replacement may take to be made. Controllers need milliseconds, and
	// wait longer only when making pods fails.
	replacedWithin = 30 * time.Second
	// skew is how far clocks may differ where a replacement is told by its time alone.
	skew = 2 * time.Second
)

// ended is how a move ended.
type ended struct {
	reason     schemas.ReasonCode
	message    string
	settlement schemas.Settlement
}

// pending says whether a move ended though its replacement is not ready.
func (e ended) pending() bool {
	return e.reason == schemas.ReasonReplacementPending ||
		e.reason == schemas.ReasonNotReplaced && e.settlement.Seconds >= followFor.Seconds()
}

// replacementOf finds the pod that took the place of one that was moved, among the pods of its workload in the order in which
// they were made; seen is that of [View]. Those of taken are the replacements of others. ok is false when there is none yet.
func replacementOf(
	x *moving, pods []workload.Pod, seen func(types.UID) uint64, taken map[types.UID]bool,
) (found workload.Pod, ok bool) {
	for _, p := range pods {
		uid := p.Ref.UID
		if uid == x.replacement && !p.Leaving {
			return p, true
		}
		newer := seen(uid) > x.seen
		switch {
		case x.seen != 0:
		case x.Newest.IsZero():
			newer = !p.Created.Before(x.Begun.Add(-skew).Truncate(time.Second))
		default:
			newer = p.Created.After(x.Newest) // one made in the same second may be a sibling
		}
		named := x.Workload == nil || x.Workload.Kind != "StatefulSet" || p.Ref.Name == x.Open.Intent.Pod.Name
		if !ok && newer && named && !taken[uid] && !p.Leaving && uid != x.Open.Intent.Pod.UID {
			found, ok = p, true
		}
	}
	return found, ok
}

// settled says whether a move is over at the time now, and how. pod is the one that was moved, the zero value when it is
// gone; replacement is the zero value when there is none.
func settled(x *moving, of policy.Traits, pod, replacement workload.Pod, tally workload.Tally, now time.Time) (ended, bool) {
	var e ended
	since := now.Sub(x.Moved)
	if replacement.Ref.UID == "" {
		e.reason, e.message = unreplaced(x, pod, tally, since)
	} else {
		e.reason, e.message = replaced(x, of, replacement, since)
		e.settlement.Replacement, e.settlement.Node = &replacement.Ref, replacement.Node
	}
	if e.reason == "" {
		return ended{}, false
	}
	e.settlement.Seconds = since.Seconds()
	return e, true
}

// replaced is how a move ended that long after it was accepted, for which there is a replacement. Empty: it is not over.
func replaced(x *moving, of policy.Traits, by workload.Pod, since time.Duration) (schemas.ReasonCode, string) {
	arrived := fmt.Sprintf("%s runs on %s, after %v", by.Ref, by.Node, since.Round(time.Millisecond))
	switch {
	case (by.Ready || by.Ended) && by.Node == x.Open.Intent.Node && !of.RenewsPods:
		return schemas.ReasonCameBack, arrived
	case by.Ready || by.Ended:
		return schemas.ReasonReplaced, arrived
	case since >= followFor:
		return schemas.ReasonReplacementPending, by.Ref.String() + " is not ready: " + by.Why
	}
	return "", ""
}

// unreplaced is the same for a move without a replacement.
func unreplaced(x *moving, pod workload.Pod, tally workload.Tally, since time.Duration) (schemas.ReasonCode, string) {
	switch gone := pod.Ref.UID == "" || pod.Ended; {
	case gone && x.at.workload == "":
		return schemas.ReasonNotReplaced, "the pod is gone, and has no controller that would replace it"
	case gone && tally.Ready >= tally.Wanted && since >= replacedWithin:
		return schemas.ReasonNotReplaced,
			fmt.Sprintf("nothing took its place, and %d of %d pods are ready", tally.Ready, tally.Wanted)
	case gone && since >= followFor:
		return schemas.ReasonNotReplaced, "no replacement was made"
	case since >= followFor:
		return schemas.ReasonReplacementPending, "the pod is still being deleted"
	}
	return "", ""
}

// verdict is the verdict that ends a move.
func (x *moving) verdict(e ended) schemas.Verdict {
	v := x.Open.Verdict(schemas.Settled, e.reason, e.message)
	v.Method, v.Instead, v.Workload, v.Settlement = x.Method, x.Instead, x.Workload, &e.settlement
	return v
}
