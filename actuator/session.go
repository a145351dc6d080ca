package actuator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// session is one leader session: one call of Lead. mu guards everything below it. No call is made while it is held.
//
//	Accept             the bus's goroutine         intents messages into entries, and their pods into the queue
//	dispatch           one goroutine               Reconcile for each pod with an entry, by priority
//	execute, finish    one goroutine each          executes an intent, then publishes the verdict
//	trackAll           eight goroutines            track for each pod in flight
//	observe            one goroutine               changes that informers reported
//	tick               one goroutine               periodic work, such as the expiry of intents
//	followLedger       one goroutine               requests to close circuit breakers
//	ledgerWriter.run   Config.Parallel goroutines  changes of the ledger
//	publisher.run      at most 32 goroutines       verdicts that need no execution, and removals of intents messages
type session struct {
	*Actuator
	execute executeFunc
	events  recorder
	saving  context.Context // ends after the session's own context, because verdicts are still stored
	lost    func() bool     // whether another process may lead; then nothing is stored
	queues  queues

	slotFreed    chan struct{}  // an execution may have become possible
	workers      sync.WaitGroup // executions
	publishing   publisher      // verdicts being stored
	outages      sync.Map       // write errors, by kind of write
	ledgerWrites *ledgerWriter

	mu      sync.Mutex
	closed  bool // no new executions
	entries *entries
	number  uint64               // of the newest entry
	parked  map[blocker][]*entry // in queue order
	running int                  // executions
	storing int                  // verdicts of executions being stored

	bucket     *limit.Bucket
	namespaces map[string]*limit.Bucket    // the buckets that are not idle
	verdicts   map[types.UID]*limit.Bucket // of the verdicts on each pod, if not idle
	moves      *moves
	departures departures
	settled    map[types.UID]*inFlight // completed moves that the ledger still has
	loop       *limit.WorkloadBreaker
	cluster    *limit.ClusterBreaker
	begun      *begunMoves
	clusterDue bool // something changed for the cluster breaker
	tracked    time.Time
	swept      time.Time
}

const (
	numTrackers   = 8  // the number of moves in flight that take a step in parallel
	numPublishers = 32 // the number of verdicts without an execution that are published in parallel
	tickEvery     = time.Second
	sweepEvery    = 10 * time.Second
)

func newSession(saving context.Context, lost func() bool, a *Actuator, execute executeFunc, events recorder) *session {
	p := a.policy.Load()
	s := &session{
		Actuator: a, execute: execute, events: events, saving: saving, lost: lost, queues: newQueues(),
		slotFreed: make(chan struct{}, 1),
		entries:   newEntries(), parked: map[blocker][]*entry{}, moves: newMoves(), begun: newBegunMoves(), departures: departures{},
		settled: map[types.UID]*inFlight{}, bucket: limit.NewBucket(p.Rate), namespaces: map[string]*limit.Bucket{},
		verdicts: map[types.UID]*limit.Bucket{},
		loop:     limit.NewWorkloadBreaker(p.CircuitBreakers.Workload),
		cluster:  limit.NewClusterBreaker(p.CircuitBreakers.Cluster), clusterDue: true,
	}
	s.ledgerWrites = newLedgerWriter(s.writeLedger)
	s.entries.moveOf, s.entries.decided, s.entries.ready = s.moveOf, s.decided, s.ready
	s.entries.stepsOf = func(i Intent) *inFlight {
		if x := s.moves.all[i.Pod.UID]; x != nil && x.State != nil && x.Intent.scopeKey() == i.scopeKey() {
			return x
		}
		return nil
	}
	s.entries.over = func(message schemas.Event) { s.publishing.Go(func() { s.drop(message) }) }
	return s
}

// run leads until ctx ends, and then waits for everything that was begun. It returns an error if the bus ends the
// stream of intents messages.
func (s *session) run(ctx context.Context, stop func()) error {
	var writers, loops sync.WaitGroup
	for range s.cfg.Parallel {
		writers.Go(s.ledgerWrites.run)
	}
	err := s.recover(ctx)
	if err == nil {
		loops.Go(func() { s.dispatch(ctx) })
		for range numTrackers {
			loops.Go(func() { s.trackAll(ctx) })
		}
		loops.Go(s.observe)
		loops.Go(func() { s.tick(ctx) })
		if s.ledger != nil {
			loops.Go(func() { s.followLedger(ctx) })
		}
		err = s.cfg.Bus.FollowIntents(ctx, s.Accept)
	}
	if ctx.Err() != nil {
		err = nil
	}
	stop()
	s.queues.shutDown()
	loops.Wait()
	s.workers.Wait()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.publishing.Wait()
	for _, x := range s.moves.all {
		s.forgetReservation(x) // the next leader reserves it
	}
	s.ledgerWrites.queue.ShutDown()
	writers.Wait()
	return err
}

