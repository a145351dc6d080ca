package watcher

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// verdicts remembers what became of the pods of nodes that are worked on when they were to move. It is a memory, not a
// promise: after a restart it is empty, and trying again fills it. The zero value is empty. Its methods may be called from
// many goroutines.
type verdicts struct {
	mu   sync.Mutex
	pods map[types.UID]tried
}

// tried is what the last verdicts on a pod said.
type tried struct {
	held   *schemas.PodHeld
	moving bool
}

// of is what became of a pod.
func (m *verdicts) of(uid types.UID) tried {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid]
}

// note takes note of a verdict, and says whether it is other news than before; another message alone is none. What holds a pod
// is said by verdicts on maintenances alone, and that it moves by all.
func (m *verdicts) note(v schemas.Verdict, now time.Time) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	uid := v.Intent.Pod.UID
	was := m.pods[uid]
	is := was
	switch {
	case v.DryRun && v.Outcome.Moves():
		return false
	case v.Outcome.Moves():
		is = tried{moving: true}
	case v.Outcome == schemas.Settled:
		is.moving = false
	case v.Strategy != schemas.MaintenanceStrategy:
		return false
	case v.Outcome == schemas.Deferred, v.Outcome == schemas.Rejected, v.Outcome == schemas.Failed:
		is.moving = v.Reason == schemas.ReasonMoving
		is.held = &schemas.PodHeld{
			Outcome: v.Outcome, Reason: v.Reason, Message: v.Message, Blockers: v.Blockers, Since: now.UTC(),
		}
		if was.held != nil && was.held.Outcome == v.Outcome && was.held.Reason == v.Reason {
			is.held.Since = was.held.Since
		}
	default:
		return false
	}
	if m.pods == nil {
		m.pods = map[types.UID]tried{}
	}
	m.pods[uid] = is
	return was.moving != is.moving || !sayTheSame(was.held, is.held)
}

func sayTheSame(a, b *schemas.PodHeld) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Outcome == b.Outcome && a.Reason == b.Reason && reflect.DeepEqual(a.Blockers, b.Blockers)
}

// forget drops a pod that is gone.
func (m *verdicts) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}
