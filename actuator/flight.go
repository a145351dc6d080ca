package actuator

import (
	"context"
	"errors"
	"time"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/schemas"
)

// flight is a claim that is worked on, with its intent as it was when that began: a newer answer may change it meanwhile.
type flight struct {
	claim *claim
	open  Open
	move  *moving
	// scope is what it comes from, the newest that lists the pod.
	scope schemas.ScopeRef
	// all and space are where its tokens are from; space is nil when its namespace has no rate of its own.
	all, space *limit.Bucket
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
	d := decided{f.claim, verdict, f.move}
	if f.open.asked().DryRun {
		d.move = nil // nothing is on the move
	}
	t.settle(d)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.storing--
	t.apply(behind)
	t.awaken()
}

// carryOut handles the intent. The move is claimed in the ledger when nothing speaks against it and before anything is
// changed: a claim on a pod that had gone before would read as its eviction.
func (t *term) carryOut(ctx context.Context, f flight) (schemas.Verdict, error) {
	note := func(ctx context.Context, r record) error { return t.note(ctx, f.move, r) }
	if f.open.asked().DryRun {
		note = unnoted
	}
	v, err := t.handleIntent(ctx, f.open, note)
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
	pretended := f.open.asked().DryRun
	moved := v.Outcome.Moves() && !pretended
	f.tokens(spent(v.Outcome), moved, now)
	if r := resultOf(v); r != noCall {
		t.storm.Called(f.move.at.namespace, r != callFailed, now)
		t.storm.Refused(f.move.at.namespace, r == callRefused || r == callFailed, now)
		t.stormy = true
	}
	t.departures.end(f.open.Intent.Pod.UID, f.scope, f.move.at.workload, departed(v, now))
	if !moved {
		t.abandonMove(f.move, now)
		if pretended {
			t.table.settle(f.claim) // other claims on the pod stay
			return changes{}
		}
		return t.table.land(f.claim, v.Outcome)
	}
	t.limits.End(originOf(f.open), true, now)
	f.move.Moved, f.move.answer = now, f.claim.answer
	t.moves.accepted(f.move)
	t.table.release(holder{"workload", string(f.move.at.workload)}) // until when the others pause is known only now
	t.leaves(f.move, now)
	t.metrics.moving.Set(float64(len(t.moves.all)))
	return t.table.land(f.claim, v.Outcome)
}

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

// abandon undoes what the beginning of a work has counted. The caller holds mu.
func (t *term) abandon(f flight, now time.Time) {
	f.tokens(false, false, now)
	t.departures.end(f.open.Intent.Pod.UID, f.scope, f.move.at.workload, time.Time{})
	t.abandonMove(f.move, now)
}

func (t *term) abandonMove(x *moving, now time.Time) {
	t.limits.End(originOf(x.Open), false, now)
	t.moves.remove(x)
	t.releaseFor(x.at)
	if x.claimed {
		t.change(t.keptEntry(x.Open.Intent.Pod.UID))
	}
}

// tokens ends what the flight holds of the rates. That of a namespace is spent by moves alone.
func (f flight) tokens(spent, moved bool, now time.Time) {
	if spent {
		f.all.Spend(now)
	} else {
		f.all.GiveBack()
	}
	if moved {
		f.space.Spend(now)
	} else {
		f.space.GiveBack()
	}
}

// spent says whether a verdict costs a token. One that the gates gave does not: nothing was asked of the API server
// but a look.
func spent(o schemas.Outcome) bool { return o != schemas.Rejected && o != schemas.Expired }
