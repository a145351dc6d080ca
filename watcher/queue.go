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
	"github.com/rehome-dev/rehome/watcher/scope"
)

// queue holds each key once until it is due. The keys are in a workqueue of client-go; items adds the causes of each key. Its methods
// may be called from many goroutines; take from one at a time.
type queue struct {
	mu    sync.Mutex
	items map[scope.Key]*workItem
	// keys is the workqueue. nil until the first call of take, and offline, where due returns the keys.
	keys   workqueue.TypedDelayingInterface[scope.Key]
	number int
	now    func() time.Time // the clock that due times are of
}

// workItem is one key in the queue.
type workItem struct {
	key    scope.Key
	due    time.Time
	causes []schemas.Cause
	first  schemas.Event // the event of the first cause; zero: it has none
	number int           // how many were enqueued before
	built  schemas.Event // the scope, from Reconcile until it is published; zero: there is none
}

func newQueue(now func() time.Time) *queue { return &queue{items: map[scope.Key]*workItem{}, now: now} }

// add enqueues a key, due at the time of the trigger or earlier. A key that is in the queue already gets one more cause, up to
// [schemas.MaxCauses], and keeps the earlier time, so that a stream of causes cannot delay it.
func (q *queue) add(key scope.Key, t trigger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	item, queued := q.items[key]
	if !queued {
		q.number++
		item = &workItem{key: key, first: t.event, number: q.number}
		q.items[key] = item
	}
	if !queued || t.at.Before(item.due) {
		q.delay(item, t.at)
	}
	if len(item.causes) < schemas.MaxCauses {
		item.causes = append(item.causes, t.cause)
	}
}

// delay makes an item due. The caller holds mu.
func (q *queue) delay(item *workItem, due time.Time) {
	item.due = due
	if q.keys != nil {
		q.keys.AddAfter(item.key, due.Sub(q.now()))
	}
}

// requeue puts items back, due at due or earlier. Causes that came in between stay.
func (q *queue) requeue(list []*workItem, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, old := range list {
		item, queued := q.items[old.key]
		if !queued {
			q.items[old.key] = old
			q.delay(old, due)
			continue
		}
		item.causes = append(old.causes, item.causes...)
		item.causes = item.causes[:min(len(item.causes), schemas.MaxCauses)]
		item.first = old.first
		if due.Before(item.due) {
			q.delay(item, due)
		}
	}
}

// start makes the workqueue and fills it. It ends with ctx.
func (q *queue) start(ctx context.Context) workqueue.TypedDelayingInterface[scope.Key] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys == nil {
		q.keys = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[scope.Key]{Name: "watcher"})
		context.AfterFunc(ctx, q.keys.ShutDown)
		for _, item := range slices.SortedFunc(maps.Values(q.items), earlier) {
			q.keys.AddAfter(item.key, item.due.Sub(q.now()))
		}
	}
	return q.keys
}

// take waits until a key is due, and removes and returns all due keys, at most max; nil when ctx ends. All calls have the same ctx.
func (q *queue) take(ctx context.Context, max int) []*workItem {
	keys := q.start(ctx)
	var list []*workItem
	for len(list) == 0 || len(list) < max && keys.Len() > 0 {
		key, ended := keys.Get()
		if ended {
			return nil
		}
		keys.Done(key) // there is one reader, so no other can get it meanwhile
		if item := q.pop(key); item != nil {
			list = append(list, item)
		}
	}
	return list
}

// pop removes and returns the item of a key. nil: there is none, or it is due later.
func (q *queue) pop(key scope.Key) *workItem {
	q.mu.Lock()
	defer q.mu.Unlock()
	item := q.items[key]
	switch {
	case item == nil:
		return nil
	case item.due.After(q.now()): // it was taken, and enqueued again
		q.delay(item, item.due)
		return nil
	}
	delete(q.items, key)
	return item
}

// due removes and returns the items that are due at now, earliest first, at most max.
func (q *queue) due(now time.Time, max int) (list []*workItem) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, item := range q.items {
		if !item.due.After(now) {
			list = append(list, item)
		}
	}
	slices.SortFunc(list, earlier)
	list = list[:min(len(list), max)]
	for _, item := range list {
		delete(q.items, item.key)
	}
	return list
}

func earlier(a, b *workItem) int { return cmp.Or(a.due.Compare(b.due), a.number-b.number) }

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}
