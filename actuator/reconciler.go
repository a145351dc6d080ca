package actuator

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// queues hold the keys to reconcile. Keys are pod UIDs.
type queues struct {
	// wanted has the pods with an intent entry, by priority. A single goroutine takes them, to keep their order.
	wanted priorityqueue.PriorityQueue[types.UID]
	// inFlight has the pods that are being moved.
	inFlight workqueue.TypedDelayingInterface[types.UID]
	// changes has the changes from informers.
	changes workqueue.TypedInterface[cluster.Change]
}

func newQueues() queues {
	return queues{
		wanted:   priorityqueue.New[types.UID](""),
		inFlight: workqueue.NewTypedDelayingQueue[types.UID](),
		changes:  workqueue.NewTyped[cluster.Change](),
	}
}

func (q queues) shutDown() {
	q.wanted.ShutDown()
	q.inFlight.ShutDown()
	q.changes.ShutDown()
}

// PriorityOf returns the priority of an intent in the queue, highest first: by the [policy.Priority] of its strategy,
// then by the [policy.MoveCost] of its pod, lowest first, then by the weight of the intent. Weights that differ by less
// than a thousandth may count as equal.
func PriorityOf(t policy.Traits, cost, weight int64) int {
	strategy := slices.Index(policy.Priorities(), t.Priority)
	if strategy < 0 {
		strategy = slices.Index(policy.Priorities(), policy.PriorityViolation)
	}
	const fraction = 10 // bits
	order := uint64(max(weight, 0))
	if length := bits.Len64(order); length > fraction { // as in a floating-point number
		order = uint64(length-fraction)<<fraction | order>>(length-fraction-1)&(1<<fraction-1)
	}
	return (len(policy.Priorities())-strategy)<<58 + int(policy.MostCost-1-cost)<<16 + int(order)
}

// dispatch takes the pods with an intent entry in the order of their priority until the queue is shut down. It takes a
// pod only when it can be executed at once, so a pod of higher priority that arrives meanwhile goes first.
func (s *session) dispatch(ctx context.Context) {
	for {
		for wait := s.nextSlot(); wait > 0 && ctx.Err() == nil; wait = s.nextSlot() {
			s.awaitSlot(ctx, wait)
		}
		uid, shutdown := s.queues.wanted.Get()
		if shutdown {
			return
		}
		for wait := s.Reconcile(ctx, uid); wait > 0 && ctx.Err() == nil; wait = s.Reconcile(ctx, uid) {
			s.awaitSlot(ctx, wait) // the slots were used up while the queue was empty
		}
		s.queues.wanted.Done(uid)
	}
}

// awaitSlot returns when an execution may have become possible, after wait at the latest.
func (s *session) awaitSlot(ctx context.Context, wait time.Duration) {
	select {
	case <-time.After(wait):
	case <-s.slotFreed:
	case <-ctx.Done():
	}
}

// nextSlot is slotWait for the current time.
func (s *session) nextSlot() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slotWait(s.cfg.Now())
}

// mostStoring bounds the verdicts that are being stored at once.
const mostStoring = 256

// slotWait returns the time until one more intent can be executed, unless a slot is freed earlier. 0 means now. The caller
// holds mu.
func (s *session) slotWait(now time.Time) time.Duration {
	wait, down := s.health.wait(now)
	switch {
	case s.running >= s.cfg.Parallel, s.storing > mostStoring,
		// While the API server or the bus is unavailable, one intent at a time probes it.
		down && s.running > 0, s.unwritten() != nil && s.running+s.storing > 0, s.cluster.Trial() && s.running > 0:
		return time.Hour // the end of an execution frees a slot
	}
	return max(wait, s.bucket.Wait(now))
}

// freed makes the dispatch loop check again whether an execution is possible.
func (s *session) freed() {
	select {
	case s.slotFreed <- struct{}{}:
	default:
	}
}

// trackAll tracks the moves in flight until the queue is shut down.
func (s *session) trackAll(ctx context.Context) {
	for {
		uid, shutdown := s.queues.inFlight.Get()
		if shutdown {
			return
		}
		s.mu.Lock()
		x, e := s.moves.all[uid], s.entries.front(uid)
		s.mu.Unlock()
		if x != nil && e != nil {
			s.Reconcile(ctx, uid) // rejects the intent because its pod is being moved
		}
		if x != nil && ctx.Err() == nil {
			s.track(ctx, x)
		}
		s.queues.inFlight.Done(uid)
	}
}

