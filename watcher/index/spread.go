package index

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// spread is the group of one constraint.
type spread struct {
	constraint
	unrest
	*placement // shared with the groups that count the same nodes
	carriers   int
	// pods are those that are counted, by the value.
	pods map[string]map[types.UID]*corev1.Pod
}

// count counts a pod where it is, and says whether the group concerns it.
func (g *spread) count(m Member) bool {
	value, has := m.Node.Labels[g.spec.TopologyKey]
	if !g.counts(m.Pod) || !has {
		return false
	}
	if g.pods[value] == nil {
		g.pods[value] = map[types.UID]*corev1.Pod{}
	}
	g.pods[value][m.Pod.UID] = m.Pod
	return true
}

func (g *spread) uncount(m Member) bool {
	value, has := m.Node.Labels[g.spec.TopologyKey]
	if !g.counts(m.Pod) || !has {
		return false
	}
	delete(g.pods[value], m.Pod.UID)
	if len(g.pods[value]) == 0 {
		delete(g.pods, value)
	}
	return true
}

// counts says whether the constraint counts a pod. One that is being deleted is on its way out.
func (g *spread) counts(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && g.selector.Matches(labels.Set(p.Labels))
}

// skewed says whether the domains differ by more than the constraint allows.
func (g *spread) skewed() bool {
	least, most := -1, 0
	consider := func(n int) {
		if least < 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	for value := range g.eligible {
		consider(len(g.pods[value]))
	}
	for value, pods := range g.pods {
		if g.eligible[value] == 0 {
			consider(len(pods))
		}
	}
	if least < 0 {
		return false
	}
	if g.spec.MinDomains != nil && len(g.eligible) < int(*g.spec.MinDomains) {
		least = 0
	}
	return most-least > int(g.spec.MaxSkew)
}

func (g *spread) sorted(value string) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(g.pods[value]))
	for _, p := range g.pods[value] {
		pods = append(pods, p)
	}
	sortPods(pods)
	return pods
}
