package utilization

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// plan specifies which nodes should lose pods, how many, and which nodes take them. The zero value moves nothing.
type plan struct {
	resources []corev1.ResourceName
	sources   []source
	targets   targets
	packs     bool // all pods of a source leave, or none
	reason    func(node) string
}

// source is a node that should lose pods.
type source struct {
	node
	keep       []int64 // the amount of each resource that may stay in use; nil means all pods leave
	used       []int64
	left       uint     // pods that have left
	leaving    []leaver // terminating pods, which have left
	unmeasured bool     // the usage of one that has left is not known
	pods       []leaver // pods that may leave
	loses      int      // the number of pods that it loses if the targets have capacity for all
	bound      bool     // a pod that the node would have to lose may not leave
}

// relieve plans to move pods from the nodes over to the nodes under, until the former are within the limits or the
// latter are filled up to them. The node with the highest percentage of any resource comes first, then the one that
// loses the fewest pods.
func (c cluster) relieve(over, under []node, l limits) plan {
	p := c.plan(over, under, l, false)
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

// empty plans to move all pods from the nodes under, which are within the limits, to the targets. The node whose
// highest percentage of any resource is the lowest comes first, then the one that loses the fewest pods. Nodes that
// cannot lose all their pods lose none, unless that is true for all nodes.
func (c cluster) empty(under, targets []node, l limits) plan {
	p := c.plan(under, targets, c.fixed(nil), true)
	p.reason = func(n node) string {
		return c.reason(n, "under-used", l, func(_, limit float64) bool { return limit != none })
	}
	slices.SortStableFunc(p.sources, func(a, b source) int { return cmp.Compare(a.highest, b.highest) })
	return p
}

// plan returns the zero plan when nothing can move: there is no source, no target, or no capacity.
func (c cluster) plan(sources, takers []node, fill limits, packs bool) plan {
	p := plan{resources: c.resources, targets: newTargets(takers, fill, packs), packs: packs}
	if len(sources) == 0 || len(p.targets) == 0 {
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

// names returns the names of the sources, in order.
func (p plan) names() []string {
	names := make([]string, len(p.sources))
	for i := range p.sources {
		names[i] = p.sources[i].Name
	}
	return names
}

// rules specify which pods may leave a node, and how many.
type rules struct {
	namespaces policy.Namespaces
	// only limits the pods. nil means all.
	only func(pod *corev1.Pod) bool
	// perNode is the number of pods of one node that may leave at the same time. nil means any number.
	perNode *uint
	// unmeasured allows pods with unknown usage to leave. Their effect is unknown too, so a node loses perNode of them,
	// or one at a time without perNode.
	unmeasured bool
	// now is the time of the scope.
	now time.Time
}

// intents returns the pods that should leave their nodes: one source after another, the cheapest pods first. It may be
// called once.
//
// A terminating pod has left already: its usage is neither on its node nor free at the targets, and it counts in
// perNode. So the answer in the middle of the moves is the rest of them. A pod that is stuck, see [schemas.Stuck], has
// not left.
func (p plan) intents(pods []schemas.UsingPod, r rules) []schemas.Intent {
	p.assign(pods, r)
	p.sort()
	p.takeLeaving()
	var moves []schemas.Intent
	add := func(s *source, pods []leaver) {
		reason := p.reason(s.node)
		for _, pod := range pods {
			moves = append(moves, pod.Move(reason))
		}
	}
	emptied := false
	for i := 0; i < len(p.sources) && p.packs; i++ {
		s := &p.sources[i]
		if s.bound || s.loses == 0 {
			continue
		}
		leave := p.leave(s, r)
		if len(leave) == len(s.pods) {
			emptied = true
			add(s, leave)
			continue
		}
		p.undo(s, leave)
	}
	for i := 0; i < len(p.sources) && !emptied; i++ {
		s := &p.sources[i]
		add(s, p.leave(s, r))
	}
	return moves
}

// assign gives each source its pods.
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
		case schemas.Stuck(&pod.Pod, r.now):
		case pod.Pod.DeletionTimestamp != nil:
			s.leaving = append(s.leaving, p.leaver(pod))
		case !r.namespaces.Has(pod.Pod.Namespace) || r.only != nil && !r.only(&pod.Pod):
		case len(pod.Protected) == 0 && (pod.Used != nil || r.unmeasured):
			s.pods = append(s.pods, p.leaver(pod))
		default:
			s.bound = s.bound || !staysWithNode(pod)
		}
	}
}

// sort sorts the pods of each source, and the sources: those with equal usage by the number of pods that they lose.
func (p plan) sort() {
	for i := range p.sources {
		s := &p.sources[i]
		for _, list := range [][]leaver{s.leaving, s.pods} {
			slices.SortFunc(list, func(a, b leaver) int { return candidate.Compare(&a.Pod, &b.Pod) })
		}
		s.loses = s.count()
	}
	slices.SortStableFunc(p.sources, func(a, b source) int {
		order := cmp.Compare(a.highest, b.highest)
		if !p.packs {
			order = -order
		}
		return cmp.Or(order, cmp.Compare(a.loses, b.loses))
	})
}

