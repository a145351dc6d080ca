package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// strategy is one strategy that is asked.
type strategy struct {
	name     string
	where    string // of the function, for people
	source   string
	parallel int
	timeout  time.Duration // of one question
	bus      Bus
	asker    Asker
	breaker  *breaker
	opened   atomic.Bool // the breaker, and nobody has seen to it yet
	figures  figures
	log      *slog.Logger
}

// newStrategy makes what asks one strategy.
func (d *Dispatcher) newStrategy(o policy.Outside, asker Asker) *strategy {
	s := &strategy{
		name: o.Strategy.Name, where: wayOf(o).where(), source: d.config.Source, parallel: o.Parallel, timeout: o.Timeout,
		bus: d.config.Bus, asker: asker, figures: d.metrics.of(o.Strategy.Name), log: d.log,
	}
	s.figures.open.Set(0)
	s.breaker = newBreaker(s.tell)
	return s
}

// run asks until ctx ends, and finishes what it has begun.
func (s *strategy) run(ctx context.Context) {
	defer s.asker.Close()
	handle := func(handling context.Context, scope schemas.Event) error { return s.handle(ctx, handling, scope) }
	if err := s.bus.Work(ctx, s.name, s.parallel, handle); err != nil && ctx.Err() == nil {
		s.log.Error("strategy stopped working", "strategy", s.name, "error", err)
	}
}

// tell says that the breaker has opened or closed.
func (s *strategy) tell(c change) {
	log := s.log.With("strategy", s.name, "where", s.where)
	switch {
	case !c.open:
		s.figures.open.Set(0)
		log.Info("a function answers again, its scopes are asked", "after", c.after)
		return
	case errors.Is(c.why, delivery.ErrUnauthorized):
		log.Error("a function does not let us in, its scopes wait: let the dispatcher ask it there, or correct where it is asked",
			"error", c.why)
	default:
		log.Warn("a function does not answer, its scopes wait", "error", c.why)
	}
	s.figures.open.Set(1)
	s.opened.Store(true)
}

// handle has one scope answered. ended is over when no further scope is to be begun, which one that waits for its turn is
// not; handling is when nothing may go on.
func (s *strategy) handle(ended, handling context.Context, scope schemas.Event) error {
	head, err := schemas.DecodeHead(scope)
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
			return fmt.Errorf("scope %s waits for %s: %w", scope.ID, s.where, err)
		}
		if p.waited { // it may have been replaced a long time ago
			if current, err := s.bus.Current(handling, scope); err != nil || !current {
				s.breaker.leave(p, errNotAsked)
				return err
			}
		}
		asked := time.Now()
		reply, has, err := s.ask(handling, scope)
		if s.breaker.leave(p, err) {
			s.remark(handling, scope, time.Since(asked), err)
			continue
		}
		if err != nil {
			return fmt.Errorf("scope %s: %w", scope.ID, err)
		}
		return s.answer(handling, question{scope, head, began}, reply, has)
	}
}

// remark leaves a dead letter when the breaker has opened because the function hangs: a question took all of its time.
// Whoever is not there at all is being restarted, most of the time, and is logged only.
func (s *strategy) remark(ctx context.Context, scope schemas.Event, took time.Duration, why error) {
	if !s.opened.CompareAndSwap(true, false) || took < s.timeout {
		return
	}
	if err := s.bus.Bury(ctx, scope, fmt.Errorf("the function of %s hangs, its scopes wait: %w", s.name, why)); err != nil {
		s.log.Warn("that a function hangs could not be told by a dead letter", "strategy", s.name, "error", err)
	}
}

// ask asks once.
func (s *strategy) ask(ctx context.Context, scope schemas.Event) (reply schemas.Event, has bool, err error) {
	began := time.Now()
	reply, has, err = s.asker.Ask(ctx, scope)
	if ctx.Err() == nil || err == nil { // what we gave up ourselves says nothing about the function
		s.figures.seconds.Observe(time.Since(began).Seconds())
	}
	if err != nil {
		s.figures.count(resultOf(err))
	}
	return reply, has, err
}

// question is a scope and when it was taken up.
type question struct {
	scope schemas.Event
	head  schemas.ScopeHead
	began time.Time
}

// answer stores what the function answered, if it can be the answer to the scope.
func (s *strategy) answer(ctx context.Context, q question, reply schemas.Event, has bool) error {
	intents, result := []schemas.Intent(nil), resultEmpty
	if has {
		var err error
		if intents, err = hold(q.scope, q.head, reply); err != nil {
			s.figures.count(resultWrong)
			return fmt.Errorf("scope %s: answer of %s: %w", q.scope.ID, s.where, err)
		}
		result = resultAnswered
	}
	s.figures.count(result)
	if len(intents) > 0 { // what withdraws does no harm when it comes late; what moves pods could
		current, err := s.bus.Current(ctx, q.scope)
		if err != nil || !current {
			return err
		}
	}
	answer := functions.Complete(q.head, intents, q.scope.ID, q.scope.Sequence)
	e, err := functions.Reply(s.source, answer, q.scope, q.began)
	if err != nil {
		return err
	}
	if err := s.bus.Answer(ctx, e, answer); err != nil {
		return fmt.Errorf("answer of %s to scope %s: %w", s.name, q.scope.ID, err)
	}
	return nil
}
