package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// strategy is a strategy with an external function.
type strategy struct {
	*Dispatcher
	policy.Outside
	name    string
	address string // of the function, for logs
	asker   Asker
	breaker *breaker
	open    prometheus.Gauge // of this function only: the function that replaces it has another one
	log     *slog.Logger
}

func (d *Dispatcher) newStrategy(o policy.Outside, asker Asker) *strategy {
	s := &strategy{Dispatcher: d, Outside: o, name: o.Strategy.Name, address: addressOf(o).String(), asker: asker}
	s.log = d.log.With("strategy", s.name, "address", s.address)
	s.open = s.metrics.open.WithLabelValues(s.name)
	s.open.Set(0)
	s.metrics.seconds.WithLabelValues(s.name) // rate() also counts the first request
	s.breaker = newBreaker(s.tell)
	return s
}

// run answers scopes until ctx ends, and waits for the requests in flight.
func (s *strategy) run(ctx context.Context) {
	defer s.asker.Close()
	handle := func(handling context.Context, scope schemas.Event) error { return s.handle(ctx, handling, scope) }
	if err := s.config.Bus.Work(ctx, s.name, s.Parallel, handle); err != nil && ctx.Err() == nil {
		s.log.Error("strategy stopped working", "error", err)
	}
}

// tell logs and counts a change of the breaker.
func (s *strategy) tell(c change) {
	if !c.open {
		s.open.Set(0)
		s.log.Info("a function answers again", "after", c.after)
		return
	}
	s.open.Set(1)
	if errors.Is(c.why, delivery.ErrUnauthorized) {
		s.log.Error("a function rejects the dispatcher and its scopes wait; check its address and permissions",
			"error", c.why)
		return
	}
	s.log.Warn("a function does not answer, its scopes wait", "error", c.why)
}

// handle answers one scope. ended is canceled when no new request should start, which ends the wait for the breaker. handling is
// canceled when requests in flight must stop.
func (s *strategy) handle(ended, handling context.Context, scope schemas.Event) error {
	head, err := schemas.Decode[schemas.ScopeHead](scope)
	if err != nil {
		return err
	}
	if head.Strategy != s.name {
		return fmt.Errorf("scope %s is for %q, not for %q: %w", scope.ID, head.Strategy, s.name, schemas.ErrInvalid)
	}
	began := time.Now()
	for {
		p, err := s.breaker.enter(ended)
		if err != nil {
			return fmt.Errorf("scope %s waits for %s: %w", scope.ID, s.address, err)
		}
		if p.waited { // a newer scope may have replaced this one
			if current, err := s.config.Bus.Current(handling, scope); err != nil || !current {
				s.breaker.leave(p, errNotAsked)
				return err
			}
		}
		asked := time.Now()
		reply, has, err := s.ask(handling, scope)
		hold, opened := s.breaker.leave(p, err)
		if opened && time.Since(asked) >= s.Timeout {
			s.buryCopy(handling, scope, err)
		}
		if hold {
			continue
		}
		if err != nil {
			return fmt.Errorf("scope %s: %w", scope.ID, err)
		}
		return s.answer(handling, scope, head, began, reply, has)
	}
}

// buryCopy stores a dead letter about a function that hangs. A function that is unavailable is usually restarting, and only
// logged.
func (s *strategy) buryCopy(ctx context.Context, scope schemas.Event, why error) {
	if err := s.config.Bus.Bury(ctx, scope, fmt.Errorf("the function of %s hangs, its scopes wait: %w", s.name, why)); err != nil {
		s.log.Warn("cannot store the dead letter for a function that hangs", "error", err)
	}
}

// ask sends one request.
func (s *strategy) ask(ctx context.Context, scope schemas.Event) (reply schemas.Event, has bool, err error) {
	began := time.Now()
	reply, has, err = s.asker.Ask(ctx, scope)
	if ctx.Err() == nil || err == nil { // the dispatcher did not cancel the request
		s.metrics.seconds.WithLabelValues(s.name).Observe(time.Since(began).Seconds())
	}
	if err != nil {
		s.count(resultOf(err))
	}
	return reply, has, err
}

func (s *strategy) count(r result) { s.metrics.requests.WithLabelValues(s.name, string(r)).Inc() }

// answer checks the reply and stores the answer.
func (s *strategy) answer(
	ctx context.Context, scope schemas.Event, head schemas.ScopeHead, began time.Time, reply schemas.Event, has bool,
) error {
	intents, result := []schemas.Intent(nil), resultEmpty
	if has {
		var err error
		if intents, err = check(scope, head, reply); err != nil {
			s.count(resultWrong)
			return fmt.Errorf("scope %s: answer of %s: %w", scope.ID, s.address, err)
		}
		result = resultAnswered
	}
	s.count(result)
	answer := functions.Complete(head, intents, scope.ID, scope.Sequence)
	return functions.Store(ctx, s.config.Bus, s.config.Source, answer, scope, began)
}
