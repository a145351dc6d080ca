package brake

import (
	"fmt"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/actuator/workload"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Storm is the storm brake of [policy.Storm]: while it is open, nothing is moved. Its conditions are independent, and
// several can hold at once.
//
// A condition about nodes or replacements holds exactly while the numbers reach what the policy says. There is no
// second, lower threshold at which it ends: nodes go bad and good again slowly by themselves (the control plane waits
// 40 seconds before it calls one not ready, and a taint counts for minutes), what is moved in between is bounded by the
// limits, and a message that says 29 percent of a limit of 30 would be understood by nobody. [NewStorm] makes one.
type Storm struct {
	policy policy.Storm
	calls  calls
	open   []schemas.ReasonCode // what Look said last
}

// Situation is how the cluster is at the time Now.
type Situation struct {
	Now   time.Time
	Nodes []workload.Node
	// Pending is since when each replacement is waited for that is not ready yet, in any order.
	Pending []time.Time
}

// Condition is why nothing is moved.
type Condition struct {
	Reason  schemas.ReasonCode // ReasonStormNodes, ReasonStormPending or ReasonStormFailures
	Message string
}

// NewStorm returns a brake that has seen no calls.
func NewStorm(p policy.Storm) *Storm { return &Storm{policy: p} }

// Set replaces the policy. Calls that were judged by the old one keep the pause that followed; without a limit of
// failures they are forgotten.
func (s *Storm) Set(p policy.Storm) {
	s.policy = p
	if p.Failures <= 0 {
		s.calls = calls{}
	}
}

// Look returns the conditions that hold, in the order of the reasons in [Condition]; none: the brake is closed. changed
// says whether they are others than at the last call, whatever their messages. [Storm.Next] says when to look again.
func (s *Storm) Look(now Situation) (open []Condition, changed bool) {
	for _, c := range []struct {
		reason  schemas.ReasonCode
		message string
	}{
		{schemas.ReasonStormNodes, s.nodes(now)},
		{schemas.ReasonStormPending, s.pending(now)},
		{schemas.ReasonStormFailures, s.calls.paused(now.Now)},
	} {
		if c.message != "" {
			open = append(open, Condition{c.reason, c.message})
		}
	}
	before := s.open
	s.open = nil
	for _, c := range open {
		s.open = append(s.open, c.Reason)
	}
	return open, !slices.Equal(before, s.open)
}

// Called notes how an eviction call ended. One that a budget or the API server's own limits put off is ok.
func (s *Storm) Called(ok bool, now time.Time) {
	if s.policy.Failures > 0 {
		s.calls.ended(ok, now, s.policy.Failures)
	}
}

// Trial says whether a single call decides: from the beginning of a pause until the first call after it has ended.
// While it holds, no more than one call is to be under way; a call that is never made decides nothing and blocks
// nothing.
func (s *Storm) Trial() bool { return s.calls.trial }

// Next is the first time after now at which [Storm.Look] will say something else by itself, if nothing happens until
// then. The zero time: it will not.
func (s *Storm) Next(now Situation) time.Time {
	var next time.Time
	for _, t := range []time.Time{s.nodesEnd(now), s.pendingBegins(now), s.calls.until} {
		if t.After(now.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// nodes says in words that too many nodes went bad. Empty: they did not.
func (s *Storm) nodes(now Situation) string {
	unready, tainted := bad(now)
	if s.policy.Nodes <= 0 || unready+len(tainted) < s.mostNodes(now) {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes went bad: %d not ready, %d tainted within %v; nothing is moved from %d percent on",
		unready+len(tainted), len(now.Nodes), unready, len(tainted), policy.StormMemory, s.policy.Nodes)
}

// nodesEnd is when so many taints are old that the nodes are no reason any more. Zero: never, or they are none.
func (s *Storm) nodesEnd(now Situation) time.Time {
	unready, tainted := bad(now)
	most := s.mostNodes(now)
	if s.policy.Nodes <= 0 || unready+len(tainted) < most || unready >= most {
		return time.Time{}
	}
	slices.SortFunc(tainted, time.Time.Compare)
	return tainted[unready+len(tainted)-most].Add(policy.StormMemory)
}

// mostNodes is how many bad nodes are a reason: the share of all, rounded up.
func (s *Storm) mostNodes(now Situation) int {
	return max(policy.StormLeast, (s.policy.Nodes*len(now.Nodes)+99)/100)
}

// bad counts the nodes that are not ready, and says when each of those that are was tainted, if it was lately. Those that a
// maintenance holds are as somebody wants them.
func bad(now Situation) (unready int, tainted []time.Time) {
	for _, n := range now.Nodes {
		switch {
		case n.Maintained:
		case !n.Ready:
			unready++
		case !n.Tainted.IsZero() && now.Now.Sub(n.Tainted) < policy.StormMemory:
			tainted = append(tainted, n.Tainted)
		}
	}
	return unready, tainted
}

// pending says in words that too many replacements wait for too long. Empty: they do not.
func (s *Storm) pending(now Situation) string {
	overdue := 0
	for _, since := range now.Pending {
		if now.Now.Sub(since) >= s.policy.PendingFor {
			overdue++
		}
	}
	if s.policy.Pending <= 0 || overdue < s.policy.Pending {
		return ""
	}
	what := fmt.Sprintf("%d replacements have", overdue)
	if overdue == 1 {
		what = "1 replacement has"
	}
	return fmt.Sprintf("%s been waiting for %v or longer; nothing is moved from %d on", what, s.policy.PendingFor,
		s.policy.Pending)
}

// pendingBegins is when so many replacements are overdue that it is a reason. Zero: never.
func (s *Storm) pendingBegins(now Situation) time.Time {
	if s.policy.Pending <= 0 || len(now.Pending) < s.policy.Pending {
		return time.Time{}
	}
	since := slices.SortedFunc(slices.Values(now.Pending), time.Time.Compare)
	return since[s.policy.Pending-1].Add(s.policy.PendingFor)
}
