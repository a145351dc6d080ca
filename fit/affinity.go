package fit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// countAffinity counts, by topology key and value, what the pod's terms and those of others match.
func (w *world) countAffinity() {
	q := w.question
	w.attracts, w.repels, w.repelled = pairs{}, pairs{}, pairs{}
	if len(q.affinity) > 0 {
		w.countAttracting()
	}
	for i := range q.apart {
		t := &q.apart[i]
		// In Kubernetes 1.36 the scheduler asks the namespace selector of an incoming pod also about no labels, and so
		// takes "without the label" for all namespaces. Where that keeps pods apart it is followed.
		w.tally(w.matching(t, true), func(node labels.Set, _ string, n int) {
			if value, has := node[t.topology]; has {
				w.repels.add(t.topology, value, n)
			}
		})
	}
	w.countRepelled()
}

// matching counts the pods that a term of the pod matches. Of a namespace that is not known none are selected by its
// labels, unless all are. With broadly a selector that matches no labels at all matches every namespace.
func (w *world) matching(t *term, broadly bool) matcher {
	namespaces := w.question.cluster.namespaces
	everywhere := t.ofNamespaces.Empty() || broadly && t.ofNamespaces.Matches(labels.Set(nil))
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

// countAttracting counts the pods that match all terms of the affinity, each for the topology of each term.
func (w *world) countAttracting() {
	q := w.question
	each := make([]matcher, len(q.affinity))
	for i := range q.affinity {
		each[i] = w.matching(&q.affinity[i], false)
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
			if value, has := node[q.affinity[i].topology]; has {
				w.attracts.add(q.affinity[i].topology, value, n)
				total += n
			}
		}
	})
	w.first = total == 0 && all.pod(q.pod.Namespace, q.pod.Labels)
}

// countRepelled counts the pods of this state that do not want the pod near them.
func (w *world) countRepelled() {
	q := w.question
	count := func(t *term, node string, n int) {
		if of, known := q.cluster.labelsOf(node); known {
			if value, has := of[t.topology]; has {
				w.repelled.add(t.topology, value, n)
			}
		}
	}
	for _, r := range q.cluster.repulsions {
		if r.common.matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
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
			if p.terms[i].matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
				count(&p.terms[i], p.node, n)
			}
		}
	})
}

// concernsPods says whether the pod has affinities, or is unwanted somewhere. If neither, the scheduler skips these
// rules for it, and then does not see the anti-affinity of pods that are only nominated.
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

// suits judges a node by the affinities between pods. A verdict without a reason: no objection.
func (w *world) suits(node labels.Set) Verdict {
	for i := range w.question.affinity {
		key := w.question.affinity[i].topology
		value, has := node[key]
		if !has || w.attracts[key][value] <= 0 && !w.first {
			return no(PodAffinity, key)
		}
	}
	for i := range w.question.apart {
		key := w.question.apart[i].topology
		if value, has := node[key]; has && w.repels[key][value] > 0 {
			return no(PodAntiAffinity, key)
		}
	}
	if key := w.unwanted(node); key != "" {
		return no(ExistingAntiAffinity, key)
	}
	return Verdict{}
}

// unwanted is a topology in which a pod is that does not want this one near, the first by name of several, or nothing.
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

// preference is a term that makes nodes better or worse for a pod, but excludes none.
type preference struct {
	term
	// weight is negative for anti-affinity, and 0 for a required affinity term: the scheduler's configuration weighs it.
	weight int64
	key    string
}

// preferredOf are the preferred terms of a pod. Terms that cannot be read are left out.
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

// preferencesOf are the terms of a pod on a node that score nodes for other pods: the preferred ones and the required affinity.
func preferencesOf(pod *corev1.Pod) []preference {
	preferences := preferredOf(pod)
	terms, _ := newTerms(pod, requiredAffinity(&pod.Spec))
	for _, t := range terms {
		preferences = append(preferences, newPreference(t, 0))
	}
	return preferences
}

func newPreference(t term, weight int64) preference {
	return preference{term: t, weight: weight, key: fmt.Sprintf("%d\x00%s", weight, t.key())}
}

// Affinity weighs the pods that are near, by topology key and value: preferred terms of the pod that they match, and terms
// of theirs that the pod matches. A node's sum over its labels is higher the better it suits; it may be negative.
type Affinity map[string]map[string]int64

// Affinity is for the replacement of the pod. required is the weight of a required affinity term of a pod on a node; with
// ownOnly, other pods' preferred terms do not count for a pod that has none itself.
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
		w.tally(w.matching(&t.term, true), func(node labels.Set, _ string, n int) { add(node, t.topology, t.weight*int64(n)) })
	}
	theirs := func(t *preference, node string, n int) {
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
		if a.common.matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
			for node, n := range a.on {
				theirs(&a.common, node, n)
			}
		}
	}
	w.adjust(func(p *placed, n int) {
		for i := range p.preferences {
			if p.preferences[i].matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
				theirs(&p.preferences[i], p.node, n)
			}
		}
	})
	return found
}