// takeLeaving lets the terminating pods of the sources take capacity of targets.
func (p plan) takeLeaving() {
	for i := range p.sources {
		s := &p.sources[i]
		for rest := slices.Clone(s.leaving); len(rest) > 0; {
			next := max(s.next(rest), 0)
			p.targets.take(s.node, rest[next])
			s.lose(rest[next])
			rest = slices.Delete(rest, next, next+1)
		}
	}
}

// leaver is a pod with its usage of each resource.
type leaver struct {
	*schemas.UsingPod
	used []int64
	cost int64   // see [policy.MoveCost]
	to   *target // nil if it stays
}

func (p plan) leaver(pod *schemas.UsingPod) leaver {
	l := leaver{UsingPod: pod, used: make([]int64, len(p.resources)), cost: policy.MoveCost(&pod.Pod)}
	for i, name := range p.resources {
		l.used[i] = whole(name, pod.Used[name])
	}
	return l
}

// next returns the index of the pod that the source should lose next: among the cheapest pods the one that relieves it
// most. It returns -1 if the source need not lose any. The pods are in the order of [candidate.Compare].
func (s *source) next(pods []leaver) int {
	best, most := -1, 0.0
	for i, l := range pods {
		if best >= 0 && pods[best].cost != l.cost {
			break
		}
		if relief, needed := s.relief(l); needed && (best < 0 || relief > most) {
			best, most = i, relief
		}
	}
	return best
}

// relief returns the part of the excess of the source that a pod removes, summed over the resources. needed reports
// whether it removes any.
func (s *source) relief(l leaver) (sum float64, needed bool) {
	for i, amount := range l.used {
		if s.keep == nil {
			sum += float64(amount) / float64(max(s.figures[i].capacity, 1)) // large pods find a target first
		} else if excess := s.used[i] - s.keep[i]; excess > 0 && (amount > 0 || l.Used == nil) {
			sum, needed = sum+float64(min(amount, excess))/float64(excess), true
		}
	}
	return sum, needed || s.keep == nil
}

// staysWithNode reports whether the pod is of a kind that every node has, so that the node counts as empty with it.
func staysWithNode(pod *schemas.UsingPod) bool {
	return slices.ContainsFunc(pod.Protected, func(p schemas.Protection) bool {
		return p.Rule == policy.DaemonSetPods || p.Rule == policy.MirrorPods || p.Rule == policy.StaticPods
	})
}

// count returns the number of pods that the source loses if the targets have capacity for all.
func (s *source) count() int {
	if s.keep == nil {
		return len(s.leaving) + len(s.pods)
	}
	alone := *s
	alone.used = slices.Clone(s.used)
	for _, l := range s.leaving {
		alone.lose(l)
	}
	rest := slices.Clone(s.pods)
	for i := alone.next(rest); i >= 0; i = alone.next(rest) {
		alone.lose(rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	return int(alone.left)
}

// lose subtracts the usage of a pod from its node.
func (s *source) lose(l leaver) {
	s.left++
	s.unmeasured = s.unmeasured || l.Used == nil
	for i, amount := range l.used {
		s.used[i] -= amount
	}
}

// leave returns the pods that should leave the source, each with one of the targets. If a chosen pod turns out to be
// unnecessary, because later ones relieve the source more, it chooses again without that pod.
func (p plan) leave(s *source, r rules) []leaver {
	pods := s.pods
	for {
		leave := p.choose(s, r, slices.Clone(pods))
		needless := slices.IndexFunc(leave, func(l leaver) bool { return !r.unmeasured && s.mayKeep(l) })
		if needless < 0 {
			return leave
		}
		uid := leave[needless].Pod.UID
		pods = slices.DeleteFunc(slices.Clone(pods), func(l leaver) bool { return l.Pod.UID == uid })
		p.undo(s, leave)
	}
}

// choose chooses from pods until the source need not lose more.
func (p plan) choose(s *source, r rules, pods []leaver) (leave []leaver) {
	for i := s.next(pods); i >= 0; i = s.next(pods) {
		if r.perNode != nil && s.left >= *r.perNode || r.unmeasured && r.perNode == nil && s.unmeasured {
			break
		}
		l := pods[i]
		pods = slices.Delete(pods, i, i+1)
		if l.to = p.targets.take(s.node, l); l.to != nil {
			s.lose(l)
			leave = append(leave, l)
		}
	}
	return leave
}

// undo lets chosen pods stay.
func (p plan) undo(s *source, leave []leaver) {
	for _, l := range leave {
		p.targets.giveBack(l)
		for i, amount := range l.used {
			s.used[i] += amount
		}
		s.left--
	}
}

// mayKeep reports whether the source would be within its limits with a chosen pod.
func (s *source) mayKeep(l leaver) bool {
	for i, amount := range l.used {
		if s.keep == nil || amount > 0 && s.used[i]+amount > s.keep[i] {
			return false
		}
	}
	return true
}

// reason describes the usage of a node: "node-1 is over-used: cpu 83 % of 50 %". It names the relevant resources.
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

// percentages formats two percentages with one decimal place, or as many as it takes to distinguish them.
func percentages(a, b float64) (left, right string) {
	for places := 1; ; places++ {
		left, right = percentage(a, places), percentage(b, places)
		if left != right || places == 6 {
			return left, right
		}
	}
}

// percentage omits trailing zeros.
func percentage(value float64, places int) string {
	text := strconv.FormatFloat(value, 'f', places, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " %"
}