// Reconcile compares the wanted move of a pod with the move in flight and the limits. It gives the open intent a
// verdict, parks it, or executes it. If no execution is possible now, it returns the longest time until the next call.
func (s *session) Reconcile(ctx context.Context, uid types.UID) (wait time.Duration) {
	if ctx.Err() != nil {
		return 0
	}
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkCluster(now)
	e := s.entries.front(uid)
	if e == nil || e.state != entryWaiting {
		return 0
	}
	if was := e.parked; was != nil {
		s.unpark(e)
		defer func() {
			if e.parked == nil || e.parked.by != was.by {
				s.release(was.by) // it no longer blocks this entry, so it may not block the next one either
			}
		}()
	}
	at := keysOf(e.intent, s.cfg.View)
	if x := s.moves.all[uid]; x != nil && x.isUnanswered() && !e.intent.expired(now) {
		s.park(e, awaitsAnswer(x), now)
		return 0
	} else if r, again := s.notNow(e, at, now); r != nil {
		s.reject(e, r, again)
	} else if p, blocks := s.parks(e.intent, at, now); blocks {
		s.park(e, p, now)
		return 0
	} else if wait = s.slotWait(now); wait > 0 {
		return wait
	} else {
		x, i := s.begin(e, at, now), e.intent // a newer message may change the intent of e meanwhile
		s.workers.Go(func() {
			v, err := s.execute(ctx, i, s.save)
			s.finish(ctx, e, x, v, err)
		})
	}
	return 0
}

// begin takes the tokens and counts that the execution of an entry needs. The caller holds mu.
func (s *session) begin(e *entry, at limitKeys, now time.Time) *inFlight {
	e.state = entryExecuting
	s.bucket.Take()
	s.namespaceBucket(at.namespace).Take()
	x := &inFlight{
		record: record{Intent: e.intent, Method: schemas.MethodEviction, Begun: now, Workload: workloadOf(s.cfg.View, e.uid())},
		at:     at, seen: s.cfg.View.Latest(),
		buckets: [2]*limit.Bucket{s.bucket, s.namespaceBucket(at.namespace)},
	}
	s.moves.add(x, s.cfg.View)
	if w := s.moves.workloads[at.workload]; w != nil {
		x.Newest = w.newest
	}
	s.departures.add(x)
	s.running++
	return x
}

// retryAfter is the delay of an intent that could not be executed although the API server answered.
const retryAfter = 500 * time.Millisecond

