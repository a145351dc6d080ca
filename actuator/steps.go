package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// trackEvery is how often all moves in flight are tracked.
	trackEvery = 5 * time.Second
	// stepEvery is the delay between steps if the method requests none.
	stepEvery = 10 * time.Second
	// failsFor is how long the steps of a move may fail with permanent errors. An API server that starts has its rights and
	// kinds within minutes, and an hour leaves time to restore a right that was removed.
	failsFor = time.Hour
)

// track ends a move in flight that is over, or takes its next step.
func (s *session) track(ctx context.Context, x *inFlight) {
	s.mu.Lock()
	if s.moves.all[x.uid()] != x || x.Moved.IsZero() {
		unanswered, r := x.isUnanswered(), x.record
		s.mu.Unlock()
		if unanswered {
			s.awaitAnswer(ctx, x, r)
		}
		return
	}
	if x.State != nil {
		method, state, cancel, reported := s.method(x.Method), x.State, x.Canceled, x.reported
		s.mu.Unlock()
		if reported {
			s.step(ctx, x, method, state, cancel)
		}
		return
	}
	defer s.mu.Unlock()
	now := s.cfg.Now()
	if x.over == nil {
		x.over = s.overBy(x, now)
	}
	if x.over == nil && s.staysOn(x, now) {
		x.looked = now
		s.mu.Unlock()
		back := s.isBack(ctx, x)
		s.mu.Lock()
		if s.moves.all[x.uid()] != x {
			return
		}
		if back {
			settlement := schemas.Settlement{Seconds: now.Sub(x.Moved).Seconds()}
			x.over = &ended{schemas.ReasonTakenBack, "the pod is back, as after a restore of etcd", settlement}
		}
	}
	if x.over != nil && x.reported {
		s.settle(x, *x.over, now)
	}
}

// backAfter is how long a moved pod may stay in the cache without terminating. Then the actuator asks the API server. It is
// longer than webhooks usually delay a deletion, and shorter than the default timeout of a replacement.
const backAfter = 100 * time.Second

// staysOn reports whether the cache still has a moved pod that is not terminating, long after it had to leave: the cache is
// behind, or the pod is back. The caller holds mu.
func (s *session) staysOn(x *inFlight, now time.Time) bool {
	pod, known := s.cfg.View.Pod(x.uid())
	return known && !pod.Leaving && !pod.Ended && now.Sub(x.leftAt()) >= backAfter && now.Sub(x.looked) >= replacedWithin
}

// isBack asks the API server whether a moved pod still exists and is not terminating.
func (s *session) isBack(ctx context.Context, x *inFlight) bool {
	pod, err := s.look(ctx, x.Intent.Pod, storage)
	return err == nil && pod != nil && pod.UID == x.uid() && pod.DeletionTimestamp == nil
}

// step takes the next step of a move. method is nil if this version does not know the method of the move. The end of ctx
// does not interrupt the step, but no eviction begins after that.
func (s *session) step(ctx context.Context, x *inFlight, method move.Method, state move.State, canceled bool) {
	calling, end := detached(ctx)
	defer end()
	p, err := s.callStep(calling, x, method, state, canceled)
	s.mu.Lock()
	stays := x.Canceled || s.skips(x) || p.Refusal != nil && p.Refusal.Wait
	s.mu.Unlock()
	if err == nil && p.Stage == move.Released && !stays {
		p = s.evictInstead(ctx, calling, x, p)
	}
	var stored *ledgerChange
	s.mu.Lock()
	if err != nil {
		s.stepFailed(x, err, s.cfg.Now())
	} else {
		x.failing, x.failed = 0, time.Time{}
		stored = s.progressed(x, p, stays, s.cfg.Now())
	}
	s.mu.Unlock()
	if stored != nil {
		_ = stored.wait(s.saving) // the queue holds back the next step until then; an error means that the session is over
	}
}

// callStep lets the method take the next step. It undoes a move that has changed nothing yet if the pod no longer passes the
// gates.
func (s *session) callStep(
	ctx context.Context, x *inFlight, method move.Method, state move.State, canceled bool,
) (p move.Progress, err error) {
	if err = s.checkLease(x.Intent.Pod); err != nil {
		return p, err
	}
	if method == nil {
		return p, fmt.Errorf("%w: there is no method %q", move.ErrUnreadable, x.Method)
	}
	var refusal *move.Refusal
	if !canceled && move.IsPlanned(state) {
		if _, refusal, err = s.judgeAgain(ctx, x); err != nil {
			return p, err
		}
		canceled = refusal != nil && !isGone(refusal) && !s.isPlaced(x, refusal)
	}
	p, err = method.Step(ctx, state, canceled, s.cfg.Now())
	if canceled && refusal != nil && p.Stage == move.Undone {
		p.Refusal, p.Message = nil, refusal.Message
	}
	return p, err
}

