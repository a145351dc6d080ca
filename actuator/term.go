package actuator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/brake"
	"github.com/rehome-dev/rehome/policy"
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
//	reportQueue one goroutine         what needs no call: verdicts of waiting intents, ends of moves, the ledger
type term struct {
	*Actuator
	handleIntent handleFunc
	events       recorder
	saving       context.Context // ends after the term's own context: what is decided is still stored
	lost         func() bool     // whether this process may not lead any more: nothing is stored then
	wake         chan struct{}   // something changed that dispatch may be waiting for
	queued       chan struct{}   // queue changed

	busAway atomic.Bool // what was to be stored last could not be

	mu      sync.Mutex
	table   *table
	bucket  bucket
	spaces  map[string]*bucket // by namespace, as long as they are not full
	running int                // calls to the API server
	storing int                // verdicts on their way to the bus
	queue   queue
	closed  bool // nothing is added to queue any more
	// unwritten are the keys of the ledger for which a change is queued or being made.
	unwritten map[string]*unwritten

	moves *moves
	// replacements are the pods that ended moves, and when. They end no other one: of two pods that were moved together, the
	// first replacement that is ready would else end both.
	replacements map[types.UID]time.Time
	counted      counts // settled moves that a limit still counts, or a pause follows from
	loop         *brake.Loop
	left         map[brake.Key]uint64 // the newest pod that was known when one was moved off a node last
	storm        *brake.Storm
	names        map[types.UID]schemas.ObjectRef  // of the workloads that the loop breaker knows
	open         []brake.Condition                // of the storm brake
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

// queue is what is to be stored, in this order.
type queue struct {
	changes
	settled []followed
	ledger  []entryChange
}

func newTerm(saving context.Context, lost func() bool, a *Actuator, handle handleFunc, events recorder) *term {
	p := a.policy.Load()
	t := &term{
		Actuator: a, handleIntent: handle, events: events, saving: saving, lost: lost,
		wake: make(chan struct{}, 1), queued: make(chan struct{}, 1),
		table: newTable(), bucket: newBucket(p.Rate), spaces: map[string]*bucket{},
		moves: newMoves(), counted: newCounts(), loop: brake.NewLoop(p.Brakes.Loop), left: map[brake.Key]uint64{},
		storm: brake.NewStorm(p.Brakes.Storm), stormy: true, names: map[types.UID]schemas.ObjectRef{},
		dirty: map[types.UID]bool{}, unwritten: map[string]*unwritten{}, replacements: map[types.UID]time.Time{},
		unfollowed: a.cfg.DryRun || a.cfg.View == View(blank{}),
	}
	t.table.rank = t.rank
	return t
}

// rank is where an intent waits, by its strategy and by what is known of its pod.
func (t *term) rank(o Open) rank {
	r := rank{lane: laneViolations}
	if profile, ok := t.policy.Load().Profile(o.Profile); ok {
		for _, s := range profile.Strategies {
			if s.Name == o.Strategy {
				r.lane = laneOf(s.Strategy)
			}
		}
	}
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
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apply(t.table.accept(answer, e, t.cfg.Now()))
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
	t.forgetCounted(now)
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
	if len(t.counted.list) > 0 {
		pause = min(pause, t.counted.list[0].Moved.Add(t.kept()).Sub(now))
	}
	if len(t.moves.all) > 0 {
		pause = min(pause, t.followed.Add(followEvery).Sub(now))
	}
	for _, at := range []time.Time{t.due, t.calm} {
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

// flight is a claim that is worked on, with its intent as it was when that began: a newer answer may change it meanwhile.
type flight struct {
	claim *claim
	open  Open
	move  *moving
}

// start begins to work on the intents whose turn it is, as many as can be, and returns how long it takes until the next
// one can without anything changing.
func (t *term) start(now time.Time) (flights []flight, pause time.Duration) {
	for t.table.waiting.Len() > 0 && t.running < t.cfg.Parallel {
		if t.underWay() || t.deferred(now) || t.hold(now) {
			continue // the next pod may be on another node
		}
		wait, down := t.line.wait(now)
		if down && t.running > 0 || t.busAway.Load() && t.running+t.storing > 0 || t.storing > storingMost ||
			t.storm.Trial() && t.running > 0 {
			break // while somebody is away, one intent at a time tries it; its end wakes
		}
		if wait = max(wait, t.bucket.wait(now)); wait > 0 {
			return flights, wait
		}
		flights = append(flights, t.takeOff(now))
	}
	return flights, time.Hour // for ever: wake ends it
}

// storingMost bounds the verdicts that are on their way to the bus at once.
const storingMost = 256

// takeOff begins to work on the intent whose turn it is.
func (t *term) takeOff(now time.Time) flight {
	t.bucket.take(now)
	c := t.table.next()
	at := marked(c.open, t.cfg.View)
	t.limits.begin(originOf(c.open))
	if b := t.space(at.namespace); b != nil {
		b.take(now)
	}
	x := &moving{
		record: record{
			Open: c.open, Method: schemas.MethodEviction, Begun: now, Workload: workloadOf(t.cfg.View, c.open.Intent.Pod.UID),
			Newest: newest(t.cfg.View, at.workload),
		},
		at: at, seen: t.cfg.View.Latest(),
	}
	t.moves.add(x)
	t.running++
	return flight{c, c.open, x}
}

// underWay rejects the intent whose turn it is when its pod was moved already, and says whether it did: an answer can come
// late. To begin the move anew would take the place of what is remembered of it.
func (t *term) underWay() bool {
	c := t.table.front()
	uid := c.open.Intent.Pod.UID
	var o Objection
	pod, known := t.cfg.View.Pod(uid)
	switch x := t.moves.all[uid]; {
	case x != nil:
		o = Objection{schemas.Rejected, schemas.ReasonMoving,
			fmt.Sprintf("on the move for %s of profile %s", x.Open.Strategy, x.Open.Profile)}
	case t.counted.has(uid) && !known:
		o = Objection{schemas.Rejected, schemas.ReasonPodGone, "the pod was moved, and is gone"}
	case t.counted.has(uid) && pod.Leaving:
		o = Objection{schemas.Rejected, schemas.ReasonPodTerminating, "the pod was moved, and is being deleted"}
	default:
		return false
	}
	t.table.settle(c)
	t.apply(changes{verdicts: []decided{{claim: c, verdict: c.open.Verdict(o.Outcome, o.Reason, o.Message)}}})
	return true
}

// deferred defers the intent whose turn it is when a limit of a window or a brake forbids it, and says whether it did.
func (t *term) deferred(now time.Time) bool {
	c := t.table.front()
	o, again, ok := t.forbidden(c.open, now)
	if !ok {
		return false
	}
	t.table.settle(c)
	v := c.open.Verdict(o.Outcome, o.Reason, o.Message)
	v.Workload = workloadOf(t.cfg.View, c.open.Intent.Pod.UID)
	if !again.IsZero() {
		v.Again = again.UTC()
	}
	t.apply(changes{verdicts: []decided{{claim: c, verdict: v}}})
	return true
}

// forbidden says why an intent has to be decided about again later, and when at the earliest.
func (t *term) forbidden(o Open, now time.Time) (why Objection, again time.Time, ok bool) {
	if len(t.open) > 0 {
		return Objection{schemas.Deferred, t.open[0].Reason, t.open[0].Message}, now.Add(policy.StormPause), true
	}
	key := brake.Key{Workload: marked(o, t.cfg.View).workload, Strategy: o.Strategy, Node: o.Intent.Node}
	if until := t.loop.Holds(key, now); !until.IsZero() {
		return Objection{schemas.Deferred, schemas.ReasonLoop, fmt.Sprintf(
			"moving pods of this workload off %s has not helped: they come back; the next try is at %s", o.Intent.Node, clock(until),
		)}, until, true
	}
	why, wait, admitted := t.limits.admits(o, now)
	if admitted {
		return Objection{}, time.Time{}, false
	}
	why.Message += "; " + roomAgain(wait, now)
	if wait != never {
		again = now.Add(wait)
	}
	return why, again, true
}

// hold lets the intent whose turn it is wait for something that is on the move, if it has to, and says whether it does.
func (t *term) hold(now time.Time) bool {
	c := t.table.front()
	p := t.policy.Load()
	at := marked(c.open, t.cfg.View)
	h, holds := held(candidate{open: c.open, at: at, moves: t.moves, view: t.cfg.View, limits: p.Limits, now: now})
	if b := t.space(at.namespace); !holds && b != nil {
		if wait := b.wait(now); wait > 0 {
			holds, h = true, hold{
				by: holder{"namespace", at.namespace}, until: now.Add(wait),
				why: Objection{schemas.Deferred, schemas.ReasonNamespaceRate, "namespace " + at.namespace + " has used up its rate"},
			}
		}
	}
	if !holds {
		return false
	}
	t.table.hold(h, now)
	due := c.since.Add(holdPatience)
	if !h.until.IsZero() && h.until.Before(due) {
		due = h.until
	}
	if t.due.IsZero() || due.Before(t.due) {
		t.due = due
	}
	return true
}

// space is the bucket of a namespace. nil: the policy has no rate for each of them.
func (t *term) space(namespace string) *bucket {
	r := t.policy.Load().Rate.PerNamespace
	if r == nil {
		return nil
	}
	if t.spaces[namespace] == nil {
		b := newBucket(policy.Rate{EvictionsPerSecond: r.EvictionsPerSecond, Burst: r.Burst})
		t.spaces[namespace] = &b
	}
	return t.spaces[namespace]
}

// work takes one intent to its verdict, or puts it back.
func (t *term) work(ctx context.Context, f flight) {
	verdict, err := t.carryOut(ctx, f)
	now := t.cfg.Now()
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, ErrUnavailable) && t.line.fail(now, err) {
			t.cfg.Log.Warn("API server cannot be asked, holding all intents", "pod", f.open.Intent.Pod.String(), "error", err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.running--
		t.abandon(f, now)
		t.apply(t.table.putBack(f.claim))
		t.awaken()
		return
	}
	if verdict.Reason != schemas.ReasonAPIUnavailable {
		if outage := t.line.succeed(now); outage > 0 {
			t.cfg.Log.Info("API server answers again", "after", outage)
		}
	}
	t.mu.Lock()
	t.running--
	t.storing++
	behind := t.land(f, verdict, now)
	t.mu.Unlock()
	t.awaken()
	t.settle(decided{f.claim, verdict, f.move})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.storing--
	t.apply(behind)
	t.awaken()
}

// carryOut handles the intent. The move is claimed in the ledger when nothing speaks against it and before anything is
// changed: a claim on a pod that had gone before would read as its eviction.
func (t *term) carryOut(ctx context.Context, f flight) (schemas.Verdict, error) {
	v, err := t.handleIntent(ctx, f.open, func(ctx context.Context, r record) error { return t.note(ctx, f.move, r) })
	if err == nil && v.Workload == nil {
		v.Workload = f.move.Workload
	}
	return v, err
}

// note stores what is remembered of a move, trying again until it is stored or ctx ends. What is queued for the same pod,
// such as the end of a try before, is written first: it must not wipe out what is stored now.
func (t *term) note(ctx context.Context, x *moving, r record) error {
	if err := t.awaitWritten(ctx, r.key()); err != nil {
		return err
	}
	t.mu.Lock()
	r.Begun, r.Newest = x.Begun, x.Newest
	if r.Workload == nil {
		r.Workload = x.Workload
	}
	x.record, x.claimed = r, true
	t.mu.Unlock()
	return t.write(ctx, entryChange{key: r.key(), value: r})
}

// land takes note of a verdict, and returns what follows from it for other intents. The caller holds mu.
func (t *term) land(f flight, v schemas.Verdict, now time.Time) changes {
	moved := v.Outcome.Moves()
	if !spent(v.Outcome) {
		t.bucket.giveBack()
	}
	if failed, called := callFailed(v); called {
		t.storm.Called(!failed, now)
		t.stormy = true
	}
	if !moved {
		t.abandonMove(f.move, now)
		return t.table.land(f.claim, v.Outcome)
	}
	t.limits.end(originOf(f.open), true, now)
	f.move.Moved = now
	t.moves.accepted(f.move)
	t.table.release(holder{"workload", string(f.move.at.workload)}) // until when the others pause is known only now
	t.leaves(f.move, now)
	t.metrics.moving.Set(float64(len(t.moves.all)))
	return t.table.land(f.claim, v.Outcome)
}

// callFailed says whether an eviction call failed, and whether there was one. Budgets and a server that is busy are no
// failures.
func callFailed(v schemas.Verdict) (failed, called bool) {
	switch {
	case v.Outcome == schemas.Evicted, v.Reason == schemas.ReasonDisruptionBudget, v.Reason == schemas.ReasonThrottled:
		return false, true
	case v.Outcome == schemas.Failed, v.Reason == schemas.ReasonAPIUnavailable:
		return true, true
	}
	return false, false
}

// abandon undoes what the beginning of a work has counted. The caller holds mu.
func (t *term) abandon(f flight, now time.Time) {
	t.bucket.giveBack()
	t.abandonMove(f.move, now)
}

func (t *term) abandonMove(x *moving, now time.Time) {
	if b := t.space(x.at.namespace); b != nil {
		b.giveBack()
	}
	t.limits.end(originOf(x.Open), false, now)
	t.moves.remove(x)
	t.releaseFor(x.at)
	if x.claimed {
		t.change(t.counted.entry(x.key()))
	}
}

// spent says whether a verdict costs a token. One that the gates gave does not: nothing was asked of the API server
// but a look.
func spent(o schemas.Outcome) bool { return o != schemas.Rejected && o != schemas.Expired }

func (t *term) awaken() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// apply queues what follows from a change of the table. The caller holds mu.
func (t *term) apply(c changes) {
	t.queue.verdicts = append(t.queue.verdicts, c.verdicts...)
	t.queue.done = append(t.queue.done, c.done...)
	t.metrics.open.Set(float64(t.table.open))
	if len(c.verdicts)+len(c.done) > 0 {
		t.signalQueue()
	}
}

func (t *term) signalQueue() {
	select {
	case t.queued <- struct{}{}:
	default:
	}
}

// closeQueue lets reportQueue end when it has worked off the queue.
func (t *term) closeQueue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.signalQueue()
}

// reportQueue stores what is queued until closeQueue, verdicts in the order in which they were made.
func (t *term) reportQueue() {
	for range t.queued {
		t.mu.Lock()
		work, last := t.queue, t.closed
		t.queue = queue{}
		t.mu.Unlock()
		for _, d := range work.verdicts {
			t.settle(d)
		}
		for _, answer := range work.done {
			t.drop(answer)
		}
		for _, f := range work.settled {
			_, _ = t.report(f.record.Open, f.verdict, f.record.Cause) // an error: the next leader finds the move in flight
		}
		for _, e := range work.ledger {
			_ = t.write(t.saving, e)
			t.written(e.key)
		}
		if last {
			return
		}
	}
}

// settle stores a verdict, and drops its answer when it was the last one.
func (t *term) settle(d decided) {
	e, err := t.report(d.claim.open, d.verdict, d.claim.open.Answer)
	if err != nil {
		return // the term is over, and the next leader finds the intent without a verdict
	}
	t.mu.Lock()
	if x := d.move; x != nil && d.verdict.Outcome.Moves() {
		e.Data = nil
		x.told, x.Cause = true, e
		t.dirty[x.at.workload] = true
		if t.unfollowed {
			t.moves.remove(x)
			t.releaseFor(x.at)
			x.Settled = true
		}
		t.remember(x, t.cfg.Now())
	}
	answer, done := t.table.reported(d.claim, t.cfg.Now())
	t.mu.Unlock()
	if done {
		t.drop(answer)
	}
}
