package actuator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/schemas"
)

// execution is an entry that is executed, with its intent as it was when that began: a newer message may change it meanwhile.
type execution struct {
	entry *entry
	open  Open
	move  *inFlight
	// scope is that of the newest message that lists the pod.
	scope schemas.ScopeRef
	// all and space are the buckets of its tokens; space is nil when its namespace has no rate of its own.
	all, space *limit.Bucket
}

// dispatch takes the pods with an intent entry in the order of their priority until the queue is shut down. It takes one when
// there is capacity to execute it, so a pod of higher priority that arrives while capacity is missing goes first.
func (s *session) dispatch(ctx context.Context) {
	for {
		for wait := s.missingCapacity(); wait > 0 && ctx.Err() == nil; wait = s.missingCapacity() {
			s.awaitCapacity(ctx, wait)
		}
		uid, shutdown := s.queues.wanted.Get()
		if shutdown {
			return
		}
		for wait := s.Reconcile(ctx, uid); wait > 0 && ctx.Err() == nil; wait = s.Reconcile(ctx, uid) {
			s.awaitCapacity(ctx, wait) // capacity went while the queue was empty
		}
		s.queues.wanted.Done(uid)
	}
}

// awaitCapacity returns when capacity may have changed, and after wait at the latest.
func (s *session) awaitCapacity(ctx context.Context, wait time.Duration) {
	select {
	case <-time.After(wait):
	case <-s.capacity:
	case <-ctx.Done():
	}
}

// missingCapacity is capacityWait for callers that do not hold mu.
func (s *session) missingCapacity() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capacityWait(s.cfg.Now())
}

// trackAll follows the moves in flight until the queue is shut down.
func (s *session) trackAll(ctx context.Context) {
	for {
		uid, shutdown := s.queues.inFlight.Get()
		if shutdown {
			return
		}
		s.mu.Lock()
		moves, e := s.moves.all[uid] != nil, s.entries.front(uid)
		s.mu.Unlock()
		if moves && e != nil {
			s.Reconcile(ctx, uid) // rejects the intent, since its pod is on the move
		}
		if moves {
			s.Reconcile(ctx, uid)
		}
		s.queues.inFlight.Done(uid)
	}
}

// Reconcile compares the wanted move of a pod with the move in flight, and takes one step: it gives the open intent a verdict,
// parks it under what blocks it, or executes it; without one it follows the move in flight. It returns after which time it is to be called
// again at the latest, because the capacity to execute the intent is missing; 0: something else will call it.
func (s *session) Reconcile(ctx context.Context, uid types.UID) (wait time.Duration) {
	if ctx.Err() != nil {
		return 0
	}
	now := s.cfg.Now()
	s.mu.Lock()
	m, e := s.moves.all[uid], s.entries.front(uid)
	s.refresh(now)
	if e != nil && e.state == entryWaiting {
		x, wait := s.admit(e, now)
		s.mu.Unlock()
		if x != nil {
			s.workers.Go(func() { s.work(ctx, *x) })
		}
		return wait
	}
	s.mu.Unlock()
	if m != nil {
		s.track(ctx, m)
	}
	return 0
}

// capacityWait is how long it takes until one more intent can be executed, unless the capacity changes before. 0: it can be now.
func (s *session) capacityWait(now time.Time) time.Duration {
	wait, down := s.health.wait(now)
	switch {
	case s.running >= s.cfg.Parallel, s.storing > storingMost,
		// While the API server or the bus is away, one intent at a time tries it.
		down && s.running > 0, s.busAway.Load() && s.running+s.storing > 0, s.cluster.Trial() && s.running > 0:
		return time.Hour // the end of one of them calls
	}
	return max(wait, s.bucket.Wait(now))
}

// storingMost bounds the verdicts that are on their way to the bus at once.
const storingMost = 256

// freed lets the dispatcher look again whether there is capacity.
func (s *session) freed() {
	select {
	case s.capacity <- struct{}{}:
	default:
	}
}

// begin takes what the execution of an entry needs. The caller holds mu.
func (s *session) begin(e *entry, now time.Time) *execution {
	at := keysOf(e.open, s.cfg.View)
	e.state = entryExecuting
	s.unpark(e)
	s.windows.Begin(originOf(e.open))
	space := s.space(at.namespace)
	s.bucket.Take()
	space.Take()
	x := &inFlight{
		record: record{
			Open: e.open, Method: schemas.MethodEviction, Begun: now, Workload: workloadOf(s.cfg.View, e.uid()),
		},
		at: at, seen: s.cfg.View.Latest(),
	}
	s.moves.add(x, s.cfg.View)
	x.Newest = s.moves.newest(at.workload)
	s.departures.begin(e.uid(), e.message.scope, at.workload)
	s.running++
	return &execution{e, e.open, x, e.message.scope, s.bucket, space}
}

// retryAfter is how long an intent waits that could not be executed for another reason than the API server.
const retryAfter = 500 * time.Millisecond

