package fit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// wish is an affinity term that makes nodes better or worse for a pod, but excludes none.
type wish struct {
	term
	// weight is negative for anti-affinity, and 0 for a required affinity term: the scheduler's configuration weighs it.
	weight int64
	key    string
}

// preferredWishes are the preferred terms of a pod. Terms that cannot be read are left out.
func preferredWishes(pod *corev1.Pod) []wish {
	a := pod.Spec.Affinity
	if a == nil {
		return nil
	}
	var wishes []wish
	add := func(preferred []corev1.WeightedPodAffinityTerm, sign int64) {
		for i := range preferred {
			if t, ok := newTerm(pod, &preferred[i].PodAffinityTerm); ok {
				wishes = append(wishes, newWish(t, sign*int64(preferred[i].Weight)))
			}
		}
	}
	if a.PodAffinity != nil {
		add(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1)
	}
	if a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -1)
	}
	return wishes
}

// wishesOf are the terms of a pod on a node that score nodes for other pods: the preferred ones and the required affinity.
func wishesOf(pod *corev1.Pod) []wish {
	wishes := preferredWishes(pod)
	terms, _ := newTerms(pod, requiredAffinity(&pod.Spec))
	for _, t := range terms {
		wishes = append(wishes, newWish(t, 0))
	}
	return wishes
}

func newWish(t term, weight int64) wish {
	return wish{term: t, weight: weight, key: fmt.Sprintf("%d\x00%s", weight, t.key())}
}

// attraction are the pods that have the same wish.
type attraction struct {
	wish wish
	// on counts them by node name.
	on map[string]int
}

// attractions are all attractions by the key of their wish.
type attractions map[string]*attraction

func (a attractions) enter(p *placed) {
	for _, w := range p.wishes {
		own := a[w.key]
		if own == nil {
			own = &attraction{wish: w, on: map[string]int{}}
			a[w.key] = own
		}
		own.on[p.node]++
	}
}

func (a attractions) leave(p *placed) {
	for _, w := range p.wishes {
		decrease(a[w.key].on, p.node)
		if len(a[w.key].on) == 0 {
			delete(a, w.key)
		}
	}
}

// Affinity weighs the pods that are near, by topology key and value: preferred terms of the pod that they match, and terms
// of theirs that the pod matches. A node's sum over its labels is higher the better it suits; it may be negative.
type Affinity map[string]map[string]int64

// Affinity is for the replacement of the pod. required is the weight of a required affinity term of a pod on a node; with
// ownOnly, other pods' preferred terms do not count for a pod that has none itself.
func (q *Question) Affinity(required int64, ownOnly bool) Affinity {
	w, found := q.last(), Affinity{}
	own := preferredWishes(q.pod)
	add := func(node labels.Set, topology string, weight int64) {
		value, has := node[topology]
		if !has || weight == 0 {
			return
		}
		if found[topology] == nil {
			found[topology] = map[string]int64{}
		}
		found[topology][value] += weight
	}
	for i := range own {
		t := &own[i]
		w.tally(w.matching(&t.term, true), func(node labels.Set, _ string, n int) { add(node, t.topology, t.weight*int64(n)) })
	}
	theirs := func(t *wish, node string, n int) {
		weight := t.weight
		if weight == 0 {
			weight = required
		} else if ownOnly && len(own) == 0 {
			return
		}
		if of, known := q.cluster.labelsOf(node); known {
			add(of, t.topology, weight*int64(n))
		}
	}
	for _, a := range q.cluster.attractions {
		if a.wish.matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
			for node, n := range a.on {
				theirs(&a.wish, node, n)
			}
		}
	}
	w.adjust(func(p *placed, n int) {
		for i := range p.wishes {
			if p.wishes[i].matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
				theirs(&p.wishes[i], p.node, n)
			}
		}
	})
	return found
}
