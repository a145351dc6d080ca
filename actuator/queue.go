package actuator

// queue is what is to be stored, in this order.
type queue struct {
	changes
	settled []followed
	ledger  []entryChange
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
