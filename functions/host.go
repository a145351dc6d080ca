package functions

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/schemas"
)

// Bus is what hosting needs of the bus.
type Bus interface {
	// Work hands over the scopes of one strategy until ctx ends. A scope is handed over again, later, when handle
	// fails; one that can never be handled, by [schemas.ErrInvalid], goes to the dead letters.
	Work(ctx context.Context, strategy string, handle func(context.Context, schemas.Event) error) error
	// Current says whether the scope still waits for its answer: no newer one of its key was published, and no other host
	// answered it.
	Current(ctx context.Context, scope schemas.Event) (bool, error)
	// Answer stores the answer to a scope, unless a newer one is there.
	Answer(ctx context.Context, e schemas.Event, answer schemas.Intents) error
}

// Host answers scopes from the bus with functions of this process.
type Host struct {
	Functions []Function
	Bus       Bus
	// Source is the CloudEvents source of the answers; the strategy's name is added to it.
	Source string
	// Log may be nil: nothing is logged.
	Log *slog.Logger
	// Metrics may be nil: nothing is registered.
	Metrics prometheus.Registerer
}

// Run answers scopes until ctx ends, and then finishes those it has begun. It returns nil.
func (h Host) Run(ctx context.Context) error {
	log := h.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	seconds := EvaluationSeconds()
	if h.Metrics != nil {
		if err := h.Metrics.Register(seconds); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, f := range h.Functions {
		wg.Go(func() {
			handle := func(ctx context.Context, scope schemas.Event) error {
				return h.answer(ctx, f, scope, seconds.WithLabelValues(f.Strategy.Name))
			}
			if err := h.Bus.Work(ctx, f.Strategy.Name, handle); err != nil && ctx.Err() == nil {
				log.Error("strategy stopped working", "strategy", f.Strategy.Name, "error", err)
			}
		})
	}
	return nil
}

func (h Host) answer(ctx context.Context, f Function, scope schemas.Event, seconds prometheus.Observer) error {
	began := time.Now()
	answer, err := f.Try(scope)
	if err != nil {
		return err
	}
	seconds.Observe(time.Since(began).Seconds())
	if len(answer.Intents) > 0 { // what only withdraws does no harm when it comes late
		current, err := h.Bus.Current(ctx, scope)
		if err != nil || !current {
			return err
		}
	}
	e, err := Reply(h.Source, answer, scope, began)
	if err != nil {
		return err
	}
	if err := h.Bus.Answer(ctx, e, answer); err != nil {
		return fmt.Errorf("answer of %s to scope %s: %w", f.Strategy.Name, scope.ID, err)
	}
	return nil
}
