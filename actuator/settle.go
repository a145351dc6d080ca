package actuator

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/workload"
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

// replacementOf finds the pod that took the place of one that was moved, among the pods of its workload in the order in which
// they were made; seen is that of [View]. Those of taken are the replacements of others. ok is false when there is none yet.
func replacementOf(x *moving, pods []workload.Pod, seen func(types.UID) uint64, taken map[types.UID]bool) (found workload.Pod, ok bool) {
	for _, p := range pods {
		uid := p.Ref.UID
		if uid == x.replacement && !p.Leaving {
			return p, true
		}
		newer := seen(uid) > x.seen
		if x.seen == 0 {
			newer = !p.Created.Before(x.Begun.Add(-skew).Truncate(time.Second))
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
func settled(x *moving, pod, replacement workload.Pod, wanted workload.Tally, now time.Time) (ended, bool) {
	gone := pod.Ref.UID == "" || pod.Ended
	since := now.Sub(x.Moved)
	e := ended{settlement: schemas.Settlement{Seconds: since.Seconds()}}
	name := replacement.Ref.UID != ""
	if name {
		e.settlement.Replacement, e.settlement.Node = &replacement.Ref, replacement.Node
	}
	switch {
	case name && (replacement.Ready || replacement.Ended):
		e.reason = schemas.ReasonReplaced
		if replacement.Node == x.Open.Intent.Node {
			e.reason = schemas.ReasonCameBack
		}
		e.message = fmt.Sprintf("%s runs on %s, after %v", replacement.Ref, replacement.Node, since.Round(time.Millisecond))
	case gone && x.at.workload == "":
		e.reason, e.message = schemas.ReasonNotReplaced, "the pod is gone, and has no controller that would replace it"
	case gone && !name && wanted.Ready >= wanted.Wanted && since >= replacedWithin:
		e.reason = schemas.ReasonNotReplaced
		e.message = fmt.Sprintf("nothing took its place, and %d of %d pods are ready", wanted.Ready, wanted.Wanted)
	case since >= followFor && name:
		e.reason, e.message = schemas.ReasonReplacementPending, replacement.Ref.String()+" is not ready: "+replacement.Why
	case since >= followFor && gone:
		e.reason, e.message = schemas.ReasonNotReplaced, "no replacement was made"
	case since >= followFor:
		e.reason, e.message = schemas.ReasonReplacementPending, "the pod is still being deleted"
	default:
		return ended{}, false
	}
	return e, true
}

// verdict is the verdict that ends a move.
func (x *moving) verdict(e ended) schemas.Verdict {
	v := x.Open.Verdict(schemas.Settled, e.reason, e.message)
	v.Method, v.Instead, v.Workload, v.Settlement = x.Method, x.Instead, x.Workload, &e.settlement
	return v
}