// Accept turns the intents of a message into entries and enqueues their pods.
func (s *session) Accept(_ context.Context, e schemas.Event) error {
	now := s.cfg.Now()
	a, err := readMessage(e, now)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelUnlisted(a)
	s.entries.accept(a, e, now)
	return nil
}

// tick runs all periodic work every second until ctx ends.
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
		s.expire(now)
		if s.entries.open == 0 {
			s.health.succeed(now) // nothing probes the API server anymore
		}
		s.forgetSettled(now)
		if s.begun.due {
			s.storeBegun()
		}
		if !now.Before(s.swept.Add(sweepEvery)) {
			s.sweep(now)
		}
		if !now.Before(s.tracked.Add(trackEvery)) {
			s.trackDue(now)
		}
		s.clusterDue = s.clusterDue || len(s.cluster.Open()) > 0 || len(s.moves.all) > 0
		s.checkCluster(now)
		s.mu.Unlock()
	}
}

// sweep deletes expired state. The caller holds mu.
func (s *session) sweep(now time.Time) {
	s.swept = now
	s.entries.forget(now)
	s.departures.forget(now)
	maps.DeleteFunc(s.namespaces, func(_ string, b *limit.Bucket) bool { return b.Idle(now) })
	maps.DeleteFunc(s.verdicts, func(_ types.UID, b *limit.Bucket) bool { return b.Idle(now) })
	for _, k := range s.loop.Forget(now) {
		s.change(loopKey(k), nil)
	}
}

// policyReplaced applies the newest policy to the session.
func (s *session) policyReplaced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // waiting intents are left to the next leader
	}
	p := s.policy.Load()
	if bucket := limit.NewBucket(p.Rate); !bucket.Same(s.bucket) {
		s.bucket = bucket
	}
	before := s.loop.All()
	s.loop.Set(p.CircuitBreakers.Workload)
	for _, b := range before {
		s.change(loopKey(b.BreakerKey), nil) // unless it is stored again
		s.storeLoop(b.BreakerKey)            // it holds until another time
	}
	s.cluster.Set(p.CircuitBreakers.Cluster)
	s.clusterDue = true
	ofEach := ofNamespace(p)
	maps.DeleteFunc(s.namespaces, func(_ string, b *limit.Bucket) bool { return ofEach == nil || !b.Same(ofEach) })
	s.releaseAll()
	s.entries.rejectAll(disabled, func(i Intent) bool {
		_, ok := enables(p, i)
		return !ok
	})
	s.cancelDisabled(p)
	s.freed()
}

// decided publishes the verdict on an entry. The caller holds mu.
func (s *session) decided(v verdictOn) {
	if was := v.entry.parked; was != nil {
		s.unpark(v.entry)
		s.release(was.by) // it may have been the released one
	}
	at := s.cfg.Now()
	s.countVerdict(v.entry.uid(), at)
	s.publishing.Go(func() { s.conclude(v, at) })
}

// verdictRate limits how often the intents for one pod are decided, so that a function that repeats an intent without end
// does not fill the history.
func verdictRate() policy.Rate { return policy.Rate{EvictionsPerSecond: 1, Burst: 20} }

// countVerdict counts a verdict on a pod against verdictRate. A verdict above the rate, such as on an intent that was
// withdrawn, does not extend the time until the next decision. The caller holds mu.
func (s *session) countVerdict(pod types.UID, now time.Time) {
	if s.verdicts[pod] == nil {
		s.verdicts[pod] = limit.NewBucket(verdictRate())
	}
	if b := s.verdicts[pod]; b.Wait(now) == 0 {
		b.Take()
		b.Return(true, now)
	}
}

