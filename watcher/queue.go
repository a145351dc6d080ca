package watcher

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// queue holds the pending evaluations, one of each, until they are due. Its methods may be called from many goroutines;
// take from one at a time.
type queue struct {
	mu      sync.Mutex
	pending map[evaluation]*pending
	heap    dueHeap
	changed chan struct{} // capacity 1: something became due earlier
}

// pending is one evaluation that waits.
type pending struct {
	evaluation
	due    time.Time
	causes []schemas.Cause
	// first is the event of the first cause, of which the scope is a consequence; zero for a cause without an event.
	first  schemas.Event
	deltas []*delta // that are causes, and may not be published yet
	index  int      // in the heap
}

func newQueue() *queue {
	return &queue{pending: map[evaluation]*pending{}, changed: make(chan struct{}, 1)}
}

// add makes ev pending, due at due or earlier. An evaluation that is pending already gets one more cause, up to
// [schemas.MaxCauses], and keeps the earlier of the two times: it settles from the first cause on, and a stream of
// causes cannot hold it back.
func (q *queue) add(ev evaluation, due time.Time, cause schemas.Cause, event schemas.Event, deltas ...*delta) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, ok := q.pending[ev]
	if ok {
		q.hasten(p, due)
	} else {
		p = &pending{evaluation: ev, due: due, first: event}
		q.pending[ev] = p
		heap.Push(&q.heap, p)
	}
	if len(p.causes) < schemas.MaxCauses {
		p.causes = append(p.causes, cause)
		for _, d := range deltas {
			if d != nil && !d.sent {
				p.deltas = append(p.deltas, d)
			}
		}
	}
	if p.index == 0 {
		q.signal()
	}
}

// hasten makes p due at due, unless it is due earlier. The caller holds mu.
func (q *queue) hasten(p *pending, due time.Time) {
	if due.Before(p.due) {
		p.due = due
		heap.Fix(&q.heap, p.index)
	}
}

// restore makes evaluations pending again that could not be published, due at due or earlier. Causes that came in between
// stay.
func (q *queue) restore(list []*pending, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, old := range list {
		if now, ok := q.pending[old.evaluation]; ok {
			now.causes = append(old.causes, now.causes...)
			now.causes = now.causes[:min(len(now.causes), schemas.MaxCauses)]
			now.first, now.deltas = old.first, append(old.deltas, now.deltas...)
			q.hasten(now, due)
			continue
		}
		old.due = due
		q.pending[old.evaluation] = old
		heap.Push(&q.heap, old)
	}
	q.signal()
}

// take waits until something is due and returns all that is, at most max, earliest first. They are no longer pending:
// a cause that comes later makes them pending anew. It returns nil when ctx ends.
func (q *queue) take(ctx context.Context, max int) []*pending {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		list, wait := q.due(time.Now(), max)
		if len(list) > 0 {
			return list
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-q.changed:
		case <-timer.C:
		}
	}
}

// due removes and returns what is due at now, at most max, or says how long to wait.
func (q *queue) due(now time.Time, max int) (list []*pending, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.heap) > 0 && len(list) < max && !q.heap[0].due.After(now) {
		p := heap.Pop(&q.heap).(*pending)
		delete(q.pending, p.evaluation)
		list = append(list, p)
	}
	if len(q.heap) == 0 {
		return list, time.Hour
	}
	return list, q.heap[0].due.Sub(now)
}

// len is how many evaluations are pending.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.heap)
}

func (q *queue) signal() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// dueHeap orders pending evaluations by the time they are due.
type dueHeap []*pending

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *dueHeap) Push(x any)        { p := x.(*pending); p.index = len(*h); *h = append(*h, p) }
func (h *dueHeap) Pop() any {
	old := *h
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return p
}
