// Package httpfunction serves a strategy over HTTP for `rehome serve`: each request has a scope and each response its answer, in
// the HTTP binding of CloudEvents. The dispatcher is its client, with package schemas/cloudevent/post.
//
//	Handler.ServeHTTP ──▶ respond ──▶ serve.Read ──▶ answer ──▶ Function.Evaluate ──▶ serve.Write
//
// Package schemas/cloudevent/serve converts requests to events, and events to responses.
//
// # Request and response
//
//	POST /   an event of type dev.rehome.scope.v1   200 and one of type dev.rehome.intents.v1, in the same mode
//
// The mode is binary, structured (application/cloudevents+json), or batched (application/cloudevents-batch+json). The response to
// a batch has one answer per event, in the same order. One failing event fails the whole batch. A request may be compressed with
// gzip. The sequence in an answer is 0, because the client knows the sequence of the scope.
//
// # Errors
//
// An error is one line of text.
//
//	400  no valid CloudEvent, of another type, or not a scope of this strategy   do not retry
//	405  another method than POST, including OPTIONS of webhooks                 do not retry
//	408  the request did not arrive in time
//	413  larger than [Config].MaxBytes                                           do not retry
//	415  unsupported content type or content encoding                            do not retry
//	429  too many requests in parallel                                           retry after Retry-After
//	500  the strategy panicked; the panic is logged, and the process continues
//	503  the handler drains                                                      retry after Retry-After
//
// A [Handler] keeps no state between requests. It limits the requests in parallel, which bounds its memory.
package httpfunction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/semaphore"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
)

// The defaults of [Config].
const (
	// DefaultMaxBytes is the largest message on the embedded bus.
	DefaultMaxBytes = 8 << 20
	DefaultParallel = 32
)

// Config is the configuration of a [Handler].
type Config struct {
	Function functions.Function
	// Source is the CloudEvents source of answers, without the name of the strategy.
	Source string
	// MaxBytes is the largest body, compressed and uncompressed. 0 means [DefaultMaxBytes].
	MaxBytes int64
	// Parallel is the largest number of requests in progress. 0 means [DefaultParallel].
	Parallel int
	// Log may be nil, which logs nothing.
	Log *slog.Logger
	// Metrics may be nil, which registers nothing.
	Metrics prometheus.Registerer
}

// Handler answers scopes. Its methods are safe for concurrent use.
type Handler struct {
	config     Config
	log        *slog.Logger
	slots      *semaphore.Weighted // one per request in progress
	inProgress atomic.Int64
	draining   atomic.Bool
	evaluation prometheus.Observer
	handler    http.Handler // with metrics
}

// New returns a handler.
func New(c Config) *Handler {
	c.MaxBytes, c.Parallel = cmp.Or(c.MaxBytes, DefaultMaxBytes), cmp.Or(c.Parallel, DefaultParallel)
	h := &Handler{config: c, log: c.Log, slots: semaphore.NewWeighted(int64(c.Parallel))}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	labels := prometheus.Labels{"strategy": c.Function.Strategy.Name}
	auto := promauto.With(c.Metrics)
	requests := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rehome_function_requests_total", Help: "HTTP requests to the function by status code.", ConstLabels: labels,
	}, []string{"code"})
	seconds := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rehome_function_request_seconds", Help: "Time to read and answer an HTTP request to the function.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, ConstLabels: labels,
	}, nil)
	seconds.WithLabelValues() // rate() also counts the first request
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rehome_function_requests_in_progress", Help: "HTTP requests to the function in progress.", ConstLabels: labels,
	}, func() float64 { return float64(h.inProgress.Load()) })
	h.evaluation = functions.EvaluationSeconds(c.Metrics).WithLabelValues(c.Function.Strategy.Name)
	h.handler = promhttp.InstrumentHandlerCounter(requests, promhttp.InstrumentHandlerDuration(seconds, http.HandlerFunc(h.serve)))
	return h
}

// Ready returns nil, or an error if the handler drains.
func (h *Handler) Ready() error {
	if h.draining.Load() {
		return errors.New("shutting down")
	}
	return nil
}

// Drain rejects new requests with 503 and waits until the requests in progress end or ctx does. Its error wraps the
// error of ctx. It may be called again.
func (h *Handler) Drain(ctx context.Context) error {
	h.draining.Store(true)
	if err := h.slots.Acquire(ctx, int64(h.config.Parallel)); err != nil {
		return fmt.Errorf("%d requests are still in progress: %w", h.inProgress.Load(), err)
	}
	h.slots.Release(int64(h.config.Parallel))
	return nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.handler.ServeHTTP(w, r) }

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	if err := h.respond(w, r); err != nil {
		h.refusalOf(err).Write(w)
	}
}

// respond writes the response, or returns an error before the response begins.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request) error {
	began := time.Now()
	if r.Method != http.MethodPost {
		return serve.Refuse(http.StatusMethodNotAllowed, "want the method POST, got %.20s", r.Method).With("Allow", http.MethodPost)
	}
	admitted := h.slots.TryAcquire(1)
	if admitted {
		defer h.slots.Release(1)
	}
	switch { // after taking a slot, because Drain sets draining before it waits for the slots
	case h.draining.Load():
		return serve.Refuse(http.StatusServiceUnavailable, "shutting down").After(time.Second).With("Connection", "close")
	case !admitted:
		return serve.Refuse(http.StatusTooManyRequests, "%d requests are in progress, which is the limit", h.config.Parallel).
			After(time.Second)
	}
	h.inProgress.Add(1)
	defer h.inProgress.Add(-1)
	mode, err := serve.ModeOf(r.Header)
	if err != nil {
		return err
	}
	body, err := serve.ReadBody(w, r, h.config.MaxBytes)
	if err != nil {
		return err
	}
	scopes, err := serve.Read(mode, r.Header, body)
	if err != nil {
		return err
	}
	answers := make([]schemas.Event, len(scopes))
	for i, scope := range scopes {
		if answers[i], err = h.answer(scope, began); err != nil {
			if mode == serve.Batched {
				err = fmt.Errorf("event %d of the batch: %w", i, err)
			}
			return err
		}
	}
	return serve.Write(w, http.StatusOK, mode, answers)
}

// answer returns the event that answers a scope.
func (h *Handler) answer(scope schemas.Event, began time.Time) (schemas.Event, error) {
	decides := prometheus.NewTimer(h.evaluation)
	answer, err := h.config.Function.Evaluate(scope)
	if err != nil {
		return schemas.Event{}, err
	}
	decides.ObserveDuration()
	return functions.Reply(h.config.Source, answer, scope, began)
}

// refusalOf returns the refusal for an error. It logs an error that is not caused by the client.
func (h *Handler) refusalOf(err error) *serve.Refusal {
	known, ok := errors.AsType[*serve.Refusal](err)
	switch {
	case ok:
		return known
	case errors.Is(err, functions.ErrPanicked):
		h.log.Error("strategy panicked", "strategy", h.config.Function.Strategy.Name, "error", err)
	case errors.Is(err, schemas.ErrInvalid):
		return serve.Refuse(http.StatusBadRequest, "%w", err)
	default:
		h.log.Error("cannot answer a scope", "strategy", h.config.Function.Strategy.Name, "error", err)
	}
	return serve.Refuse(http.StatusInternalServerError, "%w", err)
}
