// Package podantiaffinity is the strategy RemovePodsViolatingInterPodAntiAffinity: a pod beside one that its required
// anti-affinity forbids should move.
//
// Only the pod that carries the term moves. Preferred anti-affinity does not count.
package podantiaffinity

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions/placement"
	"github.com/rehome-dev/rehome/functions/rank"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. They limit both which pods move and which count as forbidden neighbours. The
// zero value looks at all pods.
type Args struct {
	Namespaces policy.Namespaces `json:"namespaces,omitzero"`
	// LabelSelector limits the strategy to the pods that it selects. nil: all.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitzero"`
}

// Validate says what is wrong with the arguments; each error in it is a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("namespaces", a.Namespaces.Validate())
	found.Join("labelSelector", policy.ValidateSelector(a.LabelSelector))
	return found.Err()
}

// Decide returns the pods that should leave the domain, in the order of [rank.Compare]. A pod whose forbidden neighbours
// all leave before it stays. A pod that is protected does not move, and is a neighbour nevertheless. One that is being
// deleted is neither: of two that keep each other away the second must not move because the first is still on its way out.
func (a Args) Decide(scope schemas.DomainScope) []schemas.Intent {
	selector := policy.Selects(a.LabelSelector)
	staying := make(map[types.UID]*schemas.ContendingPod, len(scope.Pods))
	var candidates []*schemas.ContendingPod
	for i := range scope.Pods {
		p := &scope.Pods[i]
		if placement.Leaves(&p.Pod) || !a.Namespaces.Has(p.Pod.Namespace) || !selector.Matches(labels.Set(p.Pod.Labels)) {
			continue
		}
		staying[p.Pod.UID] = p
		if len(p.Repels) > 0 && len(p.Protected) == 0 {
			candidates = append(candidates, p)
		}
	}
	slices.SortFunc(candidates, func(x, y *schemas.ContendingPod) int { return rank.Compare(&x.Pod, &y.Pod) })
	var intents []schemas.Intent
	for _, p := range candidates {
		if forbidden := firstOf(p.Repels, staying); forbidden != nil {
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
