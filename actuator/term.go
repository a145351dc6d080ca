package actuator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// handleFunc is the shape of [Actuator.Handle].
type handleFunc func(context.Context, Open) (schemas.Verdict, error)

// term is one call of Lead: the table, and who works on it. Everything below mu is guarded by it,
// and so are the limits of the Actuator.
//
//	accept     the bus's goroutine    answers into the table
//	dispatch   one goroutine          starts work when a place, a token and an intent are there
//	work       one goroutine each     intent to verdict, verdict to the bus
//	reportQueue one goroutine         verdicts that need no call: withdrawn, expired, rejected behind another
type term struct {
	*Actuator
	handle handleFunc
	events recorder
	saving context.Context // ends after the term's own context: what is decided is still stored
	wake   chan struct{}   // something changed that dispatch may be waiting for
	queued chan struct{}   // queue changed

	busAway atomic.Bool // what was to be stored last could not be

	mu      sync.Mutex
	table   *table
	bucket  bucket
	running int
	queue   changes
	closed  bool // nothing is added to queue any more
}

func newTerm(saving context.Context, a *Actuator, handle handleFunc, events recorder) *term {
	return &term{
		Actuator: a, handle: handle, events: events, saving: saving,
		wake: make(chan struct{}, 1), queued: make(chan struct{}, 1),
		table: newTable(), bucket: newBucket(a.policy.Load().Rate),
	}
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
		flights, pause := t.step(t.cfg.Now())
		for _, f := range flights {
			workers.Go(func() { t.work(ctx, f) })
		}
		timer.Reset(pause)
	}
}

// flight is a claim that is worked on, with its intent as it was when that began: a newer answer may change it meanwhile.
type flight struct {
	claim *claim
	open  Open
}

// step expires what is due, defers what a limit holds, and returns the intents to be worked on now, and how long it takes
// until something is due without being woken.
func (t *term) step(now time.Time) (flights []flight, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.table.expire(now); len(c.verdicts) > 0 { // else apply would wake its own caller, for ever
		t.apply(c)
	}
	pause = time.Hour // for ever: wake ends it
	for t.table.waiting.Len() > 0 && t.running < t.cfg.Parallel {
		if t.overLimit(now) {
			continue // the next pod may be on another node
		}
		wait, down := t.line.wait(now)
		if down && t.running > 0 {
			break // while the API server is away, one intent at a time tries it; its end wakes
		}
		if wait = max(wait, t.bucket.wait(now)); wait > 0 {
			pause = wait
			break
		}
		t.bucket.take(now)
		c := t.table.next()
		t.limits.begin(originOf(c.open))
		flights = append(flights, flight{c, c.open})
		t.running++
	}
	if next, ok := t.table.nextExpiry(); ok {
		pause = min(pause, next.Sub(now))
	}
	return flights, pause
}

// overLimit defers the intent whose turn it is when a limit holds it, and says whether it did. The caller holds mu.
func (t *term) overLimit(now time.Time) bool {
	c := t.table.front()
	o, wait, ok := t.limits.admits(c.open, now)
	if ok {
		return false
	}
	o.Message += "; " + roomAgain(wait, now)
	t.table.settle(c)
	v := c.open.Verdict(o.Outcome, o.Reason, o.Message)
	if wait != never {
		v.Again = now.Add(wait).UTC()
	}
	t.apply(changes{verdicts: []decided{{c, v}}})
	return true
}

// work takes one intent to its verdict, or puts it back.
func (t *term) work(ctx context.Context, f flight) {
	defer t.rest()
	c := f.claim
	verdict, err := t.handle(ctx, f.open)
	now := t.cfg.Now()
	if err != nil {
		if ctx.Err() == nil && t.line.fail(now, err) {
			t.cfg.Log.Warn("API server cannot be asked, holding all intents", "pod", f.open.Intent.Pod.String(), "error", err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.bucket.giveBack()
		t.limits.end(originOf(f.open), false, now)
		t.apply(t.table.putBack(c))
		return
	}
	if verdict.Reason != schemas.ReasonAPIUnavailable {
		if outage := t.line.succeed(now); outage > 0 {
			t.cfg.Log.Info("API server answers again", "after", outage)
		}
	}
	t.mu.Lock()
	if !spent(verdict.Outcome) {
		t.bucket.giveBack()
	}
	t.limits.end(originOf(f.open), verdict.Outcome == schemas.Evicted, now)
	behind := t.table.land(c, verdict.Outcome)
	t.mu.Unlock()
	t.awaken()

	t.settle(decided{c, verdict})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apply(behind)
}

// spent says whether a verdict costs a token. One that the gates gave does not: nothing was asked of the API server
// but a look.
func spent(o schemas.Outcome) bool { return o != schemas.Rejected && o != schemas.Expired }

// rest ends one work. It comes after the verdict is stored, so that a bus that is away holds evictions too.
func (t *term) rest() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.awaken()
}

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

// reportQueue settles what is queued until closeQueue, verdicts in the order in which they were made.
func (t *term) reportQueue() {
	for range t.queued {
		t.mu.Lock()
		work, last := t.queue, t.closed
		t.queue = changes{}
		t.mu.Unlock()
		for _, d := range work.verdicts {
			t.settle(d)
		}
		for _, answer := range work.done {
			t.drop(answer)
		}
		if last {
			return
		}
	}
}

// settle stores a verdict, and drops its answer when it was the last one.
func (t *term) settle(d decided) {
	if err := t.report(d.claim.open, d.verdict); err != nil {
		return // the term is over, and the answer stays for the next leader
	}
	t.mu.Lock()
	answer, done := t.table.reported(d.claim, t.cfg.Now())
	t.mu.Unlock()
	if done {
		t.drop(answer)
	}
}
