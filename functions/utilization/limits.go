package utilization

// Limits are percentages of the resources of [Nodes], in their order.
type Limits []limit

// limit is one of them. Not given: the resource has none.
type limit struct {
	percent float64
	given   bool
}

// Fixed are the thresholds as they are.
func (n Nodes) Fixed(t Thresholds) Limits {
	return n.limits(t, func(_ int, threshold float64) limit { return limit{threshold, true} })
}

// BelowMean are the mean shares of all nodes less the thresholds, but from 0 to 100. Nodes that do not know a resource do
// not count in its mean; a resource that no node knows has no limit.
func (n Nodes) BelowMean(t Thresholds) Limits { return n.aroundMean(t, -1) }

// AboveMean are the mean shares of all nodes plus the thresholds; else it is like [Nodes.BelowMean].
func (n Nodes) AboveMean(t Thresholds) Limits { return n.aroundMean(t, 1) }

func (n Nodes) aroundMean(t Thresholds, sign float64) Limits {
	return n.limits(t, func(i int, threshold float64) limit {
		mean, known := n.mean(i)
		return limit{min(max(mean+sign*threshold, 0), 100), known}
	})
}

// limits asks for the limit of each resource that has a threshold.
func (n Nodes) limits(t Thresholds, of func(i int, threshold float64) limit) Limits {
	limits := make(Limits, len(n.resources))
	for i, name := range n.resources {
		if threshold, given := t[name]; given {
			limits[i] = of(i, threshold)
		}
	}
	return limits
}

// mean is the mean share of a resource of the nodes that know it, and whether any does.
func (n Nodes) mean(resource int) (share float64, known bool) {
	sum, count := 0.0, 0
	for _, node := range n.all {
		if f := node.figures[resource]; f.capacity >= 0 {
			sum += f.share
			count++
		}
	}
	if count == 0 {
		return 0, false
	}
	return sum / float64(count), true
}

// Within says whether no share is above its limit.
func (n Node) Within(limits Limits) bool {
	for i, l := range limits {
		if l.above(n.figures[i].share) {
			return false
		}
	}
	return true
}

// above says whether the share is above the limit.
func (l limit) above(share float64) bool { return l.given && share > l.percent }
