package app

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rehome-dev/rehome/policy"
)

// enlisting sees to it that the bus has a consumer for each strategy that the policy in force declares. Streams that are
// there already are looked at by nobody else.
type enlisting struct {
	// setUp makes what is not there, for the strategies of a policy.
	setUp   func(context.Context, policy.Policy) error
	log     *slog.Logger
	policy  atomic.Pointer[policy.Policy]
	changed chan struct{}
}

func newEnlisting(p policy.Policy, setUp func(context.Context, policy.Policy) error, log *slog.Logger) *enlisting {
	e := &enlisting{setUp: setUp, log: log, changed: make(chan struct{}, 1)}
	e.policy.Store(&p)
	return e
}

// replace is called when another policy is in force.
func (e *enlisting) replace(p policy.Policy) {
	e.policy.Store(&p)
	select {
	case e.changed <- struct{}{}:
	default: // there is a change that was not seen yet
	}
}

// enlistAgain is how long a setup that failed is left alone.
const enlistAgain = 2 * time.Second

// run sets up the bus for the policy in force and for each that replaces it, as far as they declare strategies, and tries
// again until that is done. It returns nil when ctx ends.
func (e *enlisting) run(ctx context.Context) error {
	logged := ""
	for {
		var again <-chan time.Time
		if err := e.enlist(ctx); err != nil && ctx.Err() == nil {
			if text := err.Error(); text != logged {
				e.log.Warn("strategies that the policy declares are not asked until the bus is set up for them", "error", err)
				logged = text
			}
			again = time.After(enlistAgain)
		} else {
			logged = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.changed:
		case <-again:
		}
	}
}

func (e *enlisting) enlist(ctx context.Context) error {
	p := *e.policy.Load()
	if !slices.ContainsFunc(p.Outside, policy.Outside.Declared) {
		return nil
	}
	return e.setUp(ctx, p)
}
