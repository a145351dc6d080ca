package watcher

import (
	"context"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// overlap is how far before its start a leader reads verdicts, for clocks that differ. Reading one twice does no harm.
const overlap = 5 * time.Second

func (s *session) followVerdicts(ctx context.Context) {
	since := overlap
	if len(s.policy.Loads()) > 0 {
		since = scope.LoadCooldown
	}
	err := s.w.config.Bus.FollowVerdicts(ctx, s.began.Add(-since), s.verdict)
	if err != nil && ctx.Err() == nil {
		s.w.log.Error("verdicts cannot be followed; deferred pods wait for the resync", "error", err)
	}
}

// verdict notes the verdict on an intent. A pod is evaluated again later if its move was deferred or taken back, if the intent
// expired, and if the actuator has not read the policy yet. Any other verdict makes the watcher forget the pod.
func (s *session) verdict(e schemas.Event) {
	v, err := schemas.Decode[schemas.Verdict](e)
	if err != nil {
		s.w.log.Warn("verdict is not readable", "error", err)
		return
	}
	e.Data = nil
	key := scope.Key{Profile: v.Profile, Strategy: v.Strategy, Kind: v.Scope.Kind, Name: v.Scope.Key}
	moved := v.Outcome.Moves() && (v.Intent.Asked == nil || !v.Intent.Asked.DryRun)
	takenBack := v.Outcome == schemas.Settled && v.Reason == schemas.ReasonTakenBack
	maintenance := v.Strategy == schemas.MaintenanceStrategy // which tries again by itself
	if moved && !maintenance {
		s.noteMove(key, e.Time)
	}
	if e.Time.Before(s.began.Add(-overlap)) && !maintenance {
		return // for the leader before
	}
	t := s.newTrigger(schemas.Cause{Kind: schemas.CauseRetry, Event: e.ID, Object: v.Workload})
	t.event = e
	again := !maintenance && s.requests.Verdict(v)
	switch {
	case v.Outcome == schemas.Settled && !takenBack: // it may have blocked pods of its workload, node, and namespace
		by := []schemas.ObjectRef{{Kind: "Node", Name: v.Intent.Node}, {Kind: "Namespace", Name: v.Intent.Pod.Namespace}}
		if w := v.Workload; w != nil {
			by = append(by, schemas.ObjectRef{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name})
		}
		s.unblock(t, by...)
	case maintenance:
		if moved && !v.DryRun {
			s.reserve(v)
		}
	case v.Outcome == schemas.Deferred, v.Outcome == schemas.Expired, takenBack, again,
		v.Reason == schemas.ReasonProfileUnknown && s.policy.Find(key) != nil:
		pod := v.Intent.Pod
		t.cause.Object = &schemas.ObjectRef{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		t.at = s.w.now().Add(s.blocked.deferred(v, key, s.w.cluster.BudgetAllows, s.w.now()))
		s.queue.add(key, t)
	default:
		if moved {
			s.reserve(v)
		}
		s.blocked.forget(v.Intent.Pod.UID)
	}
}

// noteMove notes that a pod was moved because of the usage of nodes.
func (s *session) noteMove(key scope.Key, at time.Time) {
	st := s.policy.Find(key)
	if st == nil {
		return
	}
	s.scopes.Moved(st, at)
	if !st.Measured() {
		return
	}
	m := &s.w.moves
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moves == nil {
		m.moves = map[scope.Key]time.Time{}
	}
	if at.After(m.moves[st.Key(scope.Cluster)]) {
		m.moves[st.Key(scope.Cluster)] = at
	}
}
