package utilization

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
)

// target is a node that can take pods.
type target struct {
	node
	free []int64 // the amount of each resource that it can still take; negative if it is over the limit already
	full bool    // a resource that it has is used up
}

// taintGroup has the targets with the same taints. They take pods in this order.
type taintGroup struct {
	hard, soft []corev1.Taint
	list       []*target
	first      int // all before it are full
}

// targets are the nodes that can take pods.
type targets []*taintGroup

// newTargets returns targets that are filled up to the limits. With packs, the fullest target takes pods first, as with
// a packing scheduler; otherwise the emptiest.
func newTargets(nodes []node, fill limits, packs bool) (t targets) {
	type spare struct {
		*target
		share float64 // that is left of the scarcest resource
	}
	var all []spare
	for _, n := range nodes {
		x, share := &target{node: n, free: make([]int64, len(n.figures))}, math.MaxFloat64
		for i, f := range n.figures {
			x.free[i] = f.upTo(fill[i]) - f.used
			if f.capacity > 0 {
				share = min(share, float64(x.free[i])/float64(f.capacity))
			}
		}
		if x.check(); !x.full {
			all = append(all, spare{x, share})
		}
	}
	slices.SortStableFunc(all, func(a, b spare) int {
		if packs {
			return cmp.Compare(a.share, b.share)
		}
		return cmp.Compare(b.share, a.share)
	})
	for _, x := range all {
		i := slices.IndexFunc(t, func(g *taintGroup) bool { return sameTaints(g.hard, x.hard) && sameTaints(g.soft, x.soft) })
		if i < 0 {
			i, t = len(t), append(t, &taintGroup{hard: x.hard, soft: x.soft})
		}
		t[i].list = append(t[i].list, x.target)
	}
	return t
}

func sameTaints(a, b []corev1.Taint) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value })
}

// take finds a target for a pod of a source and subtracts the usage of the pod. It returns nil if there is none.
func (t targets) take(from node, pod leaver) *target {
	for _, g := range t {
		for g.first < len(g.list) && g.list[g.first].full {
			g.first++
		}
		if g.first == len(g.list) || !g.admits(from, &pod.Pod) {
			continue
		}
		for _, x := range g.list[g.first:] {
			if x.fits(pod.used) {
				x.add(pod.used, -1)
				return x
			}
		}
	}
	return nil
}

// giveBack undoes a take.
func (t targets) giveBack(pod leaver) {
	pod.to.add(pod.used, 1)
	for _, g := range t {
		g.first = 0
	}
}

func (x *target) add(used []int64, sign int64) {
	for i, amount := range used {
		x.free[i] += sign * amount
	}
	x.check()
}

func (x *target) check() {
	x.full = false
	for i, f := range x.figures {
		x.full = x.full || f.capacity > 0 && x.free[i] <= 0
	}
}

// fits reports whether the target can take so much.
func (x *target) fits(used []int64) bool {
	for i, amount := range used {
		if amount > 0 && amount > x.free[i] {
			return false
		}
	}
	return !x.full
}

// admits reports whether the taints let the pod in. The scheduler avoids a node with more PreferNoSchedule taints that the pod
// does not tolerate than the node that the pod leaves, unless the pod cannot return there.
func (g *taintGroup) admits(from node, pod *corev1.Pod) bool {
	return candidate.ToleratesAll(pod.Spec.Tolerations, g.hard) &&
		(from.Unschedulable || untolerated(pod, g.soft) <= untolerated(pod, from.soft))
}

func untolerated(pod *corev1.Pod, taints []corev1.Taint) (count int) {
	for i := range taints {
		if !candidate.Tolerates(pod.Spec.Tolerations, &taints[i]) {
			count++
		}
	}
	return count
}
