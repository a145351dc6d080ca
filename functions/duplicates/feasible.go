package duplicates

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/functions/placement"
	"github.com/rehome-dev/rehome/schemas"
)

// countNodes says how many nodes could run at least one of the pods, by the nodes' taints and by what the pods say about
// nodes. A pod that only one node could run does not count, since it could not move; so the answer is none or at least two.
// What the nodes have room for does not count either.
func countNodes(nodes []schemas.NodeGroup, pods []*schemas.ScopedPod) int {
	all := 0
	for i := range nodes {
		all += len(nodes[i].Names)
	}
	union, feasible := make([]bool, all), 0
	var seen []demand
	for _, p := range pods {
		d := demandOf(&p.Pod)
		if feasible == all {
			break
		}
		if slices.ContainsFunc(seen, func(s demand) bool { return reflect.DeepEqual(s, d) }) {
			continue
		}
		seen = append(seen, d)
		found := d.nodes(nodes)
		if len(found) < 2 {
			continue
		}
		for _, at := range found {
			if !union[at] {
				union[at] = true
				feasible++
			}
		}
	}
	return feasible
}

// demand is what a pod says about nodes. The pods of one owner most often say the same.
type demand struct {
	tolerations []corev1.Toleration
	selector    map[string]string
	required    *corev1.NodeSelector
}

func demandOf(pod *corev1.Pod) demand {
	d := demand{tolerations: pod.Spec.Tolerations, selector: pod.Spec.NodeSelector}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		d.required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return d
}

// nodes are the nodes that meet the demand, by their positions when the names of all groups are written one after the
// other.
func (d demand) nodes(groups []schemas.NodeGroup) []int {
	affinity := nodeaffinity.NewRequiredNodeAffinity(d.selector,
		&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: d.required}})
	byName := d.asksForNames()
	var found []int
	first := 0
	for i := range groups {
		g := &groups[i]
		if d.tolerates(g.Taints) {
			meets := false
			for j, name := range g.Names {
				if j == 0 || byName {
					meets = matches(affinity, g.Labels, name)
				}
				if meets {
					found = append(found, first+j)
				}
			}
		}
		first += len(g.Names)
	}
	return found
}

// matches says whether the scheduler would place the pod on a node with these labels and this name, as far as its node
// selector and its node affinity go. One that cannot be read matches no node, as for the scheduler.
func matches(affinity nodeaffinity.RequiredNodeAffinity, labels map[string]string, name string) bool {
	match, err := affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	return err == nil && match
}

func (d demand) tolerates(taints []corev1.Taint) bool {
	for i := range taints {
		if !placement.Tolerates(d.tolerations, &taints[i]) {
			return false
		}
	}
	return true
}

// asksForNames says whether nodes that look alike can differ in whether they meet the demand.
func (d demand) asksForNames() bool {
	return d.required != nil && slices.ContainsFunc(d.required.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchFields) > 0
	})
}
