package actuator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// trackEvery is how often all moves in flight are tracked.
	trackEvery = 5 * time.Second
	// stepEvery is the delay between steps if the method requests none.
	stepEvery = 10 * time.Second
	// skew is the tolerated difference of clocks.
	skew = 2 * time.Second
)

// Changed enqueues a change of the view.
func (a *Actuator) Changed(c cluster.Change) {
	if s := a.session.Load(); s != nil {
		s.queues.changes.Add(c)
	}
}

// observe handles the changes of the view until the queue is shut down.
func (s *session) observe() {
	for {
		c, shutdown := s.queues.changes.Get()
		if shutdown {
			return
		}
		s.mu.Lock()
		s.learn(c)
		s.mu.Unlock()
		s.queues.changes.Done(c)
	}
}

// learn handles one change of the view. It reads the changed pod and its moves, and all pods of the workload only if
// the change names no pod. The caller holds mu.
func (s *session) learn(c cluster.Change) {
	if c.Node != "" {
		s.clusterDue = true
		s.checkCluster(s.cfg.Now())
		return
	}
	w := s.moves.workloads[c.Workload]
	switch {
	case w == nil:
	case c.Pod == "":
		s.matchAll(c.Workload, w)
		for uid := range w.moves {
			s.queues.inFlight.Add(uid)
		}
	default:
		p, known := s.cfg.View.Pod(c.Pod)
		if w.moves[c.Pod] != nil {
			if !known || !p.Ready {
				delete(w.going, c.Pod)
			}
			s.queues.inFlight.Add(c.Pod)
		}
		if x := w.replacements[c.Pod]; x != nil {
			s.queues.inFlight.Add(x.uid())
		} else if known {
			s.offer(w, p)
		}
		for uid, x := range w.moves {
			if x.State != nil {
				s.queues.inFlight.Add(uid)
			}
		}
	}
	if e := s.entries.front(c.Pod); e != nil && e.parked != nil {
		s.enqueue(e)
	}
	s.release(workloadBlocker(c.Workload))
}

// matchAll matches the moves of a workload with replacements among all of its pods.
func (s *session) matchAll(workload types.UID, w *workloadMoves) {
	pods := s.cfg.View.Pods(workload)
	w.going = map[types.UID]bool{}
	for _, p := range pods {
		if w.moves[p.Ref.UID] != nil && p.Ready {
			w.going[p.Ref.UID] = true
		}
		w.sawPod(p)
	}
	for _, p := range pods {
		s.offer(w, p)
	}
}

// offer assigns a replacement to the oldest move that waits for one. If there is none yet, it keeps the pod, because
// its move may be accepted a moment later.
func (s *session) offer(w *workloadMoves, p cluster.Pod) {
	uid := p.Ref.UID
	w.sawPod(p)
	if p.Leaving || w.moves[uid] != nil || w.replacements[uid] != nil {
		return
	}
	seen := s.cfg.View.Seen(uid)
	for i, x := range w.waiting {
		if x.replacedBy(p, seen) {
			w.waiting = slices.Delete(w.waiting, i, i+1)
			w.fresh = slices.DeleteFunc(w.fresh, func(o types.UID) bool { return o == uid })
			x.replacement, w.replacements[uid] = uid, x
			s.queues.inFlight.Add(x.uid())
			return
		}
	}
	if (w.first == 0 || seen > w.first) && !slices.Contains(w.fresh, uid) {
		w.fresh = append(w.fresh, uid)
	}
}

// await makes an accepted move wait for its replacement, which may exist already. The caller holds mu.
func (s *session) await(x *inFlight) {
	w := s.moves.workloads[x.at.workload]
	if w == nil || x.replacement != "" || slices.Contains(w.waiting, x) {
		return
	}
	i, _ := slices.BinarySearchFunc(w.waiting, x, func(a, b *inFlight) int { return a.older(b.record) })
	w.waiting = slices.Insert(w.waiting, i, x)
	fresh := w.fresh
	w.fresh = nil
	for _, uid := range fresh {
		if p, known := s.cfg.View.Pod(uid); known {
			s.offer(w, p)
		}
	}
}

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
	if x.over != nil && x.reported {
		s.arrive(x, *x.over, now)
	}
}

// step takes the next step of a move. method is nil if this version does not know the method of the move. The end of ctx
// does not interrupt the step, but no eviction begins after that.
func (s *session) step(ctx context.Context, x *inFlight, method move.Method, state move.State, canceled bool) {
	calling, end := detached(ctx)
	defer end()
	var p move.Progress
	var rejection Rejection
	err := s.checkLease(x.Intent.Pod)
	if err == nil && method == nil {
		err = fmt.Errorf("%w: there is no method %q", move.ErrUnreadable, x.Method)
	}
	if err == nil && !canceled && move.IsPlanned(state) {
		_, rejection, err = s.judgeAgain(calling, x)
		canceled = rejection.Reason != "" && !rejection.isGone()
	}
	if err == nil {
		p, err = method.Step(calling, state, canceled, s.cfg.Now())
	}
	if canceled && rejection.Message != "" && p.Stage == move.Undone {
		p.Refusal, p.Message = nil, rejection.Message
	}
	s.mu.Lock()
	stays := x.Canceled || s.skips(x)
	s.mu.Unlock()
	evicted := err == nil && p.Stage == move.Released && !stays && s.evictInstead(ctx, calling, x)
	var stored *ledgerChange
	s.mu.Lock()
	if err != nil {
		s.stepFailed(x, err, s.cfg.Now())
	} else {
		x.failing, x.failed = 0, time.Time{}
		stored = s.progressed(x, p, stays, evicted, s.cfg.Now())
	}
	s.mu.Unlock()
	if stored != nil {
		_ = stored.wait(s.saving) // the queue holds back the next step until then; an error means that the session is over
	}
}

