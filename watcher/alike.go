package watcher

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/schemas"
)

// alike puts nodes into groups with the same taints and the same values of the labels that are asked for. The groups are
// in the order of their first names.
func alike(nodes map[string]*corev1.Node, asked []string) []schemas.NodeGroup {
	byLooks := map[string]*schemas.NodeGroup{}
	var looks strings.Builder
	for name, n := range nodes {
		looks.Reset()
		for _, key := range asked {
			if value, has := n.Labels[key]; has {
				looks.WriteString(key + "=" + value + "\x00")
			}
		}
		for i := range n.Spec.Taints {
			if t := &n.Spec.Taints[i]; fit.KeepsAway(t) {
				looks.WriteString("\x00" + t.Key + "\x00" + t.Value + "\x00" + string(t.Effect))
			}
		}
		g := byLooks[looks.String()]
		if g == nil {
			g = newNodeGroup(n, asked)
			byLooks[looks.String()] = g
		}
		g.Names = append(g.Names, name)
	}
	groups := make([]schemas.NodeGroup, 0, len(byLooks))
	for _, g := range byLooks {
		slices.Sort(g.Names)
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b schemas.NodeGroup) int { return strings.Compare(a.Names[0], b.Names[0]) })
	return groups
}

// newNodeGroup is the group of nodes that look like n, without names.
func newNodeGroup(n *corev1.Node, asked []string) *schemas.NodeGroup {
	var g schemas.NodeGroup
	for _, key := range asked {
		if value, has := n.Labels[key]; has {
			if g.Labels == nil {
				g.Labels = map[string]string{}
			}
			g.Labels[key] = value
		}
	}
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; fit.KeepsAway(t) {
			g.Taints = append(g.Taints, *t)
		}
	}
	return &g
}

// askedLabels are the keys that the node selector or the required node affinity of one of the pods names, sorted.
func askedLabels(pods []*corev1.Pod) []string {
	asked := map[string]bool{}
	for _, p := range pods {
		for key := range p.Spec.NodeSelector {
			asked[key] = true
		}
		if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
			continue
		}
		required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if required == nil {
			continue
		}
		for _, term := range required.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				asked[e.Key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(asked))
}

// namespaceOf and topologyKeyOf read the key of a spread scope.
func namespaceOf(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

func topologyKeyOf(key string) string {
	_, rest, _ := strings.Cut(key, "/")
	if i := strings.LastIndex(rest, "/"); i >= 0 {
		return rest[:i]
	}
	return rest
}
