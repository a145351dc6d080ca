// Package podantiaffinity is the strategy RemovePodsViolatingInterPodAntiAffinity: a pod beside one that its required
// anti-affinity forbids should move.
//
// Only the pod that carries the term moves. Preferred anti-affinity does not count.
package podantiaffinity

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. They limit both which pods move and which count as forbidden neighbours. The
// zero value looks at all pods.
type Args struct{ candidate.Selection }

// Decide returns the pods that should leave the domain, in the order of [candidate.Compare]. A pod whose forbidden neighbours
// all leave stays. A protected pod does not move but counts as a neighbour. A pod that is being deleted does
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
		if len(p.Repels) > 0 && candidate.Movable(&p.ScopedPod) {
			candidates = append(candidates, p)
		}
	}
	slices.SortFunc(candidates, func(x, y *schemas.ContendingPod) int { return candidate.Compare(&x.Pod, &y.Pod) })
	because := map[types.UID]*schemas.ContendingPod{}
	for _, p := range candidates {
		if forbidden := firstOf(p.Repels, staying); forbidden != nil {
			because[p.Pod.UID] = forbidden
			delete(staying, p.Pod.UID)
		}
	}
	for _, p := range slices.Backward(candidates) {
		if because[p.Pod.UID] != nil && firstOf(p.Repels, staying) == nil && !repelled(p.Pod.UID, staying) {
			delete(because, p.Pod.UID) // its neighbours left after it
			staying[p.Pod.UID] = p
		}
	}
	var intents []schemas.Intent
	for _, p := range candidates {
		if forbidden := because[p.Pod.UID]; forbidden != nil {
			intents = append(intents, p.Move("its anti-affinity forbids it beside "+
				forbidden.Pod.Namespace+"/"+forbidden.Pod.Name+" (topology "+scope.TopologyKey+")"))
		}
	}
	return intents
}

// repelled reports whether one of the staying pods repels a pod.
func repelled(pod types.UID, staying map[types.UID]*schemas.ContendingPod) bool {
	for _, p := range staying {
		if slices.Contains(p.Repels, pod) {
			return true
		}
	}
	return false
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
