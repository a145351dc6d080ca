package actuator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/schemas"
)

// handleFunc is the shape of [Actuator.handle].
type handleFunc func(context.Context, Open, noteFunc) (schemas.Verdict, error)

// task is work that the dispatcher starts.
type task func(context.Context)

// term is one call of Lead: the table, and who works on it. Everything below mu is guarded by it,
// and so are the limits of the Actuator.
//
//	accept     the bus's goroutine    answers into the table
//	dispatch   one goroutine          starts work when a place, a token and an intent are there
//	work       one goroutine each     intent to verdict, verdict to the bus
//	step       one goroutine each     the next step of a move that takes several
//	carry      one for a maintenance  what its answers want besides moves
//	reportQueue one goroutine         what needs no call: verdicts of waiting intents, ends of moves, the ledger
type term struct {
	*Actuator
	handleIntent handleFunc
	events       recorder
	saving       context.Context // ends after the term's own context: what is decided is still stored
	lost         func() bool     // whether this process may not lead any more: nothing is stored then
	wake         chan struct{}   // something changed that dispatch may be waiting for
	queued       chan struct{}   // queue changed

	leading  context.Context // the term's own
	couriers sync.WaitGroup  // who carry out errands

	busAway atomic.Bool // what was to be stored last could not be

	mu      sync.Mutex
	table   *table
	errands map[key]*errand
	bucket  *limit.Bucket
	spaces  map[string]*limit.Bucket // by namespace, those that are not idle
	running int                      // calls to the API server
	storing int                      // verdicts on their way to the bus
	queue   queue
	closed  bool                 // nothing is added to queue any more
	told    map[key]*lastNews    // what was told last of maintenances
	blocked map[string]time.Time // when it was told last that a node of a maintenance is held up
	failing map[string]time.Time // when it was told last that a step on a node fails
	// unwritten are the keys of the ledger for which a change is queued or being made.
	unwritten map[string]*unwritten

	moves      *moves
	departures *departures
	// replacements are the pods that ended moves, and when. They end no other one: of two pods that were moved together, the
	// first replacement that is ready would else end both.
	replacements map[types.UID]time.Time
	pending      map[types.UID]*moving // settled moves whose replacements are not ready
	kept         map[types.UID]*moving // settled moves that the ledger still has
	forgetAt     time.Time             // when the next of them may be forgotten; zero: there are none
	loop         *limit.WorkloadBreaker
	left         map[limit.BreakerKey]uint64 // the newest pod that was known when one was moved off a node last
	storm        *limit.ClusterBreaker
	names        map[types.UID]schemas.ObjectRef  // of the workloads that the loop breaker knows
	open         []limit.Condition                // of the storm brake
	since        map[schemas.ReasonCode]time.Time // when each of them began
	stormy       bool                             // the storm brake is to be asked again
	calm         time.Time                        // or at this time; zero: not by itself
	dirty        map[types.UID]bool
	followed     time.Time
	swept        time.Time
	due          time.Time // when something that is held has waited long enough; zero: nothing is held
	// unfollowed: a move is over when it is accepted, because nobody can say more, or because nothing was moved.
	unfollowed bool
}

func newTerm(saving context.Context, lost func() bool, a *Actuator, handle handleFunc, events recorder) *term {
	p := a.policy.Load()
	t := &term{
		Actuator: a, handleIntent: handle, events: events, saving: saving, lost: lost,
		wake: make(chan struct{}, 1), queued: make(chan struct{}, 1),
		table: newTable(), bucket: limit.NewBucket(p.Rate), spaces: map[string]*limit.Bucket{},
		errands: map[key]*errand{}, told: map[key]*lastNews{}, blocked: map[string]time.Time{}, failing: map[string]time.Time{},
		leading: saving, moves: newMoves(), departures: newDepartures(), kept: map[types.UID]*moving{}, pending: map[types.UID]*moving{},
		loop: limit.NewWorkloadBreaker(p.Brakes.Loop), left: map[limit.BreakerKey]uint64{},
		storm: limit.NewClusterBreaker(p.Brakes.Storm), stormy: true, names: map[types.UID]schemas.ObjectRef{},
		dirty: map[types.UID]bool{}, unwritten: map[string]*unwritten{}, replacements: map[types.UID]time.Time{},
		unfollowed: a.cfg.DryRun || a.cfg.View == View(blank{}),
	}
	t.table.rank = t.rank
	t.table.taken = t.metrics.taken
	t.table.begun = t.begun
	return t
}

// rank is where an intent waits, by its strategy and by what is known of its pod.
func (t *term) rank(o Open) rank {
	r := rank{lane: laneOf(t.policy.Load().Traits(o.Strategy).Priority)}
	if p, ok := t.cfg.View.Pod(o.Intent.Pod.UID); ok {
		r.priority, r.quality = p.Priority, qualityOf(p.QoS)
	}
	return r
}

// accept takes one event of the stream of answers.
func (t *term) accept(_ context.Context, e schemas.Event) error {
	answer, err := readAnswer(e)
	if err != nil {
		return err
	}
	now := t.cfg.Now()
	if err := timely(answer, e, now); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if answer.Maintenance != nil {
		t.send(answer, e, now)
		return nil
	}
	t.apply(t.table.accept(answer, e, now))
	t.awaken()
	return nil
}

// dispatch starts work until ctx ends, then waits for what it started.
func (t *term) dispatch(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-timer.C:
		}
		tasks, pause := t.step(t.cfg.Now())
		for _, work := range tasks {
			workers.Go(func() { work(ctx) })
		}
		timer.Reset(pause)
	}
}

// step ends what is over, looks at the moves in flight, and returns what is to be worked on now, and how long it takes
// until something is due without being woken.
func (t *term) step(now time.Time) (tasks []task, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.table.expire(now); len(c.verdicts) > 0 { // else apply would wake its own caller, for ever
		t.apply(c)
	}
	t.forgetKept(now)
	t.sweep(now)
	t.brake(now)
	tasks = t.follow(now)
	t.patience(now)
	started, pause := t.start(now)
	for _, f := range started {
		tasks = append(tasks, func(ctx context.Context) { t.work(ctx, f) })
	}
	if next, ok := t.table.nextExpiry(); ok {
		pause = min(pause, next.Sub(now))
	}
	if len(t.moves.all)+len(t.pending) > 0 {
		pause = min(pause, t.followed.Add(followEvery).Sub(now))
	}
	for _, at := range []time.Time{t.due, t.calm, t.forgetAt} {
		if !at.IsZero() {
			pause = min(pause, at.Sub(now))
		}
	}
	return tasks, max(pause, 0)
}

// patience releases what was held until now, and defers what was held for too long.
func (t *term) patience(now time.Time) {
	if t.due.IsZero() || now.Before(t.due) {
		return
	}
	var c changes
	c, t.due = t.table.timed(now)
	if len(c.verdicts) > 0 {
		t.apply(c)
	}
}

func (t *term) awaken() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
