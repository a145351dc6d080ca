package watcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// longestWait is the longest delay of a key in the workqueue, which cannot remove a key. pop delays a key that is due later
// again.
const longestWait = time.Hour

// queue holds each key once until it is due. The keys are in a client-go workqueue; items has the causes of each key.
// It is safe for concurrent use, except that only one goroutine at a time may call take.
type queue struct {
	mu    sync.Mutex
	items map[scope.Key]*workItem
	keys  workqueue.TypedDelayingInterface[scope.Key]
	now   func() time.Time // the clock of the due times
}

// groupsLast is the order of due keys: groups come after pods, nodes, and requests, which take less time to build. So that groups
// never starve, every groupTurn-th key is a group.
type groupsLast struct {
	others, groups workqueue.Queue[scope.Key]
	pops           int
}

const groupTurn = 16

func newGroupsLast() *groupsLast {
	return &groupsLast{others: workqueue.DefaultQueue[scope.Key](), groups: workqueue.DefaultQueue[scope.Key]()}
}

func (q *groupsLast) Touch(scope.Key) {}

func (q *groupsLast) Push(key scope.Key) {
	if key.Grouped() {
		q.groups.Push(key)
	} else {
		q.others.Push(key)
	}
}

func (q *groupsLast) Len() int { return q.others.Len() + q.groups.Len() }

func (q *groupsLast) Pop() scope.Key {
	q.pops++
	if q.others.Len() == 0 || q.groups.Len() > 0 && q.pops%groupTurn == 0 {
		return q.groups.Pop()
	}
	return q.others.Pop()
}

// workItem is one key in the queue.
type workItem struct {
	key    scope.Key
	due    time.Time
	causes []schemas.Cause
	first  schemas.Event // the event of the first cause; zero if it has none
	built  schemas.Event // the scope, from Reconcile until it is published; else zero
}

// newQueue returns a queue that ends with ctx.
func newQueue(ctx context.Context, now func() time.Time) *queue {
	keys := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[scope.Key]{
		Name:  "watcher",
		Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[scope.Key]{Name: "watcher", Queue: newGroupsLast()}),
	})
	context.AfterFunc(ctx, keys.ShutDown)
	return &queue{items: map[scope.Key]*workItem{}, keys: keys, now: now}
}

// add enqueues a key that is due at the time of the trigger or earlier. For a key that is queued already, it adds a
// cause, up to [schemas.MaxCauses], and keeps the earlier time, so that a stream of causes cannot delay the key.
func (q *queue) add(key scope.Key, t trigger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	item, queued := q.items[key]
	if !queued {
		item = &workItem{key: key, first: t.event}
		q.items[key] = item
	}
	if !queued || t.at.Before(item.due) {
		q.delay(item, t.at)
	}
	again := t.cause.Kind == schemas.CauseDue && slices.Contains(item.causes, t.cause) // as after each resync
	if len(item.causes) < schemas.MaxCauses && !again {
		item.causes = append(item.causes, t.cause)
	}
}

// delay adds an item to the workqueue with its delay. The caller holds mu.
func (q *queue) delay(item *workItem, due time.Time) {
	item.due = due
	q.keys.AddAfter(item.key, min(due.Sub(q.now()), longestWait))
}

// remove removes a key that is due after a time. The workqueue returns the key once more, and pop skips it.
func (q *queue) remove(key scope.Key, after time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if item := q.items[key]; item != nil && item.due.After(after) {
		delete(q.items, key)
	}
}

// requeue returns items to the queue, due at due or earlier. It keeps the causes that were added meanwhile.
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

// take waits until a key is due, then removes and returns all due keys, at most max. It returns nil when the queue has
// ended.
func (q *queue) take(max int) []*workItem {
	var list []*workItem
	for len(list) == 0 || len(list) < max && q.keys.Len() > 0 {
		key, ended := q.keys.Get()
		if ended {
			return nil
		}
		q.keys.Done(key) // does not block: there is only one reader
		if item := q.pop(key); item != nil {
			list = append(list, item)
		}
	}
	return list
}

// pop removes and returns the item of a key, or nil if it has none or is due later.
func (q *queue) pop(key scope.Key) *workItem {
	q.mu.Lock()
	defer q.mu.Unlock()
	item := q.items[key]
	switch {
	case item == nil:
		return nil
	case item.due.After(q.now()): // taken or removed, and enqueued again; or it is due after longestWait
		q.delay(item, item.due)
		return nil
	}
	delete(q.items, key)
	return item
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}
