package status

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

// almostFull is the percentage of its limit that makes a stream count as full. The alert RehomeStreamFull has the same value.
const almostFull = 90

// Reached lists the limits that defer pods, and the full streams. It ignores the history, which is always full.
func (st Status) Reached() (limits []string) {
	waiting := map[schemas.ReasonCode]int{}
	for _, p := range st.Deferred {
		if p.Reason.IsLimit() {
			waiting[p.Reason]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(waiting)) {
		limits = append(limits, fmt.Sprintf("pods deferred by %s: %d", reason, waiting[reason]))
	}
	for _, s := range st.Streams {
		isFull := func(used uint64, most int64) bool { return most > 0 && used*100 >= uint64(most)*almostFull }
		switch {
		case s.Name == bus.StreamEvents:
		case isFull(s.Bytes, s.MaxBytes):
			limits = append(limits, fmt.Sprintf("stream %s uses %d of %d MiB", s.Name, s.Bytes>>20, s.MaxBytes>>20))
		case isFull(s.Messages, s.MaxMessages):
			limits = append(limits, fmt.Sprintf("stream %s has %d of %d messages", s.Name, s.Messages, s.MaxMessages))
		}
	}
	return limits
}
