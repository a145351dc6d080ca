package limit

import (
	"fmt"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/actuator/workload"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// ClusterBreaker is the storm brake of [policy.Storm]: while it is open, nothing is moved. Its conditions are independent, and
// several can hold at once.
//
// A condition about nodes or replacements holds exactly while the numbers reach what the policy says. There is no
// second, lower threshold at which it ends: nodes go bad and good again slowly by themselves (the control plane waits
// 40 seconds before it calls one not ready, and a taint counts for minutes), what is moved in between is bounded by the
// limits, and a message that says 29 percent of a limit of 30 would be understood by nobody. [NewClusterBreaker] makes one.
type ClusterBreaker struct {
	policy   policy.Storm
	failures failures
	// refusals are those of each namespace.
	refusals map[string]*failures
	open     []schemas.ReasonCode // what Look said last
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

// NewClusterBreaker returns a brake that has seen no calls.
func NewClusterBreaker(p policy.Storm) *ClusterBreaker {
	return &ClusterBreaker{policy: p, refusals: map[string]*failures{}}
}

// Set replaces the policy. Calls that were judged by the old one keep the pause that followed; without a limit of
// failures they are forgotten.
func (s *ClusterBreaker) Set(p policy.Storm) {
	s.policy = p
	if p.Failures <= 0 {
		s.failures = failures{}
		clear(s.refusals)
	}
}

// Look returns the conditions that hold, in the order of the reasons in [Condition]; none: the brake is closed. changed
// says whether they are others than at the last call, whatever their messages. [ClusterBreaker.Next] says when to look again.
func (s *ClusterBreaker) Look(now Situation) (open []Condition, changed bool) {
	for _, c := range []struct {
		reason  schemas.ReasonCode
		message string
	}{
		{schemas.ReasonStormNodes, s.nodes(now)},
		{schemas.ReasonStormPending, s.pending(now)},
		{schemas.ReasonStormFailures, s.failures.paused(now.Now)},
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

// Called notes how an eviction call for a pod of the namespace ended. ok is false when the API server itself failed. One that a
// budget, an admission policy, or the API server's own limits refused is ok. The breaker opens only when calls in several
// namespaces fail: what one namespace is refused is none of the others' business.
func (s *ClusterBreaker) Called(namespace string, ok bool, now time.Time) {
	if s.policy.Failures > 0 {
		s.failures.ended(call{now, namespace, ok}, int(s.policy.Failures), 2)
	}
}

// Refused notes whether an eviction call for a pod of the namespace was refused for good or failed.
func (s *ClusterBreaker) Refused(namespace string, refused bool, now time.Time) {
	f := s.refusals[namespace]
	if s.policy.Failures <= 0 || f == nil && !refused {
		return
	}
	if f == nil {
		f = &failures{}
		s.refusals[namespace] = f
	}
	f.ended(call{now, namespace, !refused}, int(s.policy.Failures), 1)
	if !f.trial && !slices.ContainsFunc(f.latest, func(c call) bool { return !c.ok }) {
		delete(s.refusals, namespace)
	}
}

// Refuses says in words why no pod of the namespace is moved, and until when. Empty: pods of it may be moved.
func (s *ClusterBreaker) Refuses(namespace string, now time.Time) (why string, until time.Time) {
	f := s.refusals[namespace]
	if f == nil || f.paused(now) == "" {
		return "", time.Time{}
	}
	return "namespace " + namespace + ": " + f.paused(now), f.until
}

// Trial says whether a single call decides: from the beginning of a pause until the first call after it has ended.
// While it holds, no more than one call is to be under way; a call that is never made decides nothing and blocks
// nothing.
func (s *ClusterBreaker) Trial() bool { return s.failures.trial }

// Next is the first time after now at which [ClusterBreaker.Look] will say something else by itself, if nothing happens until
// then. The zero time: it will not.
func (s *ClusterBreaker) Next(now Situation) time.Time {
	var next time.Time
	for _, t := range []time.Time{s.nodesEnd(now), s.pendingBegins(now), s.failures.until} {
		if t.After(now.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next
}

// nodes says in words that too many nodes went bad. Empty: they did not.
func (s *ClusterBreaker) nodes(now Situation) string {
	unready, tainted := bad(now)
	if s.policy.Nodes <= 0 || unready+len(tainted) < s.mostNodes(now) {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes went bad: %d not ready, %d tainted within %v; nothing is moved from %d percent on",
		unready+len(tainted), len(now.Nodes), unready, len(tainted), policy.StormMemory, s.policy.Nodes)
}

// nodesEnd is when so many taints are old that the nodes are no reason any more. Zero: never, or they are none.
func (s *ClusterBreaker) nodesEnd(now Situation) time.Time {
	unready, tainted := bad(now)
	most := s.mostNodes(now)
	if s.policy.Nodes <= 0 || unready+len(tainted) < most || unready >= most {
		return time.Time{}
	}
	slices.SortFunc(tainted, time.Time.Compare)
	return tainted[unready+len(tainted)-most].Add(policy.StormMemory)
}

// mostNodes is how many bad nodes are a reason: the share of all, rounded up.
func (s *ClusterBreaker) mostNodes(now Situation) int {
	return max(policy.StormLeast, (int(s.policy.Nodes)*len(now.Nodes)+99)/100)
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
func (s *ClusterBreaker) pending(now Situation) string {
	overdue := 0
	for _, since := range now.Pending {
		if now.Now.Sub(since) >= s.policy.PendingFor {
			overdue++
		}
	}
	if s.policy.Pending == 0 || overdue < int(s.policy.Pending) {
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
func (s *ClusterBreaker) pendingBegins(now Situation) time.Time {
	if s.policy.Pending == 0 || len(now.Pending) < int(s.policy.Pending) {
		return time.Time{}
	}
	since := slices.SortedFunc(slices.Values(now.Pending), time.Time.Compare)
	return since[s.policy.Pending-1].Add(s.policy.PendingFor)
}
