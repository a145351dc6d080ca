package watcher

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/rehome-dev/rehome/schemas"
)

// queue holds the pending evaluations, one for each key, until they are due. The keys wait in a work queue of client-go; pending
// adds the causes of each key. Its methods may be called from many goroutines; take from one at a time.
type queue struct {
	mu      sync.Mutex
	pending map[evaluation]*pending
	// keys is the work queue. nil until the first call of take, and offline, where due returns the keys.
	keys   workqueue.TypedDelayingInterface[evaluation]
	number int
}

// pending is one evaluation that waits.
type pending struct {
	evaluation
	due    time.Time
	causes []schemas.Cause
	// first is the event of the first cause, from which the scope follows; zero for a cause without an event.
	first  schemas.Event
	number int // how many were enqueued before
}

func newQueue() *queue { return &queue{pending: map[evaluation]*pending{}} }

// add enqueues ev, due at due or earlier. An evaluation that is pending already gets one more cause, up to
// [schemas.MaxCauses], and keeps the earlier of the two times: it settles from the first cause on, and a stream of
// causes cannot hold it back.
func (q *queue) add(ev evaluation, due time.Time, cause schemas.Cause, event schemas.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, ok := q.pending[ev]
	if !ok {
		q.number++
		p = &pending{evaluation: ev, due: due, first: event, number: q.number}
		q.pending[ev] = p
	}
	if !ok || due.Before(p.due) {
		q.delay(p, due)
	}
	if len(p.causes) < schemas.MaxCauses {
		p.causes = append(p.causes, cause)
	}
}

// delay makes p due at due. The caller holds mu.
func (q *queue) delay(p *pending, due time.Time) {
	p.due = due
	if q.keys != nil {
		q.keys.AddAfter(p.evaluation, time.Until(due))
	}
}

// restore requeues evaluations that could not be published, due at due or earlier. Causes that came in between stay.
func (q *queue) restore(list []*pending, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, old := range list {
		p, ok := q.pending[old.evaluation]
		if !ok {
			q.pending[old.evaluation] = old
			q.delay(old, due)
			continue
		}
		p.causes = append(old.causes, p.causes...)
		p.causes = p.causes[:min(len(p.causes), schemas.MaxCauses)]
		p.first = old.first
		if due.Before(p.due) {
			q.delay(p, due)
		}
	}
}

// start makes the work queue and fills it. The queue ends with ctx.
func (q *queue) start(ctx context.Context) workqueue.TypedDelayingInterface[evaluation] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys == nil {
		q.keys = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[evaluation]{Name: "watcher"})
		context.AfterFunc(ctx, q.keys.ShutDown)
		for _, p := range slices.SortedFunc(maps.Values(q.pending), earlier) {
			q.keys.AddAfter(p.evaluation, time.Until(p.due))
		}
	}
	return q.keys
}

// take waits until an evaluation is due and returns all due evaluations, at most max. They are no longer pending: a later cause
// enqueues them again. It returns nil when ctx ends. All calls have the same ctx.
func (q *queue) take(ctx context.Context, max int) []*pending {
	keys := q.start(ctx)
	var list []*pending
	for len(list) == 0 || len(list) < max && keys.Len() > 0 {
		key, ended := keys.Get()
		if ended {
			return nil
		}
		keys.Done(key) // there is one reader, so no other can get it meanwhile
		if p := q.pop(key); p != nil {
			list = append(list, p)
		}
	}
	return list
}

// pop removes and returns what is pending under a key. nil: nothing, or it is due later.
func (q *queue) pop(key evaluation) *pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.pending[key]
	switch {
	case p == nil:
		return nil
	case p.due.After(time.Now()): // it was due, was taken, and is due again
		q.delay(p, p.due)
		return nil
	}
	delete(q.pending, key)
	return p
}

// due removes and returns what is due at now, at most max, earliest first, by the clock of the caller.
func (q *queue) due(now time.Time, max int) (list []*pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.pending {
		if !p.due.After(now) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, earlier)
	list = list[:min(len(list), max)]
	for _, p := range list {
		delete(q.pending, p.evaluation)
	}
	return list
}

// earlier puts what is due first first.
func earlier(a, b *pending) int { return cmp.Or(a.due.Compare(b.due), a.number-b.number) }

// len is how many evaluations are pending.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}
