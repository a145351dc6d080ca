package app

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rehome-dev/rehome/policy"
)

// busSetup keeps the consumers of the bus in step with the strategies that the policy declares. FollowStreams calls setUp only if
// a stream is missing.
type busSetup struct {
	setUp   func(context.Context, policy.Policy) error
	log     *slog.Logger
	policy  atomic.Pointer[policy.Policy] // in force
	changed chan struct{}
}

func newBusSetup(p policy.Policy, setUp func(context.Context, policy.Policy) error, log *slog.Logger) *busSetup {
	s := &busSetup{setUp: setUp, log: log, changed: make(chan struct{}, 1)}
	s.policy.Store(&p)
	return s
}

func (s *busSetup) setPolicy(p policy.Policy) error {
	s.policy.Store(&p)
	select {
	case s.changed <- struct{}{}:
	default: // run has not seen the change before yet
	}
	return nil
}

// setupRetry is the time between two tries.
const setupRetry = 2 * time.Second

// run sets up the bus for each policy that declares strategies, and tries again until that succeeds. It returns nil when ctx ends.
func (s *busSetup) run(ctx context.Context) error {
	logged := ""
	for {
		var again <-chan time.Time
		if err := s.once(ctx); err == nil || ctx.Err() != nil {
			logged = ""
		} else {
			if again = time.After(setupRetry); err.Error() != logged {
				s.log.Warn("strategies that the policy declares are not asked until the bus is set up for them", "error", err)
				logged = err.Error()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		case <-again:
		}
	}
}

func (s *busSetup) once(ctx context.Context) error {
	p := *s.policy.Load()
	if !slices.ContainsFunc(p.Outside, policy.Outside.Declared) {
		return nil
	}
	return s.setUp(ctx, p)
}
