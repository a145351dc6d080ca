package utilization_test

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// rules are a second version of the two strategies, as slow and plain as possible: quantities, maps, and every question
// repeated before every pod.
type rules struct {
	scope     schemas.UsageScope
	resources []corev1.ResourceName
	low, high utilization.Thresholds // as they are after the mean was counted in; high is empty for HighNodeUtilization
	packing   bool                   // HighNodeUtilization
	fewNodes  int
	allowed   policy.Namespaces
	only      utilization.Thresholds // a container must request one of these, unless nil
	perNode   *uint
	blind     bool // the usage of pods is unknown
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

// mark returns the amount of the resource that may be in use on the node.
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

// hasOne reports whether the node has a resource with a threshold.
func (r rules) hasOne(n schemas.NodeUsage) bool {
	for name := range r.low {
		if c, has := capacity(n, name); has && c.Sign() > 0 {
			return true
		}
	}
	return false
}

// groups returns the nodes that lose pods, in order, and the nodes that take them.
func (r rules) groups() (sources, targets []schemas.NodeUsage) {
	var under, others []schemas.NodeUsage
	for _, n := range r.scope.Nodes {
		switch {
		case (r.packing && r.hasOne(n) || !r.packing && !n.Unschedulable) && !anyAbove(n, r.low):
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
	if len(r.places(targets)) == 0 {
		return nil, nil
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

// place is a target with its remaining capacity. Its pods are the pods of the search.
type place struct {
	node schemas.NodeUsage
	free corev1.ResourceList
}

// places returns the targets that have something of every resource left.
func (r rules) places(targets []schemas.NodeUsage) (list []place) {
	for _, t := range targets {
		p := place{t, corev1.ResourceList{}}
		full := false
		for _, name := range r.resources {
			free := r.mark(t, name)
			free.Sub(t.Used[name])
			p.free[name] = free
			if c, has := capacity(t, name); has && c.Sign() > 0 && free.Sign() <= 0 {
				full = true
			}
		}
		if !full {
			list = append(list, p)
		}
	}
	return list
}

// admits reports whether the taints of a target let a pod in, and the scheduler does not prefer the node that it
// leaves.
func admits(from, target schemas.NodeUsage, p schemas.UsingPod) bool {
	count := func(n schemas.NodeUsage, soft bool) (count int) {
		for _, taint := range n.Taints {
			tolerated := slices.ContainsFunc(p.Pod.Spec.Tolerations, func(x corev1.Toleration) bool { return x.Key == "" || x.Key == taint.Key })
			if !tolerated && soft == (taint.Effect == corev1.TaintEffectPreferNoSchedule) {
				count++
			}
		}
		return count
	}
	return count(target, false) == 0 && (from.Unschedulable || count(target, true) <= count(from, true))
}

// placed reports whether there is a target for each of the pods, in any distribution.
func (r rules) placed(pods []schemas.UsingPod, places []place) bool {
	if len(pods) == 0 {
		return true
	}
	for _, at := range places {
		if !admits(r.node(pods[0]), at.node, pods[0]) {
			continue
		}
		fits := true
		for _, name := range r.resources {
			used, free := pods[0].Used[name], at.free[name]
			fits = fits && (used.Sign() <= 0 || used.Cmp(free) <= 0)
		}
		if !fits {
			continue
		}
		r.move(pods[0], at, -1)
		rest := r.placed(pods[1:], places)
		if r.move(pods[0], at, 1); rest {
			return true
		}
	}
	return false
}

func (r rules) move(p schemas.UsingPod, at place, sign int) {
	for _, name := range r.resources {
		free := at.free[name]
		if sign < 0 {
			free.Sub(p.Used[name])
		} else {
			free.Add(p.Used[name])
		}
		at.free[name] = free
	}
}

func (r rules) node(p schemas.UsingPod) schemas.NodeUsage {
	i := slices.IndexFunc(r.scope.Nodes, func(n schemas.NodeUsage) bool { return n.Name == p.Pod.Spec.NodeName })
	return r.scope.Nodes[i]
}

// relieved reports whether the node is no longer over-used, or is empty, after the pods have left it.
func (r rules) relieved(n schemas.NodeUsage, left []schemas.UsingPod) bool {
	if r.packing {
		for _, p := range r.scope.Pods {
			stays := slices.ContainsFunc(p.Protected, func(rule schemas.Protection) bool { return rule.Rule == policy.DaemonSetPods })
			gone := stays || schemas.Ended(&p.Pod) || p.Pod.DeletionTimestamp != nil || !r.allowed.Has(p.Pod.Namespace) || !r.requests(p)
			if p.Pod.Spec.NodeName == n.Name && !gone && !slices.ContainsFunc(left, func(o schemas.UsingPod) bool { return o.Pod.UID == p.Pod.UID }) {
				return false
			}
		}
		return true
	}
	for _, name := range r.resources {
		used, mark := n.Used[name].DeepCopy(), r.mark(n, name)
		for _, p := range slices.Concat(left, r.leaving()) {
			if p.Pod.Spec.NodeName == n.Name {
				used.Sub(p.Used[name])
			}
		}
		if used.Cmp(mark) > 0 {
			return false
		}
	}
	return true
}

// leaving returns the terminating pods.
func (r rules) leaving() (pods []schemas.UsingPod) {
	for _, p := range r.scope.Pods {
		if p.Pod.DeletionTimestamp != nil && !schemas.Ended(&p.Pod) {
			pods = append(pods, p)
		}
	}
	return pods
}

func (r rules) requests(p schemas.UsingPod) bool {
	asks := r.only == nil
	for _, c := range p.Pod.Spec.Containers {
		for name := range c.Resources.Requests {
			_, has := r.only[name]
			asks = asks || has
		}
	}
	return asks
}

// may reports whether the pod may leave at all.
func (r rules) may(p schemas.UsingPod) bool {
	return r.requests(p) && len(p.Protected) == 0 && p.Pod.DeletionTimestamp == nil && !schemas.Ended(&p.Pod) &&
		r.allowed.Has(p.Pod.Namespace) && (p.Used != nil || r.blind)
}

// fewest returns the smallest number of pods that must leave so that as many sources are relieved as by a number of
// moves. It searches only smaller sets of pods than that.
func (r rules) fewest(sources, targets []schemas.NodeUsage, relieved map[string]bool, moves int) int {
	var candidates []schemas.UsingPod
	for _, p := range r.scope.Pods {
		if r.may(p) && slices.ContainsFunc(sources, func(n schemas.NodeUsage) bool { return n.Name == p.Pod.Spec.NodeName }) {
			candidates = append(candidates, p)
		}
	}
	least := moves
	var search func(chosen, rest []schemas.UsingPod)
	search = func(chosen, rest []schemas.UsingPod) {
		if len(chosen) >= least {
			return
		}
		enough := !slices.ContainsFunc(sources, func(n schemas.NodeUsage) bool { return relieved[n.Name] && !r.relieved(n, chosen) })
		if enough && r.placed(chosen, r.places(targets)) {
			least = len(chosen)
			return
		}
		for i := range rest {
			search(append(slices.Clone(chosen), rest[i]), rest[i+1:])
		}
	}
	search(nil, candidates)
	return least
}
