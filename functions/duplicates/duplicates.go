// Package duplicates is the strategy RemoveDuplicates: replicas of one owner that crowd on a node should move, when more
// nodes could run them.
//
// Two pods are duplicates when they have the owner, the images of their containers and the node in common.
package duplicates

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/lifecycle"
	"github.com/rehome-dev/rehome/functions/placement"
	"github.com/rehome-dev/rehome/functions/rank"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. The zero value looks at the pods of every owner.
type Args struct {
	Namespaces policy.Namespaces `json:"namespaces,omitzero"`
	// ExcludeOwnerKinds are kinds of owners, such as StatefulSet. A pod with an owner of one of them is not looked at.
	ExcludeOwnerKinds []string `json:"excludeOwnerKinds,omitzero"`
}

// Validate says what is wrong with the arguments; each error in it is a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("namespaces", a.Namespaces.Validate())
	found.Join("excludeOwnerKinds", lifecycle.ValidateKinds(a.ExcludeOwnerKinds))
	return found.Err()
}

// Decide returns the pods that should leave their nodes, by the names of the nodes and then in the order of
// [rank.Compare]. Those that stay are the ones that cost most to move.
//
// Each node may keep as many pods as it would have if they were spread evenly over the nodes that could run them,
// rounded up. Protected pods are not counted, except for those that only wait: see [counts].
func (a Args) Decide(scope schemas.WorkloadScope) []schemas.Intent {
	groups := map[string]*group{}
	for i := range scope.Pods {
		p := &scope.Pods[i]
		if !a.looksAt(&p.Pod) || !counts(p) {
			continue
		}
		key := images(&p.Pod)
		g := groups[key]
		if g == nil {
			g = &group{on: map[string][]*schemas.ScopedPod{}}
			groups[key] = g
		}
		g.add(p)
	}
	var leaving []move
	for _, g := range groups {
		leaving = append(leaving, g.leaving(scope.Nodes, owner(scope.Key))...)
	}
	slices.SortFunc(leaving, func(x, y move) int {
		return cmp.Or(cmp.Compare(x.pod.Pod.Spec.NodeName, y.pod.Pod.Spec.NodeName), rank.Compare(&x.pod.Pod, &y.pod.Pod))
	})
	intents := make([]schemas.Intent, len(leaving))
	for i, m := range leaving {
		intents[i] = m.pod.Move(m.reason)
	}
	return intents
}

// move is a pod that should leave, and why.
type move struct {
	pod    *schemas.ScopedPod
	reason string
}

func (a Args) looksAt(pod *corev1.Pod) bool {
	return len(pod.OwnerReferences) > 0 && !schemas.Ended(pod) && a.Namespaces.Has(pod.Namespace) &&
		!lifecycle.Owned(pod, a.ExcludeOwnerKinds)
}

// counts says whether the pod is one of the replicas that are to be spread: nothing protects it, or only that it is being
// deleted or too young. Without the latter two, the pods that were just moved, and then their replacements, would be
// missing in the number of replicas, and the pods that were to stay would be too many for the rest.
func counts(p *schemas.ScopedPod) bool {
	for _, protection := range p.Protected {
		if protection.Rule != policy.TerminatingPods && protection.Rule != policy.MinPodAgeRule {
			return false
		}
	}
	return true
}

// images are those of the pod's containers, without the init containers, whatever their order. No image contains a
// space.
func images(pod *corev1.Pod) string {
	list := make([]string, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		list[i] = pod.Spec.Containers[i].Image
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// owner is the owner in the key of a scope, in words: ReplicaSet api-5d9c7b8f6d.
func owner(key string) string {
	_, owner, _ := strings.Cut(key, "/")
	kind, name, _ := strings.Cut(owner, "/")
	return kind + " " + name
}

// group is the replicas that are alike.
type group struct {
	replicas int
	// on are those that may be moved, by their nodes.
	on map[string][]*schemas.ScopedPod
}

func (g *group) add(p *schemas.ScopedPod) {
	g.replicas++
	if placement.Movable(p) {
		node := p.Pod.Spec.NodeName
		g.on[node] = append(g.on[node], p)
	}
}

// leaving are the pods that are more on their node than it may keep, in no particular order.
func (g *group) leaving(nodes []schemas.NodeGroup, owner string) []move {
	var duplicates []*schemas.ScopedPod
	for _, pods := range g.on {
		slices.SortFunc(pods, func(x, y *schemas.ScopedPod) int { return rank.Compare(&x.Pod, &y.Pod) })
		duplicates = append(duplicates, pods[:len(pods)-1]...)
	}
	feasible := countNodes(nodes, duplicates)
	if feasible == 0 {
		return nil
	}
	most := (g.replicas + feasible - 1) / feasible
	var found []move
	for node, pods := range g.on {
		if len(pods) <= most {
			continue
		}
		reason := fmt.Sprintf("%d of %d pods of %s run on %s, where %d would do: %d nodes could run them",
			len(pods), g.replicas, owner, node, most, feasible)
		for _, p := range pods[:len(pods)-most] {
			found = append(found, move{p, reason})
		}
	}
	return found
}