// skips reports whether the policy allows no other method after the method of the move.
func (s *session) skips(x *inFlight) bool {
	restarts := x.Method == schemas.MethodRestart || x.Method == schemas.MethodSurge
	return restarts && s.policy.Load().Restart.Otherwise == policy.OtherwiseSkip
}

// progressed handles the progress of a move after a step. stays means that its pod is not moved by another method. The
// next step must not begin before the result is stored; the result is nil if there is no new state. The caller holds mu.
func (s *session) progressed(x *inFlight, p move.Progress, stays bool, now time.Time) *ledgerChange {
	delay := cmp.Or(max(p.Delay, 0), stepEvery)
	x.Method = cmp.Or(p.Method, x.Method)
	if p.State != nil {
		x.State = p.State
	}
	if p.Stage == move.Released && x.Released.IsZero() {
		x.Released = now
	}
	switch {
	case p.Stage == move.Done:
		x.State, x.Left, delay = nil, now, 0
		s.entries.stepped(x, now)
	case p.Stage == move.Undone, p.Stage == move.Released && (stays || now.Sub(x.Released) >= followFor):
		message := p.Message
		if p.Refusal != nil {
			message = p.Refusal.Message
		}
		if x.Failure != "" {
			message = fmt.Sprintf("the move was undone, because its steps failed for %s: %s", failsFor, x.Failure)
		}
		s.settle(x, ended{schemas.ReasonTakenBack, message, schemas.Settlement{Seconds: now.Sub(x.Moved).Seconds()}}, now)
		return nil
	case p.Stage == move.Released:
		delay = trackEvery
	}
	stored := s.ledgerWrites.set(x.key(), x.record)
	s.queues.inFlight.AddAfter(x.uid(), delay)
	if x.State == nil || p.State == nil {
		return nil
	}
	return stored
}

// stepFailed schedules the next step after a failed one. After failsFor it cancels the move, so that the method undoes it.
// If that fails, too, the move ends. Only the time between two permanent errors counts, see [move.Permanent]: an outage
// of the API server ends no move. A new leader begins with zero. The caller holds mu.
func (s *session) stepFailed(x *inFlight, err error, now time.Time) {
	permanent := move.Permanent(err)
	if permanent && !x.failed.IsZero() {
		x.failing += now.Sub(x.failed)
	}
	if x.failed = now; !permanent {
		x.failed = time.Time{}
	}
	switch {
	case !permanent || x.failing < failsFor:
		s.cfg.Log.Warn("cannot follow a move; retrying", "pod", x.Intent.Pod.String(), "method", x.Method, "error", err)
		s.queues.inFlight.AddAfter(x.uid(), trackEvery)
	case !x.Canceled:
		s.cfg.Log.Warn("move canceled: its steps fail", "pod", x.Intent.Pod.String(), "method", x.Method, "error", err)
		x.Canceled, x.Failure = true, err.Error()
		s.remember(x, now)
		s.queues.inFlight.Add(x.uid())
	default:
		message := fmt.Sprintf("the steps of the move failed for %s, and it was not undone: %v", failsFor, err)
		s.settle(x, ended{schemas.ReasonMoveFailed, message, schemas.Settlement{Seconds: now.Sub(x.Moved).Seconds()}}, now)
	}
}

// judgeAgain applies the gates to the live pod of a move, except the expiry: the intent had not expired when the move
// began, and a newer evaluation that does not list the pod cancels it. The refusal is nil if the pod passes.
func (s *session) judgeAgain(ctx context.Context, x *inFlight) (*corev1.Pod, *move.Refusal, error) {
	pod, err := s.look(ctx, x.Intent.Pod, storage)
	if err != nil {
		return nil, nil, fmt.Errorf("look at pod %s: %w: %w", x.Intent.Pod, ErrUnavailable, err)
	}
	now, i := s.cfg.Now(), x.Intent
	i.Expires = now.Add(1)
	return pod, s.judge(i, pod, now), nil
}