// ready enqueues an entry that is new, renewed, or the open one of its pod now. The caller holds mu.
func (s *session) ready(e *entry) {
	if e.number == 0 {
		s.number++
		e.number = s.number
		s.metrics.accepted(e.intent.Strategy, e.intent.Profile)
	}
	p, _ := s.cfg.View.Pod(e.uid())
	e.priority = PriorityOf(s.policy.Load().Traits(e.intent.Strategy), p.Cost, e.intent.Weight)
	if e.state == entryWaiting && e.parked == nil && s.entries.front(e.uid()) == e {
		s.enqueue(e)
	}
}

// The kinds of writes of a session.
const (
	verdictWrites = "verdicts"
	dropWrites    = "removals of intents messages"
	recordWrites  = "records of the ledger"
	deleteWrites  = "deletions in the ledger"
)

// persist calls f to store something. It retries until f succeeds, the session is over, or the data is invalid. It logs
// an outage once, not for each write.
func (s *session) persist(writes string, f func() error, attrs ...any) error {
	err := persist(s.saving, f, func(err error) {
		if _, known := s.outages.Swap(writes, err); !known {
			s.cfg.Log.Warn("cannot store data on the bus; retrying", append(attrs, "data", writes, "error", err)...)
		}
	})
	if err == nil || isInvalid(err) { // there is an answer
		if _, was := s.outages.LoadAndDelete(writes); was {
			s.cfg.Log.Info("data is stored on the bus again", "data", writes)
		}
	}
	return err
}

// unwritten returns an error that names the writes that failed last, or nil.
func (s *session) unwritten() (err error) {
	s.outages.Range(func(writes, failure any) bool {
		err = errors.Join(err, fmt.Errorf("cannot store %s, so no pods are moved: %w", writes, failure.(error)))
		return true
	})
	return err
}

// change queues a change of the ledger; nil deletes the key.
func (s *session) change(key string, value any) { s.ledgerWrites.set(key, value) }

// storeBegun queues a write of [session.begun] to keyBegun. [session.writeLedger] reads the records when it writes them.
func (s *session) storeBegun() *ledgerChange { return s.ledgerWrites.set(keyBegun, nil) }

// traits returns the traits of the strategy of a move.
func (s *session) traits(x *inFlight) policy.Traits { return s.policy.Load().Traits(x.Intent.Strategy) }

// apiHealth tracks whether the API server answers. The zero value is healthy. It is safe for concurrent use.
type apiHealth struct {
	mu      sync.Mutex
	failure error // nil while it answers
	since   time.Time
	tries   int
	retry   time.Time // the earliest time of the next try
}

// fail records that the API server did not answer, and reports whether the outage is new.
func (h *apiHealth) fail(now time.Time, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.failure == nil
	if news {
		h.since, h.tries = now, 0
	}
	h.failure = err
	if !now.Before(h.retry) { // of calls that fail together only the first counts
		h.retry = now.Add(backoff(h.tries))
		h.tries++
	}
	return news
}

// succeed records that the API server answered, and returns the duration of the outage.
func (h *apiHealth) succeed(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == nil {
		return 0
	}
	h.failure, h.retry = nil, time.Time{}
	return now.Sub(h.since)
}

// wait reports whether the API server is unavailable, and the time until the next try.
func (h *apiHealth) wait(now time.Time) (wait time.Duration, down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == nil {
		return 0, false
	}
	return max(h.retry.Sub(now), 0), true
}

func (h *apiHealth) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == nil {
		return nil
	}
	return fmt.Errorf("API server cannot be asked since %s: %w", clock(h.since), h.failure)
}

// maxBackoff bounds how long the end of an outage can go unnoticed.
const maxBackoff = 5 * time.Second

// backoff returns the delay after that many tries: 100 ms, doubled each time, up to maxBackoff, less a jitter of up to
// a half.
func backoff(tries int) time.Duration {
	d := min(100*time.Millisecond<<min(tries, 10), maxBackoff)
	return d - rand.N(d/2)
}

// persist calls f until it succeeds, its error is [schemas.ErrInvalid], or ctx ends, and returns the last error. It
// does not call f if ctx has ended before. It passes the first transient error to first.
func persist(ctx context.Context, f func() error, first func(error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		err := f()
		if err == nil || isInvalid(err) || ctx.Err() != nil {
			return err
		}
		if tries == 0 {
			first(err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff(tries)):
		}
	}
}