// work takes one intent to its verdict, or puts it back.
func (s *session) work(ctx context.Context, x execution) {
	verdict, err := s.executeIntent(ctx, x)
	now := s.cfg.Now()
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, ErrUnavailable) && s.health.fail(now, err) {
			s.cfg.Log.Warn("API server cannot be asked, holding all intents", "pod", x.open.Intent.Pod.String(), "error", err)
		}
		if !errors.Is(err, ErrUnavailable) { // the pod changed again and again, or the lease is not valid
			select {
			case <-time.After(retryAfter):
			case <-ctx.Done():
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
		x.tokens(false, false, now)
		s.departures.end(x.open.Intent.Pod.UID, x.scope, x.move.at.workload, time.Time{})
		s.abandon(x.move, now)
		s.apply(s.entries.putBack(x.entry))
		s.freed()
		return
	}
	if verdict.Reason != schemas.ReasonAPIUnavailable {
		if outage := s.health.succeed(now); outage > 0 {
			s.cfg.Log.Info("API server answers again", "after", outage)
		}
	}
	s.mu.Lock()
	s.running--
	s.storing++
	behind := s.finish(x, verdict, now)
	s.mu.Unlock()
	s.freed()
	v := verdictOn{x.entry, verdict, x.move}
	if x.open.asked().DryRun {
		v.move = nil // nothing is on the move
	}
	s.conclude(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storing--
	s.apply(behind)
	s.freed()
}

// executeIntent executes the intent. The move is in the ledger when nothing speaks against it and before anything is changed.
func (s *session) executeIntent(ctx context.Context, x execution) (schemas.Verdict, error) {
	save := func(ctx context.Context, r record) error { return s.save(ctx, x.move, r) }
	if x.open.asked().DryRun {
		save = unsaved
	}
	v, err := s.execute(ctx, x.open, save)
	if err == nil && v.Workload == nil {
		v.Workload = x.move.Workload
	}
	return v, err
}

// save stores the record of a move, trying again until it is stored or ctx ends. What is queued for the same pod, such as the
// end of a try before, is written first. It fails when the lease is not valid any more: nothing may be changed then.
func (s *session) save(ctx context.Context, x *inFlight, r record) error {
	if err := s.awaitWritten(ctx, r.key()); err != nil {
		return err
	}
	s.mu.Lock()
	r.Begun, r.Newest = x.Begun, x.Newest
	if r.Workload == nil {
		r.Workload = x.Workload
	}
	x.record, x.saved = r, true
	s.moves.setState(x, r.State)
	s.mu.Unlock()
	if err := s.write(ctx, ledgerChange{key: r.key(), value: r}); err != nil {
		return err
	}
	if s.cfg.LeaseValid != nil && !s.cfg.LeaseValid() {
		return fmt.Errorf("move pod %s: %w", r.Open.Intent.Pod, ErrNotLeading)
	}
	return nil
}

// finish takes note of the verdict of an execution, and returns what follows from it for other intents. The caller holds mu.
func (s *session) finish(x execution, v schemas.Verdict, now time.Time) changes {
	dryRun := x.open.asked().DryRun
	moved := v.Outcome.Moves() && !dryRun
	x.tokens(spent(v.Outcome), moved, now)
	if r := resultOf(v); r != noCall {
		s.cluster.Called(x.move.at.namespace, r != callFailed, now)
		s.cluster.Refused(x.move.at.namespace, r == callRefused || r == callFailed, now)
		s.breakerDue = now
	}
	s.departures.end(x.open.Intent.Pod.UID, x.scope, x.move.at.workload, departed(v, now))
	if !moved {
		s.abandon(x.move, now)
		if dryRun {
			s.entries.settle(x.entry) // other entries of the pod stay
			return changes{}
		}
		return s.entries.finish(x.entry, v.Outcome)
	}
	s.windows.End(originOf(x.open), true, now)
	x.move.message = x.entry.message
	s.moves.accepted(x.move, now)
	s.release(workloadBlocker(x.move.at.workload)) // until when the others wait is known only now
	s.leaves(x.move, now)
	s.metrics.moving.Set(float64(len(s.moves.all)))
	return s.entries.finish(x.entry, v.Outcome)
}

// abandon undoes what the beginning of a move has counted. The caller holds mu.
func (s *session) abandon(x *inFlight, now time.Time) {
	s.windows.End(originOf(x.Open), false, now)
	s.moves.remove(x)
	s.releaseFor(x.at)
	if x.saved {
		s.change(s.keptEntry(x.Open.Intent.Pod.UID))
	}
}

// tokens ends what the execution holds of the rates. A token of the namespace is spent by moves alone.
func (x execution) tokens(spent, moved bool, now time.Time) {
	if spent {
		x.all.Spend(now)
	} else {
		x.all.GiveBack()
	}
	if moved {
		x.space.Spend(now)
	} else {
		x.space.GiveBack()
	}
}

// spent says whether a verdict costs a token. One that the gates gave does not: the API server only read the pod.
func spent(o schemas.Outcome) bool { return o != schemas.Rejected && o != schemas.Expired }

// callResult is how an eviction call ended, for the circuit breakers.
type callResult int

const (
	noCall callResult = iota
	callAnswered
	callRefused // for good: by several budgets, an admission policy, or a missing right
	callFailed  // the API server itself failed
)

// resultOf is how the eviction call of a verdict ended. A budget and a server that is busy refuse only for now.
func resultOf(v schemas.Verdict) callResult {
	switch {
	case v.Outcome == schemas.Evicted, v.Reason == schemas.ReasonDisruptionBudget, v.Reason == schemas.ReasonThrottled:
		return callAnswered
	case v.Outcome == schemas.Failed:
		return callRefused
	case v.Reason == schemas.ReasonAPIUnavailable:
		return callFailed
	}
	return noCall
}
