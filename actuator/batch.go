package actuator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// Batches carries out intents that the caller has at hand, instead of those on the bus, by the same rules as Lead but for
// limits within a window of time, which the caller counts. [Actuator.Batches] makes one.
type Batches struct {
	a     *Actuator
	desk  *desk
	end   func()
	ended chan error
}

// Batches begins to lead without a bus and a ledger. Only one process in the cluster should do so at a time, as with
// [Actuator.Lead], and no Lead may run beside it. It must be closed.
func (a *Actuator) Batches() *Batches { return a.batches(a.executeOpen) }

func (a *Actuator) batches(execute executeFunc) *Batches {
	p := *a.policy.Load()
	p.Limits.PerNode, p.Limits.PerNamespace, p.Limits.Total = nil, nil, nil
	a.policy.Store(&p)
	ctx, cancel := context.WithCancel(context.Background())
	b := &Batches{
		a: a, desk: &desk{answers: make(chan schemas.Event), open: map[string]chan<- schemas.Verdict{}}, end: cancel,
		ended: make(chan error, 1),
	}
	a.cfg.Bus = b.desk
	go func() { b.ended <- a.lead(ctx, execute) }()
	return b
}

// finishWithin bounds how long Close waits for moves that take several steps: about as long as they are followed.
const finishWithin = followFor + time.Minute

// Close waits for moves that take several steps, then for the Kubernetes Events to be written, and ends.
func (b *Batches) Close() {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for late := time.Now().Add(finishWithin); b.stepping() && time.Now().Before(late); {
		<-look.C
	}
	b.end()
	if err := <-b.ended; err != nil {
		b.a.cfg.Log.Error("batches ended", "error", err) // the desk refuses nothing
	}
}

// stepping says whether a move has more steps to take.
func (b *Batches) stepping() bool {
	s := b.a.session.Load()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.moves.stepping) > 0
}

// Handle takes each intent to its verdict and returns when all have one, in the order of the intents. While the API server
// cannot be asked they wait for it, until they expire.
//
// When ctx ends, nothing waits any longer: what has no verdict by then is deferred, though it may still come to be moved,
// and the error wraps that of ctx.
func (b *Batches) Handle(ctx context.Context, intents []Open) ([]schemas.Verdict, error) {
	verdicts := make([]schemas.Verdict, len(intents))
	results := make([]chan schemas.Verdict, len(intents))
	for i, open := range intents {
		results[i] = make(chan schemas.Verdict, 1)
		b.desk.expect(open.Intent.ID, results[i])
	}
	err := b.desk.put(ctx, b.a.cfg.Source, intents, b.a.cfg.Now())
	for i, open := range intents {
		if err == nil {
			select {
			case verdicts[i] = <-results[i]:
				continue
			case <-ctx.Done():
				err = fmt.Errorf("pods wait for their turn: %w", ctx.Err())
			}
		}
		verdicts[i] = b.a.verdict(open, Objection{schemas.Deferred, schemas.ReasonAPIUnavailable, err.Error()})
	}
	return verdicts, err
}

// desk is a [Bus] within the process: answers go over it, and verdicts come back to those who wait for them.
type desk struct {
	answers chan schemas.Event

	mu       sync.Mutex
	sequence uint64
	open     map[string]chan<- schemas.Verdict // by the intent's ID
}

func (d *desk) expect(id string, result chan<- schemas.Verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[id] = result
}

// put hands over intents as answers of the strategies that they come from, in order.
func (d *desk) put(ctx context.Context, source string, intents []Open, now time.Time) error {
	answers := map[scopeKey]*schemas.Intents{}
	var order []scopeKey
	for _, o := range intents {
		k := scopeKey{o.Profile, o.Strategy, o.Scope.Kind, o.Scope.Key}
		if answers[k] == nil {
			answers[k] = &schemas.Intents{Profile: o.Profile, Strategy: o.Strategy, Scope: o.Scope}
			answers[k].Scope.Now = time.Time{} // whoever hands them over one after the other has thought of those before
			order = append(order, k)
		}
		answers[k].Intents = append(answers[k].Intents, o.Intent)
	}
	for _, k := range order {
		d.sequence++
		answers[k].Scope.Sequence = d.sequence
		e, err := schemas.NewEvent(source, *answers[k], now, schemas.Event{})
		if err != nil {
			return err
		}
		e.Sequence = d.sequence
		select {
		case d.answers <- e:
		case <-ctx.Done():
			return fmt.Errorf("pods wait for their turn: %w", ctx.Err())
		}
	}
	return nil
}

// FollowIntents implements [Bus].
func (d *desk) FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-d.answers:
			if err := handle(ctx, e); err != nil {
				return err
			}
		}
	}
}

// DropIntents implements [Bus]: an answer is gone once it was handed over.
func (d *desk) DropIntents(context.Context, schemas.Event) error { return nil }

// Publish implements [Bus].
func (d *desk) Publish(_ context.Context, e schemas.Event) (uint64, error) {
	v, err := schemas.Decode[schemas.Verdict](e)
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if result := d.open[v.Intent.ID]; result != nil && v.Outcome != schemas.Settled {
		delete(d.open, v.Intent.ID)
		result <- v
	}
	return 0, nil
}