// evictInstead evicts a pod that another program did not move as requested. It returns the progress after that, or p if the
// pod stays. If a webhook takes the eviction over, its method continues the move. The pod passes every gate again, and the
// eviction needs tokens, closed circuit breakers, and enough available pods. After the end of ctx it makes no call; calling
// is the context of the calls.
func (s *session) evictInstead(ctx, calling context.Context, x *inFlight, p move.Progress) move.Progress {
	if ctx.Err() != nil {
		return p
	}
	pod, r, err := s.judgeAgain(calling, x)
	switch {
	case err == nil && isGone(r):
		return move.Progress{Stage: move.Done}
	case err != nil, r != nil, ctx.Err() != nil:
		return p
	}
	if !s.takeTokens(x) {
		return p
	}
	var planned move.Record
	evicted, err := s.evictions.Start(calling, pod, s.cfg.Now(), func(_ context.Context, r move.Record) error {
		planned = r
		return nil
	})
	moved := err == nil && evicted.Refusal == nil
	s.mu.Lock()
	now := s.cfg.Now()
	x.returnTokens(!errors.Is(err, ErrNotLeading), moved, now)
	if err == nil {
		s.called(x, s.started(x.Intent, evicted, nil), now)
	}
	if moved {
		p = evicted
		p.State = planned.State
	}
	s.mu.Unlock()
	s.freed()
	return p
}

// takeTokens takes the tokens for the eviction of a pod that another program did not move. It reports false if there are none, a
// circuit breaker holds the pod, or too many pods of its workload are unavailable by now.
func (s *session) takeTokens(x *inFlight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ofNamespace := s.cfg.Now(), s.namespaceBucket(x.at.namespace)
	if why, _ := s.breakerOpen(x.at.namespace, now); why != nil || max(s.bucket.Wait(now), ofNamespace.Wait(now)) > 0 {
		return false
	}
	if _, blocks := unavailable(admission{x.Intent, x.at, s.moves, s.cfg.View, s.policy.Load().Limits, now}); blocks {
		return false
	}
	x.buckets = [2]*limit.Bucket{s.bucket, ofNamespace}
	s.bucket.Take()
	ofNamespace.Take()
	return true
}

// cancelUnlisted cancels the moves in flight whose pods a newer message of their scope does not list. Where pods count
// together, the cause of a move is gone only if the scope was built after the move began and the pod has no replacement,
// because a replacement changes the answer by itself. The caller holds mu.
func (s *session) cancelUnlisted(a schemas.Intents) {
	if s.batched { // the caller gives the pods of a scope in parts
		return
	}
	k := scopeKey{a.Profile, a.Strategy, a.Scope.Kind, a.Scope.Key}
	for uid, x := range s.moves.all {
		if !x.cancelable() || x.Intent.scopeKey() != k ||
			a.Scope.Sequence <= x.Intent.Scope.Sequence ||
			countsTogether(k.kind) && (!a.Scope.Now.After(x.Begun) || s.hasReplacement(x)) ||
			slices.ContainsFunc(a.Intents, func(i schemas.Intent) bool { return i.Pod.UID == uid }) {
			continue
		}
		s.cancel(x, "its cause is gone")
	}
}

// cancelDisabled cancels the moves in flight whose strategy the policy does not have. The caller holds mu.
func (s *session) cancelDisabled(p *policy.Policy) {
	for _, x := range s.moves.all {
		if _, ok := enables(p, x.Intent); !ok {
			s.cancel(x, "the policy does not have its strategy")
		}
	}
}

// cancelable reports whether a move can still be canceled: it has more steps, or begins at this moment.
func (x *inFlight) cancelable() bool { return !x.Canceled && (x.State != nil || x.Moved.IsZero()) }

// cancel makes the next step of a move undo it. It only marks a move that begins at this moment, which may turn out to
// have more steps. A move without more steps cannot be canceled. The caller holds mu.
func (s *session) cancel(x *inFlight, why string) {
	if !x.cancelable() {
		return
	}
	x.Canceled = true
	if x.State == nil {
		return
	}
	s.cfg.Log.Info("move canceled", "pod", x.Intent.Pod.String(), "method", x.Method, "reason", why)
	if x.reported { // else the record is stored after the verdict, which must not be lost
		s.remember(x, s.cfg.Now())
	}
	s.queues.inFlight.Add(x.uid())
}

// trackDue tracks all moves in flight. The caller holds mu.
func (s *session) trackDue(now time.Time) {
	s.tracked, s.clusterDue = now, true
	for _, x := range s.settled {
		x.Pending = x.Pending && s.isPending(x)
	}
	s.moves.forgetCooldowns(s.policy.Load().Limits.Pause, now)
	for uid, w := range s.moves.workloads {
		if len(w.waiting) > 0 {
			s.matchAll(uid, w)
		}
	}
	for uid, x := range s.moves.all {
		if x.State == nil && !x.Moved.IsZero() {
			s.queues.inFlight.Add(uid)
		}
	}
}
