package httpfunction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
)

// The defaults of [Config].
const (
	// DefaultMaxBytes is what a message on the embedded bus may have at most.
	DefaultMaxBytes = 8 << 20
	DefaultParallel = 32
)

// Config is what a [Handler] is made of.
type Config struct {
	Function functions.Function
	// Source is the CloudEvents source of the answers; the strategy's name is added to it.
	Source string
	// MaxBytes bounds the body of a request, as it is sent and as it is unpacked. 0: [DefaultMaxBytes].
	MaxBytes int64
	// Parallel bounds the requests that are answered at once. 0: [DefaultParallel].
	Parallel int
	// Log may be nil: nothing is logged.
	Log *slog.Logger
	// Metrics may be nil: nothing is registered.
	Metrics prometheus.Registerer
}

// Handler answers scopes. [New] makes it. Its methods may be called from many goroutines.
type Handler struct {
	config  Config
	gate    *gate
	log     *slog.Logger
	metrics *metrics
}

// New makes a handler. It fails when the metrics cannot be registered.
func New(c Config) (*Handler, error) {
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.Parallel == 0 {
		c.Parallel = DefaultParallel
	}
	h := &Handler{config: c, gate: newGate(c.Parallel), log: c.Log}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.metrics = newMetrics(c.Function.Strategy.Name, h.gate)
	if c.Metrics != nil {
		if err := h.metrics.register(c.Metrics); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return h, nil
}

// Ready says why the handler does not answer scopes; nil: it does.
func (h *Handler) Ready() error {
	if h.gate.isClosed() {
		return errors.New("shutting down")
	}
	return nil
}

// Drain refuses all further requests with 503, and waits for those that are being answered, or until ctx ends: then its
// error wraps that of ctx. It may be called again.
func (h *Handler) Drain(ctx context.Context) error {
	select {
	case <-h.gate.close():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests are still being answered: %w", h.gate.count(), ctx.Err())
	}
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	status := h.serve(w, r, began)
	h.metrics.served(status, time.Since(began))
}

// serve answers or refuses a request, and returns the status.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, began time.Time) int {
	if r.Method != http.MethodPost {
		p := refuse(http.StatusMethodNotAllowed, "want the method POST, got %.20s", r.Method)
		return p.with("Allow", http.MethodPost).write(w)
	}
	switch h.gate.enter() {
	case full:
		p := refuse(http.StatusTooManyRequests, "%d requests are being answered, which is the most at once", h.config.Parallel)
		return p.with("Retry-After", "1").write(w)
	case closed:
		p := refuse(http.StatusServiceUnavailable, "shutting down")
		return p.with("Retry-After", "1").with("Connection", "close").write(w)
	}
	defer h.gate.leave()
	reply, err := h.reply(w, r, began)
	if err != nil {
		return h.problemOf(err).write(w)
	}
	return reply.write(w)
}

// reply reads a request and makes the whole answer to it.
func (h *Handler) reply(w http.ResponseWriter, r *http.Request, began time.Time) (response, error) {
	mode, err := modeOf(r.Header)
	if err != nil {
		return response{}, err
	}
	body, err := readBody(w, r, h.config.MaxBytes)
	if err != nil {
		return response{}, err
	}
	scopes, err := readEvents(mode, r.Header, body)
	if err != nil {
		return response{}, err
	}
	answers := make([]schemas.Event, len(scopes))
	for i, scope := range scopes {
		if answers[i], err = h.answer(scope, began); err != nil {
			if mode == batched {
				err = fmt.Errorf("event %d of the batch: %w", i, err)
			}
			return response{}, err
		}
	}
	return newResponse(mode, answers)
}

// answer makes the event that answers a scope.
func (h *Handler) answer(scope schemas.Event, began time.Time) (schemas.Event, error) {
	f := h.config.Function
	decides := prometheus.NewTimer(h.metrics.evaluation)
	answer, err := f.Try(scope)
	if err != nil {
		return schemas.Event{}, err
	}
	decides.ObserveDuration()
	return functions.Reply(h.config.Source, answer, scope, began)
}

// problemOf says how an error is told to the client. What is the client's fault is told and nothing else; what is not is
// logged, too, since nobody else would hear of it.
func (h *Handler) problemOf(err error) *problem {
	var known *problem
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, functions.ErrPanicked):
		h.log.Error("strategy panicked", "strategy", h.config.Function.Strategy.Name, "error", err)
	case errors.Is(err, schemas.ErrInvalid):
		return refuse(http.StatusBadRequest, "%w", err)
	default:
		h.log.Error("no answer could be made", "strategy", h.config.Function.Strategy.Name, "error", err)
	}
	return refuse(http.StatusInternalServerError, "%w", err)
}
