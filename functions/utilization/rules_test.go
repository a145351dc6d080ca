package utilization_test

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// rules are the two strategies written down once more, as slowly and plainly as possible: quantities, maps, and every
// question asked anew before every pod.
type rules struct {
	scope     schemas.UsageScope
	resources []corev1.ResourceName
	low, high utilization.Thresholds // as they are after the mean was counted in; high is empty for HighNodeUtilization
	packing   bool                   // HighNodeUtilization
	fewNodes  int
	allowed   policy.Namespaces
	only      utilization.Thresholds // a container must request one of these; nil: none needs to
	perNode   *uint
	blind     bool // the usage of pods is not known to anybody
}

func rulesOfLow(a utilization.LowArgs, s schemas.UsageScope) rules {
	r := rules{
		scope: s, resources: a.Resources(), low: a.Thresholds, high: a.TargetThresholds, fewNodes: a.NumberOfNodes,
		allowed: a.EvictableNamespaces, perNode: a.EvictionLimits.Node, blind: a.Load().Source == policy.LoadPrometheus,
	}
	if a.UseDeviationThresholds {
		r.low, r.high = utilization.Thresholds{}, utilization.Thresholds{}
		for name := range a.Thresholds {
			sum, count := 0.0, 0
			for _, n := range s.Nodes {
				if _, has := capacity(n, name); has {
					sum += share(n, name)
					count++
				}
			}
			if count > 0 {
				r.low[name] = min(max(sum/float64(count)-a.Thresholds[name], 0), 100)
				r.high[name] = min(max(sum/float64(count)+a.TargetThresholds[name], 0), 100)
			}
		}
	}
	return r
}

func rulesOfHigh(a utilization.HighArgs, s schemas.UsageScope) rules {
	r := rules{
		scope: s, resources: a.Resources(), low: a.Thresholds, packing: true, fewNodes: a.NumberOfNodes, allowed: a.EvictableNamespaces,
	}
	if len(a.EvictionModes) > 0 {
		r.only = a.Thresholds
	}
	return r
}

func capacity(n schemas.NodeUsage, name corev1.ResourceName) (resource.Quantity, bool) {
	if name == schemas.LoadMetric {
		return *resource.NewQuantity(100, resource.DecimalSI), true
	}
	q, has := n.Capacity[name]
	return q, has
}

func share(n schemas.NodeUsage, name corev1.ResourceName) float64 {
	c, _ := capacity(n, name)
	used := n.Used[name]
	if c.Sign() <= 0 {
		return 0
	}
	if name == corev1.ResourceCPU {
		return float64(used.MilliValue()) / float64(c.MilliValue()) * 100
	}
	return float64(used.Value()) / float64(c.Value()) * 100
}

func highest(n schemas.NodeUsage, names []corev1.ResourceName) float64 {
	most := 0.0
	for _, name := range names {
		most = max(most, share(n, name))
	}
	return most
}

func anyAbove(n schemas.NodeUsage, marks utilization.Thresholds) bool {
	for name, mark := range marks {
		if share(n, name) > mark {
			return true
		}
	}
	return false
}

// mark is how much of the resource may be in use on the node.
func (r rules) mark(n schemas.NodeUsage, name corev1.ResourceName) resource.Quantity {
	c, _ := capacity(n, name)
	percent, given := r.high[name]
	switch {
	case !given:
		return c
	case name == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(int64(percent*0.01*float64(c.MilliValue())), resource.DecimalSI)
	}
	return *resource.NewQuantity(int64(percent*0.01*float64(c.Value())), resource.DecimalSI)
}

// groups are the nodes that lose pods, in their order, and those that take them.
func (r rules) groups() (sources, targets []schemas.NodeUsage) {
	var under, others []schemas.NodeUsage
	for _, n := range r.scope.Nodes {
		switch {
		case (r.packing || !n.Unschedulable) && !anyAbove(n, r.low):
			under = append(under, n)
		case r.packing && !n.Unschedulable, !r.packing && anyAbove(n, r.high):
			others = append(others, n)
		}
	}
	if len(under) == 0 || len(under) <= r.fewNodes || len(under) == len(r.scope.Nodes) || len(others) == 0 {
		return nil, nil
	}
	sources, targets = others, under
	if r.packing {
		sources, targets = under, others
	}
	slices.SortStableFunc(sources, func(a, b schemas.NodeUsage) int { // the scope is in the order of names
		x, y := highest(a, r.resources), highest(b, r.resources)
		switch {
		case x == y:
			return 0
		case (x < y) == r.packing:
			return -1
		}
		return 1
	})
	return sources, targets
}