// skips reports whether the policy allows no other method after the method of the move.
func (s *session) skips(x *inFlight) bool {
	restarts := x.Method == schemas.MethodRestart || x.Method == schemas.MethodSurge
	return restarts && s.policy.Load().Restart.Otherwise == policy.OtherwiseSkip
}

// progressed handles the progress of a move after a step. stays means that its pod is not moved by another method,
// evicted that it is gone or terminating because of an eviction. The next step must not begin before the result is
// stored; the result is nil if there is no new state. The caller holds mu.
func (s *session) progressed(x *inFlight, p move.Progress, stays, evicted bool, now time.Time) *ledgerChange {
	delay := cmp.Or(max(p.Delay, 0), stepEvery)
	if p.State != nil {
		x.State = p.State
	}
	switch {
	case p.Stage == move.Done, evicted:
		x.State, x.Left, delay = nil, now, 0
		s.entries.stepped(x, now)
	case p.Stage == move.Undone, p.Stage == move.Released && (stays || now.Sub(x.Moved) >= followFor):
		message := p.Message
		if p.Refusal != nil {
			message = p.Refusal.Message
		}
		if x.Failure != "" {
			message = fmt.Sprintf("the move was undone, because its steps failed for %s: %s", failsFor, x.Failure)
		}
		s.arrive(x, ended{schemas.ReasonTakenBack, message, schemas.Settlement{Seconds: now.Sub(x.Moved).Seconds()}}, now)
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

// judgeAgain applies the gates to the live pod of a move, except the expiry: the intent had not expired when the move
// began, and a newer evaluation that does not list the pod cancels it. The reason is empty if the pod passes.
func (s *session) judgeAgain(ctx context.Context, x *inFlight) (*corev1.Pod, Rejection, error) {
	pod, err := s.look(ctx, x.Intent.Pod, latest)
	if err != nil {
		return nil, Rejection{}, fmt.Errorf("look at pod %s: %w: %w", x.Intent.Pod, ErrUnavailable, err)
	}
	now, i := s.cfg.Now(), x.Intent
	i.Expires = now.Add(1)
	r, _ := s.judge(i, pod, now)
	return pod, r, nil
}

// isGone reports whether the pod is gone or leaves.
func (r Rejection) isGone() bool {
	return r.Reason == schemas.ReasonPodGone || r.Reason == schemas.ReasonPodTerminating
}

// evictInstead evicts a pod that another program did not move as requested, and reports whether it is leaving. The pod
// passes every gate again, and the eviction needs a token and closed circuit breakers. After the end of ctx it makes no
// call; calling is the context of the calls.
func (s *session) evictInstead(ctx, calling context.Context, x *inFlight) bool {
	if ctx.Err() != nil {
		return false
	}
	pod, r, err := s.judgeAgain(calling, x)
	switch {
	case err != nil:
		return false
	case r.Reason != "":
		return r.isGone()
	case ctx.Err() != nil || s.checkLease(x.Intent.Pod) != nil:
		return false
	}
	bucket := s.tokenFor(x)
	if bucket == nil {
		return false
	}
	p, err := s.evictions.Start(calling, pod, s.cfg.Now(), func(context.Context, move.Record) error { return nil })
	s.mu.Lock()
	now := s.cfg.Now()
	bucket.Return(true, now)
	if err == nil {
		s.called(x, s.started(x.Intent, p, nil), now)
	}
	s.mu.Unlock()
	s.freed()
	return err == nil && p.Stage == move.Done && p.Refusal == nil
}

// tokenFor takes a token for the eviction of a pod that another program did not move. It returns the bucket, or nil if there is no
// token, or a circuit breaker holds the pod.
func (s *session) tokenFor(x *inFlight) *limit.Bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	if _, _, open := s.breakerOpen(x.at.namespace, now); open || s.bucket.Wait(now) > 0 {
		return nil
	}
	s.bucket.Take()
	return s.bucket
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
	s.cfg.Log.Info("move canceled: "+why, "pod", x.Intent.Pod.String(), "method", x.Method)
	if x.reported { // else the record is stored after the verdict, which must not be lost
		s.remember(x, s.cfg.Now())
	}
	s.queues.inFlight.Add(x.uid())
}

// hasReplacement reports whether the workload of a move has a pod that can be its replacement.
func (s *session) hasReplacement(x *inFlight) bool {
	return slices.ContainsFunc(s.cfg.View.Pods(x.at.workload), func(p cluster.Pod) bool {
		return x.replacedBy(p, s.cfg.View.Seen(p.Ref.UID))
	})
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

// replacedBy reports whether a pod of the same workload replaces the moved pod. seen is its number in the view.
func (x *inFlight) replacedBy(p cluster.Pod, seen uint64) bool {
	newer := seen > x.seen
	switch {
	case x.seen != 0:
	case x.Newest.IsZero():
		newer = !p.Created.Before(x.Begun.Add(-skew).Truncate(time.Second))
	default:
		newer = p.Created.After(x.Newest) // a pod created in the same second may be a sibling
	}
	named := x.Workload == nil || x.Workload.Kind != "StatefulSet" || p.Ref.Name == x.Intent.Pod.Name
	return newer && named && !p.Leaving && p.Ref.UID != x.uid()
}
