package actuator

import (
	"cmp"
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
	if t := a.term.Load(); t != nil {
		t.policyReplaced()
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

// policyReplaced lets the term follow the newest policy.
func (t *term) policyReplaced() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return // what waits is left to the next leader
	}
	p := t.policy.Load()
	if fresh := limit.NewBucket(p.Rate); !fresh.Same(t.bucket) {
		t.bucket = fresh
	}
	t.limits.Set(p.Limits, t.cfg.Now())
	before := t.loop.All()
	t.loop.Set(p.Brakes.Loop)
	for _, e := range before {
		t.forgetLoops(e.BreakerKey)
	}
	for _, e := range t.loop.All() {
		t.change(t.loopEntry(e)) // it holds until another time
	}
	t.metrics.loopsOpen.Set(float64(t.loopsOpen()))
	t.storm.Set(p.Brakes.Storm)
	t.stormy = true
	clear(t.spaces)
	t.table.releaseAll()
	t.apply(t.table.reject(func(open Open) (Objection, bool) {
		_, ok := enables(p, open)
		return enabled(Situation{Open: open, Enabled: ok})
	}))
	t.awaken()
}

// reject settles the waiting claims for which there is an objection, in the order of their IDs.
func (t *table) reject(objection func(Open) (Objection, bool)) changes {
	waiting := slices.Clone(t.expiry) // all claims that wait
	slices.SortFunc(waiting, func(a, b *claim) int { return cmp.Compare(a.open.Intent.ID, b.open.Intent.ID) })
	var out changes
	for _, c := range waiting {
		if o, objects := objection(c.open); objects {
			t.settle(c)
			out.verdicts = append(out.verdicts, decided{claim: c, verdict: c.open.Verdict(o.Outcome, o.Reason, o.Message)})
		}
	}
	return out
}
