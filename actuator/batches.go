package actuator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// Batches executes intents of the caller instead of intents from the bus. The rules of Lead apply, except the limits
// over windows. Use [Actuator.Batches] to make one.
type Batches struct {
	a        *Actuator
	bus      *memoryBus
	sequence uint64 // of the newest message
	end      func()
	ended    chan error
}

// Batches starts to lead without a bus and a ledger. Like [Actuator.Lead], it should run in only one process of the
// cluster at a time, and no Lead may run beside it. The caller must close the result.
func (a *Actuator) Batches() *Batches { return a.batches(a.execute) }

func (a *Actuator) batches(execute executeFunc) *Batches {
	p := *a.policy.Load()
	p.Limits = p.Limits.WithoutWindows()
	a.policy.Store(&p)
	ctx, cancel := context.WithCancel(context.Background())
	b := &Batches{a: a, end: cancel, ended: make(chan error, 1), bus: &memoryBus{messages: make(chan delivery)}}
	a.cfg.Bus, a.batched = b.bus, true
	go func() { b.ended <- a.lead(ctx, execute) }()
	return b
}

// Close waits for moves with more steps, then for the Kubernetes Events, and ends the session.
func (b *Batches) Close() {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for late := time.Now().Add(followFor + time.Minute); b.stepping() && time.Now().Before(late); {
		<-look.C
	}
	b.end()
	if err := <-b.ended; err != nil {
		b.a.cfg.Log.Error("batches ended", "error", err)
	}
}

// stepping reports whether a move has more steps.
func (b *Batches) stepping() bool {
	s := b.a.session.Load()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.moves.all {
		if x.State != nil {
			return true
		}
	}
	return false
}

// Handle takes each intent to its verdict and returns the verdicts in the order of the intents. While the API server is
// unavailable, intents wait until they expire. An invalid intent fails, and so do the others of its scope. When ctx ends,
// Handle defers the intents without a verdict, whose pods may still be moved, and the error wraps the error of ctx.
func (b *Batches) Handle(ctx context.Context, intents []Intent) ([]schemas.Verdict, error) {
	verdicts, results := make([]schemas.Verdict, len(intents)), make([]chan schemas.Verdict, len(intents))
	for i, intent := range intents {
		results[i] = make(chan schemas.Verdict, 1)
		b.bus.results.Store(intent.ID, results[i])
	}
	invalid, err := b.put(ctx, intents)
	for i, intent := range intents {
		if why := invalid[intent.scopeKey()]; why != nil {
			r := &move.Refusal{Outcome: schemas.Failed, Reason: schemas.ReasonInvalid, Message: why.Error()}
			verdicts[i] = b.a.refused(intent, r)
			continue
		}
		if err == nil {
			select {
			case verdicts[i] = <-results[i]:
				continue
			case <-ctx.Done():
				err = fmt.Errorf("pods wait for their turn: %w", ctx.Err())
			}
		}
		verdicts[i] = b.a.refused(intent, move.Deferred(schemas.ReasonAPIUnavailable, "%v", err))
	}
	return verdicts, err
}

// put delivers intents as messages of their strategies, in order. It returns the errors in the invalid messages.
func (b *Batches) put(ctx context.Context, intents []Intent) (invalid map[scopeKey]error, err error) {
	messages := map[scopeKey]*schemas.Intents{}
	var order []scopeKey
	for _, i := range intents {
		m := messages[i.scopeKey()]
		if m == nil {
			m = &schemas.Intents{Profile: i.Profile, Strategy: i.Strategy, Scope: i.Scope}
			m.Scope.Now = time.Time{} // the caller decided with the earlier moves in mind
			messages[i.scopeKey()], order = m, append(order, i.scopeKey())
		}
		m.Intents = append(m.Intents, i.Intent)
	}
	invalid = map[scopeKey]error{}
	for _, k := range order {
		m := messages[k]
		b.sequence++
		m.Scope.Sequence = b.sequence
		e, err := schemas.NewEvent(b.a.cfg.Source, *m, b.a.cfg.Now(), schemas.Event{})
		if err != nil {
			return invalid, err
		}
		e.Sequence = b.sequence
		d := delivery{e, make(chan error, 1)}
		select {
		case b.bus.messages <- d:
			invalid[k] = <-d.handled
		case <-ctx.Done():
			return invalid, fmt.Errorf("pods wait for their turn: %w", ctx.Err())
		}
	}
	return invalid, nil
}

// memoryBus is a [Bus] inside the process.
type memoryBus struct {
	messages chan delivery
	results  sync.Map // by the intent's ID, a chan schemas.Verdict
}

// delivery is an intents message. handled gets the error of its handler.
type delivery struct {
	message schemas.Event
	handled chan error
}

// FollowIntents implements [Bus].
func (b *memoryBus) FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-b.messages:
			d.handled <- handle(ctx, d.message)
		}
	}
}

// DropIntents implements [Bus].
func (b *memoryBus) DropIntents(context.Context, schemas.Event) error { return nil }

// Publish implements [Bus].
func (b *memoryBus) Publish(_ context.Context, e schemas.Event) (uint64, error) {
	v, err := schemas.Decode[schemas.Verdict](e)
	if err != nil {
		return 0, err
	}
	if result, waits := b.results.LoadAndDelete(v.Intent.ID); waits { // the first verdict; the second reports that the move settled
		result.(chan schemas.Verdict) <- v
	}
	return 0, nil
}
