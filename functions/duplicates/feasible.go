package duplicates

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/schemas"
)

// countNodes returns the number of nodes that could run at least one of the pods, by taints, node selectors, and node
// affinity, regardless of capacity. A pod that only one node could run cannot move and does not count: the answer is 0
// or at least 2.
func countNodes(nodes []schemas.NodeGroup, pods []*schemas.ScopedPod) int {
	feasible := map[string]bool{}
	var seen []constraints
	for _, p := range pods {
		c := constraintsOf(&p.Pod)
		if slices.ContainsFunc(seen, func(s constraints) bool { return reflect.DeepEqual(s, c) }) {
			continue
		}
		seen = append(seen, c)
		if found := c.nodes(nodes); len(found) > 1 {
			for _, name := range found {
				feasible[name] = true
			}
		}
	}
	return len(feasible)
}

// constraints are the requirements of a pod on nodes. The pods of one owner usually have the same.
type constraints struct {
	tolerations []corev1.Toleration
	selector    map[string]string
	required    *corev1.NodeSelector
}

func constraintsOf(pod *corev1.Pod) constraints {
	c := constraints{tolerations: pod.Spec.Tolerations, selector: pod.Spec.NodeSelector}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		c.required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return c
}

// nodes returns the names of the nodes that meet the constraints.
func (c constraints) nodes(groups []schemas.NodeGroup) []string {
	affinity := nodeaffinity.NewRequiredNodeAffinity(c.selector,
		&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: c.required}})
	byName := c.required != nil && slices.ContainsFunc(c.required.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchFields) > 0
	})
	var found []string
	for _, g := range groups {
		if !candidate.ToleratesAll(c.tolerations, g.Taints) {
			continue
		}
		meets := false
		for j, name := range g.Names {
			if j == 0 || byName { // otherwise the nodes of a group are alike
				meets = matches(affinity, g.Labels, name)
			}
			if meets {
				found = append(found, name)
			}
		}
	}
	return found
}

// matches reports whether a node with these labels and this name matches. An invalid affinity matches no node, as for the
// scheduler.
func matches(affinity nodeaffinity.RequiredNodeAffinity, labels map[string]string, name string) bool {
	match, err := affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	return err == nil && match
}
