package utilization

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/schemas"
)

// cluster has all nodes of a scope in plain numbers, by name.
type cluster struct {
	resources []corev1.ResourceName
	nodes     []node
}

type node struct {
	*schemas.NodeUsage
	figures []figure // in the order of the resources
	highest float64  // the highest of the shares
	// hard are the taints that keep pods out, soft the taints that the scheduler avoids.
	hard, soft []corev1.Taint
}

// figure is the amount of one resource that a node has, and the used part.
type figure struct {
	capacity int64 // -1 if the node does not have the resource
	used     int64
	share    float64 // used of capacity in percent; 0 when there is no capacity
}

// measure reads the capacity and the usage of the nodes. It does not change usage.
func measure(usage []schemas.NodeUsage, resources []corev1.ResourceName) cluster {
	c := cluster{resources: resources, nodes: make([]node, len(usage))}
	for i := range usage {
		n := node{NodeUsage: &usage[i], figures: make([]figure, len(resources))}
		for j, name := range resources {
			n.figures[j] = figureOf(n.NodeUsage, name)
			n.highest = max(n.highest, n.figures[j].share)
		}
		for _, t := range n.Taints {
			if t.Effect == corev1.TaintEffectPreferNoSchedule {
				n.soft = append(n.soft, t)
			} else {
				n.hard = append(n.hard, t)
			}
		}
		c.nodes[i] = n
	}
	slices.SortFunc(c.nodes, func(a, b node) int { return strings.Compare(a.Name, b.Name) })
	return c
}

func figureOf(node *schemas.NodeUsage, name corev1.ResourceName) figure {
	f := figure{capacity: -1, used: whole(name, node.Used[name])}
	if amount, known := node.Capacity[name]; known {
		f.capacity = whole(name, amount)
	} else if name == schemas.LoadMetric {
		f.capacity = 100
	}
	if f.capacity > 0 {
		f.share = float64(f.used) / float64(f.capacity) * 100
	}
	return f
}

// whole returns an amount as a whole number: thousandths of CPU, and the unit of any other resource.
func whole(name corev1.ResourceName, amount resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return amount.MilliValue()
	}
	return amount.Value()
}

// upTo returns how much of the resource a limit allows: all of it without a limit, nothing of an unknown resource. It
// rounds down and multiplies in the same order as the descheduler, so that figures on the edge agree.
func (f figure) upTo(limit float64) int64 {
	switch {
	case f.capacity < 0:
		return 0
	case limit == none:
		return f.capacity
	}
	return int64(limit * 0.01 * float64(f.capacity))
}

// limits are percentages of the resources of a cluster, in their order.
type limits []float64

// none is the limit of a resource without one.
const none = math.MaxFloat64

// fixed returns the thresholds as limits.
func (c cluster) fixed(t Thresholds) limits {
	return c.limits(func(_ int, name corev1.ResourceName) (float64, bool) {
		threshold, given := t[name]
		return threshold, given
	})
}

// aroundMean returns the mean shares of all nodes plus (sign 1) or minus (sign -1) the thresholds, from 0 to 100. Nodes
// that do not know a resource do not count in its mean; a resource that no node knows has no limit.
func (c cluster) aroundMean(t Thresholds, sign float64) limits {
	return c.limits(func(i int, name corev1.ResourceName) (float64, bool) {
		sum, count := 0.0, 0
		for _, n := range c.nodes {
			if f := n.figures[i]; f.capacity >= 0 {
				sum += f.share
				count++
			}
		}
		threshold, given := t[name]
		return min(max(sum/float64(count)+sign*threshold, 0), 100), given && count > 0
	})
}

func (c cluster) limits(of func(i int, name corev1.ResourceName) (percent float64, given bool)) limits {
	all := make(limits, len(c.resources))
	for i, name := range c.resources {
		percent, given := of(i, name)
		if all[i] = none; given {
			all[i] = percent
		}
	}
	return all
}

// within reports whether no share is above its limit.
func (n node) within(l limits) bool {
	for i, limit := range l {
		if n.figures[i].share > limit {
			return false
		}
	}
	return true
}

// hasOne reports whether the node has one of the resources with a limit.
func (n node) hasOne(l limits) bool {
	for i, limit := range l {
		if limit != none && n.figures[i].capacity > 0 {
			return true
		}
	}
	return false
}

// split returns the nodes of the first kind, then the nodes that are only of the second kind.
func (c cluster) split(first, second func(node) bool) (firsts, seconds []node) {
	for _, n := range c.nodes {
		switch {
		case first(n):
			firsts = append(firsts, n)
		case second(n):
			seconds = append(seconds, n)
		}
	}
	return firsts, seconds
}
