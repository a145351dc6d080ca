// Package podantiaffinity is the strategy RemovePodsViolatingInterPodAntiAffinity: a pod beside one that its required
// anti-affinity forbids should move.
//
// Only the pod that carries the term moves. Preferred anti-affinity does not count.
package podantiaffinity

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. They limit both which pods move and which count as forbidden neighbours. The
// zero value looks at all pods.
type Args struct{ candidate.Selection }

// Decide returns few pods that should leave the domain, in the order of [candidate.Compare]. A pod whose forbidden neighbours all
// leave stays. A protected pod does not move but counts as a neighbour. A pod that is being deleted does
// neither: of two that repel each other, the second must not move because the first is still terminating. If it is stuck, see
// [schemas.Stuck], it counts as a neighbour again.
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
	leaving, before := newConflicts(candidates, staying).leaving(), maps.Clone(staying)
	var intents []schemas.Intent
	for _, p := range candidates {
		if leaving[p.Pod.UID] {
			forbidden := cmp.Or(firstOf(p.Repels, staying), firstOf(p.Repels, before))
			delete(staying, p.Pod.UID)
			intents = append(intents, p.Move("its anti-affinity forbids it beside "+
				forbidden.Pod.Namespace+"/"+forbidden.Pod.Name+" (topology "+scope.TopologyKey+")"))
		}
	}
	return intents
}

// firstOf is the first of the pods that stays, or nil.
func firstOf(pods []types.UID, staying map[types.UID]*schemas.ContendingPod) *schemas.ContendingPod {
	for _, uid := range pods {
		if p := staying[uid]; p != nil {
			return p
		}
	}
	return nil
}
