package actuator

import (
	"slices"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// SetPolicy replaces the policy. Intents that wait for a profile or a strategy that the new one does not have are rejected
// at once; all others meet the new one when their turn comes. A new rate begins with a full bucket. Moves that were
// counted count against new limits. It may be called from any goroutine, and returns at once.
func (a *Actuator) SetPolicy(p policy.Policy) {
	if p.Rate == (policy.Rate{}) {
		p.Rate = policy.DefaultRate()
	}
	a.policy.Store(&p)
	if s := a.session.Load(); s != nil {
		s.policyReplaced()
	}
}

// enables returns the profile of an intent, and whether the policy has it with the intent's strategy.
func enables(p *policy.Policy, open Open) (policy.Profile, bool) {
	profile, ok := p.Profile(open.Profile)
	switch open.Strategy {
	case schemas.RequestStrategy:
		return profile, ok // whoever may ask, may ask of every profile
	case schemas.MaintenanceStrategy:
		return profile, true // whoever may make a maintenance needs none
	}
	return profile, ok && slices.ContainsFunc(profile.Strategies, func(s policy.Enabled) bool { return s.Name == open.Strategy })
}

// policyReplaced lets the session follow the newest policy.
func (s *session) policyReplaced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // what waits is left to the next leader
	}
	p := s.policy.Load()
	if fresh := limit.NewBucket(p.Rate); !fresh.Same(s.bucket) {
		s.bucket = fresh
	}
	s.windows.Set(p.Limits, s.cfg.Now())
	before := s.loop.All()
	s.loop.Set(p.Brakes.Loop)
	for _, e := range before {
		s.forgetLoops(e.BreakerKey)
	}
	for _, e := range s.loop.All() {
		s.change(s.loopEntry(e)) // it holds until another time
	}
	s.metrics.loopsOpen.Set(float64(s.loopsOpen()))
	s.cluster.Set(p.Brakes.Storm)
	s.breakerDue = s.cfg.Now()
	clear(s.spaces)
	s.releaseAll()
	s.apply(s.entries.reject(func(open Open) (Objection, bool) {
		_, ok := enables(p, open)
		return enabled(Situation{Open: open, Enabled: ok})
	}))
	s.freed()
}
