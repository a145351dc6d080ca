// Package podantiaffinity is the strategy RemovePodsViolatingInterPodAntiAffinity: it moves pods that violate their
// required anti-affinity.
//
// Only the pod with the term moves. Preferred anti-affinity does not count.
package podantiaffinity

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. They limit both which pods move and which count as forbidden neighbors. The
// zero value considers all pods.
type Args struct{ candidate.Selection }

// Decide returns the smallest set of pods that should leave the domain, or the cheapest by [policy.MoveCost] among
// equally small ones. If conflicts connect more than mostExact pods, it may be larger. The cheapest pod comes first,
// and among equally cheap ones the one with the most conflicts, which are its weight.
//
// A pod whose forbidden neighbors all leave stays. A protected pod does not move but counts as a neighbor. A
// terminating pod does neither: of two pods that repel each other, the second must not move because the first is still
// terminating. If it is stuck, see [schemas.Stuck], it counts as a neighbor again.
func (a Args) Decide(scope schemas.DomainScope) []schemas.Intent {
	selects := a.Selects()
	staying := make(map[types.UID]*schemas.ContendingPod, len(scope.Pods))
	var candidates []*schemas.ContendingPod
	for i := range scope.Pods {
		p := &scope.Pods[i]
		if candidate.Leaves(&p.Pod) && !schemas.Stuck(&p.Pod, scope.Now) || !selects(&p.Pod) {
			continue
		}
		staying[p.Pod.UID] = p
		if candidate.Movable(&p.ScopedPod) {
			candidates = append(candidates, p)
		}
	}
	candidates = slices.DeleteFunc(candidates, func(p *schemas.ContendingPod) bool { return firstOf(p.Repels, staying) == nil })
	slices.SortFunc(candidates, func(x, y *schemas.ContendingPod) int { return candidate.Compare(&x.Pod, &y.Pod) })
	before := maps.Clone(staying)
	var intents []schemas.Intent
	for _, e := range newConflicts(candidates, staying).exits() {
		p := candidates[e.candidate]
		forbidden := cmp.Or(firstOf(p.Repels, staying), firstOf(p.Repels, before))
		delete(staying, p.Pod.UID)
		intent := p.Move("its anti-affinity forbids it beside " +
			forbidden.Pod.Namespace + "/" + forbidden.Pod.Name + " (topology " + scope.TopologyKey + ")")
		intent.Weight = int64(e.ends)
		intents = append(intents, intent)
	}
	return intents
}

// firstOf returns the first of the pods that stays, or nil.
func firstOf(pods []types.UID, staying map[types.UID]*schemas.ContendingPod) *schemas.ContendingPod {
	for _, uid := range pods {
		if p := staying[uid]; p != nil {
			return p
		}
	}
	return nil
}
