package watcher

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/index"
)

// crossings remembers how things were after the last sample. The zero value remembers nothing.
type crossings struct {
	mu    sync.Mutex
	sides map[int]side                          // by the position of the strategy in the plan
	loads map[policy.Load]map[string]percentage // by the node
}

// side is which nodes should lose pods by one strategy.
type side struct {
	over  []string  // sorted
	since time.Time // when the strategy was last woken because of that
}

// percentage is a load by resource, in whole percent.
type percentage = map[corev1.ResourceName]int64

// needsPods says whether a strategy that goes by this load needs to know the load of pods: nodes should lose some.
func (l *lead) needsPods(from policy.Load) bool {
	return slices.ContainsFunc(l.scopes.plan.all, func(e enabled) bool {
		return e.measured() && e.gauged.Load() == from && len(e.gauged.Sources(l.scopes.usageOfNodes(e))) > 0
	})
}

// sampled is called when a load was measured. Each node that a strategy found over-used before and does not now, or the
// other way round, is a delta and wakes the strategy. A node that stays over-used wakes it now and then: its pods may not
// have been known, or were held.
func (l *lead) sampled(from policy.Load) {
	l.crossings.mu.Lock()
	defer l.crossings.mu.Unlock()
	now, loads := l.w.now(), map[string]percentage{}
	crossed := map[string]touched{} // by the node
	for _, e := range l.scopes.plan.all {
		if !e.measured() || e.gauged.Load() != from {
			continue
		}
		nodes := l.scopes.usageOfNodes(e)
		for _, n := range nodes {
			loads[n.Name] = percentageOf(n)
		}
		for _, name := range l.crossings.turn(e, slices.Sorted(slices.Values(e.gauged.Sources(nodes))), now) {
			if crossed[name] == nil {
				crossed[name] = touched{}
			}
			crossed[name].add(e.at, []string{index.Cluster})
		}
		if l.crossings.lasts(e, now) {
			l.add(e, index.Cluster, wake{at: now, cause: schemas.Cause{Kind: schemas.CauseDue, Time: now.UTC()}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(crossed)) {
		l.crossed(name, l.crossings.loads[from][name], loads[name], crossed[name])
	}
	l.crossings.remember(from, loads)
}

// crossed tells that a node crossed a threshold, unless it is gone, which was told already.
func (l *lead) crossed(name string, before, after percentage, groups touched) {
	node := l.w.cluster.Node(name)
	if node == nil {
		return
	}
	l.observed(schemas.Delta{
		Kind: schemas.NodeLoad, Object: nodeRef(node), Before: loadOf(before), After: loadOf(after),
	}, groups)
}

// turn takes over which nodes are over-used now, and returns those for which that is new, or no longer so.
func (c *crossings) turn(e enabled, over []string, now time.Time) []string {
	if c.sides == nil {
		c.sides = map[int]side{}
	}
	before := c.sides[e.at]
	crossed := append(without(over, before.over), without(before.over, over)...)
	if len(crossed) > 0 {
		before.since = now
	}
	c.sides[e.at] = side{over: over, since: before.since}
	return crossed
}

// lasts says whether nodes have been over-used for so long without the strategy being woken because of them that it is
// time to. It takes note of that.
func (c *crossings) lasts(e enabled, now time.Time) bool {
	s := c.sides[e.at]
	if len(s.over) == 0 || now.Sub(s.since) < loadSettles {
		return false
	}
	s.since = now
	c.sides[e.at] = s
	return true
}

func (c *crossings) remember(from policy.Load, loads map[string]percentage) {
	if c.loads == nil {
		c.loads = map[policy.Load]map[string]percentage{}
	}
	c.loads[from] = loads
}

// without are the names of one sorted list that are not in another.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, found := slices.BinarySearch(others, name)
		return found
	})
}

// percentageOf is the measured part of what is used of a node.
func percentageOf(n schemas.NodeUsage) percentage {
	p := percentage{}
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, schemas.LoadMetric} {
		used, measured := n.Used[name]
		capacity := n.Capacity[name]
		if all := capacity.AsApproximateFloat64(); measured && all > 0 {
			p[name] = int64(math.Round(100 * used.AsApproximateFloat64() / all))
		}
	}
	return p
}

// loadOf is a load as the state of a node; nil if it is not known.
func loadOf(p percentage) *schemas.State {
	if len(p) == 0 {
		return nil
	}
	return &schemas.State{Load: p}
}
