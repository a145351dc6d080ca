package watcher

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// overlap is how far before its start a leader reads verdicts, because clocks differ. Reading a verdict twice is
// harmless.
const overlap = 5 * time.Second

// stepsFor is the time in which most moves with several steps end. A new leader does not know older ones.
const stepsFor = 15 * time.Minute

// readMoves records the last moves under the previous leader or policy that strategies still wait for, and the pods in flight
// under the previous leader, whose answers are pending. moved reports that the groups of pods must cool down. If it cannot read
// the moves, it starts all cooldowns.
func (s *session) readMoves(ctx context.Context, pending bool) (moved bool) {
	var past time.Duration
	for _, st := range s.policy.Strategies {
		if st.Grouped() {
			past = max(past, scope.Cooldown)
		}
		if st.Scope == schemas.UsageKind {
			past = max(past, scope.PendingCooldown)
		}
		if st.Measured() {
			past = scope.LoadCooldown
		}
	}
	if pending && s.previous == nil && s.policy.NeedsCapacity() {
		past = stepsFor
	}
	if past == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := s.w.config.Bus.Verdicts(ctx, s.began.Add(-past-overlap), func(e schemas.Event) {
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			s.noteInFlight(v)
			moved = s.noteMove(v, e.Time) && e.Time.After(s.began.Add(-scope.Cooldown)) || moved
		}
	})
	if err != nil {
		s.w.log.Warn("cannot read the last moves; starting the cooldowns of all groups and load strategies", "error", err)
		for _, st := range s.policy.Strategies {
			s.scopes.Moved(st, s.began)
		}
	}
	return moved || err != nil
}

// noteMove records a move for usage strategies. It reports whether the verdict is a move.
func (s *session) noteMove(v schemas.Verdict, at time.Time) bool {
	if !v.Outcome.Moves() || v.Intent.Asked != nil && v.Intent.Asked.DryRun {
		return false
	}
	if st := s.policy.Find(scope.Key{Profile: v.Profile, Strategy: v.Strategy}); st != nil {
		s.scopes.Moved(st, at)
	}
	return true
}

// noteInFlight records that the move of a pod has begun and has more steps, or that it is settled. The end of a move can
// arrive after the beginning of the next one.
func (s *session) noteInFlight(v schemas.Verdict) {
	pod := v.Intent.Pod.UID
	switch {
	case v.Outcome == schemas.Settled:
		s.moving.CompareAndDelete(pod, v.Intent.ID)
	case v.Outcome.Moves() && v.Outcome != schemas.Evicted && !v.DryRun && s.w.cluster.PodByUID(pod) != nil:
		s.moving.Store(pod, v.Intent.ID)
	}
}

func (s *session) isMoving(pod types.UID) bool {
	_, moving := s.moving.Load(pod)
	return moving
}

func (s *session) followVerdicts(ctx context.Context) {
	err := s.w.config.Bus.FollowVerdicts(ctx, s.began.Add(-overlap), s.verdict)
	if err != nil && ctx.Err() == nil {
		s.w.log.Error("cannot follow verdicts; deferred pods wait for the resync", "error", err)
	}
}

// verdict handles a verdict on an intent. The watcher evaluates a pod again later if its move was deferred, failed, or
// reverted, if the intent expired, or if the actuator has not loaded the policy yet. If the pod moves for another
// strategy, the end of that move causes the evaluation, unless its verdict has arrived already. Any other verdict makes
// the watcher forget the pod in that scope.
func (s *session) verdict(e schemas.Event) {
	v, err := schemas.Decode[schemas.Verdict](e)
	if err != nil {
		s.w.log.Warn("cannot read a verdict", "event", e.ID, "channel", e.Channel, "error", err)
		return
	}
	e.Data = nil
	key := scope.Key{Profile: v.Profile, Strategy: v.Strategy, Kind: v.Scope.Kind, Name: v.Scope.Key}
	s.noteInFlight(v)
	moved := s.noteMove(v, e.Time)
	maintenance := v.Strategy == schemas.MaintenanceStrategy // the actuator retries by itself
	t := s.newTrigger(schemas.Cause{Kind: schemas.CauseRetry, Event: e.ID, Object: v.Workload})
	t.event = e
	again := !maintenance && s.requests.Verdict(v)
	pod := v.Intent.Pod
	if v.Outcome == schemas.Settled {
		s.settled(v, key, t)
	}
	switch {
	case v.Outcome == schemas.Settled && !v.Unmoved():
	case maintenance:
		if moved && !v.DryRun {
			s.reserve(v)
		}
	case v.Outcome == schemas.Deferred, v.Outcome == schemas.Failed, v.Outcome == schemas.Expired, v.Unmoved(), again,
		v.Reason == schemas.ReasonProfileUnknown && s.policy.Find(key) != nil, s.blocked.late(v, e.Time):
		t.cause.Object = new(pod.Object())
		if v.Reason == schemas.ReasonNodeFit {
			s.capacity.lacks(key, pod.String())
		}
		t.at = s.w.now().Add(s.blocked.deferred(v, key, s.w.cluster.BudgetAllows, s.w.now()))
		s.queue.add(key, t)
	case v.Reason == schemas.ReasonMoving:
		s.blocked.waits(v, key)
	case moved:
		s.reserve(v)
		s.blocked.unblocked(pod.UID, key)
	default:
		s.blocked.forget(pod.UID, key)
	}
	if s.w.cluster.PodByUID(pod.UID) == nil { // its deletion may have been handled before
		s.blocked.gone(pod.UID)
		s.moving.Delete(pod.UID)
	}
}

// settled wakes the pods that a move may have blocked: its pod for other strategies, and the pods of its workload, node,
// and namespace unless the move was reverted or failed.
func (s *session) settled(v schemas.Verdict, key scope.Key, t trigger) {
	pod := v.Intent.Pod
	if !s.isMoving(pod.UID) { // else the pod moves again, and the reservation belongs to the newer move
		s.release(pod)
	}
	by := []schemas.ObjectRef{pod.Object()}
	if v.Unmoved() { // its own strategy tries such a move again after a delay, see verdict
		s.blocked.unblocked(pod.UID, key)
		s.blocked.moveUndone(pod.UID, t.event.Time)
	} else {
		s.blocked.forget(pod.UID, key)
		by = append(by, delivery.Freed(v)...)
	}
	s.unblock(t, by...)
}
