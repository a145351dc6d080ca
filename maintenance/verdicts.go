package maintenance

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
)

// verdictDebounce is how long a maintenance waits after a verdict for verdicts on other pods of the node.
const verdictDebounce = time.Second

// verdict is called for every verdict.
func (s *session) verdict(e schemas.Event) {
	v, err := schemas.Decode[schemas.Verdict](e)
	if err != nil {
		s.log.Warn("a verdict cannot be read", "error", err)
		return
	}
	now := s.now()
	switch {
	case v.Outcome == schemas.Settled:
		by := []schemas.ObjectRef{blocker("Node", "", v.Intent.Node), blocker("Namespace", "", v.Intent.Pod.Namespace)}
		if w := v.Workload; w != nil {
			by = append(by, blocker(w.Kind, w.Namespace, w.Name))
		}
		s.enqueue(maintenanceKey, s.drains.freed(by...)...)
	case v.Strategy == schemas.MaintenanceStrategy && v.Scope.Kind == schemas.MaintenanceKind:
		s.drains.verdict(v, func(b schemas.ObjectRef) bool {
			budget := s.cfg.View.Budget(b.Namespace, b.Name)
			return budget == nil || allows(budget)
		}, now)
		delay := verdictDebounce
		if v.Outcome == schemas.Withdrawn || v.Outcome.Moves() { // a node may wait for it to be given back
			delay = 0
		}
		s.queue.AddAfter(key{maintenanceKey, v.Scope.Key}, delay)
	}
	p := s.cfg.View.Pod(v.Intent.Pod.Namespace, v.Intent.Pod.Name)
	if p == nil || p.UID != v.Intent.Pod.UID || p.Spec.NodeName == "" {
		return
	}
	names := s.objects.workingOn(p.Spec.NodeName)
	if len(names) == 0 || !s.pods.note(v, now) {
		return
	}
	for _, name := range names {
		s.queue.AddAfter(key{maintenanceKey, name}, verdictDebounce)
	}
	if p := s.cfg.View.Pod(v.Intent.Pod.Namespace, v.Intent.Pod.Name); p == nil || p.UID != v.Intent.Pod.UID { // it went meanwhile
		s.pods.forget(v.Intent.Pod.UID)
	}
}

// podStates are the last verdicts on the pods of nodes in progress. A new leader begins without them: trying again brings them
// back. Methods may be called from many goroutines.
type podStates struct {
	mu   sync.Mutex
	pods map[types.UID]podState
}

// podState summarizes the last verdicts on a pod.
type podState struct {
	held   *plan.LastVerdict
	moving bool
}

func newPodStates() *podStates { return &podStates{pods: map[types.UID]podState{}} }

func (m *podStates) of(uid types.UID) podState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid]
}

// note takes a verdict into account, and says whether it changes the state; another message alone does not. All verdicts count for
// moving; for the reason why a pod does not move, only verdicts on intents of maintenances do.
func (m *podStates) note(v schemas.Verdict, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.pods[v.Intent.Pod.UID]
	is := was
	switch {
	case v.DryRun && v.Outcome.Moves():
		return false
	case v.Outcome.Moves():
		is = podState{moving: true}
	case v.Outcome == schemas.Settled:
		is.moving = false
	case v.Strategy != schemas.MaintenanceStrategy:
		return false
	case v.Outcome == schemas.Deferred, v.Outcome == schemas.Rejected, v.Outcome == schemas.Failed:
		is.moving = v.Reason == schemas.ReasonMoving
		is.held = &plan.LastVerdict{
			Outcome: v.Outcome, Reason: v.Reason, Message: v.Message, Blockers: v.Blockers, Since: now.UTC(),
		}
		if was.held != nil && was.held.Outcome == v.Outcome && was.held.Reason == v.Reason {
			is.held.Since = was.held.Since
		}
	default:
		return false
	}
	m.pods[v.Intent.Pod.UID] = is
	return was.moving != is.moving || !sameVerdict(was.held, is.held)
}

func sameVerdict(a, b *plan.LastVerdict) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Outcome == b.Outcome && a.Reason == b.Reason && reflect.DeepEqual(a.Blockers, b.Blockers)
}

// forget drops a pod that is gone.
func (m *podStates) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}
