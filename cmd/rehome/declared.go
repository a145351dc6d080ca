package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

// setupOf is the layout of the bus for the strategies of this binary, and for those that the policy declares or asks elsewhere.
func setupOf(s settings, p policy.Policy) bus.Setup {
	setup := bus.Setup{Replicas: s.NATSReplicas, History: s.History, Parallel: make(map[string]int)}
	for _, f := range functions.Hosted() {
		setup.Strategies = append(setup.Strategies, f.Strategy.Name)
	}
	for _, o := range p.Outside {
		if o.Declared() {
			setup.Strategies = append(setup.Strategies, o.Strategy.Name)
		}
		setup.Parallel[o.Strategy.Name] = o.Parallel
	}
	return setup
}

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
	note(e.changed)
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

// withoutOutside takes out of the profiles the strategies that are asked outside of this process, and warns of each: where
// there is no bus, nobody asks them.
func withoutOutside(p policy.Policy, notes io.Writer) policy.Policy {
	var told []string
	profiles := slices.Clone(p.Profiles)
	for i := range profiles {
		var inside []policy.Enabled
		for _, s := range profiles[i].Strategies {
			if _, outside := p.OutsideOf(s.Name); !outside {
				inside = append(inside, s)
			} else if !slices.Contains(told, s.Name) {
				told = append(told, s.Name)
				fmt.Fprintf(notes, "warning: strategy %s is asked outside of Rehome, as functions in the policy say, "+
					"and cannot be asked here: nothing is decided for it\n", s.Name)
			}
		}
		profiles[i].Strategies = inside
	}
	p.Profiles = profiles
	return p
}
