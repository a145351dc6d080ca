package fit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// countAffinity counts, by topology key and value, the matches of the pod's terms and of other pods' terms.
func (w *world) countAffinity() {
	q := w.question
	w.attracts, w.repels, w.repelled = pairs{}, pairs{}, pairs{}
	if len(q.affinity) > 0 {
		w.countAttracting()
	}
	for i := range q.apart {
		t := &q.apart[i]
		w.tally(w.matching(t), func(node labels.Set, _ string, n int) {
			if value, has := node[t.TopologyKey]; has {
				w.repels.add(t.TopologyKey, value, n)
			}
		})
	}
	w.countRepelled()
}

// matching counts the pods that a term of the pod matches. In an unknown namespace, a namespace selector matches pods
// only if it matches all namespaces. Up to Kubernetes 1.36 the scheduler matches the selector also against an empty
// label set, and so treats "without the label" as all namespaces.
func (w *world) matching(t *Term) matcher {
	namespaces := w.question.cluster.namespaces
	everywhere := t.ofNamespaces.Empty() || w.question.SchedulerIsOlderThan(37) && t.ofNamespaces.Matches(labels.Set(nil))
	return matcher{
		namespace: func(name string) bool {
			of, known := namespaces[name]
			if !known {
				_, named := slices.BinarySearch(t.namespaces, name)
				return named || everywhere
			}
			return everywhere || t.namespace(name, of)
		},
		pod:             func(_ string, of labels.Set) bool { return t.pods.Matches(of) },
		withTerminating: true,
	}
}

// countAttracting counts the pods that match all terms of the affinity, once for the topology of each term.
func (w *world) countAttracting() {
	q := w.question
	each := make([]matcher, len(q.affinity))
	for i := range q.affinity {
		each[i] = w.matching(&q.affinity[i])
	}
	all := matcher{
		namespace: each[0].namespace,
		pod: func(namespace string, of labels.Set) bool {
			return !slices.ContainsFunc(each, func(m matcher) bool { return !m.namespace(namespace) || !m.pod(namespace, of) })
		},
		withTerminating: true,
	}
	total := 0
	w.tally(all, func(node labels.Set, _ string, n int) {
		for i := range q.affinity {
			if value, has := node[q.affinity[i].TopologyKey]; has {
				w.attracts.add(q.affinity[i].TopologyKey, value, n)
				total += n
			}
		}
	})
	w.first = total == 0 && all.pod(q.pod.Namespace, q.pod.Labels)
}

// countRepelled counts the pods in this world that repel the pod.
func (w *world) countRepelled() {
	q := w.question
	count := func(t *Term, node string, n int) {
		if of, known := q.cluster.labelsOf(node); known {
			if value, has := of[t.TopologyKey]; has {
				w.repelled.add(t.TopologyKey, value, n)
			}
		}
	}
	for _, r := range q.cluster.repulsions {
		if r.common.Matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
			for node, n := range r.on {
				count(&r.common, node, n)
			}
		}
	}
	overlooks := w.base != nil && !w.base.concernsPods()
	w.adjust(func(p *placed, n int) {
		if n > 0 && p.nominated && overlooks {
			return
		}
		for i := range p.terms {
			if p.terms[i].Matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
				count(&p.terms[i], p.node, n)
			}
		}
	})
}

// concernsPods reports whether the pod has affinities or is repelled somewhere. If not, the scheduler skips these
// rules, and does not see the anti-affinity of pods that are only nominated.
func (w *world) concernsPods() bool {
	if len(w.question.affinity)+len(w.question.apart) > 0 {
		return true
	}
	for _, counts := range w.repelled {
		for _, n := range counts {
			if n > 0 {
				return true
			}
		}
	}
	return false
}

// suits judges a node by the affinities between pods. A verdict without a reason is no objection.
func (w *world) suits(node labels.Set) Verdict {
	for i := range w.question.affinity {
		key := w.question.affinity[i].TopologyKey
		value, has := node[key]
		if !has || w.attracts[key][value] <= 0 && !w.first {
			return no(PodAffinity, key)
		}
	}
	for i := range w.question.apart {
		key := w.question.apart[i].TopologyKey
		if value, has := node[key]; has && w.repels[key][value] > 0 {
			return no(PodAntiAffinity, key)
		}
	}
	if key := w.unwanted(node); key != "" {
		return no(ExistingAntiAffinity, key)
	}
	return Verdict{}
}

// unwanted returns the first topology, by name, with a pod that repels this one, or "".
func (w *world) unwanted(node labels.Set) string {
	least := ""
	for key, counts := range w.repelled {
		value, has := node[key]
		if has && counts[value] > 0 && (least == "" || key < least) {
			least = key
		}
	}
	return least
}

// preference is a term that changes the score of nodes but excludes none.
type preference struct {
	Term
	// weight is negative for anti-affinity. It is 0 for a required affinity term, whose weight is in the scheduler's
	// configuration.
	weight int64
	key    string
}

// preferredOf returns the preferred terms of a pod, without invalid ones.
func preferredOf(pod *corev1.Pod) []preference {
	a := pod.Spec.Affinity
	if a == nil {
		return nil
	}
	var preferences []preference
	add := func(preferred []corev1.WeightedPodAffinityTerm, sign int64) {
		for i := range preferred {
			if t, ok := newTerm(pod, &preferred[i].PodAffinityTerm); ok {
				preferences = append(preferences, newPreference(t, sign*int64(preferred[i].Weight)))
			}
		}
	}
	if a.PodAffinity != nil {
		add(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1)
	}
	if a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -1)
	}
	return preferences
}

// preferencesOf returns the terms of a pod on a node that score nodes for other pods: the preferred ones and the
// required affinity.
func preferencesOf(pod *corev1.Pod) []preference {
	preferences := preferredOf(pod)
	terms, _ := newTerms(pod, requiredAffinity(&pod.Spec))
	for _, t := range terms {
		preferences = append(preferences, newPreference(t, 0))
	}
	return preferences
}

func newPreference(t Term, weight int64) preference {
	return preference{Term: t, weight: weight, key: fmt.Sprintf("%d\x00%s", weight, t.Key())}
}

// Affinity weighs nearby pods, by topology key and value: the preferred terms of the pod that match them, and their
// terms that match the pod. A higher sum over the labels of a node means a better node; it may be negative.
type Affinity map[string]map[string]int64

// Affinity returns the weights for the replacement of the pod. required is the weight of a required affinity term of a
// pod on a node. With ownOnly, other pods' preferred terms do not count for a pod that has none itself.
func (q *Question) Affinity(required int64, ownOnly bool) Affinity {
	w, found := q.moved(), Affinity{}
	own := preferredOf(q.pod)
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
		w.tally(w.matching(&t.Term), func(node labels.Set, _ string, n int) { add(node, t.TopologyKey, t.weight*int64(n)) })
	}
	theirs := func(t *preference, node string, n int) {
		weight := t.weight
		if weight == 0 {
			weight = required
		} else if ownOnly && len(own) == 0 {
			return
		}
		if of, known := q.cluster.labelsOf(node); known {
			add(of, t.TopologyKey, weight*int64(n))
		}
	}
	for _, a := range q.cluster.attractions {
		if a.common.Matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
			for node, n := range a.on {
				theirs(&a.common, node, n)
			}
		}
	}
	w.adjust(func(p *placed, n int) {
		for i := range p.preferences {
			if p.preferences[i].Matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
				theirs(&p.preferences[i], p.node, n)
			}
		}
	})
	return found
}
