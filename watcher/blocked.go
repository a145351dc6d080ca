package watcher

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// budgetKind is the only kind of blocking object that the watcher watches itself. Verdicts report the moves in flight.
const budgetKind = "PodDisruptionBudget"

// countedFor is how long a deferral counts after its delay. It is longer than the evaluation and the verdict that follow take.
const countedFor = time.Hour

// blockedPods tracks the pods whose moves were deferred or failed, or that move for another strategy, with the keys of
// their scopes, and the objects that block them. It is empty after a restart until everything has been evaluated. It is
// safe for concurrent use.
type blockedPods struct {
	mu   sync.Mutex
	pods map[types.UID]map[scope.Key]*blockedPod
	by   map[schemas.ObjectRef]map[*blockedPod]bool // without the UIDs of the objects
	// undone are the times of the verdicts that ended moves of pods that still run. Verdicts can arrive in another order.
	undone map[types.UID]time.Time
}

// blockedPod is a pod in the scope of one key.
type blockedPod struct {
	key       scope.Key
	deferrals int
	until     time.Time // the deferrals count until then
	by        []schemas.ObjectRef
}

func newBlockedPods() *blockedPods {
	return &blockedPods{
		pods: map[types.UID]map[scope.Key]*blockedPod{}, by: map[schemas.ObjectRef]map[*blockedPod]bool{},
		undone: map[types.UID]time.Time{},
	}
}

// deferred records another deferral of a pod. It returns the longest delay until the next evaluation, see
// [delivery.RetryDelay]. It starts the count again after a long time without one: no verdict says that a strategy stopped
// wanting a move.
func (b *blockedPods) deferred(
	v schemas.Verdict, key scope.Key, free func(namespace, name string) bool, now time.Time,
) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.link(v, key)
	if now.After(p.until) {
		p.deferrals = 0
	}
	p.deferrals++
	delay := delivery.RetryDelay(v, p.deferrals, free, now)
	p.until = now.Add(delay + countedFor)
	return delay
}

// waits records a pod that moves already. No timer causes its next evaluation.
func (b *blockedPods) waits(v schemas.Verdict, key scope.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.link(v, key)
}

// moveUndone records that the move of a pod was undone at a time. The last time counts.
func (b *blockedPods) moveUndone(uid types.UID, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at.After(b.undone[uid]) {
		b.undone[uid] = at
	}
}

// late reports whether a verdict of that time rejects a pod because of a move that was undone since.
func (b *blockedPods) late(v schemas.Verdict, at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	undone, known := b.undone[v.Intent.Pod.UID]
	return known && v.Reason == schemas.ReasonMoving && !at.After(undone)
}

// link replaces the objects that block a pod. The caller holds mu.
func (b *blockedPods) link(v schemas.Verdict, key scope.Key) *blockedPod {
	uid := v.Intent.Pod.UID
	p := b.pods[uid][key]
	if p == nil {
		p = &blockedPod{key: key}
		if b.pods[uid] == nil {
			b.pods[uid] = map[scope.Key]*blockedPod{}
		}
		b.pods[uid][key] = p
	}
	b.unlink(p)
	for _, blocker := range blockersOf(v) {
		by := blocker.Named()
		p.by = append(p.by, by)
		if b.by[by] == nil {
			b.by[by] = map[*blockedPod]bool{}
		}
		b.by[by][p] = true
	}
	return p
}

// blockersOf returns the objects that block a pod. A pod that moves blocks itself for other strategies.
func blockersOf(v schemas.Verdict) []schemas.ObjectRef {
	if v.Reason == schemas.ReasonMoving {
		return []schemas.ObjectRef{v.Intent.Pod.Object()}
	}
	return v.Blockers
}

// freed returns the keys of the pods that an object blocked and unlinks them. The next deferral links them again.
func (b *blockedPods) freed(by schemas.ObjectRef) map[scope.Key]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := map[scope.Key]bool{}
	for p := range b.by[by] {
		keys[p.key] = true
		b.unlink(p)
	}
	return keys
}

// forget drops a pod that moves or no longer must move, for one key.
func (b *blockedPods) forget(uid types.UID, key scope.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[uid][key]; p != nil {
		b.unlink(p)
		if delete(b.pods[uid], key); len(b.pods[uid]) == 0 {
			delete(b.pods, uid)
		}
	}
}

// unblocked unlinks a pod whose move has begun, or was undone, for one key. It keeps the number of deferrals, so that a move that
// is undone again and again is tried less often.
func (b *blockedPods) unblocked(uid types.UID, key scope.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[uid][key]; p != nil {
		b.unlink(p)
	}
}

// gone drops a pod that is gone.
func (b *blockedPods) gone(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pods[uid] {
		b.unlink(p)
	}
	delete(b.pods, uid)
	delete(b.undone, uid)
}

func (b *blockedPods) unlink(p *blockedPod) {
	for _, by := range p.by {
		delete(b.by[by], p)
		if len(b.by[by]) == 0 {
			delete(b.by, by)
		}
	}
	p.by = nil
}

// unblock enqueues the keys of the pods that the objects blocked.
func (s *session) unblock(t trigger, by ...schemas.ObjectRef) {
	for _, object := range by {
		for key := range s.blocked.freed(object.Named()) {
			s.queue.add(key, t)
		}
	}
}
