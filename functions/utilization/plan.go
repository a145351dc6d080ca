package utilization

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// plan says which nodes should lose pods, how many, and how much capacity the targets have. The zero value moves nothing.
type plan struct {
	resources []corev1.ResourceName
	sources   []source
	// capacity is how much of each resource the targets together can still take.
	capacity []int64
	// taints are the distinct sets of taints of the targets that keep pods out. nil: some target takes any pod.
	taints [][]corev1.Taint
	reason func(node) string
}

// source is a node that should lose pods.
type source struct {
	node
	keep       []int64 // how much of each resource may stay in use; nil: all pods leave
	used       []int64
	left       uint // pods that have left
	unmeasured bool // the usage of one of them is not known
	pods       []*schemas.UsingPod
}

// relieve plans to move pods from the nodes over to the nodes under, until the former are within the limits or the latter
// are filled up to them. The node with the highest share of any resource comes first, then by name.
func (c cluster) relieve(over, under []node, l limits) plan {
	p := c.plan(over, under, l)
	p.reason = func(n node) string {
		return c.reason(n, "over-used", l, func(share, limit float64) bool { return share > limit })
	}
	for i := range p.sources {
		s := &p.sources[i]
		s.keep = make([]int64, len(s.figures))
		for j, f := range s.figures {
			s.keep[j] = f.upTo(l[j])
		}
	}
	slices.SortStableFunc(p.sources, func(a, b source) int { return cmp.Compare(b.highest, a.highest) })
	return p
}

// empty plans to move all pods from the nodes under, which are within the limits, to the targets, until those are full.
// The node whose highest share of any resource is the lowest comes first, then by name.
func (c cluster) empty(under, targets []node, l limits) plan {
	p := c.plan(under, targets, c.fixed(nil))
	p.reason = func(n node) string {
		return c.reason(n, "under-used", l, func(_, limit float64) bool { return limit != none })
	}
	slices.SortStableFunc(p.sources, func(a, b source) int { return cmp.Compare(a.highest, b.highest) })
	return p
}

// plan returns the zero plan when nothing can move: there is no source, no target, or no capacity.
func (c cluster) plan(sources, targets []node, fill limits) plan {
	if len(sources) == 0 || len(targets) == 0 {
		return plan{}
	}
	p := plan{resources: c.resources, capacity: make([]int64, len(c.resources)), taints: taintsOf(targets)}
	for _, t := range targets {
		for i, f := range t.figures {
			p.capacity[i] += f.upTo(fill[i]) - f.used
		}
	}
	if full(p.capacity) {
		return plan{}
	}
	for _, n := range sources {
		s := source{node: n}
		for _, f := range n.figures {
			s.used = append(s.used, f.used)
		}
		p.sources = append(p.sources, s)
	}
	return p
}

func full(capacity []int64) bool {
	return slices.ContainsFunc(capacity, func(left int64) bool { return left <= 0 })
}

func taintsOf(targets []node) [][]corev1.Taint {
	var sets [][]corev1.Taint
	same := func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }
	for _, t := range targets {
		hard := slices.DeleteFunc(slices.Clone(t.Taints), func(t corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute
		})
		if len(hard) == 0 {
			return nil
		}
		if !slices.ContainsFunc(sets, func(set []corev1.Taint) bool { return slices.EqualFunc(set, hard, same) }) {
			sets = append(sets, hard)
		}
	}
	return sets
}

// admits reports whether the taints of some target let the pod in.
func (p plan) admits(pod *corev1.Pod) bool {
	return p.taints == nil || slices.ContainsFunc(p.taints, func(set []corev1.Taint) bool {
		return candidate.ToleratesAll(pod.Spec.Tolerations, set)
	})
}

// names are the names of the sources, in order.
func (p plan) names() []string {
	names := make([]string, len(p.sources))
	for i := range p.sources {
		names[i] = p.sources[i].Name
	}
	return names
}