// room is what the targets can take after all that left, from whatever node.
func (r rules) room(targets []schemas.NodeUsage, left []schemas.UsingPod) corev1.ResourceList {
	room := corev1.ResourceList{}
	for _, name := range r.resources {
		sum := resource.Quantity{}
		for _, t := range targets {
			sum.Add(r.mark(t, name))
			sum.Sub(t.Used[name])
		}
		for _, p := range left {
			sum.Sub(p.Used[name])
		}
		room[name] = sum
	}
	return room
}

// stops says why no further pod may leave the node, after all that left: "" if one may.
func (r rules) stops(n schemas.NodeUsage, targets []schemas.NodeUsage, left []schemas.UsingPod) string {
	for _, amount := range r.room(targets, left) {
		if amount.Sign() <= 0 {
			return "there is no room"
		}
	}
	var count uint
	unknown, above := false, r.packing
	for _, p := range left {
		if p.Pod.Spec.NodeName == n.Name {
			count++
			unknown = unknown || p.Used == nil
		}
	}
	for _, name := range r.resources {
		used, mark := n.Used[name].DeepCopy(), r.mark(n, name)
		for _, p := range left {
			if p.Pod.Spec.NodeName == n.Name {
				used.Sub(p.Used[name])
			}
		}
		above = above || used.Cmp(mark) > 0
	}
	switch {
	case r.perNode != nil && count >= *r.perNode, r.blind && r.perNode == nil && unknown:
		return "as many as may have left"
	case !above:
		return "there is no need"
	}
	return ""
}

// may says whether the pod may leave at all.
func (r rules) may(p schemas.UsingPod, targets []schemas.NodeUsage) bool {
	asks := r.only == nil
	for _, c := range p.Pod.Spec.Containers {
		for name := range c.Resources.Requests {
			_, has := r.only[name]
			asks = asks || has
		}
	}
	return asks && len(p.Protected) == 0 && p.Pod.DeletionTimestamp == nil && !schemas.Ended(&p.Pod) && r.allowed.Has(p.Pod.Namespace) &&
		(p.Used != nil || r.blind) && slices.ContainsFunc(targets, func(t schemas.NodeUsage) bool {
		return !slices.ContainsFunc(t.Taints, func(taint corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule &&
				!slices.ContainsFunc(p.Pod.Spec.Tolerations, func(x corev1.Toleration) bool { return x.Key == "" || x.Key == taint.Key })
		})
	})
}

// answer is which pods leave, in their order, and which nodes lose them; and how often each reason to stop came up.
func (r rules) answer(stops map[string]int) (leaving []schemas.UsingPod, from []string) {
	sources, targets := r.groups()
	if sources == nil || r.perNode != nil && *r.perNode == 0 {
		return nil, nil
	}
	for _, amount := range r.room(targets, nil) {
		if amount.Sign() <= 0 {
			return nil, nil
		}
	}
	var left []schemas.UsingPod
	for _, n := range sources {
		from = append(from, n.Name)
		for _, p := range r.scope.Pods {
			if p.Pod.Spec.NodeName == n.Name && p.Pod.DeletionTimestamp != nil && !schemas.Ended(&p.Pod) {
				left = append(left, p)
			}
		}
	}
	pods := slices.Clone(r.scope.Pods)
	slices.SortFunc(pods, func(a, b schemas.UsingPod) int { return candidate.Compare(&a.Pod, &b.Pod) })
	for _, n := range sources {
		for _, p := range pods {
			if p.Pod.Spec.NodeName != n.Name || !r.may(p, targets) {
				continue
			}
			if why := r.stops(n, targets, left); why != "" {
				stops[why]++
				break
			}
			left, leaving = append(left, p), append(leaving, p)
		}
	}
	return leaving, from
}
