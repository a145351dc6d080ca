package watcher

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// The delays after which a deferred pod is evaluated again at the latest; each doubles with every deferral in a row, up to lastRetry.
// What blocks a pod usually changes earlier, except for causes that no watch shows, such as a quota of another system.
const (
	firstRetry = 15 * time.Second
	lastRetry  = 10 * time.Minute
	// freedRetry is for a budget that already allows a disruption when the verdict arrives: its status may be ahead of the API server.
	freedRetry = 250 * time.Millisecond
	// outageRetry is for an API server that was busy or away, and for an intent that expired: nothing tells when that is over.
	outageRetry = time.Second
)

// budgetKind is the kind of blocker that the watcher watches. It learns of moves in flight from verdicts.
const budgetKind = "PodDisruptionBudget"

// blockedPods knows the pods whose moves were deferred, and the objects that block them. After a restart it is empty, until everything
// is evaluated. Its methods may be called from many goroutines.
type blockedPods struct {
	mu   sync.Mutex
	pods map[types.UID]*blockedPod
	by   map[schemas.ObjectRef]map[types.UID]bool // without the UIDs of the objects
}

type blockedPod struct {
	key       scope.Key
	deferrals int
	by        []schemas.ObjectRef
}

func newBlockedPods() *blockedPods {
	return &blockedPods{pods: map[types.UID]*blockedPod{}, by: map[schemas.ObjectRef]map[types.UID]bool{}}
}

// deferred notes one more deferral, and returns the delay until the next evaluation. free says whether a budget allows a disruption.
func (b *blockedPods) deferred(
	v schemas.Verdict, key scope.Key, free func(namespace, name string) bool, now time.Time,
) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := v.Intent.Pod.UID
	p := b.pods[uid]
	if p == nil {
		p = &blockedPod{}
		b.pods[uid] = p
	}
	b.unlink(uid, p)
	p.key = key
	p.deferrals++
	first := firstRetry
	if v.Outcome == schemas.Expired || v.Reason == schemas.ReasonAPIUnavailable || v.Reason == schemas.ReasonThrottled {
		first = outageRetry
	}
	delay := doubled(first, p.deferrals)
	if !v.Again.IsZero() {
		delay = max(v.Again.Sub(now), freedRetry)
	}
	for _, blocker := range v.Blockers {
		by := schemas.ObjectRef{Kind: blocker.Kind, Namespace: blocker.Namespace, Name: blocker.Name}
		p.by = append(p.by, by)
		if b.by[by] == nil {
			b.by[by] = map[types.UID]bool{}
		}
		b.by[by][uid] = true
		if by.Kind == budgetKind && free(by.Namespace, by.Name) {
			delay = min(delay, doubled(freedRetry, p.deferrals))
		}
	}
	return delay
}

// doubled is first, doubled for every attempt after the first, at most lastRetry.
func doubled(first time.Duration, attempt int) time.Duration {
	d := first
	for i := 1; i < attempt && d < lastRetry; i++ {
		d *= 2
	}
	return min(d, lastRetry)
}

// freed returns the keys of the pods that an object blocked. The next deferral links them again.
func (b *blockedPods) freed(by schemas.ObjectRef) map[scope.Key]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := map[scope.Key]bool{}
	for uid := range b.by[by] {
		p := b.pods[uid]
		keys[p.key] = true
		b.unlink(uid, p)
	}
	return keys
}

// forget drops a pod: it moved, is gone, or does not have to move any more.
func (b *blockedPods) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[uid]; p != nil {
		b.unlink(uid, p)
		delete(b.pods, uid)
	}
}

func (b *blockedPods) unlink(uid types.UID, p *blockedPod) {
	for _, by := range p.by {
		delete(b.by[by], uid)
		if len(b.by[by]) == 0 {
			delete(b.by, by)
		}
	}
	p.by = nil
}

// unblock enqueues the keys of the pods that objects blocked.
func (s *session) unblock(t trigger, by ...schemas.ObjectRef) {
	for _, object := range by {
		for key := range s.blocked.freed(object) {
			s.queue.add(key, t)
		}
	}
}
