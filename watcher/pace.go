package watcher

import "time"

// Groups differ in size by orders of magnitude, and a large one can change many times a second. So that no group takes
// more than its share, one whose building took noticeable time is built again only after a pause in proportion.
const (
	noticeable = time.Millisecond
	share      = 20 // at most one part in 20 of the time
)

// pace remembers until when a group pauses. Only the goroutine that builds scopes uses it.
type pace struct {
	until map[evaluation]time.Time
}

func newPace() *pace { return &pace{until: map[evaluation]time.Time{}} }

// spent notes how long a group took to build.
func (p *pace) spent(ev evaluation, began, ended time.Time) {
	if took := ended.Sub(began); took >= noticeable {
		p.until[ev] = ended.Add(share * took)
	} else {
		delete(p.until, ev)
	}
}

// next is when the group may be built again.
func (p *pace) next(ev evaluation) time.Time { return p.until[ev] }
