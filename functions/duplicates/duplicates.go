// Package duplicates is the strategy RemoveDuplicates: it moves replicas of one owner that share a node, if other nodes
// could run them.
//
// Two pods are duplicates if they have the same owner, the same container images, and the same node.
package duplicates

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. The zero value considers the pods of every owner.
type Args struct {
	Namespaces policy.Namespaces `json:"namespaces,omitzero"`
	// ExcludeOwnerKinds are kinds of owners, such as StatefulSet. Pods with such an owner are ignored.
	ExcludeOwnerKinds []string `json:"excludeOwnerKinds,omitzero"`
}

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("namespaces", a.Namespaces.Validate())
	found.Join("excludeOwnerKinds", candidate.ValidateKinds(a.ExcludeOwnerKinds))
	return found.Err()
}

// Decide returns the pods that should leave their nodes, by node and then in the order of [candidate.Compare]: the most
// expensive pods stay.
//
// Each node may keep its even share of the pods, rounded up, among the nodes that could run them. Most protected pods
// are not counted: see [counts].
func (a Args) Decide(scope schemas.WorkloadScope) []schemas.Intent {
	groups := map[string]*group{}
	for i := range scope.Pods {
		p := &scope.Pods[i]
		if !a.considers(&p.Pod) || !counts(p) || schemas.Stuck(&p.Pod, scope.Now) {
			continue
		}
		key := images(&p.Pod)
		g := groups[key]
		if g == nil {
			g = &group{running: map[string]int{}, on: map[string][]*schemas.ScopedPod{}}
			groups[key] = g
		}
		g.add(p)
	}
	var leaving []candidate.Move
	for _, g := range groups {
		leaving = append(leaving, g.leaving(scope.Nodes, owner(scope.Key))...)
	}
	return candidate.Intents(leaving)
}

func (a Args) considers(pod *corev1.Pod) bool {
	return len(pod.OwnerReferences) > 0 && !schemas.Ended(pod) && a.Namespaces.Has(pod.Namespace) &&
		!candidate.Owned(pod, a.ExcludeOwnerKinds)
}

// counts reports whether the pod is one of the replicas to spread: nothing protects it, or only that it is terminating,
// too young, or fits nowhere else. Otherwise the pods that were just moved, and then their replacements, would be
// missing in the number of replicas, and too many others would move.
func counts(p *schemas.ScopedPod) bool {
	for _, protection := range p.Protected {
		if !slices.Contains([]string{policy.TerminatingPods, policy.MinPodAgeRule, policy.NodeFitRule}, protection.Rule) {
			return false
		}
	}
	return true
}

// images returns the sorted images of the containers, without init containers. No image contains a space.
func images(pod *corev1.Pod) string {
	list := make([]string, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		list[i] = pod.Spec.Containers[i].Image
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// owner returns the owner in the key of a scope, such as "ReplicaSet api-5d9c7b8f6d".
func owner(key string) string {
	_, owner, _ := strings.Cut(key, "/")
	kind, name, _ := strings.Cut(owner, "/")
	return kind + " " + name
}

// group has the replicas with the same images.
type group struct {
	replicas int
	// running is the number of replicas by node, without those that are being deleted.
	running map[string]int
	// on are the movable replicas by node.
	on map[string][]*schemas.ScopedPod
}

func (g *group) add(p *schemas.ScopedPod) {
	g.replicas++
	node := p.Pod.Spec.NodeName
	if p.Pod.DeletionTimestamp == nil {
		g.running[node]++
	}
	if candidate.Movable(p) {
		g.on[node] = append(g.on[node], p)
	}
}

// leaving returns the pods beyond what their nodes may keep, in no particular order.
func (g *group) leaving(nodes []schemas.NodeGroup, owner string) []candidate.Move {
	var duplicates []*schemas.ScopedPod
	for _, pods := range g.on {
		slices.SortFunc(pods, func(x, y *schemas.ScopedPod) int { return candidate.Compare(&x.Pod, &y.Pod) })
		duplicates = append(duplicates, pods[:len(pods)-1]...)
	}
	feasible := countNodes(nodes, duplicates)
	if feasible == 0 {
		return nil
	}
	most := (g.replicas + feasible - 1) / feasible
	var found []candidate.Move
	for node, pods := range g.on {
		if len(pods) <= most {
			continue
		}
		reason := fmt.Sprintf("%d of %d pods of %s run on %s, where at most %d should: %d nodes could run them",
			g.running[node], g.replicas, owner, node, most, feasible)
		for _, p := range pods[:len(pods)-most] {
			found = append(found, candidate.Move{Pod: p, Reason: reason})
		}
	}
	return found
}
