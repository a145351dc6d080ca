package watcher

import (
	"context"
	"slices"
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

// some are those that have waited the longest, at most so many.
func (u *unread) some(most int) []schemas.Event {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.waiting[:min(most, len(u.waiting))])
}

// tried forgets the first n, but for those that are to be tried again.
func (u *unread) tried(n int, again []schemas.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.waiting[:n] {
		delete(u.known, e.Sequence)
	}
	clear(u.waiting[:n])
	u.waiting = append(u.waiting[n:], again...)
	for _, e := range again {
		u.known[e.Sequence] = true
	}
}

// dropAtOnce is how many requests are dropped at once: enough to share the way to the server and back, and few enough that
// whoever asks the server something else does not wait behind them.
const dropAtOnce = 32

// dropUnread drops what is not read until ctx ends. After each time it rests for as long as that took: a bus that is busy has
// half of its time for others, and what it is flooded with beyond that fills up the requests, upon which it takes no more.
func (r *requests) dropUnread(ctx context.Context) {
	if r.bus == nil {
		return
	}
	var tries backoff
	for {
		list := r.unread.some(dropAtOnce)
		if len(list) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.unread.more:
			}
			continue
		}
		began := time.Now()
		again, err := r.drop(ctx, list)
		rest := time.Since(began)
		r.unread.tried(len(list), again)
		if err == nil {
			tries.reset()
		} else {
			rest = tries.next()
			if tries.first() && ctx.Err() == nil {
				r.l.w.log.Warn("requests that are too many could not be dropped, trying again", "count", len(again), "error", err)
			}
		}
		if !sleep(ctx, rest) {
			return
		}
	}
}

// drop drops requests, all at once, and returns those that it could not drop, with one of the errors.
func (r *requests) drop(ctx context.Context, list []schemas.Event) (again []schemas.Event, err error) {
	var dropping sync.WaitGroup
	errs := make([]error, len(list))
	for i, e := range list {
		dropping.Go(func() { errs[i] = r.bus.DropRequest(ctx, e) })
	}
	dropping.Wait()
	for i, failed := range errs {
		if failed != nil {
			again, err = append(again, list[i]), failed
		}
	}
	return again, err
}