// rules say which pods may leave a node, and how many.
type rules struct {
	namespaces policy.Namespaces
	// only limits the pods. nil: all.
	only func(pod *corev1.Pod) bool
	// perNode is how many pods of one node may leave at the same time. nil: any number.
	perNode *uint
	// unmeasured: pods with unknown usage may leave. Their effect is unknown too, so a node loses as many as perNode says,
	// and one at a time without perNode.
	unmeasured bool
}

// intents returns the pods that should leave their nodes: one source after the other, in the order of [candidate.Compare].
// It may be called once.
//
// A pod that is being deleted has left already: its usage is neither on its node nor free at the targets, and it counts in
// perNode. So the answer in the middle of the moves is the rest of them.
func (p plan) intents(pods []schemas.UsingPod, r rules) []schemas.Intent {
	p.assign(pods, r)
	var intents []schemas.Intent
	for i := range p.sources {
		s := &p.sources[i]
		if !p.goesOn(s, r) {
			continue
		}
		reason := p.reason(s.node)
		slices.SortFunc(s.pods, func(a, b *schemas.UsingPod) int { return candidate.Compare(&a.Pod, &b.Pod) })
		for _, pod := range s.pods {
			if !p.goesOn(s, r) {
				break
			}
			if p.admits(&pod.Pod) && (pod.Used != nil || r.unmeasured) {
				p.leave(s, pod)
				intents = append(intents, pod.Move(reason))
			}
		}
	}
	return intents
}

// assign gives each source its pods that may leave, and subtracts those that are being deleted.
func (p plan) assign(pods []schemas.UsingPod, r rules) {
	byName := make(map[string]*source, len(p.sources))
	for i := range p.sources {
		byName[p.sources[i].Name] = &p.sources[i]
	}
	for i := range pods {
		pod := &pods[i]
		s, known := byName[pod.Pod.Spec.NodeName]
		switch {
		case !known || schemas.Ended(&pod.Pod):
		case pod.Pod.DeletionTimestamp != nil:
			p.leave(s, pod)
		case len(pod.Protected) == 0 && r.namespaces.Has(pod.Pod.Namespace) && (r.only == nil || r.only(&pod.Pod)):
			s.pods = append(s.pods, pod)
		}
	}
}

// goesOn reports whether one more pod should leave the source.
func (p plan) goesOn(s *source, r rules) bool {
	if full(p.capacity) || r.perNode != nil && s.left >= *r.perNode || r.unmeasured && r.perNode == nil && s.unmeasured {
		return false
	}
	for i, keep := range s.keep {
		if s.used[i] > keep {
			return true
		}
	}
	return s.keep == nil
}

// leave subtracts the usage of a pod that leaves from its node and from the capacity of the targets.
func (p plan) leave(s *source, pod *schemas.UsingPod) {
	s.left++
	if pod.Used == nil {
		s.unmeasured = true
		return
	}
	for i, name := range p.resources {
		used := whole(name, pod.Used[name])
		s.used[i] -= used
		p.capacity[i] -= used
	}
}

// reason says what is wrong with a node: "node-1 is over-used: cpu 83 % of 50 %". It names the resources that count.
func (c cluster) reason(n node, is string, l limits, counts func(share, limit float64) bool) string {
	text, separator := n.Name+" is "+is, ": "
	for i, limit := range l {
		if !counts(n.figures[i].share, limit) {
			continue
		}
		name := string(c.resources[i])
		if c.resources[i] == schemas.LoadMetric {
			name = "load"
		}
		share, of := percentages(n.figures[i].share, limit)
		text, separator = text+separator+name+" "+share+" of "+of, ", "
	}
	return text
}

// percentages writes two percentages to one decimal place, or to as many as it takes to tell them apart.
func percentages(a, b float64) (left, right string) {
	for places := 1; ; places++ {
		left, right = percentage(a, places), percentage(b, places)
		if left != right || places == 6 {
			return left, right
		}
	}
}

// percentage leaves out zeros at the end.
func percentage(value float64, places int) string {
	text := strconv.FormatFloat(value, 'f', places, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " %"
}
