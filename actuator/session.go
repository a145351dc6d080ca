package actuator

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// executeFunc is the shape of [Actuator.executeOpen].
type executeFunc func(context.Context, Open, saveFunc) (schemas.Verdict, error)

// session is one leader session: one call of Lead. Everything below mu is guarded by it, and so are the windows of the
// Actuator. Critical sections are short: no call is made in them.
//
//	Accept       the bus's goroutine     intents messages into entries, and their pods into the queue
//	dispatch     one goroutine           Reconcile for each pod with an entry, by priority
//	work         one goroutine each      executes an intent, then publishes the verdict
//	trackAll     eight goroutines        Reconcile for each pod in flight
//	observe      one goroutine           what informers told
//	writeLedger  one goroutine           changes of the ledger that nothing waits for
//	publish      one goroutine each      verdicts that need no execution
type session struct {
	*Actuator
	execute executeFunc
	events  recorder
	saving  context.Context // ends after the session's own context: what is decided is still stored
	lost    func() bool     // whether this process may not lead any more: nothing is stored then
	leading context.Context // the session's own
	queues  queues

	capacity   chan struct{}  // there may be capacity for one more execution
	workers    sync.WaitGroup // executions
	publishing sync.WaitGroup // verdicts on their way
	publishers chan struct{}  // a place for each of them
	couriers   sync.WaitGroup // maintenance tasks
	busAway    atomic.Bool    // what was to be stored last could not be

	mu      sync.Mutex
	entries *entries
	number  uint64               // of the newest entry
	parked  map[blocker][]*entry // in the order of the queue
	running int                  // executions
	storing int                  // verdicts of executions on their way to the bus
	closed  bool                 // nothing is begun any more

	ledgerQueue []ledgerChange
	queued      chan struct{} // ledgerQueue changed
	flushed     bool          // nothing is added to ledgerQueue any more
	// unwritten are the keys of the ledger for which a change is queued or being made.
	unwritten map[string]*unwritten

	bucket     *limit.Bucket
	spaces     map[string]*limit.Bucket // by namespace, those that are not idle
	moves      *moves
	departures *departures
	// replacements are the pods that ended moves, and when. They end no other one: of two pods that were moved together, the
	// first replacement that is ready would else end both.
	replacements map[types.UID]time.Time
	pending      map[types.UID]*inFlight // settled moves whose replacements are not ready
	kept         map[types.UID]*inFlight // settled moves that the ledger still has
	forgetAt     time.Time               // when the next of them may be forgotten; zero: there are none
	loop         *limit.WorkloadBreaker
	left         map[limit.BreakerKey]uint64 // the newest pod that was known when one was moved off a node last
	names        map[types.UID]schemas.ObjectRef
	cluster      *limit.ClusterBreaker
	open         []limit.Condition                // of the cluster breaker
	since        map[schemas.ReasonCode]time.Time // when each of them began
	breakerDue   time.Time                        // when the cluster breaker is to be asked again; zero: not by itself
	tracked      time.Time                        // when all moves were looked at
	swept        time.Time

	// unfollowed: a move is over when it is accepted, because nothing more is known, or because nothing was moved.
	unfollowed bool
}

// numTrackers is how many moves in flight take a step at once.
const numTrackers = 8

// publishers is how many verdicts are published at once, besides those of executions.
const publishers = 32

func newSession(saving context.Context, lost func() bool, a *Actuator, execute executeFunc, events recorder) *session {
	p := a.policy.Load()
	s := &session{
		Actuator: a, execute: execute, events: events, saving: saving, lost: lost, leading: saving, queues: newQueues(),
		capacity: make(chan struct{}, 1), publishers: make(chan struct{}, publishers), queued: make(chan struct{}, 1),
		entries: newEntries(), parked: map[blocker][]*entry{}, unwritten: map[string]*unwritten{},
		bucket: limit.NewBucket(p.Rate), spaces: map[string]*limit.Bucket{}, moves: newMoves(), departures: newDepartures(),
		replacements: map[types.UID]time.Time{}, pending: map[types.UID]*inFlight{}, kept: map[types.UID]*inFlight{},
		loop: limit.NewWorkloadBreaker(p.Brakes.Loop), left: map[limit.BreakerKey]uint64{}, names: map[types.UID]schemas.ObjectRef{},
		cluster: limit.NewClusterBreaker(p.Brakes.Storm), breakerDue: a.cfg.Now(),
		unfollowed: a.cfg.DryRun || a.cfg.View == View(blank{}),
	}
	s.entries.begun = s.begun
	s.entries.added = s.added
	s.entries.changed = s.entryChanged
	s.entries.settled = s.unpark
	return s
}

// run leads until ctx ends, which it does with all that was begun, and returns the error with which the bus ended the stream of
// intents messages before.
func (s *session) run(ctx context.Context, stop func()) error {
	s.leading = ctx
	var loops, trackers sync.WaitGroup
	loops.Go(s.writeLedger)
	err := s.recover(ctx)
	if err == nil {
		trackers.Go(func() { s.dispatch(ctx) })
		for range numTrackers {
			trackers.Go(func() { s.trackAll(ctx) })
		}
		trackers.Go(s.observe)
		trackers.Go(func() { s.tick(ctx) })
		trackers.Go(func() { s.followLedger(ctx) })
		err = s.cfg.Bus.FollowIntents(ctx, s.Accept)
	}
	if ctx.Err() != nil {
		err = nil
	}
	stop()
	s.queues.shutDown()
	trackers.Wait()
	s.workers.Wait()
	s.couriers.Wait()
	s.close()
	s.publishing.Wait()
	s.flush()
	loops.Wait()
	return err
}

// close ends the timers of the entries. What has no verdict yet is left to the next leader.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, list := range s.entries.pods {
		for _, e := range list {
			if e.timer != nil {
				e.timer.Stop()
			}
		}
	}
}

// tickEvery is how often is looked whether something is due.
const tickEvery = time.Second

// tick looks whether something is due until ctx ends.
func (s *session) tick(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		now := s.cfg.Now()
		s.entries.forget(now)
		s.forgetKept(now)
		s.sweep(now)
		s.trackDue(now)
		s.refresh(now)
		s.mu.Unlock()
	}
}

// added numbers a new entry, and counts it.
func (s *session) added(e *entry) {
	s.number++
	e.number = s.number
	s.metrics.taken(e.open)
}

// entryChanged lets an entry be reconciled when it is the open one of its pod. The caller holds mu.
func (s *session) entryChanged(e *entry) {
	p, _ := s.cfg.View.Pod(e.uid())
	e.priority = priorityOf(s.policy.Load().Traits(e.open.Strategy), p)
	if e.state != entryWaiting {
		return
	}
	s.setTimer(e, s.cfg.Now())
	if s.entries.front(e.uid()) == e && e.parked == nil {
		s.enqueue(e)
	}
}

func addOpts(priority int) priorityqueue.AddOpts { return priorityqueue.AddOpts{Priority: &priority} }

// releaseAll enqueues all parked entries. The caller holds mu.
func (s *session) releaseAll() {
	for _, list := range maps.Clone(s.parked) {
		for _, e := range list {
			s.enqueue(e)
		}
	}
}

// traits are those of the strategy of a move.
func (s *session) traits(x *inFlight) policy.Traits { return s.policy.Load().Traits(x.Open.Strategy) }
