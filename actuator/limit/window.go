package limit

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Move is a move that counts against the limits over a window, [policy.Limits]. It counts from its begin, so that a
// limit is never exceeded, and for the window after its acceptance.
type Move struct {
	Node, Namespace string
	Accepted        time.Time // zero if it has only begun
}

// Never is longer than any wait.
const Never = time.Duration(math.MaxInt64)

// Admits returns whether one more pod may be moved off the node and out of the namespace. If not, wait is the time
// until there is capacity again, or [Never] if only a policy change helps. Of several limits, reason names the one that
// lasts longest.
func Admits(
	l policy.Limits, moves iter.Seq[Move], node, namespace string, now time.Time,
) (reason schemas.ReasonCode, message string, wait time.Duration) {
	for _, limit := range []struct {
		most   *uint
		reason schemas.ReasonCode
		of     string
		counts func(Move) bool
	}{
		{l.Total, schemas.ReasonLimitTotal, "the cluster", func(Move) bool { return true }},
		{l.PerNode, schemas.ReasonLimitNode, "node " + node, func(m Move) bool { return m.Node == node }},
		{l.PerNamespace, schemas.ReasonLimitNamespace, "namespace " + namespace, func(m Move) bool { return m.Namespace == namespace }},
	} {
		if limit.most == nil {
			continue
		}
		if w := full(*limit.most, leaving(moves, limit.counts, l.Over(), now)); w > wait {
			wait, reason = w, limit.reason
			message = fmt.Sprintf("%s has reached its limit of %s", limit.of, pods(*limit.most, l.Over()))
		}
	}
	return reason, message, wait
}

// leaving returns how long each counting move stays in the window.
func leaving(moves iter.Seq[Move], counts func(Move) bool, window time.Duration, now time.Time) (after []time.Duration) {
	for m := range moves {
		left := window
		if !m.Accepted.IsZero() {
			left -= now.Sub(m.Accepted)
		}
		if left > 0 && counts(m) {
			after = append(after, left)
		}
	}
	return after
}

// full returns the time until one more move fits below most.
func full(most uint, after []time.Duration) time.Duration {
	switch {
	case most == 0:
		return Never
	case uint(len(after)) < most:
		return 0
	}
	slices.Sort(after)
	return after[len(after)-int(most)]
}

func pods(most uint, window time.Duration) string {
	if most == 1 {
		return fmt.Sprintf("1 pod in %v", window)
	}
	return fmt.Sprintf("%d pods in %v", most, window)
}

// RoomAgain describes the end of a wait that Admits returned.
func RoomAgain(wait time.Duration, now time.Time) string {
	if wait == Never {
		return "there is no capacity until the policy changes"
	}
	return "there is capacity again at " + now.Add(wait+time.Second-1).UTC().Format(time.RFC3339) // rounded up to a second
}
