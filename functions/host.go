package functions

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

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
	// Source is the CloudEvents source of answers, without the name of the strategy.
	Source string
	// Log may be nil for no logs.
	Log *slog.Logger
	// Metrics may be nil for no metrics.
	Metrics prometheus.Registerer

	seconds *prometheus.HistogramVec
}

// Run answers scopes until ctx ends, and then finishes the scopes in progress. It returns nil.
func (h Host) Run(ctx context.Context) error {
	log := h.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h.seconds = EvaluationSeconds(h.Metrics)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, f := range h.Functions {
		wg.Go(func() {
			handle := func(ctx context.Context, scope schemas.Event) error { return f.answer(ctx, h, scope) }
			if err := h.Bus.Work(ctx, f.Strategy.Name, handle); err != nil && ctx.Err() == nil {
				log.Error("strategy stopped working", "strategy", f.Strategy.Name, "error", err)
			}
		})
	}
	return nil
}

// answer answers a scope from the bus.
func (t typed[A, S]) answer(ctx context.Context, h Host, scope schemas.Event) (err error) {
	defer recovered(t.name, scope.ID, &err)
	began := time.Now()
	s, args, err := t.read(scope, nil)
	if err != nil {
		return err
	}
	answer := Complete(s.Head(), args.Decide(s), scope.ID, scope.Sequence)
	h.seconds.WithLabelValues(t.name).Observe(time.Since(began).Seconds())
	return Store(ctx, h.Bus, h.Source, answer, scope, began)
}

// Answerer is the part of [Bus] that takes answers.
type Answerer interface {
	// Current reports whether the scope still waits for its answer: no newer one of its key was published, and no other host
	// answered it.
	Current(ctx context.Context, scope schemas.Event) (bool, error)
	// Answer stores the answer to a scope, unless there is a newer one.
	Answer(ctx context.Context, e schemas.Event, answer schemas.Intents) error
}

// Store stores the answer to a scope. It drops an answer with intents if its scope is stale. An answer without intents is always
// stored: a late withdrawal is harmless. See [Reply] for source and began.
func Store(
	ctx context.Context, b Answerer, source string, answer schemas.Intents, scope schemas.Event, began time.Time,
) error {
	if len(answer.Intents) > 0 {
		if current, err := b.Current(ctx, scope); err != nil || !current {
			return err
		}
	}
	e, err := Reply(source, answer, scope, began)
	if err != nil {
		return err
	}
	return b.Answer(ctx, e, answer)
}

// Reply returns the event with the answer to a scope. It expires [IntentTTL] after began, when the host took the scope.
// source is the CloudEvents source of the host, without the name of the strategy.
func Reply(source string, answer schemas.Intents, scope schemas.Event, began time.Time) (schemas.Event, error) {
	e, err := schemas.NewEvent(source+"/"+answer.Strategy, answer, time.Now(), scope)
	if err != nil {
		return schemas.Event{}, err
	}
	e.Expires = began.Add(IntentTTL).UTC()
	return e, nil
}

// EvaluationSeconds registers the histogram of evaluation times, the same for every host.
func EvaluationSeconds(r prometheus.Registerer) *prometheus.HistogramVec {
	return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
		Name: "rehome_evaluation_seconds", Help: "Time to decide on one scope, in rehome functions, rehome run, and rehome serve.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}, []string{"strategy"})
}
