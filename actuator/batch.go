package actuator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// Batches carries out intents that the caller has at hand, instead of those on the bus: at the policy's rate, which is one
// bucket for all calls, and in parallel. It records Kubernetes Events and counts as Lead does, and needs no bus.
// [Actuator.Batches] makes one.
type Batches struct {
	a      *Actuator
	events recorder
	stop   func()

	mu     sync.Mutex
	bucket bucket
}

// Batches makes one with a full bucket of the policy that is in force now. Only one process in the cluster should use one
// at a time, as with [Actuator.Lead]. It must be closed.
func (a *Actuator) Batches() *Batches {
	b := &Batches{a: a, bucket: newBucket(a.policy.Load().Rate)}
	b.events, b.stop = a.startEvents()
	return b
}

// Close waits until the Kubernetes Events are written, for two seconds at most.
func (b *Batches) Close() { b.stop() }

// Handle takes each intent to its verdict by [Actuator.Handle], and returns when all have one, in the order of the intents.
//
// An intent that could not be handled is deferred, and the error, which joins those of all of them, wraps
// [ErrUnavailable]. When ctx ends, nothing new is asked for, what is under way is finished, and the error wraps that of
// ctx.
func (b *Batches) Handle(ctx context.Context, intents []Open) ([]schemas.Verdict, error) {
	verdicts, errs := make([]schemas.Verdict, len(intents)), make([]error, len(intents))
	places := make(chan struct{}, b.a.cfg.Parallel)
	var workers sync.WaitGroup
	var ended error
	for i, open := range intents {
		places <- struct{}{}
		if ended = b.turn(ctx); ended != nil {
			for j := i; j < len(intents); j++ {
				verdicts[j] = b.a.later(intents[j], ended)
			}
			break
		}
		workers.Go(func() {
			defer func() { <-places }()
			verdicts[i], errs[i] = b.handle(ctx, open)
		})
	}
	workers.Wait()
	return verdicts, errors.Join(errors.Join(errs...), ended)
}

// turn waits for a token and takes it. It fails when ctx ends before.
func (b *Batches) turn(ctx context.Context) error {
	for {
		b.mu.Lock()
		now := b.a.cfg.Now()
		wait := b.bucket.wait(now)
		if wait == 0 && ctx.Err() == nil {
			b.bucket.take(now)
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (b *Batches) handle(ctx context.Context, open Open) (schemas.Verdict, error) {
	v, err := b.a.Handle(ctx, open)
	if err != nil {
		v = b.a.later(open, err)
	}
	if err != nil || !spent(v.Outcome) {
		b.mu.Lock()
		b.bucket.giveBack()
		b.mu.Unlock()
	}
	b.a.metrics.observe(v, b.a.cfg.Now())
	b.events.record(v, b.a.policy.Load().FailureEvents)
	return v, err
}

// later is the verdict on an intent that could not be handled.
func (a *Actuator) later(open Open, err error) schemas.Verdict {
	return a.verdict(open, Objection{schemas.Deferred, schemas.ReasonAPIUnavailable, err.Error()})
}
