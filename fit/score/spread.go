package score

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/rehome-dev/rehome/fit"
)

// spread scores nodes by the topology spread constraints that may be violated. nil means the pod has none.
func spread(q *fit.Question, nodes []fit.Candidate, p *Profile) []int64 {
	constraints, siblings, all := p.softConstraints(q.Pod())
	if len(constraints) == 0 {
		return nil
	}
	counts, ok := q.Spread(constraints, siblings, all)
	if !ok {
		return nil
	}
	counted := make([]bool, len(nodes))
	domains := make([]map[string]bool, len(constraints))
	taking := 0
	for i := range nodes {
		if counted[i] = !all || hasTopologies(nodes[i].Node, constraints); !counted[i] {
			continue
		}
		taking++
		for c := range constraints {
			if key := constraints[c].TopologyKey; key != corev1.LabelHostname {
				if domains[c] == nil {
					domains[c] = map[string]bool{}
				}
				domains[c][nodes[i].Node.Labels[key]] = true // Nodes without the label are one domain, too.
			}
		}
	}
	scores := make([]int64, len(nodes))
	for i := range nodes {
		if !counted[i] {
			continue
		}
		sum := 0.0
		for c := range constraints {
			key := constraints[c].TopologyKey
			value, has := nodes[i].Node.Labels[key]
			if !has {
				continue
			}
			n, of := counts[c].InDomain[value], len(domains[c])
			if key == corev1.LabelHostname {
				n, of = counts[c].OnNode[nodes[i].Node.Name], taking
			}
			// The more domains there are, the more one pod weighs.
			sum += float64(n)*math.Log(float64(of+2)) + float64(constraints[c].MaxSkew-1)
		}
		scores[i] = int64(math.Round(sum))
	}
	normalize(scores, counted)
	return scores
}

// normalize reverses the scores and scales them to at most [best]: the node with the fewest pods gets the highest score, and a
// node that does not count gets 0.
func normalize(scores []int64, counted []bool) {
	lowest, highest := int64(math.MaxInt64), int64(0)
	for i, score := range scores {
		if counted[i] {
			lowest, highest = min(lowest, score), max(highest, score)
		}
	}
	for i, score := range scores {
		switch {
		case !counted[i]:
			scores[i] = 0
		case highest == 0:
			scores[i] = best
		default:
			scores[i] = best * (highest + lowest - score) / highest
		}
	}
}

// softConstraints returns the soft constraints of a pod. A pod without any constraint has the default ones, which count its
// siblings: the pods of the same controller. With all, a node without one of the topology keys gets the lowest score.
func (p *Profile) softConstraints(pod *corev1.Pod) (soft []corev1.TopologySpreadConstraint, siblings, all bool) {
	from := pod.Spec.TopologySpreadConstraints
	if siblings = len(from) == 0; siblings {
		if !spreads(metav1.GetControllerOfNoCopy(pod)) {
			return nil, true, false
		}
		from = p.Spread.DefaultConstraints
	}
	for i := range from {
		if from[i].WhenUnsatisfiable == corev1.ScheduleAnyway {
			soft = append(soft, from[i])
		}
	}
	return soft, siblings, !siblings || p.Spread.DefaultingType == config.ListDefaulting
}

// spreads reports whether the pods of a controller have the default constraints.
func spreads(controller *metav1.OwnerReference) bool {
	return controller != nil && slices.Contains([]string{"ReplicaSet", "StatefulSet", "ReplicationController"}, controller.Kind)
}

func hasTopologies(node *corev1.Node, constraints []corev1.TopologySpreadConstraint) bool {
	for i := range constraints {
		if _, has := node.Labels[constraints[i].TopologyKey]; !has {
			return false
		}
	}
	return true
}
