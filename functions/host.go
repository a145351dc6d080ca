package functions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/schemas"
)

// Bus is the part of the bus that a host needs.
type Bus interface {
	// Work calls handle with the scopes of one strategy until ctx ends. When handle fails, the scope is delivered again later,
	// or goes to the dead letters if the error wraps [schemas.ErrInvalid].
	Work(ctx context.Context, strategy string, handle func(context.Context, schemas.Event) error) error
	Answerer
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
	return Publish(ctx, h.Bus, h.Source, answer, scope, began)
}

// Answerer is the part of [Bus] that takes answers.
type Answerer interface {
	// Current reports whether the scope still waits for its answer: no newer one of its key was published, and no other host
	// answered it.
	Current(ctx context.Context, scope schemas.Event) (bool, error)
	// Answer stores the answer to a scope, unless a newer one is there.
	Answer(ctx context.Context, e schemas.Event, answer schemas.Intents) error
}

// Publish stores the answer to a scope, unless the scope is stale. An answer without intents is stored in any case: to withdraw
// late does no harm.
func Publish(ctx context.Context, b Answerer, source string, answer schemas.Intents, scope schemas.Event, began time.Time) error {
	if len(answer.Intents) > 0 {
		if current, err := b.Current(ctx, scope); err != nil || !current {
			return err
		}
	}
	e, err := Reply(source, answer, scope, began)
	if err != nil {
		return err
	}
	if err := b.Answer(ctx, e, answer); err != nil {
		return fmt.Errorf("answer of %s to scope %s: %w", answer.Strategy, scope.ID, err)
	}
	return nil
}

// ErrPanicked is wrapped by the error for a strategy that panicked.
var ErrPanicked = errors.New("panicked")

// Try is [Function.Evaluate], but returns an error if the strategy panics. The error wraps [ErrPanicked] and
// [schemas.ErrInvalid]: the same scope would panic again.
func (f Function) Try(scope schemas.Event) (answer schemas.Intents, err error) {
	defer func() {
		if p := recover(); p != nil {
			answer = schemas.Intents{}
			err = fmt.Errorf("strategy %s %w at scope %s: %w: %v", f.Strategy.Name, ErrPanicked, scope.ID, schemas.ErrInvalid, p)
		}
	}()
	return f.Evaluate(scope)
}

// Reply makes the event for the answer to a scope. It expires [IntentTTL] after began, when the host took the scope. source
// is the CloudEvents source of the host; the name of the strategy is added to it.
func Reply(source string, answer schemas.Intents, scope schemas.Event, began time.Time) (schemas.Event, error) {
	e, err := schemas.NewEvent(source+"/"+answer.Strategy, answer, time.Now(), scope)
	if err != nil {
		return schemas.Event{}, err
	}
	e.Expires = began.Add(IntentTTL).UTC()
	return e, nil
}

// EvaluationSeconds makes the histogram of evaluation times, the same for every host. It is not registered yet.
func EvaluationSeconds() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rehome_evaluation_seconds", Help: "Time to decide on one scope.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}, []string{"strategy"})
}
