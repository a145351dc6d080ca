package watcher

import (
	"context"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// unread are requests that were rejected without being read, and are still to be dropped: what that takes neither holds up
// who answers the others nor the bus. They are no more than are open on the bus; who leads next finds again what is left of
// them. Its methods may be called from many goroutines. Make one with newUnread.
type unread struct {
	mu      sync.Mutex
	waiting []schemas.Event // Channel and Sequence alone
	known   map[uint64]bool // by Sequence, also the one that is being dropped
	more    chan struct{}   // capacity 1: there are some
}

func newUnread() *unread {
	return &unread{known: map[uint64]bool{}, more: make(chan struct{}, 1)}
}

// has says whether the request is to be dropped.
func (u *unread) has(e schemas.Event) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.known[e.Sequence]
}

func (u *unread) add(e schemas.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.known[e.Sequence] = true
	u.waiting = append(u.waiting, e)
	select {
	case u.more <- struct{}{}:
	default:
	}
}

// first is the one that has waited the longest, if there is any.
func (u *unread) first() (e schemas.Event, found bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.waiting) == 0 {
		return e, false
	}
	return u.waiting[0], true
}

// dropped forgets the first one.
func (u *unread) dropped() {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.known, u.waiting[0].Sequence)
	u.waiting[0] = schemas.Event{}
	u.waiting = u.waiting[1:]
}

// dropUnread drops what is not read until ctx ends. After each it rests for as long as that took: a bus that is busy has half
// of its time for others, and what it is flooded with beyond that fills up the requests, upon which it takes no more of it.
func (r *requests) dropUnread(ctx context.Context) {
	if r.bus == nil {
		return
	}
	var tries backoff
	for {
		e, found := r.unread.first()
		if !found {
			select {
			case <-ctx.Done():
				return
			case <-r.unread.more:
			}
			continue
		}
		began := time.Now()
		err := r.bus.DropRequest(ctx, e)
		rest := time.Since(began)
		if err == nil {
			tries.reset()
			r.unread.dropped()
		} else {
			rest = tries.next()
			if tries.first() && ctx.Err() == nil {
				r.l.w.log.Warn("a request that is one too many could not be dropped, trying again", "error", err)
			}
		}
		if !sleep(ctx, rest) {
			return
		}
	}
}