// finish ends an execution: it stores the verdict, or puts the entry back after an error.
func (s *session) finish(ctx context.Context, e *entry, x *inFlight, v schemas.Verdict, err error) {
	if err != nil {
		s.putBack(ctx, e, x, err)
		return
	}
	now := s.cfg.Now()
	if v.Workload == nil {
		v.Workload = x.Workload
	}
	if v.Reason != schemas.ReasonAPIUnavailable {
		s.answered()
	}
	s.mu.Lock()
	s.running--
	s.storing++
	s.countVerdict(e.uid(), now)
	begun := s.begun.has(x.record)
	moved := s.executed(e, x, v, now)
	var deleted *ledgerChange
	if begun && !moved {
		deleted = s.storeBegun()
	}
	s.mu.Unlock()
	s.freed()
	if deleted != nil {
		// The record goes before the verdict. A new leader that found it, and the pod gone, would report an eviction.
		_ = deleted.wait(s.saving) // an error means that the session is over
	}
	on := verdictOn{e, v, x}
	if !moved {
		on.move = nil // nothing is being moved
	}
	s.conclude(on, s.cfg.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storing--
	s.entries.finish(e, v.Outcome, moved)
	s.freed()
}

// answered records that the API server answers. After an outage, the intents that waited for it go on.
func (a *Actuator) answered() {
	outage := a.health.succeed(a.cfg.Now())
	if outage <= 0 {
		return
	}
	a.cfg.Log.Info("API server answers again", "after", outage)
	if s := a.session.Load(); s != nil {
		s.freed()
	}
}

// unavailable records that the API server does not answer. Intents wait until it does.
func (a *Actuator) unavailable(err error) {
	if a.health.fail(a.cfg.Now(), err) {
		a.cfg.Log.Warn("API server unavailable; holding all intents", "error", err)
	}
}

// looked records whether the API server answered a read.
func (a *Actuator) looked(err error) {
	switch {
	case err == nil:
		a.answered()
	case !apierrors.IsForbidden(err):
		a.unavailable(err)
	}
}

func (s *session) putBack(ctx context.Context, e *entry, x *inFlight, err error) {
	notCached := errors.Is(err, errNotCached)
	switch {
	case errors.Is(err, ErrUnavailable):
		if ctx.Err() == nil {
			s.unavailable(err)
		}
	case notCached:
		s.answered()
	default: // other clients kept changing the pod, or the lease is not valid
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	x.returnTokens(errors.Is(err, move.ErrChanged), false, s.cfg.Now()) // the API server refused an eviction of an older version
	s.abandon(x)
	s.freed()
	if notCached {
		e.state = entryWaiting
		now := s.cfg.Now()
		if s.park(e, awaitsCache(e, now), now); e.parked == nil {
			return // it has waited for too long
		}
	}
	s.entries.putBack(e)
}

// executed records the verdict of an execution, and reports whether it began a move. The caller holds mu.
func (s *session) executed(e *entry, x *inFlight, v schemas.Verdict, now time.Time) (moved bool) {
	s.entries.remove(e)
	moved = v.Outcome.Moves() && !x.Intent.asked().DryRun
	// A gate costs no token, because it only read from the API server. Only moves cost a token of the namespace.
	gated := v.Outcome == schemas.Rejected || v.Outcome == schemas.Expired ||
		v.Reason == schemas.ReasonNodeFit || v.Reason == schemas.ReasonInVain
	x.returnTokens(!gated, moved, now)
	s.called(x, v, now)
	if !moved {
		s.abandon(x)
		return false
	}
	if s.cfg.DryRun {
		s.departures.remove(x)
	}
	x.message = e.message
	s.moves.accepted(x, now)
	s.release(workloadBlocker(x.at.workload)) // its cooldown is known only now
	s.movedOff(x, now)
	return true
}

// abandon reverts the counts of a move that was not made. The caller holds mu.
func (s *session) abandon(x *inFlight) {
	s.entries.stepped(x, s.cfg.Now())
	s.departures.remove(x)
	s.moves.remove(x)
	s.forgetReservation(x)
	s.releaseFor(x.at)
	s.begun.remove(x.record)
}

// dryRunReservation is the length of a reservation in a dry run, in which no replacement appears.
const dryRunReservation = 30 * time.Second

// releaseReservation ends the reservation for the replacement of a pod: the replacement has a node, or is no longer
// expected.
func (s *session) releaseReservation(x *inFlight) {
	if s.cfg.Capacity != nil {
		s.cfg.Capacity.Release(x.uid())
	}
}

// forgetReservation removes the reservation for the replacement of a pod: the move was not made, or the next leader follows it.
// A next leader in this process then reserves again.
func (s *session) forgetReservation(x *inFlight) {
	if s.cfg.Capacity != nil {
		s.cfg.Capacity.Forget(x.uid())
	}
}

// returnTokens returns the tokens that the move holds.
func (x *inFlight) returnTokens(spent, spentOfNamespace bool, now time.Time) {
	x.buckets[0].Return(spent, now)
	x.buckets[1].Return(spentOfNamespace, now)
}

// called reports the eviction call of a verdict to the circuit breakers. The caller holds mu.
func (s *session) called(x *inFlight, v schemas.Verdict, now time.Time) {
	if called, failed, refused := callOf(v); called {
		s.cluster.Called(x.at.namespace, failed, refused, now)
		s.clusterDue = true
	}
}

// callOf returns the result of the eviction call of a verdict for the circuit breakers. A refusal by a budget or a busy
// server is temporary. The API server itself failed only if it did not answer the call, or could not read the pod.
func callOf(v schemas.Verdict) (called, failed, refused bool) {
	switch {
	case v.Outcome == schemas.Evicted, v.Reason == schemas.ReasonDisruptionBudget, v.Reason == schemas.ReasonThrottled:
		return true, false, false
	case v.Outcome == schemas.Failed, v.Reason == schemas.ReasonInternalError:
		return true, false, true
	case v.Reason == schemas.ReasonAPIUnavailable:
		return true, true, true
	}
	return false, false, false
}
