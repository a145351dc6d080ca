package limit

import (
	"fmt"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// ClusterBreaker is the circuit breaker of [policy.ClusterBreaker]. While it is open, nothing moves. Its conditions are
// independent: the ones about nodes and pending replacements are open while their numbers reach the thresholds of the
// policy; the one about failures is open for a pause after it has reached its threshold. Call [ClusterBreaker.Look] after
// changes, and now and then while it is open. Use [NewClusterBreaker] to make one.
type ClusterBreaker struct {
	policy     policy.ClusterBreaker
	calls      calls
	namespaces map[string]*calls // namespaces with a refused call
	open       []Condition       // the result of the latest Look
}

// ClusterState is the state of the cluster at the time Now.
type ClusterState struct {
	Now   time.Time
	Nodes []cluster.Node
	// Pending has the time since when each pending replacement is not ready, in any order.
	Pending []time.Time
}

// Condition is a reason why nothing moves.
type Condition struct {
	Reason  schemas.ReasonCode `json:"reason"` // ReasonStormNodes, ReasonStormPending or ReasonStormFailures
	Message string             `json:"message"`
	Since   time.Time          `json:"since"`
}

// NewClusterBreaker returns a breaker without calls.
func NewClusterBreaker(p policy.ClusterBreaker) *ClusterBreaker {
	return &ClusterBreaker{policy: p, namespaces: map[string]*calls{}}
}

// Set replaces the policy. A pause continues, unless the new policy does not limit failures.
func (b *ClusterBreaker) Set(p policy.ClusterBreaker) {
	b.policy = p
	if p.Failures <= 0 {
		b.calls = calls{}
		clear(b.namespaces)
	}
}

// Open returns the open conditions of the latest Look.
func (b *ClusterBreaker) Open() []Condition { return b.open }

// Look returns the open conditions. changed reports that their reasons differ from the previous call.
func (b *ClusterBreaker) Look(now ClusterState) (open []Condition, changed bool) {
	before := b.open
	b.open = nil
	for _, c := range []Condition{
		{schemas.ReasonStormNodes, b.badNodes(now), now.Now.UTC()},
		{schemas.ReasonStormPending, b.pending(now), now.Now.UTC()},
		{schemas.ReasonStormFailures, b.calls.paused(now.Now), now.Now.UTC()},
	} {
		if c.Message == "" {
			continue
		}
		if i := slices.IndexFunc(before, func(o Condition) bool { return o.Reason == c.Reason }); i >= 0 {
			c.Since = before[i].Since
		}
		b.open = append(b.open, c)
	}
	return b.open, !slices.EqualFunc(before, b.open, func(a, b Condition) bool { return a.Reason == b.Reason })
}

// Called records the end of an eviction call. failed means that the API server itself failed, which opens the breaker
// for all namespaces only if calls in two namespaces fail. refused means that the call failed or was refused
// permanently, which opens the breaker of its namespace.
func (b *ClusterBreaker) Called(namespace string, failed, refused bool, now time.Time) {
	if b.policy.Failures <= 0 {
		return
	}
	b.calls.add(call{now, namespace, !failed}, int(b.policy.Failures), 2)
	one := b.namespaces[namespace]
	if one == nil {
		if !refused {
			return
		}
		one = &calls{}
		b.namespaces[namespace] = one
	}
	one.add(call{now, namespace, !refused}, int(b.policy.Failures), 1)
	if !one.trial && !slices.ContainsFunc(one.latest, func(c call) bool { return !c.ok }) {
		delete(b.namespaces, namespace)
	}
}

// Refuses returns the reason why no pod of the namespace may move, or "", and the time until when. For one more pause it
// refuses the namespaces whose trials failed, so that a call in another namespace is the next trial.
func (b *ClusterBreaker) Refuses(namespace string, now time.Time) (why string, until time.Time) {
	tried := b.calls.trial && slices.Contains(b.calls.tried, namespace)
	if until = b.calls.until.Add(policy.ClusterBreakerPause); tried && now.Before(until) {
		return "the trial eviction in namespace " + namespace + " failed; another namespace is tried first", until
	}
	one := b.namespaces[namespace]
	if one == nil || one.paused(now) == "" {
		return "", time.Time{}
	}
	return "namespace " + namespace + ": " + one.paused(now), one.until
}

// Trial reports whether a single call decides: from the start of a pause until the end of the first call after it. Only
// one call should run at a time meanwhile.
func (b *ClusterBreaker) Trial() bool { return b.calls.trial }

// badNodes returns a description if too many nodes went bad, or "". A node under maintenance is not bad.
func (b *ClusterBreaker) badNodes(now ClusterState) string {
	unready, tainted := 0, 0
	for _, n := range now.Nodes {
		switch {
		case n.Maintained:
		case !n.Ready:
			unready++
		case !n.Tainted.IsZero() && now.Now.Sub(n.Tainted) < policy.ClusterBreakerMemory:
			tainted++
		}
	}
	most := max(policy.ClusterBreakerLeast, (int(b.policy.Nodes)*len(now.Nodes)+99)/100) // the share of all nodes, rounded up
	if b.policy.Nodes <= 0 || unready+tainted < most {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes went bad: %d not ready, %d tainted within %v; moves stop at %d percent",
		unready+tainted, len(now.Nodes), unready, tainted, policy.ClusterBreakerMemory, b.policy.Nodes)
}

// pending returns a description if too many replacements have not been ready for too long, or "".
func (b *ClusterBreaker) pending(now ClusterState) string {
	overdue := 0
	for _, since := range now.Pending {
		if now.Now.Sub(since) >= b.policy.PendingFor {
			overdue++
		}
	}
	if b.policy.Pending == 0 || overdue < int(b.policy.Pending) {
		return ""
	}
	what := fmt.Sprintf("%d replacements have", overdue)
	if overdue == 1 {
		what = "1 replacement has"
	}
	return fmt.Sprintf("%s been waiting for %v or longer; moves stop at %d", what, b.policy.PendingFor, b.policy.Pending)
}

// callsWithin is the longest time between the latest calls for them to count together.
const callsWithin = 10 * time.Minute

// calls judges the latest [policy.ClusterBreakerCalls] eviction calls. If too many of them failed, there is a pause of
// [policy.ClusterBreakerPause]. The result of the first call after it decides between another pause and a new count.
type calls struct {
	latest []call // oldest first
	until  time.Time
	why    string
	trial  bool
	tried  []string // the namespaces whose trials failed since the last call that succeeded
}

type call struct {
	at        time.Time
	namespace string
	ok        bool
}

// add adds a call. most is the percentage of failures that is too many if they are spread over at least that many
// namespaces.
func (c *calls) add(one call, most, namespaces int) {
	switch {
	case one.at.Before(c.until): // it began before the pause
		return
	case c.trial && !one.ok:
		tried := c.tried
		c.pause(one.at, "the first eviction after a pause failed")
		c.tried = append(tried, one.namespace)
		return
	}
	c.trial, c.tried = false, nil
	if len(c.latest) == policy.ClusterBreakerCalls {
		c.latest = slices.Delete(c.latest, 0, 1)
	}
	c.latest = append(c.latest, one)
	failed, spread := 0, map[string]bool{}
	for _, one := range c.latest {
		if !one.ok {
			failed++
			spread[one.namespace] = true
		}
	}
	full := len(c.latest) == policy.ClusterBreakerCalls
	if full && one.at.Sub(c.latest[0].at) <= callsWithin && failed*100 >= most*len(c.latest) &&
		len(spread) >= namespaces {
		c.pause(one.at, fmt.Sprintf("%d of the latest %d evictions failed, and %d percent are too many",
			failed, policy.ClusterBreakerCalls, most))
	}
}

func (c *calls) pause(now time.Time, why string) {
	until := now.Add(policy.ClusterBreakerPause)
	*c = calls{until: until, trial: true, why: why + "; one is tried at " + until.UTC().Format(time.RFC3339)}
}

// paused returns the reason for a pause, or "".
func (c *calls) paused(now time.Time) string {
	if now.Before(c.until) {
		return c.why
	}
	return ""
}
