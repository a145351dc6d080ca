package faults

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// loss is a time whose messages and ledger records restoring the bus removed.
type loss struct {
	interval
	known map[types.UID]bool // pods with a move in the restored ledger; true: the API server had not accepted it yet
}

// excuse reports whether restoring the bus removed the messages of a time, and the ledger record of a pod, and counts that. The
// in-flight records are lost with the bus (docs/architecture.md, "Where state lives"): a leader cannot know what they had.
func (h *history) excuse(at time.Time, pod types.UID) bool {
	lost := slices.ContainsFunc(h.losses, func(l loss) bool { return l.overlaps(at, at) && !l.has(pod) })
	if lost {
		h.excused++
	}
	return lost
}

// has reports whether the restored ledger has a move of the pod.
func (l loss) has(pod types.UID) bool {
	_, has := l.known[pod]
	return has
}

// reportedAgain reports whether restoring the bus between two verdicts on the eviction of a pod removed the first one, and brought
// back the record of a move of the pod that the API server had not accepted yet. The leader then finds the record and no pod, so it
// must report the move on the restored bus, where it is the only verdict.
func (h *history) reportedAgain(first, second verdict) bool {
	again := slices.ContainsFunc(h.losses, func(l loss) bool {
		return l.overlaps(first.at, first.at) && second.at.After(l.to) && l.known[first.Intent.Pod.UID] &&
			strings.Contains(second.Message, "the answer was lost")
	})
	if again {
		h.excused++
	}
	return again
}

// endedAgain reports whether the end of a move is reported for another intent of its pod. Restoring the bus removed the verdict on
// the move, and brought back the record of that intent, see reportedAgain.
func (h *history) endedAgain(first verdict) bool {
	for id, list := range h.verdicts {
		for _, v := range list {
			if v.Intent.Pod.UID == first.Intent.Pod.UID && v.Outcome == schemas.Evicted && len(h.settled[id]) > 0 && h.reportedAgain(first, v) {
				return true
			}
		}
	}
	return false
}

// undone reports whether restoring etcd between two times undid what was there at the first one.
func (h *history) undone(first, second time.Time) bool {
	return slices.ContainsFunc(h.rewound, func(i interval) bool { return i.overlaps(first, first) && second.After(i.to) })
}

// back reports whether restoring etcd before a time brought an evicted pod back.
func (h *history) back(pod types.UID, at time.Time) bool {
	return slices.ContainsFunc(h.accepted, func(e eviction) bool { return e.uid == pod && h.undone(e.received, at) })
}
